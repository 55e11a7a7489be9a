"""The head of an ensemble of critics, whose weights are stacked: one variable of each layer for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from tfsac.networks.bodies import body_layers, stacked
from tfsac.networks.body_layers import (
    INFERENCE,
    BodyLayer,
    ForwardMode,
    Linear,
    SavedLayer,
    ValueLinear,
    build,
    forward,
    track,
)
from tfsac.networks.heads import Head
from tfsac.networks.initializers import Initializers, registered
from tfsac.parameters import EnsembleQHeadParameters
from tfsac.types import Spec

Masks = Callable[[str, float, int, int], tf.Tensor]  # dropout's factors `[B, N, F]`: of a layer's name and rate, N, F


@registered
class CriticEnsemble(SavedLayer):
    """N bodies with an output layer each: `[B, F]` to `[B, N]`, or `[B, N, K]` of K outputs each.

    A GPU computes all critics of a layer in one product. On a CPU one critic after the other is faster, for each has
    a product of its own kernel there.

    Args:
        body: layers of the bodies.
        output_layer: of Q, or of K atoms or quantiles.
        scalar: whether it is of Q, which then has no axis of its own.

    Attributes:
        body, output_layer, scalar: as given.
        layers: of both.
        at_once: whether one product computes all critics of a layer.
    """

    def __init__(self, body: list[BodyLayer], output_layer: Linear, scalar: bool):
        super().__init__(name="critics")
        self.body, self.output_layer, self.scalar = body, output_layer, scalar
        self.layers = [*body, output_layer]
        track(self, self.layers)
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

        if self.at_once:
            aligned = {key: y if y.shape.rank == 3 else y[:, None] for key, y in values.items()}
            mode = mode._replace(mask=mask if dropout_masks else None)
            y_NBK = forward(self.layers, x, lambda variable: aligned[id(variable)], mode)
            y_BNK = tf.transpose(y_NBK, [1, 0, 2])
        else:
            slices = {key: tf.unstack(y) for key, y in values.items()}
            y_BNK = tf.stack(
                [self._one(i, x, slices, mode, mask if dropout_masks else None) for i in range(critics)], axis=1
            )
        return y_BNK[:, :, 0] if self.scalar else y_BNK

    def _one(
        self,
        i: int,
        x: tf.Tensor,
        slices: dict[int, list[tf.Tensor]],
        mode: ForwardMode,
        mask: Callable[[str, float, int], tf.Tensor] | None,
    ) -> tf.Tensor:
        if mask is not None:
            mode = mode._replace(mask=lambda name, rate, units: mask(name, rate, units)[i])
        return forward(self.layers, x, lambda variable: slices[id(variable)][i], mode)


class EnsembleQHead(Head):
    """N Q functions, or distributions of returns: features `[B, F]` and action `[B, A]` to `[B, N]` or `[B, N, K]`.

    Subclasses choose the layers of `critics`; updates compute those by `compute`, and all else by `__call__`.
    """

    judges_actions: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        if other := sorted({"__call__", "compute"} & vars(cls).keys()):
            raise TypeError(
                "A subclass of EnsembleQHead puts other layers into self.critics in its __init__; a head that computes "
                f"something else is a subclass of tfsac.networks.Head. Received: {cls.__name__}.{other[0]}"
            )
        super().__init_subclass__()

    def __init__(
        self, parameters: EnsembleQHeadParameters, spec: Spec, hidden: Initializers, seeds: np.random.Generator
    ):
        output, critics = Initializers(parameters.initializer, seeds), parameters.num_critics
        layers = body_layers(parameters.body_parameters, hidden, critics)
        last = ValueLinear("out", parameters.outputs, stacked(output.next, critics), critics)
        self.critics = CriticEnsemble(layers, last, scalar=parameters.distribution is None)

    def __call__(self, features: keras.KerasTensor, action: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        return self.critics(keras.layers.Concatenate()([features, action]))

    def compute(
        self,
        features: tf.Tensor,
        action: tf.Tensor,
        mode: ForwardMode = INFERENCE,
        dropout_masks: Masks | None = None,
        critic_indices: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the outputs of features and actions; see `CriticEnsemble.compute`."""
        return self.critics.compute(tf.concat([features, action], axis=-1), mode, dropout_masks, critic_indices)
