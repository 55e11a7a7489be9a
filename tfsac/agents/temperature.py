"""The temperature alpha, the weight of entropy against reward: fixed, or learned (arXiv 1812.05905, section 5)."""

from __future__ import annotations

import math

import keras
import tensorflow as tf

from tfsac.agents.base import Agent
from tfsac.losses.twin_soft_actor_critic import temperature_loss
from tfsac.networks import adam
from tfsac.parameters import (
    AutoAlphaParameters,
    DiscreteAutoAlphaParameters,
    DiscreteTemperatureParameters,
    FixedAlphaParameters,
    LearnedAlphaParameters,
    TemperatureParameters,
)

MOST_PER_DIMENSION = math.log(2.0)  # entropy of the uniform distribution on [-1, 1]
USUAL_RATIO = 0.98  # arXiv 1910.07207
LEAST_PER_DIMENSION = -5.0  # a deviation below 0.002: nobody's target, but another task's


class FixedAlpha:
    """A temperature that stays; it has nothing to train."""

    def __init__(self, parameters: FixedAlphaParameters):
        self.alpha = parameters.alpha

    def value(self) -> tf.Tensor:
        """Returns alpha, a scalar."""
        return tf.constant(self.alpha, tf.float32)

    def join(self, agent: Agent) -> None:
        """Leaves an agent as it is."""


class LearnedAlpha(keras.layers.Layer):
    """A temperature that learns until the policy's entropy is the target.

    Args:
        parameters: its first value and so on.
        name: under which an agent trains it.
    """

    def __init__(self, parameters: LearnedAlphaParameters, name: str = "temperature"):
        super().__init__(name=name)
        self.log_space, self.learning_rate = parameters.log_space, parameters.learning_rate
        first = math.log(parameters.initial_alpha) if self.log_space else parameters.initial_alpha
        self.variable = self.add_weight(
            name="log_alpha" if self.log_space else "alpha",
            initializer=keras.initializers.Constant(first),
            constraint=None if self.log_space else keras.constraints.NonNeg(),
            aggregation="mean",  # the constraint assigns on every replica
        )

    def join(self, agent: Agent) -> None:
        """Becomes one of the things that an agent trains, under its name."""
        agent.trained[self.name] = self.trainable_variables
        agent.optimizers[self.name] = adam(self.learning_rate, self.trainable_variables)

    def value(self) -> tf.Tensor:
        """Returns alpha, a scalar, without gradient."""
        value = self.variable.value
        return tf.stop_gradient(tf.exp(value) if self.log_space else tf.convert_to_tensor(value))

    def loss(self, log_prob_B: tf.Tensor, target_entropy: float | tf.Tensor) -> tf.Tensor:
        """Returns losses `[B]` of log alpha, or of alpha outside log space; see `temperature_loss`."""
        return temperature_loss(tf.convert_to_tensor(self.variable.value), log_prob_B, target_entropy)


class AutoAlpha(LearnedAlpha):
    """The temperature of a continuous agent.

    Args:
        parameters: its first value, target and so on.
        action_size: whose negative is the usual target.

    Attributes:
        target_entropy: in nats, what the mean entropy is driven to.
    """

    def __init__(self, parameters: AutoAlphaParameters, action_size: int):
        super().__init__(parameters)
        self.target_entropy = float(-action_size) if parameters.target_entropy is None else parameters.target_entropy


class DiscreteAutoAlpha(LearnedAlpha):
    """The temperature of a discrete agent, whose target may differ by state.

    Args:
        parameters: its first value, target or ratio.
    """

    def __init__(self, parameters: DiscreteAutoAlphaParameters):
        super().__init__(parameters)
        self.given = parameters.target_entropy
        self.ratio = parameters.target_entropy_ratio or USUAL_RATIO

    def target(self, num_valid_B: tf.Tensor) -> tf.Tensor:
        """Returns the entropy to be reached in each state `[B]`: as given, or the ratio of the most that is possible."""
        if self.given is not None:
            return tf.fill(tf.shape(num_valid_B), self.given)
        return self.ratio * tf.math.log(tf.maximum(num_valid_B, 1.0))


def make_temperature(parameters: TemperatureParameters, action_size: int) -> FixedAlpha | AutoAlpha:
    """Returns the temperature of a continuous agent; the default target entropy is minus the action size.

    Raises:
        ValueError: a target entropy that a policy over [-1, 1]^A cannot reach, or that belongs to more dimensions.
    """
    if isinstance(parameters, FixedAlphaParameters):
        return FixedAlpha(parameters)
    if parameters.target_entropy is not None:
        check_target_entropy(parameters.target_entropy, action_size)
    return AutoAlpha(parameters, action_size)


def check_target_entropy(target: float, action_size: int) -> None:
    """Refuses a target entropy that a policy over [-1, 1]^A cannot reach, or that belongs to more dimensions.

    Raises:
        ValueError: it is one.
    """
    low, high = LEAST_PER_DIMENSION * action_size, MOST_PER_DIMENSION * action_size
    if not low <= target < high:
        raise ValueError(
            f"With {action_size} action dimensions target_entropy lies between {low:g} and {high:.3g} nats, or is None for the "
            f"usual one. Received: {target}"
        )


def make_discrete_temperature(parameters: DiscreteTemperatureParameters, num_actions: int) -> FixedAlpha | DiscreteAutoAlpha:
    """Returns the temperature of a discrete agent.

    Raises:
        ValueError: a target entropy that no choice among so many actions has.
    """
    if isinstance(parameters, FixedAlphaParameters):
        return FixedAlpha(parameters)
    target, most = parameters.target_entropy, math.log(num_actions)
    if target is not None and not 0 < target < most:
        raise ValueError(
            f"The entropy of a choice among {num_actions} actions lies between 0 and log({num_actions}) = {most:.4g} nats, "
            f"and target_entropy between them. Received: {target}"
        )
    return DiscreteAutoAlpha(parameters)
