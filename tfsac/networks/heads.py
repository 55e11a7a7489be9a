"""Heads: the last layers of policies, V and twin Q."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import keras
import numpy as np

from tfsac.networks.embedders import dense_layers
from tfsac.networks.initializers import Initializers, uniform
from tfsac.parameters import (
    CategoricalPolicyHeadParameters,
    DiscreteQHeadParameters,
    GaussianPolicyHeadParameters,
    QHeadParameters,
    SACPolicyHeadParameters,
    SACQHeadParameters,
    TrajectoryQHeadParameters,
    TwinQHeadParameters,
    VHeadParameters,
)


class PolicyHead:
    """Location and log scale of a squashed Gaussian: features `[B, F]` to two `[B, A]`."""

    def __init__(self, parameters: SACPolicyHeadParameters, action_size: int, seeds: np.random.Generator):
        output = Initializers(parameters.initializer, seeds)

        def layer(name: str) -> keras.layers.Dense:
            if parameters.init_w is None:
                return keras.layers.Dense(action_size, kernel_initializer=output.next(), name=name)
            kernel, bias = uniform(parameters.init_w, seeds), uniform(parameters.init_w, seeds)
            return keras.layers.Dense(action_size, kernel_initializer=kernel, bias_initializer=bias, name=name)

        self.mean, self.log_std = layer("mean"), layer("log_std")
        self.outputs = [self.mean, self.log_std]

    def __call__(self, features: keras.KerasTensor) -> list[keras.KerasTensor]:
        """Connects the head."""
        return [self.mean(features), self.log_std(features)]


class CategoricalHead:
    """Logits of discrete actions: features `[B, F]` to `[B, A]`."""

    def __init__(self, parameters: CategoricalPolicyHeadParameters, num_actions: int, seeds: np.random.Generator):
        initializer = Initializers(parameters.initializer, seeds).next()
        self.logits = keras.layers.Dense(num_actions, kernel_initializer=initializer, name="logits")
        self.outputs = [self.logits]

    def __call__(self, features: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        return self.logits(features)


class GaussianHead:
    """Mean of a Gaussian `[B, A]`, and its variances before they are made positive: `[B, A]`, or `[B, 1]` for one
    of all.
    """

    def __init__(self, parameters: GaussianPolicyHeadParameters, action_size: int, seeds: np.random.Generator):
        output = Initializers(parameters.initializer, seeds)
        activation = "tanh" if parameters.bound_mean else "linear"
        variances = action_size if parameters.covariance == "diagonal" else 1
        self.mean = keras.layers.Dense(
            action_size, activation=activation, kernel_initializer=output.next(), name="mean"
        )
        self.variance = keras.layers.Dense(variances, kernel_initializer=output.next(), name="variance")
        self.outputs = [self.mean, self.variance]

    def __call__(self, features: keras.KerasTensor) -> list[keras.KerasTensor]:
        """Connects the head."""
        return [self.mean(features), self.variance(features)]


class FeaturesHead:
    """Passes the features on, for other networks to read."""

    outputs: ClassVar[list[keras.layers.Dense]] = []

    def __call__(self, features: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        return features


class VHead:
    """One state value: features `[B, F]` to `[B]`."""

    def __init__(self, parameters: VHeadParameters, seeds: np.random.Generator):
        self.out = keras.layers.Dense(
            1, kernel_initializer=Initializers(parameters.initializer, seeds).next(), name="v"
        )

    def __call__(self, features: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        return keras.layers.Reshape(())(self.out(features))


class QHead:
    """N independent Q functions, two or one: features `[B, F]` and action `[B, A]` to `[B, N]`."""

    def __init__(self, parameters: SACQHeadParameters, hidden: Initializers, seeds: np.random.Generator):
        self.critics = _twin_critics(parameters, 1, hidden, seeds)

    def __call__(self, features: keras.KerasTensor, action: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        outputs = _connect(self.critics, keras.layers.Concatenate()([features, action]))
        return keras.layers.Concatenate()(outputs) if len(outputs) > 1 else outputs[0]


class DiscreteQHead:
    """N independent Q functions, two or one, of all actions at once: features `[B, F]` to `[B, N, A]`."""

    def __init__(
        self, parameters: DiscreteQHeadParameters, num_actions: int, hidden: Initializers, seeds: np.random.Generator
    ):
        self.critics = _twin_critics(parameters, num_actions, hidden, seeds)

    def __call__(self, features: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        return keras.ops.stack(_connect(self.critics, features), axis=1)


class TrajectoryQHead:
    """N independent Q functions of D rewards: features `[B, F]` and a trajectory's fields `[B, K]` to `[B, N, D]`."""

    def __init__(
        self, parameters: TrajectoryQHeadParameters, num_rewards: int, hidden: Initializers, seeds: np.random.Generator
    ):
        def output(name: str) -> keras.layers.Dense:
            kernel, bias = uniform(parameters.init_w, seeds), uniform(parameters.init_w, seeds)
            return keras.layers.Dense(num_rewards, kernel_initializer=kernel, bias_initializer=bias, name=name)

        self.critics = _critics(parameters, parameters.num_critics, output, hidden)

    def __call__(self, features: keras.KerasTensor, trajectory: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        return keras.ops.stack(_connect(self.critics, keras.layers.Concatenate()([features, trajectory])), axis=1)


def _twin_critics(
    parameters: TwinQHeadParameters, size: int, hidden: Initializers, seeds: np.random.Generator
) -> list[list[keras.layers.Dense]]:
    initializer = Initializers(parameters.initializer, seeds)

    def output(name: str) -> keras.layers.Dense:
        return keras.layers.Dense(size, kernel_initializer=initializer.next(), name=name)

    return _critics(parameters, parameters.num_critics, output, hidden)


def _critics(
    parameters: QHeadParameters, count: int, output: Callable[[str], keras.layers.Dense], hidden: Initializers
) -> list[list[keras.layers.Dense]]:
    """Returns the layers of each Q function."""
    return [
        [*dense_layers(parameters.network_layers_sizes, parameters.activation_function, hidden), output(f"q{i + 1}")]
        for i in range(count)
    ]


def _connect(critics: list[list[keras.layers.Dense]], inputs: keras.KerasTensor) -> list[keras.KerasTensor]:
    outputs = []
    for layers in critics:
        x = inputs
        for layer in layers:
            x = layer(x)
        outputs.append(x)
    return outputs
