"""Demonstration files: whole episodes of some policy, as an npz file without pickle."""

from __future__ import annotations

import json
import pathlib
from typing import Any, NamedTuple

import numpy as np

from tfsac.types import Spec

FORMAT = 1


class Demonstrations(NamedTuple):
    """Transitions of whole episodes, in order.

    Attributes:
        records: `[K]`, with the fields of `TransitionMemory.ring`.
        level: the environment they come from.
        returns: `[E]`, undiscounted return of each episode.
    """

    records: np.ndarray
    level: str
    returns: np.ndarray


def check_new(path: pathlib.Path) -> None:
    """Refuses a path that demonstrations cannot be written to.

    Raises:
        FileExistsError: there is a file already.
        ValueError: the file's name does not end in .npz.
    """
    if path.suffix != ".npz":
        raise ValueError(f"Demonstrations are written to a .npz file. Received: {path}")
    if path.exists():
        raise FileExistsError(f"Demonstrations are written to a new file. Received: {path}")


def save_demonstrations(path: pathlib.Path, demonstrations: Demonstrations) -> None:
    """Writes demonstrations; actions are in [-1, 1], rewards and observations raw.

    Raises:
        FileExistsError, ValueError: as `check_new`.
    """
    check_new(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = json.dumps({"format": FORMAT, "level": demonstrations.level})
    fields: dict[str, Any] = {name: demonstrations.records[name] for name in demonstrations.records.dtype.names or ()}
    aside = path.with_name(f".{path.name}")
    np.savez_compressed(aside, meta=np.array(meta), returns=demonstrations.returns, **fields)
    aside.replace(path)


def load_demonstrations(path: pathlib.Path, spec: Spec) -> Demonstrations:
    """Reads demonstrations and checks them against an environment's spec.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a demonstration file, empty, not finite, or of other shapes than the spec's.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no demonstration file. Received: {path}")
    try:
        with np.load(path) as file:
            fields = dict(file)
        meta, returns = json.loads(str(fields.pop("meta"))), fields.pop("returns")
    except (ValueError, KeyError, EOFError, OSError) as error:
        raise ValueError(f"{path} is not a demonstration file ({error}). Received: {path.stat().st_size} bytes") from error
    shapes = {f"observation/{key}": array.shape for key, array in spec.observation.items()} | {"action": spec.action.shape}
    for name, shape in shapes.items():
        if name not in fields or fields[name].shape[1:] != shape:
            found = fields[name].shape[1:] if name in fields else sorted(fields)
            raise ValueError(f"{path} comes from another environment, {meta.get('level')}: {name} should be {shape}. Received: {found}")
    count = len(fields["action"])
    if not count or any(len(value) != count for value in fields.values()):
        raise ValueError(f"{path} is empty or truncated. Received: {({name: len(value) for name, value in fields.items()})}")
    for name, value in fields.items():
        if not np.isfinite(value).all():
            raise ValueError(f"{path} must be finite. Received: {name} with {int((~np.isfinite(value)).sum())} bad entries")
    records = np.zeros(count, [(name, value.dtype, value.shape[1:]) for name, value in fields.items()])
    for name, value in fields.items():
        records[name] = value
    return Demonstrations(records, meta["level"], returns)
