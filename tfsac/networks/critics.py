"""Critics whose weights are stacked: one variable of each layer for all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.networks.initializers import registered
from tfsac.networks.layers import INFERENCE, BodyLayer, ForwardMode, Linear, SavedLayer, Value, build, forward

Masks = Callable[[str, float, int, int], tf.Tensor]  # dropout's factors `[B, N, F]`: of a layer's name and rate, N, F


@registered
class CriticEnsemble(SavedLayer):
    """N bodies with an output layer each: `[B, F]` to `[B, N]`, or `[B, N, K]` of K outputs each.

    A GPU computes all critics of a layer in one product. On a CPU one critic after the other is faster, for each has
    a product of its own kernel there.

    Args:
        body: layers of the bodies.
        output_layer: of Q, or of K outputs.
        scalar: whether it is of Q alone, which then has no axis of its own.

    Attributes:
        layers: body and output layer.
        at_once: whether one product computes all critics of a layer.
    """

    def __init__(self, body: list[BodyLayer], output_layer: Linear, scalar: bool):
        super().__init__(name="critics")
        self.body, self.output_layer, self.scalar = body, output_layer, scalar
        self.layers = [*body, output_layer]
        self.track(self.layers)
        self.at_once = bool(tf.config.list_logical_devices("GPU"))

    def build(self, shape: Any) -> None:
        """Makes the weights."""
        build(self.layers, shape)

    def call(
        self,
        x: tf.Tensor,
        mode: ForwardMode = INFERENCE,
        dropout_masks: Masks | None = None,
        critic_indices: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the outputs.

        Args:
            x: features and actions, `[B, F]`.
            mode: how the layers compute.
            dropout_masks: of dropout: 0 for units that are left out, and 1 / (1 - rate) for the others.
            critic_indices: which critics, `[M]`; None for all.
        """
        critics: Any = self.output_layer.critics if critic_indices is None else critic_indices.shape[0]
        weights = {
            id(variable): variable.value if critic_indices is None else tf.gather(variable.value, critic_indices)
            for variable in self.weights
            if len(variable.shape)
        }
        if (draw := dropout_masks) is not None:
            mask = functools.cache(lambda name, rate, units: tf.transpose(draw(name, rate, critics, units), [1, 0, 2]))
            mode = mode._replace(mask=mask)
        if self.at_once:
            y_NBK = forward(self.layers, x, aligned(lambda variable: weights[id(variable)]), mode)
            y_BNK = tf.transpose(y_NBK, [1, 0, 2])
        else:
            parts = {key: tf.unstack(weight) for key, weight in weights.items()}
            values: list[Value] = [lambda variable, i=i: parts[id(variable)][i] for i in range(critics)]  # type: ignore[misc]
            each = [forward(self.layers, x, value, mode._replace(critic=i)) for i, value in enumerate(values)]
            y_BNK = tf.stack(each, axis=1)
        return y_BNK[:, :, 0] if self.scalar else y_BNK

    def arrays(self, x: np.ndarray, value: Value) -> np.ndarray:
        """Returns the outputs in inference, with NumPy; see `BodyLayer.forward`."""
        y_BNK = np.swapaxes(forward(self.layers, x, aligned(value)), 0, 1)
        return y_BNK[:, :, 0] if self.scalar else y_BNK


def aligned(value: Value) -> Value:
    """Returns the weights of all critics such that layers compute all at once: biases `[N, F]` as `[N, 1, F]`."""

    def of(variable: Any) -> Any:
        y = value(variable)
        return y if len(y.shape) == 3 else y[:, None]

    return of
