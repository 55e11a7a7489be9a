"""Chooses the observations that a network reads, and the layers that embed them.

Every network has an embedder for each key that it reads (`observation_keys`, `input_embedders_parameters`), so a critic
may read other observations than the policy, such as the state of all agents. Choices that the parameters leave open are
made here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import keras

from tfsac.errors import TfsacError
from tfsac.networks.bodies import Layers, plain_layers
from tfsac.networks.initializers import Initializers
from tfsac.parameters import Conv2d, InputEmbedderParameters, NetworkParameters, Scheme
from tfsac.parameters.base import nearest
from tfsac.parameters.networks import OBSERVATION_KEY
from tfsac.types import ACTION_MASK, AGENT_STATE, ArraySpec, Spec

MEDIUM = (Conv2d(32, 8, 4), Conv2d(64, 4, 2), Conv2d(64, 3, 1))
VECTOR_SCHEMES: dict[Scheme, Layers] = {
    Scheme.Empty: (),
    Scheme.Shallow: (128,),
    Scheme.Medium: (256,),
    Scheme.Deep: (128, 128, 128),
}
IMAGE_SCHEMES: dict[Scheme, Layers] = {Scheme.Shallow: (Conv2d(32, 3, 1),), Scheme.Medium: MEDIUM}
MAX_POSITIONS = 16  # most positions that convolutions leave of a small image
TO_CHOOSE = (
    "To choose, set agent.networks.*.input_embedders_parameters: "
    "docs/parameters.md#observations-that-a-preset-does-not-describe."
)


def with_keys(name: str, parameters: NetworkParameters, spec: Spec) -> Spec:
    """Returns the spec with only the observations in the network's `observation_keys`.

    Raises:
        TfsacError: an unknown key.
    """
    if parameters.observation_keys is None:
        return spec
    for key in parameters.observation_keys:
        if key not in spec.observation:
            raise TfsacError(
                f"Network {name!r} has {key!r} in its observation_keys, but the environment has "
                f"{', '.join(spec.observation)}.{nearest(key, spec.observation)}"
            )
    return spec._replace(observation={key: spec.observation[key] for key in parameters.observation_keys})


def embedder_layers(
    parameters: InputEmbedderParameters, spec: ArraySpec, initializers: Initializers
) -> list[keras.layers.Layer]:
    """Returns the layers that turn one observation `[B, ...]` into features `[B, F]`."""
    layers: list[keras.layers.Layer] = []
    if spec.dtype != "float32":  # scales bytes to [0, 1]; a mask's booleans become 0 and 1
        layers.append(keras.layers.Rescaling(1 / 255 if spec.dtype == "uint8" else 1.0))
    specs, activation = layers_of(parameters, spec.shape), parameters.activation_function
    convolutions = tuple(layer for layer in specs if isinstance(layer, Conv2d))
    layers += plain_layers(convolutions, activation, initializers)
    if len(spec.shape) != 1:
        layers.append(keras.layers.Flatten())
    return layers + plain_layers(specs[len(convolutions) :], activation, initializers)


def layers_of(embedder: InputEmbedderParameters, shape: tuple[int, ...]) -> Layers:
    """Returns the convolutions and the widths of the dense layers of an embedder."""
    if not isinstance(embedder.scheme, Scheme):
        return embedder.scheme
    if len(shape) == 3 and not embedder.flatten and embedder.scheme in IMAGE_SCHEMES:
        return IMAGE_SCHEMES[embedder.scheme]
    return VECTOR_SCHEMES[embedder.scheme]


def with_embedders(
    name: str, parameters: NetworkParameters, observation: Mapping[str, ArraySpec]
) -> tuple[NetworkParameters, str]:
    """Returns a network's parameters with an embedder for every key that it reads, and a note on the choices that they
    left open, or "".

    Parameters with only an "observation" embedder use it for every key of a Dict except the mask. An image whose
    embedder has no convolutions gets the usual ones before the embedder's dense layers.

    Raises:
        TfsacError: an embedder that does not fit its observation, or for an unknown key.
    """
    embedders, unsaid = dict(parameters.input_embedders_parameters), list[str]()
    keys = [key for key in observation if key != ACTION_MASK]
    if parameters.observation_keys is not None:
        default = embedders.get(OBSERVATION_KEY, InputEmbedderParameters())
        embedders = {key: embedders.get(key, default) for key in parameters.observation_keys}
    elif [*embedders] == [OBSERVATION_KEY] and keys != [OBSERVATION_KEY] and AGENT_STATE not in observation:
        embedders = {key: embedders[OBSERVATION_KEY] for key in keys}
        unsaid.append(
            f"The environment has {', '.join(keys)}, and the preset names only {OBSERVATION_KEY!r}: "
            "the networks read all of them."
        )
    for key, embedder in embedders.items():
        if key not in observation:
            raise TfsacError(
                f"Network {name!r} has an embedder for {key!r}, but the environment has {', '.join(observation)}."
                f"{nearest(key, observation)} {TO_CHOOSE}"
            )
        shape = observation[key].shape
        usual, layers = usual_convolutions(shape), layers_of(embedder, shape)
        is_dense = not any(isinstance(layer, Conv2d) for layer in layers)
        if usual and is_dense and not embedder.flatten:
            layers, is_dense = (*usual, *layers), False
            embedders[key] = dataclasses.replace(embedder, scheme=layers)
            which = "those of the scheme Medium" if usual == MEDIUM else "with a stride of 2"
            unsaid.append(
                f"The preset does not specify how to embed the image {key!r} of shape {shape}: convolutions, {which}."
            )
        if not ((embedder.flatten or len(shape) == 1) if is_dense else len(shape) == 3 and have_room(layers, shape)):
            raise TfsacError(
                f"Observation {key!r} of shape {shape} is neither a vector nor an image [height, width, channels] "
                f"large enough for the convolutions of its embedder: other arrays need flatten. {TO_CHOOSE}"
            )
    if unsaid:
        unsaid.append(TO_CHOOSE)
    return dataclasses.replace(parameters, input_embedders_parameters=embedders), " ".join(unsaid)


def usual_convolutions(shape: tuple[int, ...]) -> tuple[Conv2d, ...]:
    """Returns the convolutions for an image `[height, width, channels]` whose embedder has none; () for an array that
    is not an image, or has its channels first.

    They are those of the scheme Medium or, if a side is too small for it, layers that halve both sides until at most 16
    positions are left.
    """
    channels_first = len(shape) == 3 and shape[0] <= 4 < min(shape[1:])
    if len(shape) != 3 or channels_first or min(shape[:2]) < 3:
        return ()
    if have_room(MEDIUM, shape):
        return MEDIUM
    layers, sides = list[Conv2d](), list(shape[:2])
    while not layers or math.prod(sides) > MAX_POSITIONS:
        layers.append(Conv2d(32 if layers else 16, 4, 2, "same"))
        sides = list(map(layers[-1].side, sides))
    return tuple(layers)


def have_room(layers: Layers, shape: tuple[int, ...]) -> bool:
    """Returns whether an image `[height, width, channels]` is large enough for the convolutions."""
    side = min(shape[:2])
    for layer in layers:
        if isinstance(layer, Conv2d) and side > 0:
            side = layer.side(side)
    return side > 0
