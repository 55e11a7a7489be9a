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


def check_new_file(path: str | pathlib.Path, *suffixes: str, replace: bool = False) -> pathlib.Path:
    """Returns the path of a file that can be written, and writes nothing.

    Args:
        path: of the file.
        *suffixes: endings that its name may have; none means any.
        replace: an existing file is fine.

    Raises:
        ValueError: another ending.
        FileExistsError: there is something already.
        OSError: its folder cannot be made or written.
    """
    path = pathlib.Path(path)
    if suffixes and path.suffix not in suffixes:
        raise ValueError(f"The file's name ends in {' or '.join(suffixes)}. Received: {path}")
    if suffixes and path.is_dir():
        raise FileExistsError(f"A file is written here, and there is a folder. Received: {path}")
    if path.exists() and not replace:
        raise FileExistsError(f"Nothing is written over an existing file. Received: {path}")
    check_folder(path.parent, path)
    return path


def check_folder(folder: pathlib.Path, named: pathlib.Path) -> None:
    """Raises OSError where a folder cannot be made or written.

    Args:
        folder: there or not.
        named: what the error says was received.
    """
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists() or place.is_symlink())
    if not nearest.is_dir():
        raise NotADirectoryError(f"The folder cannot be made, because {nearest} is no folder. Received: {named}")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"The folder {nearest} cannot be written; choose another place. Received: {named}")


def check_new_folder(path: pathlib.Path) -> None:
    """Refuses a folder that has something in it, or cannot be made.

    Raises:
        FileExistsError: there is something at this place.
        OSError: it cannot be made or written.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"Exports go to a new or empty folder. Received: {path}")
    check_folder(path.parent, path)


def check_run_name(path: pathlib.Path) -> None:
    """Raises ValueError for a folder under whose name no run can be kept."""
    if set("[]*?") & set(str(path)):
        # TensorFlow reads a checkpoint's path as a pattern.
        raise ValueError(f"The path of a run directory has no [ ] * ? in it. Received: {path}")


def check_run_dir(path: pathlib.Path) -> None:
    """Refuses a folder in which no new run can be kept, and writes nothing.

    Raises:
        FileExistsError: there is anything at this place.
        ValueError: no run can be kept under its name.
        OSError: it cannot be made or written.
    """
    check_run_name(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(
            f"The run directory exists already; choose another, or continue it with resume (--resume). Received: {path}"
        )
    check_folder(path, path)


def new_file(path: str | pathlib.Path, *suffixes: str, replace: bool = False) -> pathlib.Path:
    """Makes room for a file: its folder exists afterwards.

    Args:
        path, *suffixes, replace: as in `check_new_file`.

    Raises:
        as `check_new_file`.
    """
    path = check_new_file(path, *suffixes, replace=replace)
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
