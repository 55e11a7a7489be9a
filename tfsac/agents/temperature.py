"""The temperature alpha, the weight of entropy against reward: fixed, or learned (arXiv 1812.05905, section 5)."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from tfsac.agents.learner import Agent, Step
from tfsac.errors import TfsacError
from tfsac.losses.soft_actor_critic import temperature_loss
from tfsac.networks import adam, learning_rate_of
from tfsac.parameters import LEAST_PER_DIMENSION, MOST_PER_DIMENSION, FixedAlphaParameters, LearnedAlphaParameters


class FixedTemperature:
    """A temperature that stays; it has nothing to train."""

    def __init__(self, alpha: float):
        self.alpha = alpha

    def value(self) -> tf.Tensor:
        """Returns alpha, a scalar."""
        return tf.constant(self.alpha, tf.float32)

    def step(self, agent: Agent, log_prob_B: tf.Tensor, target_entropy: Any, mask_B: Any = 1.0) -> Step:
        """Returns no gradients and no metrics."""
        return Step([], {})


class LearnedTemperature(keras.layers.Layer):
    """A temperature that is learned so that the policy's entropy comes to a target.

    Args:
        agent: gets the variable and its optimizer, under the temperature's name.
        parameters: its first value and so on.
        name: of the temperature.
    """

    def __init__(self, agent: Agent, parameters: LearnedAlphaParameters, name: str = "temperature"):
        super().__init__(name=name)
        self.parameters, self.log_space = parameters, parameters.log_space
        first = math.log(parameters.initial_alpha) if self.log_space else parameters.initial_alpha
        self.variable = self.add_weight(
            name="log_alpha" if self.log_space else "alpha",
            initializer=keras.initializers.Constant(first),
            constraint=None if self.log_space else keras.constraints.NonNeg(),
            aggregation="mean",  # the constraint assigns on every replica
        )
        agent.trained[name] = self.trainable_variables
        agent.optimizers[name] = adam(learning_rate_of(parameters, agent.updates), self.trainable_variables)

    def value(self) -> tf.Tensor:
        """Returns alpha, a scalar, without gradient."""
        value = self.variable.value
        return tf.stop_gradient(tf.exp(value) if self.log_space else tf.convert_to_tensor(value))

    def step(self, agent: Agent, log_prob_B: tf.Tensor, target_entropy: Any, mask_B: Any = 1.0) -> Step:
        """Returns the gradients that bring the entropy to its target (equation 18), and the loss as a metric.

        Args:
            agent: that it belongs to.
            log_prob_B, target_entropy: see `temperature_loss`.
            mask_B: 1 for entries that count, 0 for padding.
        """
        with agent.watch(self.name) as tape:
            value = tf.convert_to_tensor(self.variable.value)
            learned = tf.exp(value) if self.parameters.loss == "alpha" else value
            loss_B = temperature_loss(learned, log_prob_B, target_entropy)
            loss = tf.reduce_mean(mask_B * loss_B)
        return Step(agent.gradients(loss, tape, self.name), {f"loss/{self.name}": loss})


def make_temperature(
    agent: Agent, parameters: FixedAlphaParameters | LearnedAlphaParameters
) -> FixedTemperature | LearnedTemperature:
    """Returns the temperature that parameters describe."""
    if isinstance(parameters, FixedAlphaParameters):
        return FixedTemperature(parameters.alpha)
    return LearnedTemperature(agent, parameters)


def check_target_entropy(target: float, action_size: int) -> None:
    """Refuses a target entropy that a policy over [-1, 1]^A cannot reach, or that belongs to more dimensions."""
    low, high = LEAST_PER_DIMENSION * action_size, MOST_PER_DIMENSION * action_size
    if not low <= target < high:
        raise TfsacError(
            f"target_entropy must be between {low:g} and {high:.3g} nats with {action_size} action dimensions, or None "
            f"for the usual one, got {target}"
        )
