"""Access to the layers of single critics of a stacked ensemble."""

import types

import numpy as np


class Slice:
    """One critic's slice of a stacked variable."""

    def __init__(self, variable, critic):
        self.variable, self.critic = variable, critic

    def numpy(self):
        return self.variable.numpy()[self.critic]

    def assign(self, value):
        stacked = self.variable.numpy()
        stacked[self.critic] = np.broadcast_to(value, stacked[self.critic].shape)
        self.variable.assign(stacked)

    def assign_add(self, value):
        self.assign(self.numpy() + value)


def critic_layers(network):
    """Returns `kernel` and `bias` of the dense layers of each critic of a network."""
    critics = network.head.critics
    dense = [layer for layer in critics.layers if hasattr(layer, "kernel")]
    members = range(critics.output_layer.critics)
    return [[types.SimpleNamespace(kernel=Slice(x.kernel, i), bias=Slice(x.bias, i)) for x in dense] for i in members]
