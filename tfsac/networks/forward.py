"""Evaluating a network outside of updates, arrays in and arrays out."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from tfsac.machine import use_tensorflow
from tfsac.networks.network import Network
from tfsac.networks.numpy_forward import NumpyForward
from tfsac.types import Spec


class GraphForward:
    """Computes what any network computes, in a compiled graph.

    Args:
        network: to be evaluated.
        spec: of what it reads.
        of_actions: whether it judges actions.
        with_head: False for what the head reads instead of what it computes.
    """

    def __init__(self, network: Network, spec: Spec, of_actions: bool = False, with_head: bool = True):
        use_tensorflow()
        self.variables: list[keras.Variable] = []  # none are copied
        given = {**spec.observation, **spec.state, **network.lstm_state}
        read = {name: given[name] for name in (*network.embedders, *network.state_embedders, *network.lstm_state)}
        inputs = {name: tf.TensorSpec([None, *array.shape], array.dtype) for name, array in read.items()}
        actions = [tf.TensorSpec([None, *spec.action.shape], spec.action.dtype)] if of_actions else []
        self.names = list(inputs)
        self.compute = tf.function(
            lambda observation, *action: (
                tf.nest.flatten(network(observation, *action)) if with_head else network.advance(observation)
            ),
            input_signature=[inputs, *actions],
            autograph=False,
        )

    def load(self, weights: list[np.ndarray]) -> None:
        """Does nothing: the graph reads the variables."""

    def __call__(self, observation: dict[str, np.ndarray], action: np.ndarray | None = None) -> list[np.ndarray]:
        """Returns the outputs for observations and state `[B, ...]` by key, and an action where it reads one."""
        use_tensorflow()
        given = {name: observation[name] for name in self.names}
        return [output.numpy() for output in self.compute(given, *([] if action is None else [action]))]


def forward_of(
    network: Network, spec: Spec, of_actions: bool = False, with_head: bool = True
) -> NumpyForward | GraphForward:
    """Returns the faster way to evaluate a network: NumPy where it is dense, a compiled graph otherwise.

    The next state of an LSTM comes after the other outputs.

    Args:
        network, spec, of_actions, with_head: see `GraphForward`.
    """
    if NumpyForward.supports(network, with_head):
        return NumpyForward(network, with_head)
    return GraphForward(network, spec, of_actions, with_head)
