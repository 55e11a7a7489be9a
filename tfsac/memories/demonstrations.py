"""Demonstrations: complete episodes of any policy, in an npz file without pickle or in a Minari dataset."""

from __future__ import annotations

import itertools
import json
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pydantic

from tfsac.errors import TfsacError
from tfsac.memories.transitions import NEXT, TransitionMemory
from tfsac.types import (
    ACTION_MASK,
    OBSERVATION,
    DiscreteSpec,
    HybridSpec,
    Spec,
    action_fields,
    action_in,
    is_valid,
    limits_of,
    map_action,
    same_bounds,
    some_valid,
)
from tfsac.utils.files import atomic_write, new_file, read_arrays

FORMAT = 1
KIND, META, RETURNS = "a demonstration file", "meta", "returns"
SUFFIX = ".npz"
MINARI = "minari:"


class Demonstrations(NamedTuple):
    """Transitions of complete episodes, in order.

    Attributes:
        records: `[K]`, with the fields of `TransitionMemory.ring`, stacks of frames as whole arrays.
        level: the environment they come from; "" if a Minari dataset names none.
        returns: `[E]`, undiscounted return of each episode.
        visible_entries: those of the recorded run's environment; None if it had none, or they are not known.
        action_bounds: (low, high) of the environment's continuous actions, which map to -1 and 1, as nested lists; None
            for discrete actions or unknown bounds.
    """

    records: np.ndarray
    level: str
    returns: np.ndarray
    visible_entries: tuple[int, ...] | None = None
    action_bounds: tuple[list[Any], list[Any]] | None = None


def action_bounds_of(spec: Spec) -> tuple[list[Any], list[Any]] | None:
    """Returns low and high of continuous actions, as in `Demonstrations`; None for discrete ones."""
    action = spec.action
    if isinstance(action, DiscreteSpec) or action.low is None or action.high is None:
        return None
    return action.low.tolist(), action.high.tolist()


def save_demonstrations(path: str | pathlib.Path, demonstrations: Demonstrations) -> None:
    """Writes demonstrations; actions are in [-1, 1] or numbered from 0, rewards and observations are raw.

    Raises:
        FileExistsError, ValueError, OSError: as in `tfsac.utils.files.new_file`.
    """
    new_file(path, SUFFIX)
    origin = {"visible_entries": demonstrations.visible_entries, "action_bounds": demonstrations.action_bounds}
    origin_fields = {key: value for key, value in origin.items() if value is not None}
    meta = json.dumps({"format": FORMAT, "level": demonstrations.level, **origin_fields})
    fields: dict[str, Any] = {name: demonstrations.records[name] for name in demonstrations.records.dtype.names or ()}
    with atomic_write(pathlib.Path(path)) as file:
        np.savez_compressed(file, meta=np.array(meta), returns=demonstrations.returns, **fields)


def load_demonstrations(
    path: str | pathlib.Path,
    spec: Spec,
    level: str | None = None,
    num_episodes: int | None = None,
    inverse: Callable[[Any], Any] | None = None,
    visible_entries: Sequence[int] | None = None,
) -> Demonstrations:
    """Reads demonstrations and checks them against an environment.

    Args:
        path: a file from `save_demonstrations`, or "minari:" and the id of a Minari dataset on this machine.
        spec: spec of the environment; demonstrations have none of its extras.
        level: level of the environment, or None for any with the same spec.
        num_episodes: number of episodes to load, from the first on; None for all.
        inverse: maps the environment's actions, which Minari datasets store, to the agent's; files need none.
        visible_entries: those of the environment, with `level`; None if all are visible in their own order.

    Raises:
        FileNotFoundError: no such file or dataset.
        TfsacError: a file that is not of demonstrations, empty, truncated or not finite; another level, visible entries
            or action bounds; shapes or dtypes that differ from the spec; actions that the agent cannot take; too few
            episodes; or Minari is not installed.
    """
    layout = TransitionMemory(spec._replace(extras={}, num_rewards=None).unstacked(), 1).ring.dtype
    if minari := str(path).startswith(MINARI):
        if inverse is None:
            raise TfsacError(f"{path} has the environment's actions: pass inverse, such as action_map(spec).inverse")
        fields, recorded_level, returns = _read_minari(str(path).removeprefix(MINARI), num_episodes)
        if isinstance(spec.action, HybridSpec):
            try:
                fields |= action_fields(inverse(fields.pop("action")))
            except (LookupError, TypeError, ValueError) as error:
                raise TfsacError(f"{path} does not fit the environment: its action spaces differ") from error
        origin = _Origin(format=1, level=recorded_level)
    else:
        fields = read_arrays(pathlib.Path(path), KIND)
        try:
            origin = _Origin.model_validate_json(str(fields.get(META)))
        except pydantic.ValidationError as error:
            problem = f"{META} is {str(fields.get(META))[:200]!r}"
            raise TfsacError(f"{path} is not a demonstration file of format {FORMAT}: {problem}") from error
        returns = np.asarray(fields.get(RETURNS, ()), float)
    if level is not None:
        _check_origin(path, origin, level, visible_entries)
    _check_layout(path, fields, layout)
    if minari and inverse and not isinstance(spec.action, HybridSpec):
        fields["action"] = inverse(fields["action"])
    records = np.zeros(len(fields["reward"]), layout)
    for name in layout.names or ():
        with np.errstate(over="ignore"):  # values too large for float32 become infinite, which is rejected
            records[name] = fields[name]
    ends = np.flatnonzero(records["terminated"] | records["truncated"])
    if returns.shape != ends.shape or ends[-1:].tolist() != [len(records) - 1]:
        raise TfsacError(
            f"{path} is truncated: {len(records)} steps must end with an episode and have a return for each, got "
            f"{len(ends)} ends of episodes and {len(returns)} returns"
        )
    _check_values(path, records, returns, action_in(fields, fields), spec)
    current, bounds = action_bounds_of(spec), origin.action_bounds
    if bounds and current and not all(map(same_bounds, bounds, current)):
        raise TfsacError(
            f"{path} was recorded with other bounds of actions: this environment has {current}, got {bounds}"
        )
    if num_episodes is not None:
        if not 1 <= num_episodes <= len(returns):
            raise TfsacError(f"num_episodes must be 1 to {len(returns)}, which {path} has, got {num_episodes}")
        records, returns = records[: ends[num_episodes - 1] + 1], returns[:num_episodes]
    return Demonstrations(records, origin.level, returns, origin.visible_entries, bounds)


class _Origin(pydantic.BaseModel):
    """A file's metadata on its origin."""

    format: Literal[1]
    level: str
    visible_entries: tuple[int, ...] | None = None
    action_bounds: tuple[list[Any], list[Any]] | None = None


def _check_origin(path: str | pathlib.Path, origin: _Origin, level: str, visible_entries: Sequence[int] | None) -> None:
    """Checks that demonstrations come from this environment; a bare class name may belong to any level."""
    names = [name.rpartition(":")[2] for name in (origin.level, level)]  # without the module that registers it
    if names[0] != names[1] and all(re.search(r"[-_]v\d+$", name) for name in names):
        raise TfsacError(
            f"{path} comes from another environment: this one is {level}, got {origin.level}. Record your own with "
            f"`tfsac record` and pass --set=agent.memory.demonstrations=FILE"
        )
    entries, recorded = list(visible_entries or ()), origin.visible_entries
    if recorded is None:  # all in their own order; the shape shows if there are fewer
        differ = entries != sorted(entries) and sorted(entries) == list(range(len(entries)))
    else:
        differ = list(recorded) != entries
    if differ:
        raise TfsacError(f"{path} was recorded with visible_entries={recorded}, got {visible_entries}")


def _check_layout(path: str | pathlib.Path, fields: Mapping[str, np.ndarray], layout: np.dtype) -> None:
    """Checks names, shapes, dtypes and lengths of fields."""
    lengths = set()
    for name in layout.names or ():
        if name not in fields:
            raise TfsacError(f"{path} does not fit the environment: it lacks {name!r} and has {sorted(fields)}")
        expected, field = layout[name], np.asarray(fields[name])
        fits = field.ndim and field.shape[1:] == expected.shape
        if not fits or not np.can_cast(field.dtype, expected.base, "same_kind"):
            requirement = f"{name} must be {expected.base} of steps x {expected.shape}"
            raise TfsacError(f"{path} does not fit the environment: {requirement}, got {field.dtype} {field.shape}")
        lengths.add(len(field))
    if len(lengths) > 1 or 0 in lengths:
        raise TfsacError(f"{path} is empty or truncated: its fields have {sorted(lengths)} steps")


def _check_values(path: str | pathlib.Path, records: np.ndarray, returns: np.ndarray, action: Any, spec: Spec) -> None:
    """Checks that values are finite, and that the agent can take the actions (before their conversion) and masks allow
    them.
    """
    arrays = {**{name: records[name] for name in records.dtype.names or ()}, RETURNS: returns}
    if infinite := [name for name, array in arrays.items() if not np.isfinite(array).all()]:
        raise TfsacError(f"{path} has values that are not finite in {', '.join(infinite)}")
    for part, low, high in limits_of(action, spec.action):
        if ((part < low - 1e-5) | (part > high + 1e-5)).any():
            ranges = f"[{low}, {high}] are allowed, got {part.min()} to {part.max()}"
            raise TfsacError(f"{path} has actions that this agent cannot take: {ranges}")
    mask = OBSERVATION + ACTION_MASK
    if mask in arrays:
        chosen = is_valid(action_in(records, records.dtype.names or ()), records[mask], spec.action)
        allowed = some_valid(records[NEXT + ACTION_MASK], spec.action)
        # Both have an entry for each team member.
        valid, continues = (entries.reshape(len(records), -1).all(axis=1) for entries in (chosen, allowed))
        invalid = np.flatnonzero(~(valid & (continues | records["terminated"])))
        if len(invalid):
            rule = "does not allow the action, or no action after a step that did not terminate"
            raise TfsacError(f"{path} has a mask that {rule}, at step {invalid[0]}")


def _read_minari(dataset_id: str, num_episodes: int | None = None) -> tuple[dict[str, Any], str, np.ndarray]:
    """Reads a Minari dataset of this machine, such as "mujoco/halfcheetah/expert-v0".

    Returns:
        fields `[K, ...]` by their names in `TransitionMemory.ring`, with raw actions of the environment; the
        environment's id, "" if the dataset names none; the undiscounted return of each episode, `[E]`. Unfinished
        episodes are truncated.
    """
    try:
        import minari
    except ImportError as error:
        raise TfsacError("Minari datasets need: pip install 'tfsac[minari]'") from error
    local = minari.list_local_datasets()
    if dataset_id not in local:
        raise FileNotFoundError(f"Minari datasets on this machine are {', '.join(local) or 'none'}, got {dataset_id}")
    dataset = minari.load_dataset(dataset_id)
    episodes = [_minari_steps(episode) for episode in itertools.islice(dataset.iterate_episodes(), num_episodes)]
    if not episodes:
        raise TfsacError(f"The Minari dataset {dataset_id} has no episodes")
    fields = {
        name: map_action(lambda *parts: np.concatenate(parts), *(steps[name] for steps in episodes))
        for name in episodes[0]
    }
    level = dataset.env_spec.id if dataset.env_spec else ""
    return fields, level, np.array([steps["reward"].sum() for steps in episodes])


def _minari_steps(episode: Any) -> dict[str, Any]:
    observations, terminated, truncated = episode.observations, episode.terminations, np.array(episode.truncations)
    truncated[-1:] |= ~terminated[-1:]
    steps = {"action": episode.actions, "reward": episode.rewards, "terminated": terminated, "truncated": truncated}
    for key, array in (observations if isinstance(observations, dict) else {"observation": observations}).items():
        if key == ACTION_MASK:  # a MultiBinary space keeps integers
            array = np.asarray(array) != 0
        steps |= {OBSERVATION + key: array[:-1], NEXT + key: array[1:]}
    return steps
