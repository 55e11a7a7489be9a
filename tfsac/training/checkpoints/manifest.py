"""What the manifest of a checkpoint says, and whether the files are what it says.

The manifest has its own checksum and those of all files, so that no changed byte of a checkpoint goes unnoticed. The
checksums guard against damage, not against people: whoever can write the folder can write these too.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import re
import stat
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfsac.files import SEAL, UNREADABLE, is_sealed, parse_object

FORMAT = 4
MANIFEST = "manifest.json"
ROWS = re.compile(r"rows-\d{10,19}-\d{10,19}-[0-9a-f]{12}\.npy", re.ASCII)  # names of chunks
LARGEST_MANIFEST = 64 * 2**20


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, or none can be read."""


def digest(path: pathlib.Path) -> dict[str, Any]:
    """Returns size and SHA-256 of a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is a link, a folder or a device.
    """
    if not stat.S_ISREG(path.lstat().st_mode):
        raise ValueError(f"{path.name} is not a file of its own")
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def check_file(path: pathlib.Path, expected: dict[str, Any]) -> None:
    """Compares a file with what `digest` returned of it.

    Raises:
        OSError, ValueError: it is missing, truncated or altered; the message is one line.
    """
    size = path.lstat().st_size
    if size != expected["bytes"] or digest(path)["sha256"] != expected["sha256"]:
        raise ValueError(
            f"{path.name} should have {expected['bytes']} bytes with another checksum, and has {size} bytes"
        )


def read_manifest(place: pathlib.Path) -> dict[str, Any]:
    """Returns the manifest of a checkpoint.

    Raises:
        OSError, ValueError: it is missing or damaged.
        CheckpointError: it was written by another version.
    """
    path = place / MANIFEST
    if not stat.S_ISREG(path.lstat().st_mode) or path.stat().st_size > LARGEST_MANIFEST:
        raise ValueError(f"{MANIFEST} is not a file that tfsac wrote")
    content = path.read_bytes()
    try:
        manifest = parse_object(content)
    except ValueError as error:
        raise ValueError(f"{MANIFEST} is damaged: {error}") from error
    unsealed = SEAL not in manifest and type(manifest.get("format")) is int  # before format 3
    if not unsealed and not is_sealed(content):
        raise ValueError(f"{MANIFEST} does not have its own checksum")
    if manifest.get("format") != FORMAT:  # not damaged, so none before it is used
        raise CheckpointError(
            f"{place} was written by another version of tfsac, which can read it: this one reads format {FORMAT}. "
            f"Received: format {manifest.get('format')}"
        )
    if unsealed:
        raise ValueError(f"{MANIFEST} does not have its own checksum")
    with understanding(place):
        _check(manifest)
    return manifest


def _check(manifest: dict[str, Any]) -> None:
    """Raises a ValueError or KeyError where a manifest has other parts than this version writes."""
    _is(manifest["step"], int, "step")
    _is(manifest["identity"], dict, "identity")
    files = _is(manifest["files"], dict, "files")
    for name in ("state.json", "state.npz", "agent.index"):
        files[name]
    for name, file in files.items():
        if pathlib.PurePath(name).name != name:
            raise ValueError(f"a file is called {name!r}")
        _is(file["bytes"], int, name), _is(file["sha256"], str, name)
    for name in _is(manifest["run_files"], list, "run_files"):
        files[_is(name, str, "run_files")]
    for i, memory in enumerate(memories(manifest)):
        files[memory_file(i)]
        stop = None
        for chunk in _is(memory["chunks"], list, "chunks"):
            if ROWS.fullmatch(_is(chunk["file"], str, "chunk")) is None:
                raise ValueError(f"a chunk is called {chunk['file']!r}")
            _is(chunk["bytes"], int, "chunk"), _is(chunk["sha256"], str, "chunk")
            start = _is(chunk["start"], int, "chunk")
            if stop not in (None, start) or not 0 <= start < _is(chunk["stop"], int, "chunk"):
                raise ValueError(f"rows {start} to {chunk['stop']} follow on {stop}")
            stop = chunk["stop"]
        if stop not in (None, _is(memory["total_rows"], int, "total_rows")):
            raise ValueError(f"{memory['total_rows']} rows end at {stop}")


def _is(value: Any, kind: type, name: str) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{name} is of the type {type(value).__name__}")
    return value


def memory_file(worker: int) -> str:
    """Returns the name of the file with what a worker's memory has beside its rows."""
    return f"memory-{worker}.npz" if worker else "memory.npz"


def memories(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns what a manifest says of every worker's memory."""
    return [manifest["memory"], *manifest["memory_of_others"]]


def chunks_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the chunks of all workers' memories."""
    return [chunk for memory in memories(manifest) for chunk in memory["chunks"]]


@contextlib.contextmanager
def understanding(place: pathlib.Path) -> Iterator[None]:
    """Names the checkpoint where what is in it, though undamaged, is not what this version writes.

    Args:
        place: the checkpoint's folder.

    Raises:
        CheckpointError: the code inside raised an error that does not explain itself.
    """
    try:
        yield
    except (*UNREADABLE, AssertionError, tf.errors.OpError) as error:
        if "Received: " in str(error) or isinstance(error, MemoryError):
            raise
        said = " ".join(str(error).split())
        raise CheckpointError(
            f"{place} was written by another version of tfsac, or altered: the version that wrote it can resume it. "
            f"Received: {type(error).__name__}: {said[:300]}"
        ) from error
