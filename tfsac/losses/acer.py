"""Losses of actor-critic with experience replay (Wang et al. 2017, arXiv 1611.01224).

Returns run along time, `[T, B]`; everything else is per step, `[R]`, R = T * B. The agent weights and adds the steps.
Density ratios are computed from log-probabilities, and no gradient flows through them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from tensorflow import Tensor

from tfsac.losses.soft_actor_critic import assert_shapes

LOG_RATIO_MAX = 40.0  # e^40 is far beyond any threshold, and finite in products


class Returns(NamedTuple):
    """Targets of Q along time, `[T, B]`: Retrace's, and those without importance weights."""

    q_ret: Tensor
    q_opc: Tensor


class Constrained(NamedTuple):
    """A policy loss inside the trust region.

    Attributes:
        direction: z, `[R, S]`, the gradient that the statistics get; zeros without a trust region.
        kl: KL(average || policy), `[R]`.
        factor: how much of the divergence's gradient was removed, `[R]`; zero where the constraint is inactive.
    """

    direction: Tensor
    kl: Tensor
    factor: Tensor


def log_ratio(log_prob: Tensor, behaviour_log_prob: Tensor) -> Tensor:
    """Returns `log pi(a) - log mu(a)`, clipped so that its exponential is finite, without gradient; any shape."""
    log_prob.shape.assert_is_compatible_with(behaviour_log_prob.shape)
    return tf.stop_gradient(tf.clip_by_value(log_prob - behaviour_log_prob, -LOG_RATIO_MAX, LOG_RATIO_MAX))


def trace_coefficient(log_ratio: Tensor, action_size: int = 1) -> Tensor:
    """Returns Retrace's c = min(1, rho^(1/A)); A is 1 for discrete actions, else their dimensions (section 5.2)."""
    return tf.exp(tf.minimum(0.0, log_ratio / action_size))


def retrace_returns(
    reward_TB: Tensor,
    discount_TB: Tensor,
    q_TB: Tensor,
    v_TB: Tensor,
    trace_TB: Tensor,
    bootstrap_B: Tensor,
    valid_TB: Tensor,
) -> Returns:
    """Equation 5: `Qret = r + discount * (c' (Qret' - Q') + V')`, from the end; Qopc is the same with c' = 1.

    Args:
        reward_TB, discount_TB: scaled reward, and gamma * (1 - terminated); other episodes may follow terminated steps.
        q_TB, v_TB, trace_TB: Q of the actions taken, V, and c.
        bootstrap_B, valid_TB: V after the last step; whether there is a step (otherwise the later value is passed on).
    """
    assert_shapes(reward=(reward_TB, "TB"), discount=(discount_TB, "TB"), q=(q_TB, "TB"), v=(v_TB, "TB"))
    assert_shapes(
        reward=(reward_TB, "TB"), trace=(trace_TB, "TB"), valid=(valid_TB, "TB"), bootstrap=(bootstrap_B, "B")
    )
    targets = []
    for c_TB in (trace_TB, tf.ones_like(trace_TB)):
        # Each step maps the value x after it linearly to c (r + discount x - Q) + V; without a step, x is passed on.
        slope_TB = tf.unstack(tf.where(valid_TB, discount_TB * c_TB, 1.0))
        constant_TB = tf.unstack(tf.where(valid_TB, c_TB * (reward_TB - q_TB) + v_TB, 0.0))
        after_TB = [bootstrap_B]
        for slope_B, constant_B in zip(reversed(slope_TB), reversed(constant_TB), strict=True):
            after_TB.append(constant_B + slope_B * after_TB[-1])
        targets.append(tf.stop_gradient(reward_TB + discount_TB * tf.stack(after_TB[-2::-1])))
    return Returns(*targets)


def policy_loss(
    log_prob_R: Tensor, log_ratio_R: Tensor, advantage_R: Tensor, on_policy_R: Tensor, truncation: float | None
) -> Tensor:
    """First term of equation 8: `-min(c, rho) log pi(a) A`; on-policy steps (`on_policy_R` is 1) have weight 1.

    `log_prob_R` of the actions taken carries the gradient, `log_ratio_R` none; A is a return minus V; c may be None.
    """
    assert_shapes(log_prob=(log_prob_R, "R"), log_ratio=(log_ratio_R, "R"), advantage=(advantage_R, "R"))
    assert_shapes(log_prob=(log_prob_R, "R"), on_policy=(on_policy_R, "R"))
    # Without truncation it is bounded so that the squared norm of the gradients stays finite.
    ratio_R = tf.exp(tf.minimum(log_ratio_R, 0.5 * LOG_RATIO_MAX))
    weight_R = ratio_R if truncation is None else tf.minimum(ratio_R, truncation)
    weight_R = tf.where(on_policy_R > 0, tf.ones_like(weight_R), weight_R)
    return -tf.stop_gradient(weight_R * advantage_R) * log_prob_R


def full_correction(
    prob_RA: Tensor, log_prob_RA: Tensor, log_ratio_RA: Tensor, q_RA: Tensor, v_R: Tensor, truncation: float
) -> Tensor:
    """Second term of equation 8 for discrete actions: `-sum_a max(0, 1 - c / rho(a)) pi(a) log pi(a) (Q(a) - V)`.

    Args:
        prob_RA, log_prob_RA: the policy's; only the second carries the gradient.
        log_ratio_RA, q_RA, v_R: `log_ratio` of every action, and values, all without gradient.
        truncation: c.
    """
    assert_shapes(
        prob=(prob_RA, "RA"), log_prob=(log_prob_RA, "RA"), log_ratio=(log_ratio_RA, "RA"), q=(q_RA, "RA"), v=(v_R, "R")
    )
    cut_off_RA = tf.maximum(0.0, 1.0 - truncation * tf.exp(-log_ratio_RA))
    return -tf.reduce_sum(tf.stop_gradient(cut_off_RA * prob_RA * (q_RA - v_R[:, None])) * log_prob_RA, axis=-1)


def sampled_correction(log_prob_R: Tensor, log_ratio_R: Tensor, advantage_R: Tensor, truncation: float) -> Tensor:
    """Second term of equation 9, of continuous actions: `-max(0, 1 - c / rho(a')) log pi(a') (Q(a') - V)`.

    Args:
        log_prob_R: log density of a', a new sample of the policy without gradient; it carries the gradient.
        log_ratio_R, advantage_R: `log_ratio` of a', and Q(a') - V.
        truncation: c.
    """
    assert_shapes(log_prob=(log_prob_R, "R"), log_ratio=(log_ratio_R, "R"), advantage=(advantage_R, "R"))
    cut_off_R = tf.maximum(0.0, 1.0 - truncation * tf.exp(-log_ratio_R))
    return -tf.stop_gradient(cut_off_R * advantage_R) * log_prob_R


def trust_region(gradient_RS: Tensor, kl_gradient_RS: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """Equation 12: returns `z = g - max(0, (k.g - delta) / |k|^2) k` `[R, S]`, the z nearest to g with `k.z <= delta`,
    and the factor of k `[R]`, zero where k is zero.

    Args:
        gradient_RS, kl_gradient_RS: g and k, gradients of the loss and of minus the divergence by the statistics.
        delta: bound.
    """
    assert_shapes(gradient=(gradient_RS, "RS"), kl_gradient=(kl_gradient_RS, "RS"))
    # The square of a narrow Gaussian's k would be infinite, so k is measured in units of its largest entry.
    largest_R1 = tf.reduce_max(tf.abs(kl_gradient_RS), axis=-1, keepdims=True)
    moves_R1 = largest_R1 > 0
    unit_R1 = tf.where(moves_R1, largest_R1, tf.ones_like(largest_R1))
    k_RS = kl_gradient_RS / unit_R1
    dot_R1 = tf.reduce_sum(k_RS * gradient_RS, axis=-1, keepdims=True)
    square_R1 = tf.where(moves_R1, tf.reduce_sum(tf.square(k_RS), axis=-1, keepdims=True), tf.ones_like(unit_R1))
    factor_R1 = tf.where(moves_R1, tf.maximum(0.0, (dot_R1 - delta / unit_R1) / square_R1), tf.zeros_like(unit_R1))
    return gradient_RS - factor_R1 * k_RS, tf.squeeze(factor_R1 / unit_R1, axis=-1)


def constrained(
    loss_and_kl: Callable[[Tensor], tuple[Tensor, Tensor]], statistics_RS: Tensor, delta: float | None
) -> tuple[Tensor, Constrained]:
    """Returns the policy's loss `[R]`, whose gradient by the statistics stays inside the trust region, and the region.

    Args:
        loss_and_kl: policy loss and KL(average || policy), `[R]` each, as functions of the statistics `[R, S]`.
        statistics_RS, delta: the policy's statistics; the bound, or None for no trust region.
    """
    if delta is None:
        loss_R, kl_R = loss_and_kl(statistics_RS)
        return loss_R, Constrained(tf.zeros_like(statistics_RS), tf.stop_gradient(kl_R), tf.zeros_like(kl_R))
    point_RS = tf.stop_gradient(statistics_RS)
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(point_RS)
        loss_R, kl_R = loss_and_kl(point_RS)
    gradient_RS, kl_gradient_RS = tape.gradient(loss_R, point_RS), -tape.gradient(kl_R, point_RS)
    direction_RS, factor_R = trust_region(gradient_RS, kl_gradient_RS, delta)
    region = Constrained(*(tf.stop_gradient(x) for x in (direction_RS, kl_R, factor_R)))
    # The gradient of this loss is the direction, which continues into the network.
    return tf.reduce_sum(statistics_RS * region.direction, axis=-1), region


def q_loss(q_R: Tensor, q_ret_R: Tensor) -> Tensor:
    """Section 4: `0.5 (Qret - Q)^2`, `[R]`."""
    assert_shapes(q=(q_R, "R"), q_ret=(q_ret_R, "R"))
    return 0.5 * tf.square(tf.stop_gradient(q_ret_R) - q_R)


def v_loss(v_R: Tensor, q_R: Tensor, q_ret_R: Tensor, log_ratio_R: Tensor) -> Tensor:
    """Equation 14: `0.5 (Vtarget - V)^2` with `Vtarget = min(1, rho) (Qret - Q) + V`, `[R]`."""
    assert_shapes(v=(v_R, "R"), q=(q_R, "R"), q_ret=(q_ret_R, "R"), log_ratio=(log_ratio_R, "R"))
    target_R = tf.exp(tf.minimum(0.0, log_ratio_R)) * (q_ret_R - q_R) + v_R
    return 0.5 * tf.square(tf.stop_gradient(target_R) - v_R)
