"""The loss of a learned temperature alpha, the weight of entropy against reward (arXiv 1812.05905, section 5), and its
target entropies. `Agent.temperature_step` takes the gradient.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from tfsac.errors import TfsacError
from tfsac.losses.soft_actor_critic import assert_shapes
from tfsac.parameters import LEAST_PER_DIMENSION, MOST_PER_DIMENSION


def temperature_loss(log_alpha: tf.Tensor, log_prob_B: tf.Tensor, target_entropy: Any) -> tf.Tensor:
    """Returns `-log_alpha * sg(log pi + target_entropy)`, `[B]` (1812.05905, equation 18, by log alpha).

    Args:
        log_alpha: scalar; or alpha itself, which is equation 18 as it stands.
        log_prob_B: log density of actions of the policy; or minus its exact entropy.
        target_entropy: in nats, a number or `[B]`.
    """
    # A Python number is not rounded to float32 on the way.
    target = tf.cast(tf.convert_to_tensor(target_entropy, dtype_hint=log_prob_B.dtype), log_prob_B.dtype)
    assert_shapes(log_prob=(log_prob_B, "B"), target_entropy=(target, "B" if target.shape.rank else ""))
    assert_shapes(log_alpha=(log_alpha, ""))
    return -log_alpha * tf.stop_gradient(log_prob_B + target)


def continuous_target_entropy(min_prob: float, action_size: int) -> float:
    """Returns the entropy of actions on [-1, 1] with most of their mass in a fraction `min_prob` of the range, in nats:
    `A ln(2 min_prob)`.
    """
    return action_size * math.log(2.0 * min_prob)


def discrete_target_entropy(min_prob: float, num_choices: int) -> float:
    """Returns the entropy, in nats, of N choices: one has the probability `1 - min_prob`, and the others share the
    rest.
    """
    return min_prob * (math.log(num_choices - 1) - math.log(min_prob)) - (1.0 - min_prob) * math.log(1.0 - min_prob)


def check_target_entropy(target: float, action_size: int) -> None:
    """Rejects a target entropy that a policy over [-1, 1]^A cannot reach, or that belongs to more dimensions."""
    low, high = LEAST_PER_DIMENSION * action_size, MOST_PER_DIMENSION * action_size
    if not low <= target < high:
        raise TfsacError(
            f"target_entropy must be between {low:g} and {high:.3g} nats with {action_size} action dimensions, or None "
            f"for the usual one, got {target}"
        )
