"""Critics whose weights are stacked: one variable of each layer for all of them."""

from __future__ import annotations

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

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the outputs in inference."""
        return self.compute(x)

    def compute(
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
        values = {
            id(variable): variable.value if critic_indices is None else tf.gather(variable.value, critic_indices)
            for variable in self.weights
            if len(variable.shape)
        }
        drawn: dict[str, tf.Tensor] = {}

        def mask(name: str, rate: float, units: int) -> tf.Tensor:
            if name not in drawn:
                assert dropout_masks is not None
                drawn[name] = tf.transpose(dropout_masks(name, rate, critics, units), [1, 0, 2])
            return drawn[name]

        def mode_of(critic: int | None) -> ForwardMode:
            if dropout_masks is None:
                return mode
            if critic is None:
                return mode._replace(mask=mask)
            return mode._replace(mask=lambda name, rate, units: mask(name, rate, units)[critic])

        if self.at_once:
            y_NBK = forward(self.layers, x, aligned(lambda variable: values[id(variable)]), mode_of(None))
            y_BNK = tf.transpose(y_NBK, [1, 0, 2])
        else:
            slices = {key: tf.unstack(y) for key, y in values.items()}

            def one(critic: int) -> tf.Tensor:
                return forward(self.layers, x, lambda variable: slices[id(variable)][critic], mode_of(critic))

            y_BNK = tf.stack([one(critic) for critic in range(critics)], axis=1)
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
