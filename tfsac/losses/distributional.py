"""Losses of critics that predict a distribution of returns: categorical over fixed atoms (C51, Bellemare et al. 2017,
arXiv 1707.06887), or quantiles (QR-DQN, Dabney et al. 2018, arXiv 1710.10044; TQC, Kuznetsov et al. 2020, arXiv
2005.04269).

Everything is computed in float32, whatever the networks compute in. Sums over atoms are no products of matrices, which
some devices round to fewer digits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow import Tensor

from tfsac.losses.checks import assert_shapes


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
        """Distance of two atoms."""
        return (self.high - self.low) / (self.size - 1)

    def atoms(self) -> Tensor:
        """Returns the atoms, `[K]`."""
        return tf.constant([self.low + k * self.width for k in range(self.size)], tf.float32)


def expected_value(prob: Tensor, support: Support) -> Tensor:
    """Returns `sum_k p_k z_k` of distributions `[B, K]` or `[B, N, K]`: `[B]` or `[B, N]`.

    Raises:
        ValueError: wrong rank or number of atoms.
    """
    atoms_K = support.atoms()
    assert_shapes(atoms=(atoms_K, "K"), prob=(prob, "BNK" if prob.shape.rank == 3 else "BK"))
    return tf.reduce_sum(tf.cast(prob, tf.float32) * atoms_K, axis=-1)


def q_of_logits(logits_BNK: Tensor, support: Support) -> Tensor:
    """Returns Q of N categorical critics, `[B, N]`: the mean of their distributions.

    Raises:
        ValueError: wrong rank or number of atoms.
    """
    assert_shapes(logits=(logits_BNK, "BNK"))
    return expected_value(tf.nn.softmax(tf.cast(logits_BNK, tf.float32)), support)


def target_positions(
    reward_B: Tensor, discount_B: Tensor, next_log_prob_B: Tensor, alpha: Any, support: Support
) -> Tensor:
    """Returns where `r + discount * (z_j - alpha log pi(a'|s'))` lies among the atoms, `[B, K]`: k on atom k, and below
    0 or above K - 1 outside of them (1707.06887, algorithm 1, with the entropy inside).

    It is computed in units of atoms: a shift by whole atoms is then exact.

    Args:
        reward_B, discount_B: after scaling; and gamma^n * (1 - terminated).
        next_log_prob_B: log density of a'.
        alpha: temperature, a scalar; 0 leaves the entropy out of the target.
        support: of the critics.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    assert_shapes(reward=(reward_B, "B"), discount=(discount_B, "B"), next_log_prob=(next_log_prob_B, "B"))
    assert_shapes(alpha=(alpha, ""))
    reward_B, discount_B, log_prob_B = (tf.cast(x_B, tf.float32) for x_B in (reward_B, discount_B, next_log_prob_B))
    first_B = reward_B - discount_B * tf.cast(alpha, tf.float32) * log_prob_B + (discount_B - 1.0) * support.low
    return first_B[:, None] / support.width + discount_B[:, None] * tf.range(support.size, dtype=tf.float32)


def projected_target(next_prob: Tensor, position_BK: Tensor) -> Tensor:
    """Returns the probabilities of the atoms, each moved to its position and shared by its two neighbours, without
    gradient (1707.06887, equation 7): `t_k = sum_j p_j max(0, 1 - |position_j - k|)`.

    Args:
        next_prob: of one distribution `[B, K]` or of N, `[B, N, K]`.
        position_BK: see `target_positions`; those outside of the atoms count as the first or the last one.

    Returns:
        Distributions of the shape of `next_prob`.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    several = next_prob.shape.rank == 3
    assert_shapes(position=(position_BK, "BK"), next_prob=(next_prob, "BNK" if several else "BK"))
    shared_BJK = _between_neighbours(position_BK, position_BK.shape[-1])
    moved = tf.cast(next_prob, tf.float32)[..., None] * (shared_BJK[:, None] if several else shared_BJK)
    return tf.stop_gradient(tf.reduce_sum(moved, axis=-2))


def _between_neighbours(position: Tensor, size: int) -> Tensor:
    """Returns the parts of the K atoms in each position, `[..., K]`: all of the nearest one, or of the nearest two."""
    inside = tf.clip_by_value(tf.cast(position, tf.float32), 0.0, size - 1.0)
    return tf.nn.relu(1.0 - tf.abs(inside[..., None] - tf.range(size, dtype=tf.float32)))


def clipped_mass(next_prob: Tensor, position_BK: Tensor) -> Tensor:
    """Returns the probability beyond the first and the last atom, which a projection clips: `[B]`, or `[B, N]`.

    Args:
        next_prob, position_BK: see `projected_target`.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    several = next_prob.shape.rank == 3
    assert_shapes(position=(position_BK, "BK"), next_prob=(next_prob, "BNK" if several else "BK"))
    outside_BK = tf.cast((position_BK < 0.0) | (position_BK > position_BK.shape[-1] - 1.0), tf.float32)
    return tf.reduce_sum(tf.cast(next_prob, tf.float32) * (outside_BK[:, None] if several else outside_BK), axis=-1)


def two_hot(value_B: Tensor, support: Support) -> Tensor:
    """Returns the distribution `[B, K]` over the two atoms beside a value, whose mean it is; outside of them, the end.

    Raises:
        ValueError: wrong rank.
    """
    assert_shapes(value=(value_B, "B"))
    return _between_neighbours((tf.cast(value_B, tf.float32) - support.low) / support.width, support.size)


def cross_entropy(logits_BNK: Tensor, target: Tensor) -> Tensor:
    """Returns `-sum_k sg(t_k) log p_k` of every critic, `[B, N]` (1707.06887, section 4).

    Args:
        logits_BNK: of the critics.
        target: distributions `[B, K]`, or `[B, N, K]` where every critic has its own.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    several = target.shape.rank == 3
    assert_shapes(logits=(logits_BNK, "BNK"), target=(target, "BNK" if several else "BK"))
    target = tf.stop_gradient(tf.cast(target, tf.float32))
    log_prob_BNK = tf.nn.log_softmax(tf.cast(logits_BNK, tf.float32))
    return -tf.reduce_sum((target if several else target[:, None]) * log_prob_BNK, axis=-1)


def q_of_quantiles(quantiles_BNK: Tensor) -> Tensor:
    """Returns Q of N quantile critics, `[B, N]`: the mean of their quantiles (1710.10044, equation 4).

    Raises:
        ValueError: wrong rank.
    """
    assert_shapes(quantiles=(quantiles_BNK, "BNK"))
    return tf.reduce_mean(tf.cast(quantiles_BNK, tf.float32), axis=-1)


def pooled_quantiles(next_quantiles_BNK: Tensor, drop_per_critic: int) -> Tensor:
    """Returns the `N * (K - drop)` smallest quantiles of all critics together, `[B, N * (K - drop)]`, in ascending
    order (2005.04269, section 4.3).

    Args:
        next_quantiles_BNK: of the target critics.
        drop_per_critic: how many times N of the largest are left out, which lowers the estimate.

    Raises:
        ValueError: wrong rank, or nothing that is kept.
    """
    assert_shapes(next_quantiles=(next_quantiles_BNK, "BNK"))
    critics, size = next_quantiles_BNK.shape[1:]
    if not 0 <= drop_per_critic < size:
        raise ValueError(f"Of {size} quantiles at least one of each critic is kept. Received: drop {drop_per_critic}")
    pool = tf.reshape(tf.cast(next_quantiles_BNK, tf.float32), [-1, critics * size])
    return tf.sort(pool, axis=-1)[:, : critics * (size - drop_per_critic)]


def quantile_huber(quantiles_BNK: Tensor, target: Tensor) -> Tensor:
    """Returns `mean_{k,m} |tau_k - 1{e < 0}| huber(e)` with `e = y_m - Q_k` of every critic, `[B, N]` (1710.10044,
    equation 10, bound 1).

    Args:
        quantiles_BNK: at the fractions `tau_k = (k + 1/2) / K`.
        target: y, M samples of the target `[B, M]`, or `[B, N, M]` where every critic has its own.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    several = target.shape.rank == 3
    assert_shapes(quantiles=(quantiles_BNK, "BNK"), target=(target, "BNM" if several else "BM"))
    target = tf.stop_gradient(tf.cast(target, tf.float32))
    # One critic after the other: the pairs of quantiles of all critics do not fit into a core's cache.
    critics = tf.unstack(tf.cast(quantiles_BNK, tf.float32), axis=1)
    targets = tf.unstack(target, axis=1) if several else [target] * len(critics)
    return tf.stack([_quantile_huber(*pair) for pair in zip(critics, targets, strict=True)], axis=1)


def _quantile_huber(quantiles_BK: Tensor, target_BM: Tensor) -> Tensor:
    """Returns the rows `[B]` of one critic; see `quantile_huber`."""
    size = quantiles_BK.shape[-1]
    tau_K1 = (tf.range(size, dtype=tf.float32)[:, None] + 0.5) / size
    error_BKM = target_BM[:, None] - quantiles_BK[..., None]
    # huber(e) is c (e - c / 2) with c = clip(e, -1, 1), and its slope is c: it takes one pass instead of many.
    slope_BKM = tf.stop_gradient(tf.clip_by_value(error_BKM, -1.0, 1.0))
    weighted_BKM = tf.stop_gradient(tf.where(error_BKM < 0.0, 1.0 - tau_K1, tau_K1) * slope_BKM)
    return tf.reduce_mean(weighted_BKM * (error_BKM - 0.5 * slope_BKM), axis=[-2, -1])
