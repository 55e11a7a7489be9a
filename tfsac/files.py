"""Files that are there whole or not at all, never written over something else, and read with bounds."""

from __future__ import annotations

import ast
import contextlib
import datetime
import errno
import hashlib
import json
import math
import os
import pathlib
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from tfsac.errors import TfsacError
from tfsac.machine import option

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LARGEST_TEXT = 256 * 2**20  # bytes of a JSON file
DEEPEST = 50  # levels of a JSON file
SEAL = "sha256"
LOCK = ".lock"  # file in a run's folder
NO_CHECKPOINT = (
    "There is no checkpoint to continue from: the run ended before its first one, or it was deleted. Train into "
    "another folder without resume; initial_weights (--checkpoint_restore_dir) takes the best weights of this one."
)
UNREADABLE = (  # what readers of damaged content raise
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    OSError,
    ArithmeticError,
    MemoryError,
    RecursionError,
    SyntaxError,
    NotImplementedError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def new_run_dir(name: str, seed: int | None) -> pathlib.Path:
    """Returns the folder of a run, or of several seeds, for which none was named: runs/NAME/TIME-seedSEED."""
    time = f"{datetime.datetime.now():%Y%m%d-%H%M%S}"
    return pathlib.Path("runs") / name / (time if seed is None else f"{time}-seed{seed}")


def leaves(value: Any, path: str = "", empty: bool = False) -> Iterator[tuple[str, Any]]:
    """Yields dotted path and value of everything in nested dicts; on request, empty dicts inside are values, too."""
    if not isinstance(value, dict) or (empty and path and not value):
        yield path, value
        return
    for key, entry in value.items():
        yield from leaves(entry, f"{path}.{key}" if path else key, empty)


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Returns what differs between nested dicts: dotted path, their value, our value (None where there is none)."""
    left, right = dict(leaves(theirs)), dict(leaves(ours))
    paths = left | right
    found = [(name, left.get(name), right.get(name)) for name in paths if left.get(name) != right.get(name)]
    # None here, and a dict there in which everything is None.
    for name in {path[:i] for path in paths for i, letter in enumerate(path) if letter == "."} & (left.keys() ^ right):
        if not any(path == name or path.startswith(f"{name}.") for path, *_ in found):
            found.append((name, None if name in left else {}, None if name in right else {}))
    return found


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


def absolute(path: pathlib.Path, named: pathlib.Path | None = None) -> pathlib.Path:
    """Returns a path that stays where it is when the current folder changes.

    Args:
        path: absolute, or from the current folder.
        named: what the error says was received; None for `path`.

    Raises:
        FileNotFoundError: the current folder was deleted.
    """
    try:
        return path.absolute()
    except FileNotFoundError as error:
        raise FileNotFoundError(
            "The current folder was deleted: go to another with os.chdir, or give an absolute path. "
            f"Received: {named or path}"
        ) from error


def check_folder(folder: pathlib.Path, named: pathlib.Path) -> None:
    """Raises OSError where a folder cannot be made or written.

    Args:
        folder: there or not.
        named: what the error says was received.
    """
    above = absolute(folder, named).parents
    nearest = next(place for place in (folder, *above) if place.exists() or place.is_symlink())
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


def no_run(folder: pathlib.Path) -> FileNotFoundError:
    """Returns the error for a folder without the config of a run; for an export it says what reads it."""
    exported = (folder / "saved_model.pb").is_file() or any(folder.glob("*.tflite"))
    hint = " It is an export: tfsac.load_exported reads it." if exported else ""
    return FileNotFoundError(f"This is no run directory: it has no config.json.{hint} Received: {folder}")


def no_weights(path: pathlib.Path) -> FileNotFoundError:
    """Returns the error for weights that are not in a run's folder; for a model card it says what reads it."""
    try:
        card = "card" in read_object(path.parent / "config.json")
    except (OSError, ValueError):
        card = False
    if card:
        return FileNotFoundError(
            "This is no run directory but a model card: tfsac load --card=FOLDER or tfsac.load_card reads it. "
            f"Received: {path.parent}"
        )
    if not (path.parent / "config.json").is_file():
        return no_run(path.parent)
    return FileNotFoundError(f"There are no saved weights yet; they come with the first evaluation. Received: {path}")


def check_run_dir(path: pathlib.Path) -> None:
    """Refuses a folder in which no new run can be kept, and writes nothing.

    Raises:
        FileExistsError: there is anything at this place but the file of a lock.
        OSError: it cannot be made or written.
    """
    if path.exists() and (not path.is_dir() or any(entry.name != LOCK for entry in path.iterdir())):
        raise FileExistsError(
            "The run directory exists already; choose another, or continue it with "
            f"{option('--resume', 'resume=True')}. Received: {path}"
        )
    check_folder(path, path)


def new_file(path: str | pathlib.Path, *suffixes: str, replace: bool = False) -> pathlib.Path:
    """Makes room for a file: its folder exists afterwards.

    Args:
        path, *suffixes, replace: as in `check_new_file`.

    Raises:
        ValueError, FileExistsError, OSError: as `check_new_file` raises them, or the folder cannot be made.
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


def being_trained(folder: pathlib.Path, who: str) -> BlockingIOError:
    """Returns the error for a run that another process trains, which wrote `who` into its lock."""
    return BlockingIOError(
        "This run is being trained already, so nothing else may write to its folder: "
        f"wait for its end, or choose another folder. Received: {folder}{f' ({who})' if who else ''}"
    )


@contextlib.contextmanager
def writing(path: pathlib.Path) -> Iterator[None]:
    """Gives the OSErrors of what is written inside words and a path.

    Args:
        path: of the file or folder.

    Raises:
        OSError: as the code inside.
    """
    try:
        yield
    except OSError as error:
        if "Received: " in str(error):
            raise
        reason = error.strerror or str(error)
        raise OSError(
            f"It cannot be written ({reason}); make room, or choose a folder that can be written. Received: {path}"
        ) from error


@contextlib.contextmanager
def written_aside(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """Gives a file beside `path` to write to; it is synced and renamed to `path` when all went well, else removed.

    Raises:
        OSError: it cannot be written; `path` is as it was.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with writing(path):
            with aside.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


@contextlib.contextmanager
def neutral(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives a path to a folder that has no characters of a pattern, for TensorFlow, which reads paths of
    checkpoints as patterns.
    """
    absolute = folder.absolute()
    if not set("[]*?\\") & set(str(absolute)):
        yield folder
        return
    with tempfile.TemporaryDirectory(dir="/tmp" if os.path.isdir("/tmp") else None) as temporary:
        link = pathlib.Path(temporary) / "folder"
        link.symlink_to(absolute)
        yield link


# -- JSON --------------------------------------------------------------------------------------------------------------


def parse_object(content: bytes | str) -> dict[str, Any]:
    """Returns a JSON object.

    Raises:
        ValueError: it is none, or nested deeper than anything that tfsac writes.
    """
    try:
        found = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return found
    raise ValueError("it is nested too deeply")


def read_object(path: pathlib.Path) -> dict[str, Any]:
    """Returns the JSON object in a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds something else.
    """
    if path.stat().st_size > LARGEST_TEXT:
        raise ValueError(f"it has more than {LARGEST_TEXT} bytes")
    return parse_object(path.read_bytes())


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
    """What an entry of an npz file declares."""

    shape: tuple[int, ...]
    dtype: np.dtype


def read_npz(
    path: pathlib.Path, kind: str, choose: Callable[[dict[str, Header]], Iterable[str]]
) -> dict[str, np.ndarray]:
    """Reads entries of an npz file of which only the declared shapes are known.

    Args:
        path: of the file.
        kind: what it should be, for the error: "a demonstration file".
        choose: returns the names of the entries to read, or raises a ValueError where one is not as expected. What it
            does not name is never unpacked.

    Returns:
        the entries by name.

    Raises:
        ValueError: the file is damaged or of another kind.
    """
    try:
        with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            headers = {entry.filename.removesuffix(".npy"): _header(archive, entry) for entry in archive.infolist()}
            chosen = {name: _entry(archive, f"{name}.npy") for name in choose(headers)}
            stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
            if stored and (damaged := archive.testzip()):  # others might unpack to any size
                raise ValueError(f"the checksum of {damaged} is not that of its content")
            return chosen
    except UNREADABLE as error:
        if isinstance(error, TfsacError):
            raise
        said = str(error) or type(error).__name__
        raise TfsacError(f"{path} is damaged or not {kind} ({said}): it has {path.stat().st_size} bytes") from error


def _header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Header:
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        long = "<H" if version == (1, 0) else "<I"
        (size,) = struct.unpack(long, stream.read(struct.calcsize(long)))
        # Only as far as the header goes: the rest stays packed.
        said = ast.literal_eval(stream.read(min(size, 2**20)).decode("utf8" if version == (3, 0) else "latin1"))
        begun = stream.tell()
    header = Header(tuple(said["shape"]), np.lib.format.descr_to_dtype(said["descr"]))
    if header.dtype.hasobject or entry.file_size != begun + math.prod(header.shape) * header.dtype.itemsize:
        raise ValueError(f"{entry.filename} has another size than its header says")
    return header


def _entry(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as stream:
        array = np.lib.format.read_array(stream, allow_pickle=False, max_header_size=2**20)
        if stream.read(1):
            raise ValueError(f"{name} is longer than its header says")
    return array
