"""Files that are there whole or not at all, and never written over something else."""

from __future__ import annotations

import contextlib
import datetime
import errno
import hashlib
import json
import os
import pathlib
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from tfsac.errors import TfsacError

try:
    import fcntl
except ImportError:  # another operating system
    fcntl = None  # type: ignore[assignment]

SEAL = "sha256"
LOCK = ".lock"  # file in a run's folder


def new_run_dir(name: str, seed: int | None) -> pathlib.Path:
    """Returns the folder of a run, or of several seeds, for which none was named: runs/NAME/TIME-seedSEED."""
    time = f"{datetime.datetime.now():%Y%m%d-%H%M%S}"
    return pathlib.Path("runs") / name / (time if seed is None else f"{time}-seed{seed}")


def check_run_dir(path: pathlib.Path) -> None:
    """Raises FileExistsError for a folder with anything but the file of a lock in it, where no new run can be kept."""
    if path.exists() and (not path.is_dir() or any(entry.name != LOCK for entry in path.iterdir())):
        raise FileExistsError(f"{path} exists: choose another run directory, or resume it (--resume, resume=True)")


def check_new_folder(path: pathlib.Path) -> None:
    """Raises FileExistsError for a folder that has something in it."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} exists: an export needs a new or empty folder")


def new_file(path: str | pathlib.Path, *suffixes: str, replace: bool = False) -> pathlib.Path:
    """Makes room for a file: its folder exists afterwards.

    Args:
        path: of the file.
        *suffixes: endings that its name may have; none means any.
        replace: an existing file is fine.

    Raises:
        TfsacError: another ending.
        FileExistsError: there is something already.
    """
    path = pathlib.Path(path)
    if suffixes and path.suffix not in suffixes:
        raise TfsacError(f"The file's name must end in {' or '.join(suffixes)}, got {path}")
    if (suffixes and path.is_dir()) or (path.exists() and not replace):
        raise FileExistsError(f"{path} exists, and nothing is written over it")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def no_run(folder: pathlib.Path) -> FileNotFoundError:
    """Returns the error for a folder without the config of a run; for an export it says what reads it."""
    exported = (folder / "saved_model.pb").is_file() or any(folder.glob("*.tflite"))
    hint = "; it is an export, which tfsac.load_exported reads" if exported else ""
    return FileNotFoundError(f"{folder} is no run directory: it has no config.json{hint}")


def no_weights(path: pathlib.Path) -> FileNotFoundError:
    """Returns the error for weights that are not in a run's folder."""
    if not (path.parent / "config.json").is_file():
        return no_run(path.parent)
    return FileNotFoundError(f"{path} is not there: the first weights are saved with the first evaluation")


def sync(path: pathlib.Path) -> None:
    """Waits until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_file(file: IO[bytes] | int) -> None:
    """Locks an open file for this process, until it closes the file or ends.

    Args:
        file: or its descriptor.

    Raises:
        BlockingIOError: another process has locked it.
        OSError: the file system or the operating system has no such locks.
    """
    if fcntl is None:
        raise OSError(errno.ENOTSUP, "no such locks on this operating system")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def atomic_write(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """Gives a temporary file to write to; it is synced and renamed to `path` when all went well, else removed.

    Raises:
        OSError: it cannot be written; `path` is as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def glob_safe(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives a path to a folder that has no characters of a pattern, for TensorFlow, which reads paths of
    checkpoints as patterns.
    """
    absolute = folder.absolute()
    if not set("[]*?\\") & set(str(absolute)):
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        link = pathlib.Path(temporary) / "folder"
        link.symlink_to(absolute)
        yield link


# -- JSON --------------------------------------------------------------------------------------------------------------


def leaves(value: Any, path: str = "", empty: bool = False) -> Iterator[tuple[str, Any]]:
    """Yields dotted path and value of everything in nested dicts; on request, empty dicts inside are values, too."""
    if not isinstance(value, dict) or (empty and path and not value):
        yield path, value
        return
    for key, entry in value.items():
        yield from leaves(entry, f"{path}.{key}" if path else key, empty)


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Returns what differs between nested dicts: dotted path, value before, value after (None where there is none)."""
    left, right = dict(leaves(before, empty=True)), dict(leaves(after, empty=True))

    def value(side: dict[str, Any], name: str) -> Any:  # a dict with entries differs from None, whatever they are
        return side.get(name, {} if any(path.startswith(f"{name}.") for path in side) else None)

    pairs = [(name, value(left, name), value(right, name)) for name in left | right]
    return [(name, old, new) for name, old, new in pairs if old != new]


def parse_object(content: bytes | str) -> dict[str, Any]:
    """Returns a JSON object, or raises ValueError."""
    parsed = json.loads(content)
    if not isinstance(parsed, dict):
        raise ValueError("it is not a JSON object")
    return parsed


def read_object(path: pathlib.Path) -> dict[str, Any]:
    """Returns the JSON object in a file, or raises OSError or TfsacError."""
    try:
        return parse_object(path.read_bytes())
    except ValueError as error:
        raise TfsacError(f"{path} is damaged: {error}") from error


def sealed(content: dict[str, Any]) -> bytes:
    """Returns an object as JSON with its own checksum, by which `is_sealed` notices every changed byte."""
    plain = {name: value for name, value in content.items() if name != SEAL}
    checksum = hashlib.sha256(json.dumps(plain, indent=2).encode()).hexdigest()
    return json.dumps({**plain, SEAL: checksum}, indent=2).encode()


def is_sealed(content: bytes) -> bool:
    """Returns whether these are the very bytes that `sealed` returned."""
    try:
        return sealed(parse_object(content)) == content
    except ValueError:
        return False


# -- npz ---------------------------------------------------------------------------------------------------------------


class Header(NamedTuple):
    """Shape and dtype of an entry of an npz file."""

    shape: tuple[int, ...]
    dtype: np.dtype


def read_npz(
    path: pathlib.Path, kind: str, choose: Callable[[dict[str, Header]], Iterable[str]]
) -> dict[str, np.ndarray]:
    """Reads entries of an npz file, whose checksums zip files have.

    Args:
        path: of the file.
        kind: what it should be, for the error: "a demonstration file".
        choose: returns the names of the entries to return, or raises where one is not as expected.

    Returns:
        the entries by name.

    Raises:
        TfsacError: the file is damaged or of another kind.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {}
            for name in archive.namelist():
                with archive.open(name) as stream:
                    array = np.lib.format.read_array(stream, allow_pickle=False, max_header_size=2**20)
                    if stream.read(1):  # else its checksum has been compared
                        raise ValueError(f"{name} is longer than its header says")
                arrays[name.removesuffix(".npy")] = array
        chosen = choose({name: Header(array.shape, array.dtype) for name, array in arrays.items()})
        return {name: arrays[name] for name in chosen}
    except TfsacError:
        raise
    except (ValueError, LookupError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise TfsacError(f"{path} is damaged or not {kind}: {error or type(error).__name__}") from error
