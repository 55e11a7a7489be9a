"""The files of a run's checkpoints: which there are, whether they are what their manifest says, what may be deleted.

    checkpoints/
      000010000/   manifest.json, state.json, state.npz, memory.npz, agent.*    by environment steps
                   metrics.csv, best.npz, config.json                          copies of the run's files at that time
      memory/      rows-<first>-<last>-<hash>.npy                              by absolute row index, never changed

Where several workers share a run, the first one writes for all: the manifest lists the rows of every worker's memory.

A checkpoint is written beside its place, synced to disk and renamed. Its manifest lists every file and chunk with size
and SHA-256, and has a checksum of its own. The checksums guard against damage, not against people: whoever can write
the folder can write these too. A chunk is deleted when no kept manifest names it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.errors import TfsacError
from tfsac.utils.files import is_sealed, parse_object

FORMAT = 4
MANIFEST, CHUNKS = "manifest.json", "memory"
STEP = re.compile(r"\d+", re.ASCII)
ROWS = re.compile(r"rows-\d{10,19}-\d{10,19}-[0-9a-f]{12}\.npy", re.ASCII)
TEMP_FILE = re.compile(rf"\.(\d+|{ROWS.pattern})\.\d+", re.ASCII)  # left by a killed writer
REPLACED = re.compile(r"\.(\d+)\.old", re.ASCII)


class CheckpointError(TfsacError):
    """A checkpoint cannot be written, or none can be read."""


def digest(path: pathlib.Path) -> dict[str, Any]:
    """Returns size and SHA-256 of a file."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def chunk_name(start: int, stop: int, rows: np.ndarray) -> str:
    """Returns the name of the file for the rows with absolute indices start to stop - 1."""
    return f"rows-{start:010d}-{stop:010d}-{hashlib.sha256(rows.view(np.uint8).data).hexdigest()[:12]}.npy"


def memory_file(worker: int) -> str:
    """Returns the name of the file with what a worker's memory has beside its rows."""
    return f"memory-{worker}.npz" if worker else "memory.npz"


def memories_in(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns what a manifest says of every worker's memory."""
    return [manifest["memory"], *manifest["memory_of_others"]]


def checkpoints_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the checkpoints in a folder, oldest first."""
    found = [path for path in folder.glob("*") if STEP.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name))


def read_manifest(place: pathlib.Path) -> dict[str, Any]:
    """Returns the manifest of a checkpoint; raises OSError or ValueError where it is missing or damaged."""
    content = (place / MANIFEST).read_bytes()
    manifest = parse_object(content)
    if manifest.get("format", FORMAT) != FORMAT:  # not damaged, so none before it is used
        raise CheckpointError(f"{place} has format {manifest['format']}, of another version; this one reads {FORMAT}")
    names = [*manifest.get("files", ()), *manifest.get("run_files", ())]
    if not is_sealed(content) or any(pathlib.PurePath(name).name != name for name in names):
        raise ValueError(f"{MANIFEST} does not have its checksum")
    return manifest


def verify(place: pathlib.Path, chunks: bool = True) -> dict[str, Any]:
    """Compares the files of a checkpoint, and the chunks of its memory, with its manifest, which it returns.

    Raises:
        OSError, ValueError: one is missing or altered.
    """
    manifest = read_manifest(place)
    files = {place / name: expected for name, expected in manifest["files"].items()}
    for memory in memories_in(manifest) if chunks else ():
        files |= {place.parent / CHUNKS / pathlib.PurePath(chunk["file"]).name: chunk for chunk in memory["chunks"]}
    for path, expected in files.items():
        if digest(path) != {"bytes": expected["bytes"], "sha256": expected["sha256"]}:
            raise ValueError(f"{path.name} differs from its checksum")
    return manifest


def newest_whole(
    folder: pathlib.Path, place: pathlib.Path | None = None, chunks: bool = False
) -> tuple[pathlib.Path, list[str]]:
    """Returns the newest checkpoint that is whole, and a line for each newer one that is not.

    Args:
        folder: of the checkpoints.
        place: of the only one to look at; None for all.
        chunks: whether the chunks of its memory must be whole, too.
    """
    notes: list[str] = []
    for each in reversed(checkpoints_in(folder)) if place is None else [place]:
        try:
            verify(each, chunks)
        except CheckpointError:
            raise
        except (OSError, ValueError) as error:
            notes.append(f"{each} is damaged and is not used: {error}")
            continue
        return each, notes
    raise CheckpointError(
        f"There is no checkpoint to continue from in {folder}; initial_weights (--checkpoint_restore_dir) begins a new "
        f"run with the best weights of this one. {' '.join(notes)}"
    )


def read_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the arrays of an npz file."""
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def clean_up(folder: pathlib.Path) -> None:
    """Removes what killed writers left, and brings back a checkpoint that one was about to replace."""
    for path in list(folder.glob(".*")):
        replaced = REPLACED.fullmatch(path.name)
        if replaced and not (folder / replaced[1]).exists():
            path.rename(folder / replaced[1])
        elif replaced or TEMP_FILE.fullmatch(path.name):
            shutil.rmtree(path)


def prune(folder: pathlib.Path, step: int, keep: int) -> None:
    """Deletes all but the newest checkpoints, and the chunks that none of them needs. Those after `step` are damaged
    ones, from before the run went back to the one that was whole.
    """
    with contextlib.suppress(OSError):  # what cannot be deleted now is deleted next time
        places = [place for place in checkpoints_in(folder) if int(place.name) <= step]
        kept, named = places[-keep:], set[str]()
        for place in set(checkpoints_in(folder)) - set(kept):  # renamed first: half of it would be a damaged one
            shutil.rmtree(place.rename(place.with_name(f".{place.name}.{os.getpid()}")))
        for place in kept:
            with contextlib.suppress(ValueError, OSError):
                named |= {chunk["file"] for memory in memories_in(read_manifest(place)) for chunk in memory["chunks"]}
        clean_up(folder)
        for path in (folder / CHUNKS).iterdir():
            if (ROWS.fullmatch(path.name) and path.name not in named) or TEMP_FILE.fullmatch(path.name):
                path.unlink()


@contextlib.contextmanager
def wrap_checkpoint_errors(place: pathlib.Path) -> Iterator[None]:
    """Names the checkpoint where what is in it, though whole, is not what this version writes."""
    try:
        yield
    except TfsacError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError, tf.errors.OpError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise CheckpointError(f"{place} was written by another version, which can resume it ({reason})") from error
