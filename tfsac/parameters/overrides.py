"""Changing single fields of a preset by their path, as the command line does."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any

from tfsac.files import leaves
from tfsac.parameters.base import ParameterError, from_json, nearest, shortened, to_json
from tfsac.parameters.experiment import Preset, RunParameters, plain
from tfsac.parameters.keywords import explains_keywords
from tfsac.parameters.other_names import HIDDEN_LAYERS, lacking, meant_paths, meant_run_parameter, note_about
from tfsac.parameters.steps import STEPS


def parse_assignment(text: str) -> tuple[str, Any]:
    """Splits ``path=value``; the value is JSON where it parses as such (1e-3, true, null, [64, 64]), else a string.

    Raises:
        ParameterError: no equals sign, or a value with brackets that is no JSON.
    """
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise ParameterError(f"An override is written path=value. Received: {text!r}")
    if re.fullmatch(r"-?\d[\d_]*", value):  # underscores may group digits, as in Python
        value = value.replace("_", "")
    try:
        return path.strip(), json.loads(value)
    except RecursionError as error:
        raise ParameterError(
            f"The value of {path.strip()} is nested too deeply. Received: {value[:20]}... of {len(value)} characters"
        ) from error
    except ValueError as error:  # no JSON, or a number with thousands of digits
        if value.startswith(("[", "{")):
            raise ParameterError(
                f'The value of {path.strip()} is no JSON, as [64, 64] or {{"kind": "fixed"}} are ({error}). Received: '
                f"{value!r}"
            ) from error
        return path.strip(), value


def text_of(value: Any) -> str:
    """Returns a value as one types it."""
    plain = False
    with contextlib.suppress(ParameterError):  # a text that begins as JSON does
        plain = isinstance(value, str) and parse_assignment(f"x={value}")[1] == value
    return value if plain else json.dumps(value, separators=(",", ":"))


def parameter_texts(made: Any) -> dict[str, str]:
    """Returns everything in a parameter object, but for a preset's table of levels, as one types it, by path."""
    described = {name: part for name, part in to_json(made).items() if name != "levels"}
    return {path: text_of(value) for path, value in leaves(described, empty=True)}


def covers(path: str, other: str) -> bool:
    """Returns whether setting the value at a path also sets the one at another path; both may have a `*`."""
    parts, others = path.split("."), other.split(".")
    return len(parts) <= len(others) and all(part in ("*", named) for part, named in zip(parts, others, strict=False))


@explains_keywords
def override(preset: Preset, changes: Mapping[str, Any]) -> Preset:
    """Returns the preset with some fields changed.

    Args:
        preset: the experiment to start from; it stays as it is.
        changes: new values by path, such as ``{"agent.algorithm.discount": 0.98}``. A ``*`` in a path stands for every
            entry at that place: ``agent.networks.*.learning_rate``; ``agent.hidden_layers`` sets those of policy and
            critics, [256, 256].

    Raises:
        ParameterError: a path that does not exist (naming the nearest field), a wrong type or value.
    """
    if not isinstance(preset, Preset):
        name = preset if isinstance(preset, str) else "pendulum_sac"
        raise ParameterError(
            f"preset is a Preset, as tfsac.load_preset({name!r}) returns it. Received: {shortened(preset)}"
        )
    if not isinstance(changes, Mapping):
        raise ParameterError(
            f"changes are a dict of values by path, such as {{'agent.algorithm.discount': 0.98}}. Received: {changes!r}"
        )
    tree = to_json(preset)
    for path, value in changes.items():
        if not isinstance(path, str):
            raise ParameterError(f"A path is a string, such as 'agent.algorithm.discount'. Received: {path!r}")
        if path == HIDDEN_LAYERS:
            layers = tuple(value) if isinstance(value, list) else value
            tree["agent"] = to_json(from_json(Preset, json.dumps(tree)).agent.with_hidden_layers(layers))
            continue
        _assign(tree, path.split("."), plain(path, value), path, tree)
        with contextlib.suppress(ParameterError):  # the next change may set what this one left to its default
            tree = to_json(from_json(Preset, json.dumps(tree)))
    try:
        return from_json(Preset, json.dumps(tree))
    except ParameterError as error:
        kinds = [path.removesuffix(".kind") for path in changes if path.endswith(".kind")]
        if not kinds or "has no parameter" not in str(error):
            raise
        said, _, received = str(error).rpartition(" Received: ")
        raise ParameterError(
            f'Another kind comes with its own fields, in one value: {kinds[0]}={{"kind": ..., ...}}. {said} '
            f"Received: {received}"
        ) from None


def _assign(node: Any, parts: list[str], value: Any, path: str, tree: dict[str, Any]) -> None:
    # Entries of these dicts are named by the user, so a new key is not a mistake.
    free = path.startswith(("environment.kwargs.", "levels.")) or ".optimizer_kwargs." in path
    free = free and len(parts) == 1 and parts[0] != "*"
    keys = (list(node) if parts[0] == "*" and isinstance(node, dict) else []) or parts[:1]
    for key in keys:
        if not isinstance(node, dict) or (key not in node and not free):
            names = list(node) if isinstance(node, dict) else []
            listed = f" Fields there: {', '.join(names)}." if names else ""
            about = _about(".".join(parts), key, names, tree, value)
            whole = path.split(".")[: -len(parts)]
            if whole[-1:] == ["input_embedders_parameters"] and not about:
                others = f'{".".join(whole)}={{"{key}": {{"scheme": [64]}}, ...}}'
                about, listed = f" The network reads {', '.join(names)}; to read others, name them all: {others}.", ""
            raise ParameterError(f"There is no parameter {path!r}.{about}{listed} Received: {key!r}")
        if len(parts) > 1:
            _assign(node[key], parts[1:], value, path, tree)
        elif _is_whole(value) and isinstance(node.get(key), str) and (steps := STEPS.fullmatch(node[key])):
            # A bare number keeps the unit: improve_steps=5000 leaves EnvironmentSteps what it is.
            node[key] = f"{steps[1]}({int(value)})"
        else:
            node[key] = value


def _is_whole(value: Any) -> bool:
    return type(value) is int or (isinstance(value, float) and value.is_integer())


def _about(unknown: str, key: str, fields: list[str], tree: dict[str, Any], value: Any) -> str:
    """Returns what may have been meant by the unknown rest of a path, or by its first key."""
    run_parameter = meant_run_parameter(unknown)
    if run_parameter in RunParameters.__dataclass_fields__:
        return f" It belongs to a run: tfsac train --{run_parameter}, tfsac.RunParameters({run_parameter}=...)."
    paths = meant_paths(unknown, tree, value)
    if not paths:
        return lacking(unknown) or nearest(key, fields)
    names = [name if (name := path.rpartition(".")[2]) in fields else path for path in paths]
    return f" Did you mean {' and '.join(map(repr, names))}{note_about(paths[0])}?"


def for_level(preset: Preset, level: str) -> Preset:
    """Returns the preset for another level, with what its `levels` table says of it.

    A level without an acceptance threshold in that table has none, and all entries of its observations are visible: the
    preset's threshold and entries belong to another task.
    """
    if level == preset.environment.level:
        return preset
    of_level = preset.levels.get(level, {})
    changes: dict[str, Any] = {"environment.level": level, "environment.visible_entries": None}
    if "validation.min_reward_threshold" not in of_level:
        changes |= {"validation.min_reward_threshold": None, "validation.max_episodes_to_achieve_reward": None}
    return override(preset, changes | of_level)
