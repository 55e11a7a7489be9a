"""Files that are there whole or not at all, and never written over something else."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np


def new_run_dir(name: str, seed: int | None) -> pathlib.Path:
    """Returns the folder of a run, or of several seeds, for which none was named: runs/NAME/TIME-seedSEED."""
    time = f"{datetime.datetime.now():%Y%m%d-%H%M%S}"
    return pathlib.Path("runs") / name / (time if seed is None else f"{time}-seed{seed}")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields dotted path and value of everything in nested dicts."""
    if not isinstance(value, dict):
        yield path, value
        return
    for key, entry in value.items():
        yield from leaves(entry, f"{path}.{key}" if path else key)


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Returns what differs between nested dicts: dotted path, their value, our value (None where there is none)."""
    left, right = dict(leaves(theirs)), dict(leaves(ours))
    return [(name, left.get(name), right.get(name)) for name in left | right if left.get(name) != right.get(name)]


def new_file(path: str | pathlib.Path, *suffixes: str, replace: bool = False) -> pathlib.Path:
    """Makes room for a file: its folder exists afterwards, the file does not.

    Args:
        path: of the file.
        *suffixes: endings that its name may have; none means any.
        replace: an existing file is fine.

    Raises:
        ValueError: another ending.
        FileExistsError: there is something already.
        OSError: its folder cannot be made.
    """
    path = pathlib.Path(path)
    if suffixes and path.suffix not in suffixes:
        raise ValueError(f"The file's name ends in {' or '.join(suffixes)}. Received: {path}")
    if path.exists() and not replace:
        raise FileExistsError(f"Nothing is written over an existing file. Received: {path}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"The folder cannot be made ({error}). Received: {path}") from error
    return path


def sync(path: pathlib.Path) -> None:
    """Waits until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def written_aside(path: pathlib.Path) -> Any:
    """Gives a file beside `path` to write to; it is synced and renamed to `path` when all went well, else removed."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def read_npz(path: pathlib.Path, kind: str, meta: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Reads an npz file whose entry `meta` is a JSON object.

    Args:
        path: of the file.
        kind: what it should be, for the error: "a demonstration file".
        meta: name of the entry.

    Returns:
        the other entries, and the object.

    Raises:
        ValueError: the file is damaged or of another kind.
    """
    try:
        with path.open("rb") as stream, np.load(stream) as file:
            arrays = dict(file)
        content = json.loads(str(arrays.pop(meta)))
        if not isinstance(content, dict):
            raise ValueError(f"{meta} is not an object")
    except (ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged or not {kind} ({error}). Received: {path.stat().st_size} bytes") from error
    return arrays, content
