"""The layers of single critics, whose weights are stacked."""

import types

import numpy as np


class CriticLayer:
    """A dense layer of one critic: `kernel` and `bias` as arrays, and `assign` for new ones."""

    def __init__(self, layer, critic):
        self.layer, self.critic = layer, critic

    @property
    def kernel(self):
        return types.SimpleNamespace(numpy=lambda: self.layer.kernel.numpy()[self.critic], assign=self._to("kernel"))

    @property
    def bias(self):
        return types.SimpleNamespace(numpy=lambda: self.layer.bias.numpy()[self.critic], assign=self._to("bias"))

    def _to(self, name):
        def assign(value):
            variable = getattr(self.layer, name)
            stacked = variable.numpy()
            stacked[self.critic] = np.reshape(value, stacked[self.critic].shape)
            variable.assign(stacked)

        return assign


def layers_of_critics(network):
    """Returns the dense layers of each critic of a network."""
    critics = network.head.critics
    dense = [layer for layer in critics.layers if hasattr(layer, "kernel")]
    return [[CriticLayer(layer, i) for layer in dense] for i in range(critics.output_layer.critics)]
