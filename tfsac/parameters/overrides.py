"""Change single fields of a preset by their path, as the command line does."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tfsac.parameters.base import ParameterError, from_json, suggestion, to_json
from tfsac.parameters.experiment import Preset, plain
from tfsac.parameters.other_names import HIDDEN_LAYERS, PATHS, normalized
from tfsac.parameters.steps import STEPS
from tfsac.utils.files import leaves

OWN_LEVEL = "own"  # entry of `Preset.levels` with the changes that restore the preset's own level


def parse_assignment(text: str) -> tuple[str, Any]:
    """Splits ``path=value``; the value is parsed as JSON if possible (1e-3, true, null, [64, 64]), else a string.
    Python's True, False and None are accepted too, because an environment would treat the string "False" as true.

    Raises:
        ParameterError: no equals sign, or a value in brackets that is not valid JSON.
    """
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise ParameterError(f"An override must have the form path=value, got {text!r}")
    if re.fullmatch(r"-?\d[\d_]*", value):  # underscores may group digits, as in Python
        value = value.replace("_", "")
    value = {"True": "true", "False": "false", "None": "null"}.get(value, value)
    try:
        return path.strip(), json.loads(value)
    except ValueError as error:
        if value.startswith(("[", "{")):
            raise ParameterError(f"{path.strip()} is not valid JSON ({error}), got {value!r}") from error
        return path.strip(), value


def text_of(value: Any) -> str:
    """Returns a value as typed on the command line."""
    unquoted = False
    with contextlib.suppress(ParameterError):  # the string starts like JSON
        unquoted = isinstance(value, str) and parse_assignment(f"x={value}")[1] == value
    return value if unquoted else json.dumps(value, separators=(",", ":"))


def parameter_texts(instance: Any) -> dict[str, str]:
    """Returns all values of a parameter object by path, as typed on the command line; omits a preset's levels."""
    tree = {name: part for name, part in to_json(instance).items() if name != "levels"}
    return {path: text_of(value) for path, value in leaves(tree, empty=True)}


def covers(path: str, other_path: str) -> bool:
    """Returns whether setting the value at `path` also sets the one at `other_path`; both may contain `*`."""
    prefix, parts = path.split("."), other_path.split(".")
    return len(prefix) <= len(parts) and all(part in ("*", named) for part, named in zip(prefix, parts, strict=False))


def override(preset: Preset, changes: Mapping[str, Any]) -> Preset:
    """Returns a copy of the preset with some fields changed.

    Args:
        preset: the original experiment; it is not modified.
        changes: new values by path, such as ``{"agent.algorithm.discount": 0.98}``. A ``*`` in a path matches every
            entry at its position: ``agent.networks.*.learning_rate``. ``agent.hidden_layers`` sets the layers of policy
            and critics, such as [256, 256].

    Raises:
        ParameterError: unknown path (the message names the nearest field), wrong type or invalid value.
    """
    tree = to_json(preset)
    for path, value in changes.items():
        if path == HIDDEN_LAYERS:
            layers = plain(value)
            if not isinstance(layers, list):
                raise ParameterError(f"{HIDDEN_LAYERS} must be a list of widths such as [256, 256], got {value!r}")
            tree["agent"] = to_json(from_json(Preset, tree).agent.with_hidden_layers(tuple(layers)))
            continue
        _assign(tree, path.split("."), plain(value), path, tree)
        with contextlib.suppress(ParameterError):  # fills in defaults; may be invalid until a later change
            tree = to_json(from_json(Preset, tree))
    return from_json(Preset, tree)


def _assign(node: Any, parts: list[str], value: Any, path: str, tree: dict[str, Any]) -> None:
    # Users name the entries of these dicts, so a new key is valid.
    free = path.startswith(("environment.kwargs.", "levels.")) or ".optimizer_kwargs." in path
    free = free and len(parts) == 1 and parts[0] != "*"
    for key in list(node) if parts[0] == "*" and isinstance(node, dict) and node else parts[:1]:
        if not isinstance(node, dict) or (key not in node and not free):
            raise ParameterError(f"There is no parameter {path!r}.{_suggested('.'.join(parts), node, tree)}")
        if len(parts) > 1:
            _assign(node[key], parts[1:], value, path, tree)
        elif type(value) in (int, float) and value % 1 == 0 and (steps := STEPS.fullmatch(str(node.get(key)))):
            # A bare number keeps the current unit: improve_steps=5000 becomes EnvironmentSteps(5000).
            node[key] = f"{steps[1]}({int(value)})"
        else:
            node[key] = value


def _suggested(unknown: str, node: Any, tree: dict[str, Any]) -> str:
    """Returns a hint for the unknown rest of a path at a node of the tree; knows the names of other libraries."""
    paths, fields = [*_paths(tree), HIDDEN_LAYERS], list(node) if isinstance(node, dict) else []
    alias = PATHS.get(normalized(unknown).rpartition(".")[2], "")
    matches = [path for path in paths if f".{path}".endswith(f".{normalized(unknown)}")]
    if matches or alias in paths:
        return f" Did you mean {min(matches, key=lambda path: ('*' not in path, path.count('.')), default=alias)!r}?"
    if alias.startswith("run."):
        name = alias.removeprefix("run.")
        return f" Did you mean the flag --{name}, tfsac.RunParameters({name}=...)?"
    return suggestion(unknown.partition(".")[0], fields) if fields else ""


def _paths(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields the paths of a preset's parameters; a field that all networks have also yields a path with `*`."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        yield path
        if path == "agent.networks":
            first, *rest = ([*_paths(network)] for network in value.values())
            yield from (f"{path}.*.{field}" for field in first if all(field in fields for fields in rest))
        if isinstance(value, Mapping) and path != "levels":  # levels would repeat paths
            yield from _paths(value, f"{path}.")


def for_level(preset: Preset, level: str) -> Preset:
    """Returns the preset for another level, with that level's changes from `levels`. The preset's own threshold and
    visible entries are dropped, and the changes for the current level undone: they belong to another task.
    """
    if level == preset.environment.level:
        return preset
    own = at_own_level(preset)
    if level == own.environment.level:
        return own
    row = preset.levels.get(level, {})
    changes: dict[str, Any] = {"environment.level": level, "environment.visible_entries": None}
    if "validation.min_reward_threshold" not in row:
        changes |= {"validation.min_reward_threshold": None, "validation.max_episodes_to_achieve_reward": None}
    moved = override(own, changes | row)
    return override(moved, {"levels": {**own.levels, OWN_LEVEL: dict(_replaced(to_json(own), to_json(moved)))}})


def _replaced(before: dict[str, Any], after: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields path and old value of each field that differs; of an object whose field names differ, the whole object."""
    for name, old in before.items():
        new = after[name]
        if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
            yield from _replaced(old, new, f"{prefix}{name}.")
        elif old != new:
            yield f"{prefix}{name}", old


def at_own_level(preset: Preset) -> Preset:
    """Returns the preset as it was before `for_level`."""
    levels = dict(preset.levels)
    known = {*_paths(to_json(preset))}  # a later change may have replaced an object
    back = {path: value for path, value in levels.pop(OWN_LEVEL, {}).items() if path in known}
    return override(preset, {**back, "levels": levels})
