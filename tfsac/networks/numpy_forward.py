"""A forward pass in NumPy: acting on one observation in microseconds instead of a TensorFlow call's hundreds."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np

from tfsac.networks.build import Network
from tfsac.networks.heads import CategoricalHead, PolicyHead

Array = np.ndarray
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0, out=x),
    "tanh": lambda x: np.tanh(x, out=x),
}


class NumpyForward:
    """Computes what a policy network computes, from copies of its weights.

    It knows dense networks of vector observations; `supports` says whether a network is one.

    Args:
        network: a network with a policy head.
    """

    def __init__(self, network: Network):
        self.variables = list(network.trainable_variables)
        place = {id(variable): i for i, variable in enumerate(self.variables)}

        def plan(layers: list[keras.Layer]) -> list[tuple[int, int, Callable[[Array], Array]]]:
            return [
                (place[id(layer.kernel)], place[id(layer.bias)], ACTIVATIONS[layer.activation.__name__])
                for layer in layers
            ]

        self.embedders = [(key, plan(layers)) for key, layers in network.embedders.items()]
        self.middleware = plan(network.middleware)
        assert isinstance(network.head, PolicyHead | CategoricalHead)
        self.outputs = plan(network.head.outputs)
        self.sums = network.merger == "sum"
        self.load([variable.numpy() for variable in self.variables])

    @staticmethod
    def supports(network: Network) -> bool:
        """Returns whether every layer is dense, with an activation known here, under a policy head."""
        layers = [layer for part in network.embedders.values() for layer in part] + list(network.middleware)
        return isinstance(network.head, PolicyHead | CategoricalHead) and all(
            isinstance(layer, keras.layers.Dense) and layer.activation.__name__ in ACTIVATIONS for layer in layers
        )

    def load(self, weights: list[Array]) -> None:
        """Takes new weights, in the order of the network's trainable variables."""
        self.weights = weights

    def _run(self, x: Array, layers: list[tuple[int, int, Callable[[Array], Array]]]) -> Array:
        for kernel, bias, activation in layers:
            x = x @ self.weights[kernel]
            x += self.weights[bias]
            x = activation(x)
        return x

    def __call__(self, observation: dict[str, Array]) -> list[Array]:
        """Returns the head's outputs `[N, A]` for observations `[N, ...]`: loc and log scale, or logits."""
        embedded = [self._run(observation[key], layers) for key, layers in self.embedders]
        if len(embedded) == 1:
            x = embedded[0]
        else:
            x = np.sum(embedded, axis=0) if self.sums else np.concatenate(embedded, axis=-1)
        x = self._run(x, self.middleware)
        return [self._run(x, [output]) for output in self.outputs]
