"""Losses of the soft actor-critics: with a value network (Haarnoja et al. 2018, arXiv 1801.01290), with twin target
critics (arXiv 1812.05905), for discrete actions (Christodoulou 2019, arXiv 1910.07207) and for hybrid ones.

All of them are built from one quantity, the soft value `min_i Q_i(s, a) - alpha log pi(a|s)`: the policy maximises it,
V is regressed on it, and Q on the reward plus the discounted soft value of the next state. Each function returns one
value for each entry of the batch, `[B]` (or `[B, N]` for N critics); the agent averages over the global batch.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def assert_shapes(**tensors: tuple[tf.Tensor, str]) -> None:
    """Raises ValueError at trace time if ranks or sizes do not match the letters of the dimensions, such as
    `log_prob=(x_B, "B")`: [B] and [B, 1] would silently broadcast to [B, B].
    """
    sizes: dict[str, tuple[int, str]] = {}
    for name, (tensor, dimensions) in tensors.items():
        shape = tf.convert_to_tensor(tensor).shape
        if shape.rank != len(dimensions):
            raise ValueError(f"{name} must have the dimensions [{', '.join(dimensions)}], got shape {shape}")
        for letter, size in zip(dimensions, shape.as_list(), strict=True):
            if size is not None and sizes.setdefault(letter, (size, name))[0] != size:
                first, other_name = sizes[letter]
                raise ValueError(f"{name} and {other_name} differ in {letter}: expected {first}, got shape {shape}")


def soft_value(q_BN: tf.Tensor, log_prob_B: tf.Tensor, alpha: Any) -> tf.Tensor:
    """Returns `min_i Q_i(s, a) - alpha * log pi(a|s)` of an action of the policy, `[B]`.

    Its negative is the policy's loss, with the gradient through the reparameterised action (1812.05905, equation 7;
    1801.01290, equation 12, where alpha is 1). At s' with target critics it is the value to bootstrap from (equations 3
    and 5).

    Args:
        q_BN: Q of the action from N critics.
        log_prob_B: log density of the action.
        alpha: temperature, a scalar without gradient.
    """
    assert_shapes(q=(q_BN, "BN"), log_prob=(log_prob_B, "B"), alpha=(alpha, ""))
    return tf.reduce_min(q_BN, axis=-1) - alpha * log_prob_B


def expected_soft_value(q_BNA: tf.Tensor, prob_BA: tf.Tensor, log_prob_BA: tf.Tensor, alpha: Any) -> tf.Tensor:
    """Returns `sum_a pi(a|s) (min_i Q_i(s, a) - alpha log pi(a|s))`, `[B]` (1910.07207, equations 10 and 12).

    Args:
        q_BNA: Q of every action from N critics.
        prob_BA, log_prob_BA: of the policy, both zero for masked actions.
        alpha: temperature, a scalar without gradient.
    """
    assert_shapes(q=(q_BNA, "BNA"), prob=(prob_BA, "BA"), log_prob=(log_prob_BA, "BA"), alpha=(alpha, ""))
    return expectation(prob_BA, tf.reduce_min(q_BNA, axis=1) - alpha * log_prob_BA)


def hybrid_soft_value(
    q_BK: tf.Tensor, prob_BK: tf.Tensor, log_prob_BK: tf.Tensor, log_prob_B: tf.Tensor, alpha_discrete: Any, alpha: Any
) -> tf.Tensor:
    """Returns `sum_k pi(k|s) (Q(s, u)[k] - alpha_d log pi(k|s)) - alpha_c log pi(u|s)`, `[B]`, of combinations of
    factors k and a continuous action u (Delalleau et al. 2019, arXiv 1912.11077; u does not depend on k here).

    Args:
        q_BK: Q of every combination with u, reduced over the critics.
        prob_BK, log_prob_BK: of the combinations, both zero for masked ones.
        log_prob_B: log density of u; zeros without continuous dimensions.
        alpha_discrete, alpha: temperatures of the factors and of u, scalars without gradient.
    """
    assert_shapes(q=(q_BK, "BK"), prob=(prob_BK, "BK"), log_prob_of_factors=(log_prob_BK, "BK"))
    assert_shapes(q=(q_BK, "BK"), log_prob=(log_prob_B, "B"), alpha=(alpha, ""), alpha_discrete=(alpha_discrete, ""))
    return expectation(prob_BK, q_BK - alpha_discrete * log_prob_BK) - alpha * log_prob_B


def expectation(prob_BA: tf.Tensor, value_BA: tf.Tensor) -> tf.Tensor:
    """Returns `sum_a pi(a) * value(a)`, `[B]`; actions of probability zero add neither value nor gradient."""
    assert_shapes(prob=(prob_BA, "BA"), value=(value_BA, "BA"))
    return tf.reduce_sum(prob_BA * tf.where(prob_BA > 0, value_BA, tf.zeros_like(value_BA)), axis=-1)


def bootstrap_target(reward_B: tf.Tensor, discount_B: tf.Tensor, next_value_B: tf.Tensor) -> tf.Tensor:
    """Returns the target of Q, `r + discount * value(s')`, without gradient (1801.01290, equation 8).

    Args:
        reward_B: after scaling; a sum for n-step returns.
        discount_B: gamma^n * (1 - terminated).
        next_value_B: V or soft value of s', with target networks.
    """
    assert_shapes(reward=(reward_B, "B"), discount=(discount_B, "B"), next_value=(next_value_B, "B"))
    return tf.stop_gradient(reward_B + discount_B * next_value_B)


def regression_loss(prediction: tf.Tensor, target: tf.Tensor, huber: bool = False) -> tf.Tensor:
    """Returns the squared error or the Huber loss, `[B]`, or `[B, N]` for N critics with a target `[B]` or `[B, N]`.

    Args:
        prediction: V `[B]` or Q `[B, N]`.
        target: regression target.
        huber: see `squared_or_huber`.
    """
    ranks = prediction.shape.rank, target.shape.rank
    assert_shapes(target=(target, "BN"[: ranks[1]]), prediction=(prediction, "BN"[: ranks[0]]))
    return squared_or_huber(prediction - (target[:, None] if ranks == (2, 1) else target), huber)


def squared_or_huber(error: tf.Tensor, huber: bool) -> tf.Tensor:
    """Returns the square of an error of any shape; with `huber`, `2 |error| - 1` where `|error|` exceeds 1."""
    if huber:
        return tf.where(tf.abs(error) <= 1.0, tf.square(error), 2.0 * tf.abs(error) - 1.0)
    return tf.square(error)


def q_of_actions(q_BNA: tf.Tensor, action_B: tf.Tensor) -> tf.Tensor:
    """Returns every critic's Q of the given discrete actions, `[B, N]`."""
    assert_shapes(q=(q_BNA, "BNA"), action=(action_B, "B"))
    is_chosen_BA = tf.one_hot(action_B, q_BNA.shape[-1], True, False, dtype=tf.bool)
    return tf.reduce_sum(tf.where(is_chosen_BA[:, None], q_BNA, tf.zeros_like(q_BNA)), axis=-1)
