"""Evaluating a network outside of updates, arrays in and arrays out: in NumPy, which takes microseconds for a row where
a call of TensorFlow takes hundreds, or in a compiled graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf

from tfsac.networks.heads import CategoricalHead, FeaturesHead, GaussianHead, PolicyHead, QHead
from tfsac.networks.layers import NUMPY_ACTIVATIONS, Activation, BodyLayer, Residual
from tfsac.networks.lstm import CELL, HIDDEN
from tfsac.networks.network import Network
from tfsac.types import Spec
from tfsac.utils.machine import use_tensorflow

Array = np.ndarray
HEADS = (PolicyHead, CategoricalHead, GaussianHead, QHead, FeaturesHead)  # users' below may do otherwise
Step = Callable[[Array], Array]


class GraphForward:
    """Computes what any network computes, in a compiled graph.

    Args:
        network: to be evaluated.
        spec: of what it reads.
        with_actions: whether it judges actions.
        with_head: False for what the head reads instead of what it computes.
    """

    def __init__(self, network: Network, spec: Spec, with_actions: bool = False, with_head: bool = True):
        use_tensorflow()
        self.variables: list[keras.Variable] = []  # none are copied
        specs = {**spec.observation, **spec.state, **network.lstm_state}
        read = {name: specs[name] for name in (*network.embedders, *network.state_embedders, *network.lstm_state)}
        inputs = {name: tf.TensorSpec([None, *array.shape], array.dtype) for name, array in read.items()}
        actions = [tf.TensorSpec([None, *spec.action.shape], spec.action.dtype)] if with_actions else []
        self.names = list(inputs)
        self.compute = tf.function(
            lambda observation, *action: (
                tf.nest.flatten(network(observation, *action)) if with_head else network.advance(observation)
            ),
            input_signature=[inputs, *actions],
            autograph=False,
        )

    def load(self, weights: list[Array]) -> None:
        """Does nothing: the graph reads the variables."""

    def __call__(self, observation: Mapping[str, Array], action: Array | None = None) -> list[Array]:
        """Returns the outputs for observations and state `[B, ...]` by key, and an action where it reads one."""
        use_tensorflow()
        inputs = {name: observation[name] for name in self.names}
        return [output.numpy() for output in self.compute(inputs, *([] if action is None else [action]))]


class NumpyForward:
    """Computes what a network computes, from copies of its weights.

    It knows dense networks of vector observations; `supports` says whether a network is one.

    Args:
        network: a network with a policy's head, with critics, or with none.
        with_head: False for what the head reads instead of what it computes.
    """

    def __init__(self, network: Network, with_head: bool = True):
        self.variables = network.variables
        index = {id(variable): i for i, variable in enumerate(self.variables)}

        def value(variable: keras.Variable) -> Array:
            return self.weights[index[id(variable)]]

        def plan(layers: list[keras.Layer]) -> list[Step]:
            return [
                functools.partial(layer.forward, value=value)
                if isinstance(layer, BodyLayer)
                else functools.partial(
                    self._dense,
                    index[id(layer.kernel)],
                    index[id(layer.bias)],
                    NUMPY_ACTIVATIONS[layer.activation.__name__],
                )
                for layer in layers
            ]

        self.embedders = [(key, plan(layers)) for key, layers in network.embedders.items()]
        self.state = [(key, plan([layer])) for key, layer in network.state_embedders.items() if layer is not None]
        self.middleware = plan(network.middleware)
        self.lstm: list[int] = []
        if network.lstm is not None:
            cell = network.lstm.layer
            self.lstm = [index[id(variable)] for variable in (cell.kernel, cell.recurrent_kernel, cell.bias)]
        head = network.head if with_head else None
        if isinstance(head, QHead):
            self.branches: list[list[Step]] = [[functools.partial(head.critics.arrays, value=value)]]
        else:
            self.branches = [plan([layer]) for layer in (head.outputs if head else ())]
        self.pair = head if isinstance(head, PolicyHead) else None  # whose one layer computes both outputs
        self.sums = network.merger == "sum"
        self.load([variable.numpy() for variable in self.variables])

    @staticmethod
    def supports(network: Network, with_head: bool = True) -> bool:
        """Returns whether every layer is dense (or an LSTM), with an activation known here, under a head that is
        known here.
        """
        layers = [layer for part in network.embedders.values() for layer in part] + list(network.middleware)
        if isinstance(network.head, QHead):
            layers += network.head.critics.layers
        supported_head = type(network.head) in HEADS if with_head else network.head is not None
        return supported_head and all(map(_is_known, layers))

    def load(self, weights: list[Array]) -> None:
        """Takes new weights, in the order of the network's variables."""
        self.weights = weights

    def _dense(self, kernel: int, bias: int, activation: Step, x: Array) -> Array:
        x = x @ self.weights[kernel]
        x += self.weights[bias]
        return activation(x)

    def _run(self, x: Array, layers: list[Step]) -> Array:
        for layer in layers:
            x = layer(x)
        return x

    def _advance_lstm(self, x: Array, hidden: Array, cell: Array) -> list[Array]:
        kernel, recurrent, bias = (self.weights[i] for i in self.lstm)
        i, f, candidate, o = np.split(x @ kernel + hidden @ recurrent + bias, 4, axis=-1)
        cell = _sigmoid(f) * cell + _sigmoid(i) * np.tanh(candidate)
        return [_sigmoid(o) * np.tanh(cell), cell]

    def __call__(self, observation: Mapping[str, Array], action: Array | None = None) -> list[Array]:
        """Returns what the head computes: two parameters of a Gaussian, or logits `[B, A]`; of critics, `[B, N, D]`.

        After that come hidden state and cells of an LSTM, `[B, H]`.

        Args:
            observation: and state, `[B, ...]` by key.
            action: that critics judge, `[B, K]`.
        """
        embedded = [self._run(observation[key], layers) for key, layers in self.embedders]
        if len(embedded) == 1:
            x = embedded[0]
        else:
            x = np.sum(embedded, axis=0) if self.sums else np.concatenate(embedded, axis=-1)
        if self.state:
            x = np.concatenate([x, *(self._run(observation[key], layer) for key, layer in self.state)], axis=-1)
        x = self._run(x, self.middleware)
        after = self._advance_lstm(x, observation[HIDDEN], observation[CELL]) if self.lstm else []
        x = after[0] if after else x
        if action is not None:
            x = np.concatenate([x, action], axis=-1)
        outputs = [self._run(x, branch) for branch in self.branches] or [x]
        if self.pair:
            size = outputs[0].shape[-1] // 2
            outputs = [outputs[0][:, :size], self.pair.bounded(outputs[0][:, size:], np)]
        return [*outputs, *after]


def forward_of(
    network: Network, spec: Spec, with_actions: bool = False, with_head: bool = True
) -> NumpyForward | GraphForward:
    """Returns the faster way to evaluate a network: NumPy where it is dense, a compiled graph otherwise.

    The next state of an LSTM comes after the other outputs.

    Args:
        network, spec, with_actions, with_head: see `GraphForward`.
    """
    if NumpyForward.supports(network, with_head):
        return NumpyForward(network, with_head)
    return GraphForward(network, spec, with_actions, with_head)


def _is_known(layer: keras.Layer) -> bool:
    if isinstance(layer, Residual):
        return all(map(_is_known, layer.layers))
    if isinstance(layer, BodyLayer) and not isinstance(layer, Activation):
        return True
    return isinstance(layer, keras.layers.Dense | Activation) and layer.activation.__name__ in NUMPY_ACTIVATIONS


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # without overflow
