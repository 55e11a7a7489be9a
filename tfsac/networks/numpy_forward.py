"""A forward pass in NumPy: acting on one observation in microseconds instead of a TensorFlow call's hundreds."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np

from tfsac.networks.build import Network
from tfsac.networks.heads import CategoricalHead, PolicyHead, TrajectoryQHead

Array = np.ndarray
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0, out=x),
    "tanh": lambda x: np.tanh(x, out=x),
}


class NumpyForward:
    """Computes what a network computes, from copies of its weights.

    It knows dense networks of vector observations; `supports` says whether a network is one.

    Args:
        network: a network with a policy head, or with critics of trajectories.
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
        self.state = [(key, plan([layer])) for key, layer in network.state.items() if layer is not None]
        self.middleware = plan(network.middleware)
        head = network.head
        assert isinstance(head, PolicyHead | CategoricalHead | TrajectoryQHead)
        self.critics = isinstance(head, TrajectoryQHead)
        branches = head.critics if isinstance(head, TrajectoryQHead) else [[output] for output in head.outputs]
        self.branches = [plan(list(layers)) for layers in branches]
        self.sums = network.merger == "sum"
        self.load([variable.numpy() for variable in self.variables])

    @staticmethod
    def supports(network: Network) -> bool:
        """Returns whether every layer is dense, with an activation known here, under a head that is known here."""
        layers = [layer for part in network.embedders.values() for layer in part] + list(network.middleware)
        if isinstance(network.head, TrajectoryQHead):
            layers += [layer for critic in network.head.critics for layer in critic]
        return isinstance(network.head, PolicyHead | CategoricalHead | TrajectoryQHead) and all(
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

    def __call__(self, observation: dict[str, Array], action: Array | None = None) -> list[Array]:
        """Returns what the head computes: loc and log scale, or logits `[B, A]`; of critics, `[B, N, D]`.

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
        if action is not None:
            x = np.concatenate([x, action], axis=-1)
        outputs = [self._run(x, branch) for branch in self.branches]
        return [np.stack(outputs, axis=1)] if self.critics else outputs
