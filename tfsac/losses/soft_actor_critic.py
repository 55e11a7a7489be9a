"""Losses of soft actor-critic with a value network (Haarnoja et al. 2018, arXiv 1801.01290).

Each function returns one loss per row, `[B]` (or `[B, N]` for N critics); the agent averages over the global batch.
The temperature is 1: it is absorbed into the scale of the rewards.
"""

from __future__ import annotations

import tensorflow as tf

from tfsac.losses.checks import assert_shapes


def policy_loss(log_prob_B: tf.Tensor, q_min_B: tf.Tensor) -> tf.Tensor:
    """Equation 12: `log pi(a~|s) - min_i Q_i(s, a~)`, with the gradient through the action a~.

    Args:
        log_prob_B: log density of the sampled action.
        q_min_B: the smaller of the two Q of that action.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    assert_shapes(log_prob=(log_prob_B, "B"), q_min=(q_min_B, "B"))
    return log_prob_B - q_min_B


def value_target(log_prob_B: tf.Tensor, q_min_B: tf.Tensor) -> tf.Tensor:
    """Target of V, inside equation 5: `min_i Q_i(s, a~) - log pi(a~|s)`, without gradient.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    assert_shapes(log_prob=(log_prob_B, "B"), q_min=(q_min_B, "B"))
    return tf.stop_gradient(q_min_B - log_prob_B)


def critic_target(reward_B: tf.Tensor, discount_B: tf.Tensor, next_value_B: tf.Tensor) -> tf.Tensor:
    """Equation 8: `r + discount * V_target(s')`, without gradient; discount is gamma * (1 - terminated).

    Raises:
        ValueError: wrong ranks or sizes.
    """
    assert_shapes(reward=(reward_B, "B"), discount=(discount_B, "B"), next_value=(next_value_B, "B"))
    return tf.stop_gradient(reward_B + discount_B * next_value_B)


def regression_loss(prediction: tf.Tensor, target_B: tf.Tensor, huber: bool = False) -> tf.Tensor:
    """Equations 5 and 7: `0.5 * (prediction - target)^2` in each row.

    Args:
        prediction: `[B]`, or `[B, N]` for N critics that share one target.
        target_B: regression target.
        huber: linear where the error exceeds 1.

    Returns:
        losses with the shape of `prediction`.

    Raises:
        ValueError: wrong ranks or sizes.
    """
    critics = prediction.shape.rank == 2
    assert_shapes(target=(target_B, "B"), prediction=(prediction, "BN" if critics else "B"))
    error = prediction - (target_B[:, None] if critics else target_B)
    if huber:
        size = tf.abs(error)
        return tf.where(size <= 1.0, 0.5 * tf.square(error), size - 0.5)
    return 0.5 * tf.square(error)
