"""The temperature alpha, the weight of entropy against reward: fixed, or learned (arXiv 1812.05905, section 5)."""

from __future__ import annotations

import math

import keras
import tensorflow as tf

from tfsac.losses.twin_soft_actor_critic import temperature_loss
from tfsac.parameters import AutoAlphaParameters, FixedAlphaParameters, TemperatureParameters

MOST_PER_DIMENSION = math.log(2.0)  # entropy of the uniform distribution on [-1, 1]
LEAST_PER_DIMENSION = -5.0  # a deviation below 0.002: nobody's target, but another task's


class FixedAlpha:
    """A temperature that stays; it has nothing to train."""

    def __init__(self, parameters: FixedAlphaParameters):
        self.alpha = parameters.alpha

    def value(self) -> tf.Tensor:
        """Returns alpha, a scalar."""
        return tf.constant(self.alpha, tf.float32)


class AutoAlpha(keras.layers.Layer):
    """A temperature that learns until the policy's entropy is the target.

    Args:
        parameters: its first value, target and so on.
        target_entropy: in nats, what the parameters' None stands for.

    Attributes:
        target_entropy: what the mean entropy is driven to.
    """

    def __init__(self, parameters: AutoAlphaParameters, target_entropy: float):
        super().__init__(name="temperature")
        given = parameters.target_entropy
        self.target_entropy = target_entropy if given is None else given
        self.log_space, self.learning_rate = parameters.log_space, parameters.learning_rate
        first = math.log(parameters.initial_alpha) if self.log_space else parameters.initial_alpha
        self.variable = self.add_weight(
            name="log_alpha" if self.log_space else "alpha",
            initializer=keras.initializers.Constant(first),
            constraint=None if self.log_space else keras.constraints.NonNeg(),
            aggregation="mean",  # the constraint assigns on every replica
        )

    def value(self) -> tf.Tensor:
        """Returns alpha, a scalar, without gradient."""
        value = self.variable.value
        return tf.stop_gradient(tf.exp(value) if self.log_space else tf.convert_to_tensor(value))

    def loss(self, log_prob_B: tf.Tensor) -> tf.Tensor:
        """Returns losses `[B]` of log alpha, or of alpha outside log space."""
        return temperature_loss(tf.convert_to_tensor(self.variable.value), log_prob_B, self.target_entropy)


def make_temperature(parameters: TemperatureParameters, action_size: int) -> FixedAlpha | AutoAlpha:
    """Returns the temperature of a continuous agent; the default target entropy is minus the action size.

    Raises:
        ValueError: a target entropy that a policy over [-1, 1]^A cannot reach, or that belongs to more dimensions.
    """
    if isinstance(parameters, FixedAlphaParameters):
        return FixedAlpha(parameters)
    low, high = LEAST_PER_DIMENSION * action_size, MOST_PER_DIMENSION * action_size
    target = parameters.target_entropy
    if target is not None and not low <= target < high:
        raise ValueError(
            f"With {action_size} action dimensions target_entropy lies between {low:g} and {high:.3g} nats; usual is "
            f"{-action_size}, or None for it. Received: {target}"
        )
    return AutoAlpha(parameters, float(-action_size))
