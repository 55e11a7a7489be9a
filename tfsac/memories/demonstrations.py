"""Demonstration files: whole episodes of some policy, as an npz file without pickle."""

from __future__ import annotations

import json
import pathlib
from typing import Any, NamedTuple

import numpy as np

from tfsac.files import new_file, read_npz, written_aside
from tfsac.memories.transitions import TransitionMemory
from tfsac.types import Spec

FORMAT = 1
SUFFIX = ".npz"


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


def save_demonstrations(path: pathlib.Path, demonstrations: Demonstrations) -> None:
    """Writes demonstrations; actions are in [-1, 1], rewards and observations raw.

    Raises:
        FileExistsError, ValueError, OSError: as `tfsac.files.new_file`.
    """
    new_file(path, SUFFIX)
    meta = json.dumps({"format": FORMAT, "level": demonstrations.level})
    fields: dict[str, Any] = {name: demonstrations.records[name] for name in demonstrations.records.dtype.names or ()}
    with written_aside(path) as file:
        np.savez_compressed(file, meta=np.array(meta), returns=demonstrations.returns, **fields)


def load_demonstrations(path: pathlib.Path, spec: Spec) -> Demonstrations:
    """Reads demonstrations and checks them against an environment's spec.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a demonstration file, empty, truncated, not finite, actions outside [-1, 1], or of other shapes
            than the spec's.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no demonstration file. Received: {path}")
    fields, meta = read_npz(path, "a demonstration file", "meta")
    level = meta.get("level")
    if meta.get("format") != FORMAT or not isinstance(level, str) or "returns" not in fields:
        raise ValueError(f"{path} is not a demonstration file of format {FORMAT} with level and returns. Received: {meta}")
    returns = fields.pop("returns")
    layout = TransitionMemory(spec, 1).ring.dtype
    for name in layout.names or ():
        if name not in fields or fields[name].shape[1:] != layout[name].shape:
            found = fields[name].shape[1:] if name in fields else f"only {', '.join(sorted(fields))}"
            raise ValueError(f"{path} comes from another environment, {level}: {name} should be {layout[name].shape}. Received: {found}")
    lengths = {name: len(fields[name]) for name in layout.names or ()}
    if len(set(lengths.values())) > 1 or not lengths["action"]:
        raise ValueError(f"{path} is empty or truncated. Received: {lengths}")
    records = np.zeros(lengths["action"], layout)
    for name in lengths:
        if not np.isfinite(fields[name]).all():
            raise ValueError(f"{path} must be finite. Received: {name} with {int((~np.isfinite(fields[name])).sum())} bad entries")
        records[name] = fields[name]
    if np.abs(records["action"]).max() > 1.0 + 1e-5:
        raise ValueError(f"Demonstrated actions are in [-1, 1]. Received: {np.abs(records['action']).max()} in {path}")
    return Demonstrations(records, level, returns)
