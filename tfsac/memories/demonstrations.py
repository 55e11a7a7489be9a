"""Demonstrations: whole episodes of some policy, in an npz file without pickle or in a Minari dataset."""

from __future__ import annotations

import json
import math
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfsac import argument_checks
from tfsac.memories.minari_datasets import read_minari
from tfsac.memories.transitions import TransitionMemory
from tfsac.types import ACTION_MASK, OBSERVATION, DiscreteSpec, Spec, same_bounds
from tfsac.utils.files import Header, atomic_write, new_file, parse_object, read_npz

FORMAT = 1
KIND, META, RETURNS = "a demonstration file", "meta", "returns"
LARGEST_META = 2**20  # bytes
SUFFIX = ".npz"
MINARI = "minari:"


class Demonstrations(NamedTuple):
    """Transitions of whole episodes, in order.

    Attributes:
        records: `[K]`, with the fields of `TransitionMemory.ring`, stacks of frames as whole arrays.
        level: the environment they come from; "" where a Minari dataset names none.
        returns: `[E]`, undiscounted return of each episode.
        visible_entries: that the environment of a run had; None where it had none, or is not known.
        action_bounds: (low, high) of the environment's continuous actions, which -1 and 1 stand for, as nested lists;
            None where actions are discrete, or the bounds are not known.
    """

    records: np.ndarray
    level: str
    returns: np.ndarray
    visible_entries: tuple[int, ...] | None = None
    action_bounds: tuple[list[Any], list[Any]] | None = None


def action_bounds_of(spec: Spec) -> tuple[list[Any], list[Any]] | None:
    """Returns low and high of continuous actions, as `Demonstrations` have them; None for discrete ones."""
    action = spec.action
    if isinstance(action, DiscreteSpec) or action.low is None or action.high is None:
        return None
    return action.low.tolist(), action.high.tolist()


def save_demonstrations(path: str | pathlib.Path, demonstrations: Demonstrations) -> None:
    """Writes demonstrations; actions are in [-1, 1], or numbers from 0, rewards and observations raw.

    Raises:
        TypeError: arguments of other types.
        FileExistsError, ValueError, OSError: as `tfsac.files.new_file`.
    """
    argument_checks.instance(
        "demonstrations", demonstrations, Demonstrations, "Demonstrations, as tfsac.demonstrate returns them"
    )
    records, level, returns, visible, bounds = demonstrations
    for name, value, fits in (
        (
            "records",
            records,
            isinstance(records, np.ndarray) and {"terminated", "truncated"} <= {*(records.dtype.names or ())},
        ),
        ("level", level, isinstance(level, str)),
        ("returns", returns, isinstance(returns, np.ndarray) and returns.dtype.kind in "fiu"),
        ("visible_entries", visible, visible is None or _whole_numbers(visible)),
        ("action_bounds", bounds, bounds is None or _are_bounds(bounds)),
    ):
        if not fits:
            raise TypeError(f"{name} is what tfsac.demonstrate returns. Received: {argument_checks.shown(value)}")
    if returns.shape != (ends := int((records["terminated"] | records["truncated"]).sum()),):
        raise ValueError(
            f"returns has one number for each episode that ends, here {ends}. Received: the shape {returns.shape}"
        )
    new_file(argument_checks.path("path", path, "the path of a new file"), SUFFIX)
    known = {"visible_entries": visible, "action_bounds": bounds}
    meta = json.dumps({"format": FORMAT, "level": level, **{key: x for key, x in known.items() if x is not None}})
    fields: dict[str, Any] = {name: demonstrations.records[name] for name in demonstrations.records.dtype.names or ()}
    with atomic_write(pathlib.Path(path)) as file:
        np.savez_compressed(file, meta=np.array(meta), returns=demonstrations.returns, **fields)


def load_demonstrations(
    path: str | pathlib.Path,
    spec: Spec,
    level: str | None = None,
    num_episodes: int | None = None,
    inverse: Callable[[np.ndarray], np.ndarray] | None = None,
    visible_entries: Sequence[int] | None = None,
) -> Demonstrations:
    """Reads demonstrations and checks them against an environment.

    Args:
        path: a file of `save_demonstrations`, or "minari:" and the id of a Minari dataset of this machine.
        spec: of the environment; demonstrations have none of its extras.
        level: of the environment, or None for any whose spec is the same.
        num_episodes: how many to take, the first ones; None for all.
        inverse: from the environment's actions, which Minari datasets keep, to the agent's; files need none.
        visible_entries: of the environment, for a `level`; None where all are seen in their own order.

    Raises:
        FileNotFoundError: no such file or dataset.
        ImportError: Minari is not installed.
        ValueError: not a demonstration file, empty, truncated, not finite, of another level, with other visible
            entries or bounds of actions, of other shapes or dtypes than the spec's, actions that the agent could not
            take, or fewer episodes than wanted.
    """
    argument_checks.path("path", path, "a demonstration file, or minari: and an id")
    argument_checks.instance("spec", spec, Spec, "the spec of an environment, tfsac.environments.spec_of(env)")
    argument_checks.instance("level", level, (str, type(None)), "the id of an environment, or None")
    if num_episodes is not None and (not isinstance(num_episodes, int | np.integer) or isinstance(num_episodes, bool)):
        raise TypeError(f"num_episodes is a whole number, or None for all. Received: {num_episodes!r}")
    if minari := str(path).startswith(MINARI):
        if inverse is None:
            raise ValueError(
                f"Minari datasets keep the environment's actions, so inverse is needed. Received: None for {path}"
            )
        if num_episodes is not None and num_episodes < 1:
            raise ValueError(f"num_episodes is at least 1, or None for all. Received: {num_episodes}")
        fields, found, returns = read_minari(str(path).removeprefix(MINARI), num_episodes)
        visible, bounds = None, None
    else:
        inverse = np.asarray
        found, visible, bounds = _origin(pathlib.Path(path))
    if level is not None and found and _are_others(found, level):
        raise ValueError(
            f"{path} comes from another environment, {found}; this one is {level}. Record your own with `tfsac record` "
            f"or tfsac.demonstrate, and pass --set=agent.memory.demonstrations=FILE. Received: {found}"
        )
    if level is not None:
        _check_visible_entries(path, visible, visible_entries)
    layout = TransitionMemory(spec._replace(extras={}, num_rewards=None).unstacked(), 1).ring.dtype
    other = f"{path} comes from another environment, {found or 'which it does not name'}:"
    if level is not None and found:
        other = f"{path} does not fit the environment {level}:"
    if minari:
        _check_layout(path, fields, layout, other)
    else:
        fields = _read(pathlib.Path(path), layout, other)
        returns = fields.pop(RETURNS)
    fields["action"] = inverse(fields["action"])
    records = _records(path, fields, layout)
    _check_bounds(path, bounds, spec)
    _check_actions(path, fields["action"], spec)
    _check_masks(path, records)
    ends = np.flatnonzero(records["terminated"] | records["truncated"])
    if not np.issubdtype(returns.dtype, np.number) or not np.isfinite(returns).all():
        raise ValueError(f"{path} must be finite. Received: returns {returns}")
    if returns.shape != ends.shape or ends[-1:].tolist() != [len(records) - 1]:
        raise ValueError(
            f"{path} is truncated: it ends with an episode and has a return for each. "
            f"Received: {len(ends)} ends of episodes and returns of shape {returns.shape} in {len(records)} steps"
        )
    if num_episodes is None:
        return Demonstrations(records, found, returns, visible, bounds)
    if not 1 <= num_episodes <= len(returns):
        raise ValueError(f"num_episodes is 1 to {len(returns)}, which {path} has. Received: {num_episodes}")
    return Demonstrations(records[: ends[num_episodes - 1] + 1], found, returns[:num_episodes], visible, bounds)


def _origin(path: pathlib.Path) -> tuple[str, tuple[int, ...] | None, tuple[list[Any], list[Any]] | None]:
    """Returns the level of a file, and visible entries of its observations and bounds of its actions if it names
    them.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no demonstration file. Received: {path}")

    def choose(headers: dict[str, Header]) -> list[str]:
        if META not in headers:
            raise ValueError(f"it has no array {META}")
        meta = headers[META]
        if meta.shape or meta.dtype.kind != "U" or meta.dtype.itemsize > LARGEST_META:
            raise ValueError(f"{META} is not a short text")
        return [META]

    text = str(read_npz(path, KIND, choose)[META])
    try:
        meta = parse_object(text)
    except ValueError as error:
        raise ValueError(f"{path} is damaged or not {KIND} ({error}). Received: {META} {text[:100]!r}") from error
    level, visible, bounds = meta.get("level"), meta.get("visible_entries"), meta.get("action_bounds")
    known = (visible is None or _whole_numbers(visible)) and (bounds is None or _are_bounds(bounds))
    if meta.get("format") != FORMAT or not isinstance(level, str) or not known:
        raise ValueError(
            f"{path} is not a demonstration file of format {FORMAT} with level and returns. Received: {text[:300]}"
        )
    return level, None if visible is None else tuple(visible), None if bounds is None else (bounds[0], bounds[1])


def _check_visible_entries(
    path: str | pathlib.Path, recorded: tuple[int, ...] | None, visible_entries: Sequence[int] | None
) -> None:
    if recorded is None:  # all in their own order; of fewer entries, the shape tells
        entries = list(visible_entries or ())
        differ = entries != sorted(entries) and sorted(entries) == list(range(len(entries)))
    else:
        differ = recorded != (visible_entries and tuple(visible_entries))
    if differ:
        raise ValueError(
            f"{path} has other entries of the observation than environment.visible_entries, which is "
            f"{visible_entries}. Received: visible_entries {recorded}"
        )


def _whole_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(type(entry) is int for entry in value)


def _are_bounds(value: Any) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    try:
        low, high = (np.array(bound, np.float64) for bound in value)
    except (TypeError, ValueError):  # no numbers, or lists of different lengths
        return False
    return low.shape == high.shape


def _check_bounds(path: str | pathlib.Path, bounds: tuple[list[Any], list[Any]] | None, spec: Spec) -> None:
    own = action_bounds_of(spec)
    if bounds is None or own is None:
        return
    for name, recorded, expected in zip(("low", "high"), bounds, own, strict=True):
        if not same_bounds(recorded, expected):
            raise ValueError(
                f"{path} comes from an environment whose actions have other bounds: the {name} of this one is "
                f"{expected}. Received: {name}={recorded}"
            )


def _read(path: pathlib.Path, layout: np.dtype, other: str) -> dict[str, np.ndarray]:
    """Returns the fields and the returns of a file; nothing else in it, and nothing of another shape, is unpacked."""

    def choose(headers: dict[str, Header]) -> list[str]:
        fields = {name: header for name, header in headers.items() if name not in (META, RETURNS)}
        if RETURNS not in headers:
            raise ValueError(
                f"{path} is not a demonstration file of format {FORMAT} with level and returns. Received: "
                f"{sorted(headers)}"
            )
        _check_layout(path, fields, layout, other)
        if math.prod(headers[RETURNS].shape) > headers["action"].shape[0]:
            raise ValueError(
                f"{path} has at most one return for each step. Received: returns of the shape {headers[RETURNS].shape}"
            )
        return [*(layout.names or ()), RETURNS]

    return read_npz(path, KIND, choose)


def _check_layout(
    path: str | pathlib.Path, fields: Mapping[str, np.ndarray | Header], layout: np.dtype, other: str
) -> None:
    for name in layout.names or ():
        expected = layout[name]
        if name not in fields:
            raise ValueError(f"{other} {name} should be {expected.shape}. Received: only {', '.join(sorted(fields))}")
        shape, dtype = fields[name].shape[1:], fields[name].dtype
        if shape != expected.shape:
            raise ValueError(f"{other} {name} should be {expected.shape}. Received: {shape}")
        if not np.can_cast(dtype, expected.base, "same_kind"):
            raise ValueError(f"{other} {name} should be {expected.base}. Received: {dtype}")
    lengths = {name: fields[name].shape[0] if fields[name].shape else 0 for name in layout.names or ()}
    if len(set(lengths.values())) > 1 or not lengths["action"]:
        raise ValueError(f"{path} is empty or truncated. Received: {lengths}")


def _records(path: str | pathlib.Path, fields: dict[str, np.ndarray], layout: np.dtype) -> np.ndarray:
    records = np.zeros(len(fields["action"]), layout)
    for name in layout.names or ():
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, which is refused
            records[name] = fields[name]
        wrong = ~np.isfinite(records[name])
        if wrong.any():
            raise ValueError(f"{path} must be finite. Received: {name} with {int(wrong.sum())} bad entries")
    return records


def _check_actions(path: str | pathlib.Path, action: np.ndarray, spec: Spec) -> None:
    if isinstance(spec.action, DiscreteSpec):
        numbers = f"numbers from 0 to {spec.action.num_actions - 1}"
        expected, wrong = numbers, action[(action < 0) | (action >= spec.action.num_actions)]
    else:
        expected, wrong = "in [-1, 1]", action[np.abs(action) > 1.0 + 1e-5]
    if wrong.size:
        raise ValueError(f"Demonstrated actions are {expected}. Received: {wrong[0]} in {path}")


def _check_masks(path: str | pathlib.Path, records: np.ndarray) -> None:
    mask = OBSERVATION + ACTION_MASK
    if mask not in (records.dtype.names or ()):
        return
    valid = (
        np.take_along_axis(records[mask], records["action"][..., None], axis=-1).reshape(len(records), -1).all(axis=1)
    )
    if not valid.all():
        step = int(np.flatnonzero(~valid)[0])
        raise ValueError(
            f"Demonstrated actions are valid in their masks. "
            f"Received: {records['action'][step]} with the mask {records[mask][step].astype(int)} at step {step} in "
            f"{path}"
        )
    following = records[f"next_{mask}"].any(axis=-1).reshape(len(records), -1).all(axis=1) | records["terminated"]
    if not following.all():
        step = int(np.flatnonzero(~following)[0])
        raise ValueError(
            f"Only after a terminated step may a mask have no valid action. Received: next_{mask} of zeros after step "
            f"{step} in {path}"
        )


def _are_others(found: str, level: str) -> bool:
    """Returns whether two levels name different environments; the bare name of a class may be that of any level."""
    one, other = _environment(found), _environment(level)
    return one != other and all(re.search(r"[-_]v\d+$", name) for name in (one, other))


def _environment(level: str) -> str:
    """Returns the name of a level without the module that registers it."""
    return level.rpartition(":")[2]
