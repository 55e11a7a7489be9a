"""Losses of soft actor-critic for discrete actions (Christodoulou 2019, arXiv 1910.07207).

Expectations over actions are sums, so nothing is sampled. Each function returns one value per row, `[B]`; the agent averages
over the global batch. A masked action has probability and log-probability zero and adds nothing, whatever its Q.
"""

from __future__ import annotations

import tensorflow as tf

from tfsac.losses.checks import assert_shapes


def expectation(prob_BA: tf.Tensor, value_BA: tf.Tensor) -> tf.Tensor:
    """Returns `sum_a pi(a) * value(a)`, `[B]`; actions of probability zero leave neither value nor gradient.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    assert_shapes(prob=(prob_BA, "BA"), value=(value_BA, "BA"))
    return tf.reduce_sum(prob_BA * tf.where(prob_BA > 0, value_BA, tf.zeros_like(value_BA)), axis=-1)


def entropy(prob_BA: tf.Tensor, log_prob_BA: tf.Tensor) -> tf.Tensor:
    """Returns `-sum_a pi(a) log pi(a)`, `[B]`, in nats.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    return -expectation(prob_BA, log_prob_BA)


def critic_target(
    reward_B: tf.Tensor,
    discount_B: tf.Tensor,
    next_q_BNA: tf.Tensor,
    next_prob_BA: tf.Tensor,
    next_log_prob_BA: tf.Tensor,
    alpha: tf.Tensor,
) -> tf.Tensor:
    """With equation 10: `r + discount * sum_a pi(a|s') (min_i Q_target_i(s', a) - alpha log pi(a|s'))`, without gradient.

    Args:
        reward_B: after the filters; a sum for n-step returns.
        discount_B: gamma^k * (1 - terminated); the entropy is inside it.
        next_q_BNA: target critics of every action at s'.
        next_prob_BA, next_log_prob_BA: of the policy of now at s'.
        alpha: temperature, a scalar.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    assert_shapes(
        reward=(reward_B, "B"), discount=(discount_B, "B"), next_q=(next_q_BNA, "BNA"), next_prob=(next_prob_BA, "BA"),
        next_log_prob=(next_log_prob_BA, "BA"),
    )
    assert_shapes(alpha=(alpha, ""))
    soft_q_BA = tf.reduce_min(next_q_BNA, axis=1) - alpha * next_log_prob_BA
    return tf.stop_gradient(reward_B + discount_B * expectation(next_prob_BA, soft_q_BA))


def chosen(q_BNA: tf.Tensor, action_B: tf.Tensor) -> tf.Tensor:
    """Returns every critic's Q of the chosen actions, `[B, N]`.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    assert_shapes(q=(q_BNA, "BNA"), action=(action_B, "B"))
    is_chosen_BA = tf.one_hot(action_B, q_BNA.shape[-1], True, False, dtype=tf.bool)
    return tf.reduce_sum(tf.where(is_chosen_BA[:, None], q_BNA, tf.zeros_like(q_BNA)), axis=-1)


def policy_loss(prob_BA: tf.Tensor, log_prob_BA: tf.Tensor, q_BNA: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """Equation 12: `sum_a pi(a|s) (alpha log pi(a|s) - min_i Q_i(s, a))`, with the gradient through pi alone.

    Args:
        prob_BA, log_prob_BA: of the policy.
        q_BNA: critics of every action.
        alpha: temperature, a scalar, without gradient.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    assert_shapes(prob=(prob_BA, "BA"), log_prob=(log_prob_BA, "BA"), q=(q_BNA, "BNA"))
    assert_shapes(alpha=(alpha, ""))
    return expectation(prob_BA, alpha * log_prob_BA - tf.stop_gradient(tf.reduce_min(q_BNA, axis=1)))
