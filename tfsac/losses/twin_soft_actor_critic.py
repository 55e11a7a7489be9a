"""Losses of soft actor-critic with twin target critics (Haarnoja et al. 2018, arXiv 1812.05905).

Each function returns one loss per row, `[B]` (or `[B, N]` for N critics); the agent averages over the global batch.
"""

from __future__ import annotations

import tensorflow as tf

from tfsac.losses.checks import assert_shapes
from tfsac.losses.soft_actor_critic import regression_loss


def critic_target(
    reward_B: tf.Tensor,
    discount_B: tf.Tensor,
    next_q_BN: tf.Tensor,
    next_log_prob_B: tf.Tensor,
    alpha: tf.Tensor,
) -> tf.Tensor:
    """Equations 3 and 5: `r + discount * (min_i Q_target_i(s', a') - alpha * log pi(a'|s'))`, without gradient.

    Args:
        reward_B: after the filters; a sum for n-step returns.
        discount_B: gamma^k * (1 - terminated); the entropy is inside it.
        next_q_BN: target critics at s' and a', an action of the policy of now.
        next_log_prob_B: log density of a'.
        alpha: temperature, a scalar.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    assert_shapes(
        reward=(reward_B, "B"), discount=(discount_B, "B"), next_q=(next_q_BN, "BN"), next_log_prob=(next_log_prob_B, "B")
    )
    assert_shapes(alpha=(alpha, ""))
    next_value_B = tf.reduce_min(next_q_BN, axis=-1) - alpha * next_log_prob_B
    return tf.stop_gradient(reward_B + discount_B * next_value_B)


def critic_loss(q_BN: tf.Tensor, target_B: tf.Tensor, huber: bool = False) -> tf.Tensor:
    """Equation 5 without its factor one half: `(Q_i(s, a) - y)^2`, `[B, N]`; the head's `loss_weight` is the factor.

    Args:
        q_BN: critics at the stored action.
        target_B: y.
        huber: linear where the error exceeds 1.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    assert_shapes(q=(q_BN, "BN"), target=(target_B, "B"))
    return 2.0 * regression_loss(q_BN, target_B, huber)


def policy_loss(log_prob_B: tf.Tensor, q_min_B: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """Equation 7: `alpha * log pi(a~|s) - min_i Q_i(s, a~)`, with the gradient through the action a~.

    Args:
        log_prob_B: log density of the sampled action.
        q_min_B: the smallest Q of that action.
        alpha: temperature, a scalar, without gradient.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    assert_shapes(log_prob=(log_prob_B, "B"), q_min=(q_min_B, "B"))
    assert_shapes(alpha=(alpha, ""))
    return alpha * log_prob_B - q_min_B


def temperature_loss(log_alpha: tf.Tensor, log_prob_B: tf.Tensor, target_entropy: float | tf.Tensor) -> tf.Tensor:
    """Equation 18 with log alpha in the place of alpha: `-log_alpha * sg(log pi + target_entropy)`.

    Args:
        log_alpha: scalar; or alpha itself, which is equation 18 as it stands.
        log_prob_B: log density of actions of the policy; or minus its exact entropy.
        target_entropy: in nats, a number or `[B]`.

    Raises:
        ValueError: wrong ranks.
    """
    same = tf.convert_to_tensor(target_entropy).shape.rank == 0
    assert_shapes(log_prob=(log_prob_B, "B"), target_entropy=(target_entropy, "" if same else "B"))
    assert_shapes(log_alpha=(log_alpha, ""))
    return -log_alpha * tf.stop_gradient(log_prob_B + target_entropy)
