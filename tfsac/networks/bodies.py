"""Bodies of networks: plain layers, or layers with normalisation, dropout or residual blocks."""

from __future__ import annotations

from collections.abc import Callable

import keras

from tfsac.networks.batch_normalization import FLASH_EPSILON, BatchNormalization
from tfsac.networks.initializers import Initializers
from tfsac.networks.layers import Activation, BodyLayer, Dropout, LayerNormalization, Linear, Residual, RMSNormalization
from tfsac.parameters import Conv2d, FCMiddlewareParameters, LSTMMiddlewareParameters, ResidualMiddlewareParameters

EXPANSION = 4  # factor of the width inside a residual block
BATCH_KINDS = ("batch", "batch_renorm")
Layers = tuple[int | Conv2d, ...]  # widths of dense layers after convolutions


def plain_layers(specs: Layers, activation: str, initializers: Initializers) -> list[keras.layers.Layer]:
    """Returns convolutions and dense layers."""
    layers: list[keras.layers.Layer] = []
    for spec in specs:
        shared = {"activation": activation, "kernel_initializer": initializers.next()}
        last = "channels_last"  # whatever keras.json says
        if isinstance(spec, Conv2d):
            layers.append(
                keras.layers.Conv2D(spec.num_filters, spec.kernel_size, spec.stride, spec.padding, last, **shared)
            )
        else:
            layers.append(keras.layers.Dense(spec, **shared))
    return layers


def middleware_layers(
    parameters: FCMiddlewareParameters | ResidualMiddlewareParameters | LSTMMiddlewareParameters,
    initializers: Initializers,
) -> list[keras.Layer]:
    """Returns the layers between the merged embeddings and the head; an LSTM comes after them."""
    if isinstance(parameters, LSTMMiddlewareParameters) or (
        isinstance(parameters, FCMiddlewareParameters) and parameters.normalization is None
    ):
        return plain_layers(parameters.widths, parameters.activation_function, initializers)
    layers: list[keras.Layer] = [*body_layers(parameters, initializers)]
    for layer in layers:  # avoids the names of other layers, like "dense_1", and of observations
        layer.name = f"body_{layer.name}"
    return layers


def body_layers(
    parameters: FCMiddlewareParameters | ResidualMiddlewareParameters,
    initializers: Initializers,
    critics: int | None = None,
) -> list[BodyLayer]:
    """Returns the layers of a body, with the weights of N critics or of one network; see `BodyLayer`."""

    def linear(name: str, units: int, use_bias: bool = True, kind: str | None = None) -> Linear:
        return Linear(name, units, initializers.next(kind, critics), critics, use_bias)

    if isinstance(parameters, FCMiddlewareParameters):
        return _dense(parameters, linear, critics)
    return _residual(parameters, linear, critics)


def _dense(parameters: FCMiddlewareParameters, linear: Callable[..., Linear], critics: int | None) -> list[BodyLayer]:
    """CrossQ, XQC, DroQ: [dense, dropout, norm, activation] or [dense, dropout, activation, norm] for each width."""
    normalization, layers = parameters.normalization, list[BodyLayer]()
    before = normalization is not None and normalization.placement == "before"
    biased = not (before and normalization is not None and normalization.kind in BATCH_KINDS)

    def norm() -> list[BodyLayer]:
        if normalization is None:
            return []
        name = f"norm_{sum(layer.name.startswith('norm') for layer in layers)}"
        if normalization.kind in BATCH_KINDS:
            return [BatchNormalization(name, critics, renorm=normalization.kind == "batch_renorm")]
        return [LayerNormalization(name, critics) if normalization.kind == "layer" else RMSNormalization(name, critics)]

    if normalization is not None and normalization.normalize_input:
        layers += norm()
    for i, units in enumerate(parameters.widths):
        layers.append(linear(f"dense_{i}", units, biased))
        if parameters.dropout:
            layers.append(Dropout(f"dropout_{i}", parameters.dropout))
        activation = Activation(f"activation_{i}", parameters.activation_function)
        layers += [*norm(), activation] if before else [activation, *norm()]
    return layers


def _residual(
    parameters: ResidualMiddlewareParameters, linear: Callable[..., Linear], critics: int | None
) -> list[BodyLayer]:
    width, wide = parameters.width, EXPANSION * parameters.width

    def simba(block: str) -> list[BodyLayer]:
        return [
            LayerNormalization(f"{block}_norm", critics),
            linear(f"{block}_dense_0", wide, kind="he_normal"),
            Activation(f"{block}_activation", "relu"),
            linear(f"{block}_dense_1", width, kind="he_normal"),
        ]

    def flash(block: str) -> list[BodyLayer]:
        return [
            linear(f"{block}_dense_0", wide, use_bias=False),
            batch(f"{block}_norm_0"),
            Activation(f"{block}_activation_0", "relu"),
            linear(f"{block}_dense_1", width, use_bias=False),
            batch(f"{block}_norm_1"),
            Activation(f"{block}_activation_1", "relu"),
        ]

    def batch(name: str) -> BatchNormalization:
        return BatchNormalization(name, critics, epsilon=FLASH_EPSILON, unbiased=True)

    names = [f"block_{i}" for i in range(parameters.num_blocks)]
    if parameters.block == "simba":
        blocks = [Residual(name, simba(name)) for name in names]
        return [linear("embed", width), *blocks, LayerNormalization("norm_out", critics)]
    blocks = [Residual(name, flash(name)) for name in names]
    return [batch("norm_0"), linear("embed", width, use_bias=False), *blocks, RMSNormalization("norm_out", critics)]
