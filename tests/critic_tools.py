"""The layers of single critics, whose weights are stacked."""

import types

import numpy as np


class CriticLayer:
    """A dense layer of one critic: `kernel` and `bias` as arrays, and `assign` for new ones."""

    def __init__(self, layer, critic):
        self.layer, self.critic = layer, critic

    @property
    def kernel(self):
        return self._variable("kernel")

    @property
    def bias(self):
        return self._variable("bias")

    def _variable(self, name):
        variable = getattr(self.layer, name)

        def assign(value):
            stacked = variable.numpy()
            stacked[self.critic] = np.broadcast_to(value, stacked[self.critic].shape)
            variable.assign(stacked)

        def numpy():
            return variable.numpy()[self.critic]

        return types.SimpleNamespace(numpy=numpy, assign=assign, assign_add=lambda value: assign(numpy() + value))


def layers_of_critics(network):
    """Returns the dense layers of each critic of a network."""
    critics = network.head.critics
    dense = [layer for layer in critics.layers if hasattr(layer, "kernel")]
    return [[CriticLayer(layer, i) for layer in dense] for i in range(critics.output_layer.critics)]
