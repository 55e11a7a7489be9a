"""Losses of critics that predict a distribution of returns: categorical over fixed atoms (C51, Bellemare et al. 2017,
arXiv 1707.06887), or quantiles (QR-DQN, Dabney et al. 2018, arXiv 1710.10044; TQC, Kuznetsov et al. 2020, arXiv
2005.04269). `critics.py` selects which critics use them.

Everything is computed in float32, or in float64 if the first tensor has that type: networks may compute in bfloat16.
Sums over atoms are not matrix products, which some devices round to fewer digits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow import Tensor

from tfsac.losses.soft_actor_critic import assert_shapes


class Support(NamedTuple):
    """The K atoms `z_k = low + k * width` of categorical critics.

    Attributes:
        low, high: the first and the last atom, in units of the scaled return.
        size: K, at least 2.
    """

    low: float
    high: float
    size: int

    @property
    def width(self) -> float:
        """Distance between adjacent atoms."""
        return (self.high - self.low) / (self.size - 1)

    def atoms(self, dtype: tf.DType = tf.float32) -> Tensor:
        """Returns the atoms, `[K]`."""
        return tf.constant([self.low + k * self.width for k in range(self.size - 1)] + [self.high], dtype)


def expected_value(prob: Tensor, support: Support) -> Tensor:
    """Returns `sum_k p_k z_k` of distributions `[B, K]` or `[B, N, K]`: `[B]` or `[B, N]`."""
    prob = _precise(prob)
    atoms_K = support.atoms(prob.dtype)
    assert_shapes(atoms=(atoms_K, "K"), prob=(prob, "BNK" if prob.shape.rank == 3 else "BK"))
    return tf.reduce_sum(prob * atoms_K, axis=-1)


def q_of_logits(logits_BNK: Tensor, support: Support) -> Tensor:
    """Returns Q of N categorical critics, `[B, N]`: the mean of their distributions."""
    assert_shapes(logits=(logits_BNK, "BNK"))
    return expected_value(tf.nn.softmax(_precise(logits_BNK)), support)


def target_positions(
    reward_B: Tensor, discount_B: Tensor, next_log_prob_B: Tensor, alpha: Any, support: Support
) -> Tensor:
    """Returns where `r + discount * (z_j - alpha log pi(a'|s'))` lies among the atoms, `[B, K]`: k on atom k, and below
    0 or above K - 1 outside of them (1707.06887, algorithm 1, with the entropy inside).

    It is computed in units of atoms: a shift by whole atoms is then exact.

    Args:
        reward_B, discount_B: scaled reward; gamma^n * (1 - terminated).
        next_log_prob_B: log density of a'.
        alpha: temperature, a scalar; 0 leaves the entropy out of the target.
        support: the critics' support.
    """
    assert_shapes(reward=(reward_B, "B"), discount=(discount_B, "B"), next_log_prob=(next_log_prob_B, "B"))
    assert_shapes(alpha=(alpha, ""))
    reward_B = _precise(reward_B)
    discount_B, log_prob_B, alpha = _alike(reward_B, discount_B, next_log_prob_B, alpha)
    first_B = reward_B - discount_B * alpha * log_prob_B + (discount_B - 1.0) * support.low
    return first_B[:, None] / support.width + discount_B[:, None] * tf.range(support.size, dtype=reward_B.dtype)


def projected_target(next_prob: Tensor, position_BK: Tensor) -> Tensor:
    """Returns the probabilities after moving each atom to its position and splitting it between its two neighbours,
    without gradient (1707.06887, equation 7): `t_k = sum_j p_j max(0, 1 - |position_j - k|)`.

    Args:
        next_prob: probabilities of one distribution `[B, K]`, or of N, `[B, N, K]`.
        position_BK: see `target_positions`; those outside the atoms count as the first or the last one.

    Returns:
        Distributions with the shape of `next_prob`.
    """
    next_prob = _precise(next_prob)
    several = next_prob.shape.rank == 3
    assert_shapes(position=(position_BK, "BK"), next_prob=(next_prob, "BNK" if several else "BK"))
    size, (position_BK,) = position_BK.shape[-1], _alike(next_prob, position_BK)
    inside_BJ = tf.clip_by_value(position_BK, 0.0, size - 1.0)
    part_BJK = tf.nn.relu(1.0 - tf.abs(inside_BJ[..., None] - tf.range(size, dtype=next_prob.dtype)))
    moved = next_prob[..., None] * (part_BJK[:, None] if several else part_BJK)
    return tf.stop_gradient(tf.reduce_sum(moved, axis=-2))


def clipped_mass(
    next_prob: Tensor, reward_B: Tensor, discount_B: Tensor, next_log_prob_B: Tensor, alpha: Any, support: Support
) -> Tensor:
    """Returns the probability that `r + discount * (z_j - alpha log pi(a'|s'))` is beyond the first or the last atom,
    which a projection clips: `[B]`, or `[B, N]`.

    The comparison is in float64, so that rounding does not move a target on the last atom beyond it.

    Args:
        next_prob: see `projected_target`.
        reward_B, discount_B, next_log_prob_B, alpha, support: see `target_positions`.
    """
    next_prob = _precise(next_prob)
    several = next_prob.shape.rank == 3
    atoms_K = support.atoms(tf.float64)
    assert_shapes(reward=(reward_B, "B"), discount=(discount_B, "B"), next_log_prob=(next_log_prob_B, "B"))
    assert_shapes(reward=(reward_B, "B"), atoms=(atoms_K, "K"), next_prob=(next_prob, "BNK" if several else "BK"))
    assert_shapes(alpha=(alpha, ""))
    # A reward equal to the last atom may itself be rounded.
    low, high = _alike(atoms_K, *tf.unstack(tf.constant([support.low, support.high], _precise(reward_B).dtype)))
    low, high = tf.minimum(low, support.low), tf.maximum(high, support.high)
    reward_B, discount_B, log_prob_B, alpha = _alike(atoms_K, reward_B, discount_B, next_log_prob_B, alpha)
    value_BK = reward_B[:, None] + discount_B[:, None] * (atoms_K - alpha * log_prob_B[:, None])
    outside_BK = tf.cast((value_BK < low) | (value_BK > high), next_prob.dtype)
    return tf.reduce_sum(next_prob * (outside_BK[:, None] if several else outside_BK), axis=-1)


def cross_entropy(logits_BNK: Tensor, target: Tensor) -> Tensor:
    """Returns `-sum_k sg(t_k) log p_k` of every critic, `[B, N]` (1707.06887, section 4).

    Args:
        logits_BNK: the critics' outputs.
        target: distributions `[B, K]`, or `[B, N, K]` where every critic has its own.
    """
    log_prob_BNK = tf.nn.log_softmax(_precise(logits_BNK))
    (target,) = _alike(log_prob_BNK, target)
    several = target.shape.rank == 3
    assert_shapes(logits=(logits_BNK, "BNK"), target=(target, "BNK" if several else "BK"))
    target = tf.stop_gradient(target)
    return -tf.reduce_sum((target if several else target[:, None]) * log_prob_BNK, axis=-1)


def q_of_quantiles(quantiles_BNK: Tensor) -> Tensor:
    """Returns Q of N quantile critics, `[B, N]`: the mean of their quantiles (1710.10044, equation 4)."""
    assert_shapes(quantiles=(quantiles_BNK, "BNK"))
    return tf.reduce_mean(_precise(quantiles_BNK), axis=-1)


def pooled_quantiles(next_quantiles_BNK: Tensor, drop_per_critic: int) -> Tensor:
    """Returns the `N * (K - drop)` smallest quantiles of all critics together, `[B, N * (K - drop)]`, in ascending
    order (2005.04269, section 4.3).

    Args:
        next_quantiles_BNK: quantiles of the target critics.
        drop_per_critic: N times this many of the largest are dropped, which lowers the estimate.
    """
    assert_shapes(next_quantiles=(next_quantiles_BNK, "BNK"))
    critics, size = next_quantiles_BNK.shape[1:]
    pool = tf.reshape(_precise(next_quantiles_BNK), [-1, critics * size])
    return tf.sort(pool, axis=-1)[:, : critics * (size - drop_per_critic)]


def quantile_huber(quantiles_BNK: Tensor, target: Tensor) -> Tensor:
    """Returns `mean_{k,m} |tau_k - 1{e < 0}| huber(e)` with `e = y_m - Q_k` of every critic, `[B, N]` (1710.10044,
    equation 10, bound 1).

    Args:
        quantiles_BNK: at the fractions `tau_k = (k + 1/2) / K`.
        target: y, M samples of the target `[B, M]`, or `[B, N, M]` where every critic has its own.
    """
    quantiles_BNK = _precise(quantiles_BNK)
    (target,) = _alike(quantiles_BNK, target)
    several = target.shape.rank == 3
    assert_shapes(quantiles=(quantiles_BNK, "BNK"), target=(target, "BNM" if several else "BM"))
    target = tf.stop_gradient(target)
    # One critic after the other: the pairs of quantiles of all critics do not fit into a core's cache.
    critics = tf.unstack(quantiles_BNK, axis=1)
    targets = tf.unstack(target, axis=1) if several else [target] * len(critics)
    return tf.stack([_quantile_huber(*pair) for pair in zip(critics, targets, strict=True)], axis=1)


def _quantile_huber(quantiles_BK: Tensor, target_BM: Tensor) -> Tensor:
    """Returns the loss `[B]` of one critic; see `quantile_huber`."""
    size = quantiles_BK.shape[-1]
    tau_K1 = (tf.range(size, dtype=quantiles_BK.dtype)[:, None] + 0.5) / size
    error_BKM = target_BM[:, None] - quantiles_BK[..., None]
    # huber(e) is c (e - c / 2) with c = clip(e, -1, 1), and its slope is c: it takes one pass instead of many.
    slope_BKM = tf.stop_gradient(tf.clip_by_value(error_BKM, -1.0, 1.0))
    weighted_BKM = tf.stop_gradient(tf.where(error_BKM < 0.0, 1.0 - tau_K1, tau_K1) * slope_BKM)
    return tf.reduce_mean(weighted_BKM * (error_BKM - 0.5 * slope_BKM), axis=[-2, -1])


def _precise(x: Any) -> Tensor:
    """Returns a tensor in float64 if it has that type, otherwise in float32."""
    x = tf.convert_to_tensor(x)
    return x if x.dtype == tf.float64 else tf.cast(x, tf.float32)


def _alike(x: Tensor, *others: Any) -> list[Tensor]:
    """Casts tensors and numbers to the dtype of `x`."""
    return [tf.cast(tf.convert_to_tensor(other, dtype_hint=x.dtype), x.dtype) for other in others]
