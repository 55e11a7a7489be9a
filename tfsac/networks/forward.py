"""Evaluating a network outside of updates, arrays in and arrays out."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from tfsac.networks.build import Network
from tfsac.networks.numpy_forward import NumpyForward


class GraphForward:
    """Computes what any network computes, in a compiled graph.

    Args:
        network: to be evaluated.
    """

    def __init__(self, network: Network):
        self.variables: list[keras.Variable] = []  # none are copied
        wanted = [tf.TensorSpec([None, *x.shape[1:]], x.dtype, name=x.name) for x in network.model.inputs]
        names = [*network.embedders, *network.state]
        inputs = {name: tf.TensorSpec(s.shape, s.dtype) for name in names for s in wanted if s.name == name}
        actions = [tf.TensorSpec(s.shape, s.dtype) for s in wanted if s.name not in names]
        self.names = names
        self.compute = tf.function(
            lambda observation, *action: tf.nest.flatten(network(observation, *action)), input_signature=[inputs, *actions]
        )

    def load(self, weights: list[np.ndarray]) -> None:
        """Does nothing: the graph reads the variables."""

    def __call__(self, observation: dict[str, np.ndarray], action: np.ndarray | None = None) -> list[np.ndarray]:
        """Returns the head's outputs for observations and state `[B, ...]` by key, and an action where it reads one."""
        given = {name: observation[name] for name in self.names}
        return [output.numpy() for output in self.compute(given, *([] if action is None else [action]))]


def forward_of(network: Network) -> NumpyForward | GraphForward:
    """Returns the faster way to evaluate a network: NumPy where it is dense, a compiled graph otherwise."""
    return NumpyForward(network) if NumpyForward.supports(network) else GraphForward(network)
