"""Evaluates a network outside updates, from arrays to arrays: in NumPy, which takes microseconds for one entry where a
TensorFlow call takes hundreds, or in a compiled graph.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsac.networks.heads import CategoricalHead, FeaturesHead, GaussianHead, HybridHead, PolicyHead, QHead, action_size
from tfsac.networks.layers import NUMPY_ACTIVATIONS, Activation, BodyLayer, CriticEnsemble
from tfsac.networks.network import Network, layers_of
from tfsac.types import Spec
from tfsac.utils.machine import use_tensorflow

Array = np.ndarray
HEADS = (PolicyHead, CategoricalHead, GaussianHead, HybridHead, QHead, FeaturesHead)  # users' subclasses may differ


class GraphForward:
    """Evaluates any network in a compiled graph; see `forward_of`."""

    def __init__(self, network: Network, spec: Spec, with_actions: bool = False, with_head: bool = True):
        use_tensorflow()
        self.variables: list[keras.Variable] = []  # it copies none
        specs = {**spec.observation, **spec.state, **network.lstm_state}
        read = {name: specs[name] for name in (*network.embedders, *network.state_embedders, *network.lstm_state)}
        inputs = {name: tf.TensorSpec([None, *array.shape], array.dtype) for name, array in read.items()}
        actions = [tf.TensorSpec([None, action_size(spec)])] if with_actions else []
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
        """Returns the outputs for observations and state `[B, ...]` by key, and an action if it reads one."""
        use_tensorflow()
        inputs = {name: observation[name] for name in self.names}
        return [output.numpy() for output in self.compute(inputs, *([] if action is None else [action]))]


class NumpyForward:
    """Evaluates a dense network of vectors in NumPy, with copies of its weights; see `supports`."""

    def __init__(self, network: Network, with_head: bool = True):
        # Plain dicts and lists: TensorFlow wraps those of a module, which costs microseconds per step.
        self.source, self.with_head = network, with_head
        self.network, self.head = copy.copy(network), network.head if with_head else None
        self.network.__dict__.update(
            embedders={key: [*layers] for key, layers in network.embedders.items()},
            state_embedders={**network.state_embedders},
            middleware=[*network.middleware],
        )
        self.variables = network.variables
        index = {id(variable): i for i, variable in enumerate(self.variables)}
        parts = [network.embedders, network.state_embedders, network.middleware, self.head]

        def value(variable: keras.Variable) -> Array:
            return self.weights[index[id(variable)]]

        def dense(kernel: int, bias: int, activation: Callable[[Array], Array], x: Array) -> Array:
            x = x @ self.weights[kernel]
            x += self.weights[bias]
            return activation(x)

        def step(layer: keras.Layer) -> Callable[..., Any]:
            if isinstance(layer, BodyLayer):
                return functools.partial(layer.forward, value=value)
            if isinstance(layer, CriticEnsemble):
                return functools.partial(layer.arrays, value=value)
            activation = NUMPY_ACTIVATIONS[layer.activation.__name__]
            return functools.partial(dense, index[id(layer.kernel)], index[id(layer.bias)], activation)

        steps = {layer: step(layer) for layer in layers_of(parts)}
        if network.lstm is not None:
            steps[network.lstm.layer] = functools.partial(network.lstm.arrays, value=value)
        self.call = lambda layer, *inputs: steps[layer](*inputs)
        self.load([variable.numpy() for variable in self.variables])

    def __deepcopy__(self, memo: dict[int, Any]) -> NumpyForward:
        copied = NumpyForward(self.source, self.with_head)  # its layers determine the steps; the weights are copied
        copied.load([weight.copy() for weight in self.weights])
        return copied

    @staticmethod
    def supports(network: Network, with_head: bool = True) -> bool:
        """Returns whether every layer is dense (or an LSTM) with a known activation, and the head is known."""
        parts = [network.embedders, network.state_embedders, network.middleware, network.head if with_head else None]
        supported_head = type(network.head) in HEADS if with_head else network.head is not None
        return supported_head and all(map(_is_known, layers_of(parts)))

    def load(self, weights: list[Array]) -> None:
        """Sets new weights, in the order of the network's variables."""
        self.weights = weights

    def __call__(self, observation: Mapping[str, Array], action: Array | None = None) -> list[Array]:
        """Returns the outputs for observations and state `[B, ...]` by key, and an action if it reads one."""
        x, *after = self.network.advance(observation, self.call)
        outputs = x if self.head is None else self.head(x, action, self.call)
        return [*(outputs if isinstance(outputs, list) else [outputs]), *after]


def forward_of(
    network: Network, spec: Spec, with_actions: bool = False, with_head: bool = True
) -> NumpyForward | GraphForward:
    """Returns the faster way to evaluate a network: NumPy if it is dense, otherwise a compiled graph.

    It returns a list of outputs, followed by the next state of an LSTM.

    Args:
        network: network to evaluate.
        spec: spec of its inputs.
        with_actions: whether it reads actions.
        with_head: False for the head's input instead of its output.
    """
    if NumpyForward.supports(network, with_head):
        return NumpyForward(network, with_head)
    return GraphForward(network, spec, with_actions, with_head)


def _is_known(layer: keras.Layer) -> bool:
    if isinstance(layer, BodyLayer | CriticEnsemble) and not isinstance(layer, Activation):
        return True
    return isinstance(layer, keras.layers.Dense | Activation) and layer.activation.__name__ in NUMPY_ACTIVATIONS
