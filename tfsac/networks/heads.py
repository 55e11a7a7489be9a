"""Heads: the last layers of policy, V and twin Q."""

from __future__ import annotations

import keras
import numpy as np

from tfsac.networks.embedders import dense_layers
from tfsac.networks.initializers import Initializers
from tfsac.parameters import SACPolicyHeadParameters, SACQHeadParameters, VHeadParameters


class PolicyHead:
    """Location and log scale of a squashed Gaussian: features `[B, F]` to two `[B, A]`."""

    def __init__(self, parameters: SACPolicyHeadParameters, action_size: int, seeds: np.random.Generator):
        output = Initializers(parameters.initializer, seeds)
        self.mean = keras.layers.Dense(action_size, kernel_initializer=output.next(), name="mean")
        self.log_std = keras.layers.Dense(action_size, kernel_initializer=output.next(), name="log_std")

    def __call__(self, features: keras.KerasTensor) -> list[keras.KerasTensor]:
        """Connects the head."""
        return [self.mean(features), self.log_std(features)]


class VHead:
    """One state value: features `[B, F]` to `[B]`."""

    def __init__(self, parameters: VHeadParameters, seeds: np.random.Generator):
        self.out = keras.layers.Dense(1, kernel_initializer=Initializers(parameters.initializer, seeds).next(), name="v")

    def __call__(self, features: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        return keras.layers.Reshape(())(self.out(features))


class QHead:
    """Two independent Q functions: features `[B, F]` and action `[B, A]` to `[B, 2]`."""

    def __init__(self, parameters: SACQHeadParameters, hidden: Initializers, seeds: np.random.Generator):
        output = Initializers(parameters.initializer, seeds)
        self.critics = [
            [
                *dense_layers(parameters.network_layers_sizes, parameters.activation_function, hidden),
                keras.layers.Dense(1, kernel_initializer=output.next(), name=name),
            ]
            for name in ("q1", "q2")
        ]

    def __call__(self, features: keras.KerasTensor, action: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        inputs = keras.layers.Concatenate()([features, action])
        outputs = []
        for layers in self.critics:
            x = inputs
            for layer in layers:
                x = layer(x)
            outputs.append(x)
        return keras.layers.Concatenate()(outputs)
