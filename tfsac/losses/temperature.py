"""The loss of a learned temperature, which every agent with one has (Haarnoja et al. 2018, arXiv 1812.05905)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfsac.losses.soft_actor_critic import assert_shapes


def temperature_loss(log_alpha: tf.Tensor, log_prob_B: tf.Tensor, target_entropy: Any) -> tf.Tensor:
    """Returns `-log_alpha * sg(log pi + target_entropy)`, `[B]` (1812.05905, equation 18, by log alpha).

    Args:
        log_alpha: scalar; or alpha itself, which is equation 18 as it stands.
        log_prob_B: log density of actions of the policy; or minus its exact entropy.
        target_entropy: in nats, a number or `[B]`.
    """
    # A number is never in float32 on the way.
    target = tf.cast(tf.convert_to_tensor(target_entropy, dtype_hint=log_prob_B.dtype), log_prob_B.dtype)
    assert_shapes(log_prob=(log_prob_B, "B"), target_entropy=(target, "B" if target.shape.rank else ""))
    assert_shapes(log_alpha=(log_alpha, ""))
    return -log_alpha * tf.stop_gradient(log_prob_B + target)
