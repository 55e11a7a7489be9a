"""Which layers embed each observation that an environment gives, and the usual ones where a network's parameters do
not say.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from tfsac.parameters import Conv2d, EmbedderScheme, InputEmbedderParameters, NetworkParameters
from tfsac.parameters.base import nearest
from tfsac.types import ACTION_MASK, AGENT_STATE, TARGET, ArraySpec

VECTOR_SCHEMES: dict[EmbedderScheme, tuple[int | Conv2d, ...]] = {
    EmbedderScheme.Empty: (),
    EmbedderScheme.Shallow: (128,),
    EmbedderScheme.Medium: (256,),
    EmbedderScheme.Deep: (128, 128, 128),
}
MEDIUM = (Conv2d(32, 8, 4), Conv2d(64, 4, 2), Conv2d(64, 3, 1))
IMAGE_SCHEMES: dict[EmbedderScheme, tuple[int | Conv2d, ...]] = {
    EmbedderScheme.Shallow: (Conv2d(32, 3, 1),),
    EmbedderScheme.Medium: MEDIUM,
}
BEFORE_STRIDES = Conv2d(32, 3, 1)  # what earlier versions gave an image that is too small for the scheme Medium
MOST_POSITIONS = 16  # that convolutions leave of such an image
USUAL = "observation"  # the key of an environment without a Dict, which presets read


def with_embedders(
    name: str,
    parameters: NetworkParameters,
    observation: Mapping[str, ArraySpec],
    small: tuple[Conv2d, ...] = (),
) -> tuple[NetworkParameters, str]:
    """Returns a network's parameters with an embedder for all that it reads, and a line of what they did not say, or
    nothing.

    Parameters that know an "observation" alone read every key of a Dict, but no mask, and each like that one. An image
    whose embedder has no convolutions gets the usual ones before the embedder's dense layers.

    Args:
        name: of the network.
        parameters: as the preset has them.
        observation: what the environment gives, of one agent.
        small: instead of the usual convolutions of images that are too small for the scheme Medium.

    Raises:
        ValueError: an embedder that does not fit its observation, or for a key that there is not; the message has the
            `--set` that mends it.
    """
    embedders, unsaid = dict(parameters.input_embedders_parameters), list[str]()
    keys = [key for key in observation if key != ACTION_MASK]
    if [*embedders] == [USUAL] and keys != [USUAL] and AGENT_STATE not in observation:
        embedders = {key: embedders[USUAL] for key in keys}
        unsaid.append(
            f"The environment gives {', '.join(keys)}, and the preset reads {USUAL!r} alone: "
            "the networks read all of them."
        )
    for key in embedders:
        if key not in observation:
            raise ValueError(
                f"Network {name!r} has an embedder for an observation that the environment does not give; "
                f"it gives {', '.join(observation)}.{nearest(key, observation)} To read these, "
                f"{_advice(name, (), observation)}. Received: {key!r}"
            )
    advice = _advice(name, embedders, observation)
    for key, embedder in embedders.items():
        shape = observation[key].shape
        usual = usual_convolutions(shape)
        if usual and not embedder.flatten and not is_convolutional(embedder):
            dense = VECTOR_SCHEMES[embedder.scheme] if isinstance(embedder.scheme, EmbedderScheme) else embedder.scheme
            embedders[key] = dataclasses.replace(
                embedder, scheme=(*(usual if usual == MEDIUM else small or usual), *dense)
            )
            which = (
                "the convolutions of the scheme Medium do" if usual == MEDIUM else "convolutions with a stride of 2 do"
            )
            unsaid.append(f"The preset does not say how to embed the image {key!r} of shape {shape}: {which}.")
        check(key, embedders[key], shape, advice)
    if unsaid:
        unsaid.append("To choose: docs/parameters.md#observations-that-a-preset-does-not-describe.")
    return dataclasses.replace(parameters, input_embedders_parameters=embedders), " ".join(unsaid)


def is_convolutional(embedder: InputEmbedderParameters) -> bool:
    """Returns whether an embedder has convolutions where it reads an image."""
    scheme = embedder.scheme
    return (
        scheme in IMAGE_SCHEMES
        if isinstance(scheme, EmbedderScheme)
        else any(isinstance(layer, Conv2d) for layer in scheme)
    )


def usual_convolutions(shape: tuple[int, ...]) -> tuple[Conv2d, ...]:
    """Returns the convolutions of an image `[height, width, channels]` whose embedder has none; nothing for an array
    that is no image.

    They are those of the scheme Medium or, where a side is too small for it, layers that halve both sides until at most
    16 positions are left.
    """
    if len(shape) != 3 or channels_first(shape) or min(shape[:2]) < 3:
        return ()
    if too_large(MEDIUM, shape) is None:
        return MEDIUM
    layers, sides = list[Conv2d](), list(shape[:2])
    while not layers or math.prod(sides) > MOST_POSITIONS:
        layers.append(Conv2d(32 if layers else 16, 4, 2, "same"))
        sides = list(map(layers[-1].side, sides))
    return tuple(layers)


def as_trained(agent: Any, environment: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Returns the parameters of a run's agent with the convolutions over small images that it was trained with.

    Args:
        agent: as a config, or a checkpoint, has it.
        environment: from there. Without `logged_info` it is of a version whose usual convolutions had no strides.
        shapes: of the observations by key.
    """
    usual = [usual_convolutions(shape) for shape in shapes.values()]
    if "logged_info" in environment or AGENT_STATE in shapes or all(layers in ((), MEDIUM) for layers in usual):
        return agent
    observation, networks = {key: ArraySpec(shape, "float32") for key, shape in shapes.items()}, dict(agent.networks)
    for name, network in networks.items():
        if network.input_embedders_parameters.keys() <= {*observation, USUAL}:
            networks[name] = with_embedders(name, network, observation, (BEFORE_STRIDES,))[0]
    return dataclasses.replace(agent, networks=networks)


def channels_first(shape: tuple[int, ...]) -> bool:
    """Returns whether an array looks like an image `[channels, height, width]`."""
    return len(shape) == 3 and shape[0] <= 4 < min(shape[1:])


def layers_of(embedder: InputEmbedderParameters, shape: tuple[int, ...]) -> tuple[int | Conv2d, ...]:
    """Returns the convolutions and the widths of the dense layers of an embedder that `check` accepts."""
    if not isinstance(embedder.scheme, EmbedderScheme):
        return embedder.scheme
    return (IMAGE_SCHEMES if len(shape) == 3 and not embedder.flatten else VECTOR_SCHEMES)[embedder.scheme]


def too_large(layers: tuple[int | Conv2d, ...], shape: tuple[int, ...]) -> Conv2d | None:
    """Returns the first convolution that an image `[height, width, channels]` has no room for, or None."""
    side = min(shape[:2])
    for layer in layers:
        if isinstance(layer, Conv2d):
            side = layer.side(side)
            if side < 1:
                return layer
    return None


def check(key: str, embedder: InputEmbedderParameters, shape: tuple[int, ...], advice: str) -> None:
    """Checks that an embedder can read an observation.

    Args:
        key: of the observation.
        embedder: that reads it.
        shape: of the observation.
        advice: ends messages, with a command.

    Raises:
        ValueError: convolutions over something that is not an image, or an image too small for them; dense layers over
            something that is not a vector, unless they are to flatten it.
    """
    image = len(shape) == 3
    if isinstance(embedder.scheme, EmbedderScheme):
        convolutional = image and not embedder.flatten and is_convolutional(embedder)
    else:
        convolutional = is_convolutional(embedder)
    if convolutional and not image:
        raise ValueError(
            f"Convolutions need an image [height, width, channels]: {advice}. Received: {key!r} of shape {shape}"
        )
    large = too_large(layers_of(embedder, shape), shape) if convolutional else None
    if large is not None:
        raise ValueError(f"Image {key!r} is too small for {large}: {advice}. Received: shape {shape}")
    if len(shape) != 1 and not convolutional and not embedder.flatten:
        what = (
            "is too small for convolutions" if image else "is neither a vector nor an image [height, width, channels]"
        )
        if channels_first(shape):
            what = (
                "has its channels first; gymnasium.wrappers.TransformObservation moves them last, "
                "as convolutions here read them"
            )
        raise ValueError(f"Observation {key!r} {what}. To flatten it, {advice}. Received: shape {shape}")


def _advice(name: str, read: Collection[str], observation: Mapping[str, ArraySpec]) -> str:
    """Returns the words of a command that gives a network embedders which fit.

    Args:
        name: of the network.
        read: keys that it reads; none for all that it is meant for.
        observation: what the environment gives.
    """
    keys = [key for key in read if key in observation] or [key for key in observation if key != ACTION_MASK]
    team = AGENT_STATE in observation
    if team and not read:
        common = [key for key in keys if key != AGENT_STATE]
        keys = [AGENT_STATE] if name.startswith("policy") or not common else common
    fitting: dict[str, dict[str, Any]] = {}
    for key in keys:
        shape = observation[key].shape
        usual = usual_convolutions(shape)
        if usual:
            fitting[key] = {"scheme": "Medium" if usual == MEDIUM else [dataclasses.asdict(layer) for layer in usual]}
        else:
            fitting[key] = {"scheme": [256]} if len(shape) == 1 else {"scheme": [256], "flatten": True}
    network = name.removesuffix(TARGET) if team or name.startswith("trunk") else "*"
    return f"add --set='agent.networks.{network}.input_embedders_parameters={json.dumps(fitting)}'"
