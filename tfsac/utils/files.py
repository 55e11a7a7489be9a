"""Atomic file writes that never overwrite existing files unasked."""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import pathlib
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from filelock import BaseFileLock, Timeout

from tfsac.errors import TfsacError

LOCK = ".lock"  # file in a run's folder


def new_run_dir(name: str, seed: int | None) -> pathlib.Path:
    """Returns the default folder of a run, or of several seeds: runs/NAME/TIME-seedSEED."""
    time = f"{datetime.datetime.now():%Y%m%d-%H%M%S}"
    return pathlib.Path("runs") / name / (time if seed is None else f"{time}-seed{seed}")


def check_new_folder(path: pathlib.Path, advice: str = "choose a new or empty folder") -> None:
    """Raises FileExistsError with advice unless the folder is missing, or empty except for a lock file."""
    if path.exists() and (not path.is_dir() or any(entry.name != LOCK for entry in path.iterdir())):
        raise FileExistsError(f"{path} exists: {advice}")


def new_file(path: str | pathlib.Path, *suffixes: str, replace: bool = False) -> pathlib.Path:
    """Returns the path of a file to write, and creates its folder. Raises TfsacError unless the name has one of the
    suffixes, and FileExistsError if the file exists and may not be replaced.
    """
    path = pathlib.Path(path)
    if suffixes and path.suffix not in suffixes:
        raise TfsacError(f"The file's name must end in {' or '.join(suffixes)}, got {path}")
    if (suffixes and path.is_dir()) or (path.exists() and not replace):
        raise FileExistsError(f"{path} exists and is not overwritten")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def sync(path: pathlib.Path) -> None:
    """Flushes a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot flush folders
            raise
    finally:
        os.close(descriptor)


def acquire(lock: BaseFileLock) -> contextlib.AbstractContextManager[Any]:
    """Acquires the lock of a folder, which the operating system releases when the process exits. Raises BlockingIOError
    if another process, or another part of this one, holds it.
    """
    try:
        return lock.acquire(timeout=0.0)
    except Timeout:
        folder = pathlib.Path(lock.lock_file).parent
        raise BlockingIOError(f"{folder} is being trained already: wait until that run ends") from None


@contextlib.contextmanager
def atomic_write(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """Yields a temporary file, which is synced and renamed to `path` on success, and otherwise removed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_temporary(folder: pathlib.Path) -> None:
    """Removes temporary files and folders that killed processes left in a folder."""
    for path in folder.glob(".*.tmp"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextlib.contextmanager
def glob_safe(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a path to a folder without glob characters, because TensorFlow reads checkpoint paths as patterns."""
    absolute = folder.absolute()
    if not set("[]*?\\") & set(str(absolute)):
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        link = pathlib.Path(temporary) / "folder"
        link.symlink_to(absolute)
        yield link


def leaves(value: Any, path: str = "", empty: bool = False) -> Iterator[tuple[str, Any]]:
    """Yields the dotted path and value of every leaf of nested dicts; with `empty`, empty inner dicts are leaves."""
    if isinstance(value, dict) and (value or not (empty and path)):
        for key, entry in value.items():
            yield from leaves(entry, f"{path}.{key}" if path else key, empty)
    else:
        yield path, value


def differences(before: dict[str, Any], after: dict[str, Any], prefix: str = "") -> list[tuple[str, Any, Any]]:
    """Returns the differences between nested dicts: dotted path, value before, value after (None if missing)."""
    changed = []
    for name in before | after:
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            changed += differences(old, new, f"{prefix}{name}.")
        elif old != new:
            changed.append((f"{prefix}{name}", old, new))
    return changed


def read_object(path: pathlib.Path) -> dict[str, Any]:
    """Returns the JSON object in a file, or raises OSError or TfsacError."""
    try:
        parsed = json.loads(path.read_bytes())
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise TfsacError(f"{path} is damaged: it holds no JSON object")
    return parsed


def read_arrays(path: pathlib.Path, kind: str = "an npz file") -> dict[str, np.ndarray]:
    """Returns the arrays of an npz file; raises TfsacError if it is damaged or not of this kind."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (ValueError, TypeError, LookupError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise TfsacError(f"{path} is damaged or not {kind}: {error or type(error).__name__}") from error
