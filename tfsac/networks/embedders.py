"""Layers of embedders and middleware: what the named schemes stand for."""

from __future__ import annotations

import keras

from tfsac.networks.initializers import Initializers
from tfsac.networks.observations import layers_of
from tfsac.parameters import (
    Conv2d,
    FCMiddlewareParameters,
    InputEmbedderParameters,
    LSTMMiddlewareParameters,
    MiddlewareScheme,
)
from tfsac.types import ArraySpec

MIDDLEWARE_SCHEMES: dict[MiddlewareScheme, tuple[int, ...]] = {
    MiddlewareScheme.Empty: (),
    MiddlewareScheme.Shallow: (64,),
    MiddlewareScheme.Medium: (512,),
    MiddlewareScheme.Deep: (128, 128, 128),
}


def embedder_layers(
    parameters: InputEmbedderParameters, spec: ArraySpec, initializers: Initializers
) -> list[keras.Layer]:
    """Returns the layers that turn one observation `[B, ...]` into features `[B, F]`.

    Args:
        parameters: of the embedder, which fit the observation as `observations.check` has it.
        spec: of the observation.
        initializers: of the layers.
    """
    layers_and_widths = layers_of(parameters, spec.shape)
    convolutions = [layer for layer in layers_and_widths if isinstance(layer, Conv2d)]
    # Bytes become numbers up to 1; a mask's booleans, numbers as they are.
    layers: list[keras.Layer] = []
    if spec.dtype != "float32":
        layers.append(keras.layers.Rescaling(1 / 255 if spec.dtype == "uint8" else 1.0))
    for convolution in convolutions:
        layers.append(
            keras.layers.Conv2D(
                convolution.num_filters,
                convolution.kernel_size,
                convolution.stride,
                convolution.padding,
                activation=parameters.activation_function,
                kernel_initializer=initializers.next(),
            )
        )
    if len(spec.shape) != 1:
        layers.append(keras.layers.Flatten())
    dense = tuple(layer for layer in layers_and_widths if not isinstance(layer, Conv2d))
    return layers + dense_layers(dense, parameters.activation_function, initializers)


def middleware_widths(parameters: FCMiddlewareParameters | LSTMMiddlewareParameters) -> tuple[int, ...]:
    """Returns the widths of these layers."""
    scheme = parameters.scheme
    return MIDDLEWARE_SCHEMES[scheme] if isinstance(scheme, MiddlewareScheme) else scheme


def dense_layers(sizes: tuple[int, ...], activation: str, initializers: Initializers) -> list[keras.Layer]:
    """Returns dense layers of these widths."""
    return [keras.layers.Dense(size, activation=activation, kernel_initializer=initializers.next()) for size in sizes]
