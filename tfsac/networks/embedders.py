"""Layers of embedders and middleware: what the named schemes stand for."""

from __future__ import annotations

import keras

from tfsac.networks.initializers import Initializers
from tfsac.parameters import (
    Conv2d,
    EmbedderScheme,
    FCMiddlewareParameters,
    InputEmbedderParameters,
    LSTMMiddlewareParameters,
    MiddlewareScheme,
)
from tfsac.types import ArraySpec

VECTOR_SCHEMES: dict[EmbedderScheme, tuple[int | Conv2d, ...]] = {
    EmbedderScheme.Empty: (),
    EmbedderScheme.Shallow: (128,),
    EmbedderScheme.Medium: (256,),
    EmbedderScheme.Deep: (128, 128, 128),
}
IMAGE_SCHEMES: dict[EmbedderScheme, tuple[int | Conv2d, ...]] = {
    EmbedderScheme.Empty: (),
    EmbedderScheme.Shallow: (Conv2d(32, 3, 1),),
    EmbedderScheme.Medium: (Conv2d(32, 8, 4), Conv2d(64, 4, 2), Conv2d(64, 3, 1)),
}
MIDDLEWARE_SCHEMES: dict[MiddlewareScheme, tuple[int, ...]] = {
    MiddlewareScheme.Empty: (),
    MiddlewareScheme.Shallow: (64,),
    MiddlewareScheme.Medium: (512,),
    MiddlewareScheme.Deep: (128, 128, 128),
}


def embedder_layers(
    key: str, parameters: InputEmbedderParameters, spec: ArraySpec, initializers: Initializers
) -> list[keras.Layer]:
    """Returns the layers that turn one observation `[B, ...]` into features `[B, F]`.

    Raises:
        ValueError: convolutions over something that is not an image, or an image too small for them.
    """
    image = len(spec.shape) == 3
    scheme = parameters.scheme
    if isinstance(scheme, EmbedderScheme):
        schemes = IMAGE_SCHEMES if image else VECTOR_SCHEMES
        if scheme not in schemes:
            raise ValueError(f"Images have the schemes {[s.value for s in schemes]}, or explicit layers. Received: {scheme.value}")
        scheme = schemes[scheme]
    convolutions = [layer for layer in scheme if isinstance(layer, Conv2d)]
    dense = [layer for layer in scheme if not isinstance(layer, Conv2d)]
    if convolutions and not image:
        raise ValueError(f"Convolutions need an image [height, width, channels]. Received: {key!r} of shape {spec.shape}")
    if list(scheme) != [*convolutions, *dense]:
        raise ValueError(f"Convolutions come before dense layers. Received: {scheme} for {key!r}")
    side = min(spec.shape[:2]) if image else 0
    # Bytes become numbers up to 1; a mask's booleans, numbers as they are.
    layers: list[keras.Layer] = [] if spec.dtype == "float32" else [keras.layers.Rescaling(1 / 255 if image else 1.0)]
    for convolution in convolutions:
        side = (side - convolution.kernel_size) // convolution.stride + 1
        if side < 1:
            raise ValueError(f"Image {key!r} is too small for {convolution}. Received: shape {spec.shape}")
        layers.append(
            keras.layers.Conv2D(
                convolution.num_filters,
                convolution.kernel_size,
                convolution.stride,
                activation=parameters.activation_function,
                kernel_initializer=initializers.next(),
            )
        )
    if len(spec.shape) > 1:
        layers.append(keras.layers.Flatten())
    return layers + dense_layers(tuple(dense), parameters.activation_function, initializers)


def middleware_layers(parameters: FCMiddlewareParameters | LSTMMiddlewareParameters, initializers: Initializers) -> list[keras.Layer]:
    """Returns the dense layers between the merged embeddings and the head."""
    scheme = parameters.scheme
    sizes = MIDDLEWARE_SCHEMES[scheme] if isinstance(scheme, MiddlewareScheme) else scheme
    return dense_layers(sizes, parameters.activation_function, initializers)


def dense_layers(sizes: tuple[int, ...], activation: str, initializers: Initializers) -> list[keras.Layer]:
    """Returns dense layers of these widths."""
    return [
        keras.layers.Dense(size, activation=activation, kernel_initializer=initializers.next()) for size in sizes
    ]
