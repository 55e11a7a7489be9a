"""Critics of earlier versions, which had layers of their own, as today's, whose weights are stacked."""

from __future__ import annotations

import pathlib
import re
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.utils.files import glob_safe

# Keys of a checkpoint that have a place among others instead of a name: what is trained, the slots of its optimizer,
# the layers of a target network's critics.
NUMBERED = re.compile(r"agent/(?:trained/(\w+)/|optimizers/(\w+)/_variables/|networks/\w+/head_model/_operations/)")
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"  # how the keys of variables end
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def stack_critics(arrays: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Returns the weights of a network with those of its critics stacked.

    Args:
        arrays: layer after layer, of each layer kernel and bias of the first critic, then those of the next.
        shapes: of today's variables; of N critics `[N, F, units]` and `[N, units]`.

    Raises:
        ValueError: these are not the weights of such critics.
    """
    left, stacked = list(arrays), list[np.ndarray]()
    while left and len(stacked) < len(shapes):
        shape = tuple(shapes[len(stacked)])
        if left[0].shape == shape:
            stacked.append(left.pop(0))
        else:
            layers, left = left[: 2 * shape[0]], left[2 * shape[0] :]
            stacked += [np.stack(layers[0::2]), np.stack(layers[1::2])]
    if left or [array.shape for array in stacked] != list(map(tuple, shapes)):
        raise ValueError(f"weights of the shapes {[array.shape for array in arrays]} for {list(shapes)}")
    return stacked


def read_agent(agent: tf.Module, place: pathlib.Path) -> None:
    """Reads the agent of a checkpoint.

    Raises:
        ValueError, LookupError, AssertionError, tf.errors.OpError: it is another one.
    """
    with glob_safe(place) as folder, tempfile.TemporaryDirectory() as temporary:
        checkpoint, path = tf.train.Checkpoint(agent=agent), str(folder / "agent")
        trained = getattr(agent, "trained", {})  # of tfsac's agents
        earlier = tf.train.load_checkpoint(path)
        saved, shapes = earlier.get_variable_to_shape_map(), dict[str, list[int]]()
        for name, variables in trained.items():
            shapes |= {f"agent/trained/{name}/{i}{VALUE}": [*variable.shape] for i, variable in enumerate(variables)}
        if any(saved.get(key, shape) != shape for key, shape in shapes.items()):
            today = tf.train.load_checkpoint(checkpoint.write(f"{temporary}/today"))
            slots = {name: len(variables) for name, variables in trained.items()}
            values = _with_stacked_critics(earlier, today, slots)
            path = f"{temporary}/stacked"
            tf.raw_ops.SaveV2(
                prefix=path,
                tensor_names=list(values),
                shape_and_slices=[""] * len(values),
                tensors=[tf.constant(value) for value in values.values()],
            )
        checkpoint.read(path).assert_consumed()


def _with_stacked_critics(earlier: Any, today: Any, num_trained: dict[str, int]) -> dict[str, Any]:
    """Returns the values of an earlier checkpoint by the keys of today's."""
    shapes = today.get_variable_to_shape_map()
    values = {GRAPH: today.get_tensor(GRAPH)}
    theirs, ours = (_groups(checkpoint.get_variable_to_shape_map()) for checkpoint in (earlier, today))
    for group, keys in ours.items():
        slots = len(keys) // num_trained.get(group[1] or "", len(keys))  # of each variable, one after the other
        for slot in range(slots):
            given, names = ([*each[slot::slots]] for each in (theirs[group], keys))
            stacked = stack_critics([earlier.get_tensor(key) for key in given], [shapes[key] for key in names])
            values |= zip(names, stacked, strict=True)
    return values | {key: earlier.get_tensor(key) for key in shapes if key not in values}


def _groups(shapes: dict[str, Any]) -> dict[tuple[str, str | None], list[str]]:
    """Returns the numbered keys in the order of the layers, by their beginning and the name of the optimizer."""
    groups: dict[tuple[str, str | None], list[str]] = {}

    def place(key: str) -> tuple[list[int], bool]:
        return list(map(int, re.findall(r"\d+", key.replace("output_layer", "layer_999")))), "bias" in key

    for key in sorted(filter(NUMBERED.match, shapes), key=place):
        if match := NUMBERED.match(key):
            groups.setdefault((match[0], match[2]), []).append(key)
    return groups
