"""Reductions of N critics to one target or one value: over all of them, or over M drawn for each update (REDQ, Chen et
al. 2021, arXiv 2101.05982).

A reduction is "min"; "mean"; "index_min", the critic with the lowest Q in each entry; or "own", where every critic
keeps its own target.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from tfsac.losses.soft_actor_critic import assert_shapes


def draw_critics(uniform_N: Tensor, size: int) -> Tensor:
    """Returns the indices of M of N critics, `[M]`, drawn without replacement: all subsets are equally likely.

    Args:
        uniform_N: independent uniform numbers.
        size: M.
    """
    assert_shapes(uniform=(uniform_N, "N"))
    return tf.argsort(uniform_N)[:size]


def reduce_q(q: Tensor, reduction: str) -> Tensor:
    """Returns one Q per entry, `[B]`, by "min", "mean" or "index_min" (here the same as "min"); `[B, N]` by "own". For
    Q `[B, N, K]` of several actions it returns `[B, K]`.
    """
    assert_shapes(q=(q, "BNK"[: max(q.shape.rank, 2)]))
    if reduction in ("min", "index_min"):
        return tf.reduce_min(q, axis=1)
    if reduction == "mean":
        return tf.reduce_mean(q, axis=1)
    return q


def reduce_distributions(values_BNK: Tensor, q_BN: Tensor, reduction: str) -> Tensor:
    """Returns one distribution per entry, `[B, K]`, by "index_min" or "mean"; `[B, N, K]` by "own".

    Args:
        values_BNK: probabilities of atoms, or quantiles, whose mean is taken index by index.
        q_BN: means of the distributions; "index_min" takes the first of equally low ones.
        reduction: see the module's docstring.
    """
    assert_shapes(values=(values_BNK, "BNK"), q=(q_BN, "BN"))
    if reduction == "index_min":
        return tf.gather(values_BNK, tf.argmin(q_BN, axis=-1), axis=1, batch_dims=1)
    if reduction == "mean":
        return tf.reduce_mean(values_BNK, axis=1)
    return values_BNK


def soft_target(
    reward_B: Tensor, discount_B: Tensor, next_value: Tensor, next_log_prob_B: Tensor, alpha: Any
) -> Tensor:
    """Returns `r + discount * (value(s', a') - alpha log pi(a'|s'))` without gradient, of the shape of the values
    (2101.05982, algorithm 1).

    Args:
        reward_B, discount_B: scaled reward; gamma^n * (1 - terminated).
        next_value: `[B]`; for several critics or quantiles, `[B, M]` or `[B, N, M]`.
        next_log_prob_B: log density of a'.
        alpha: temperature, a scalar; 0 leaves the entropy out of the target.
    """
    dimensions = "BNM"[: next_value.shape.rank]
    assert_shapes(reward=(reward_B, "B"), discount=(discount_B, "B"), next_log_prob=(next_log_prob_B, "B"))
    assert_shapes(reward=(reward_B, "B"), next_value=(next_value, dimensions), alpha=(alpha, ""))
    reward, discount, log_prob = (
        tf.reshape(x_B, [-1] + [1] * (len(dimensions) - 1)) for x_B in (reward_B, discount_B, next_log_prob_B)
    )
    return tf.stop_gradient(reward + discount * (next_value - alpha * log_prob))
