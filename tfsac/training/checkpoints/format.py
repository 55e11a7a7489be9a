"""Files of a run's checkpoints: find them, verify them against their manifest, and delete old ones.

    checkpoints/
      000010000/   manifest.json, state.json, state.npz, memory.npz, agent.*    by environment steps
                   metrics.csv, best.npz, config.json                          copies of the run's files at that time
      memory/      rows-<first>-<last>-<hash>.npy                              by absolute row index, never changed

If several workers share a run, each writes its own memory, and the manifest lists the rows of all.

A checkpoint is written under a temporary name, synced to disk and renamed. Its manifest lists every file and chunk with
size and SHA-256, and has its own checksum. The checksums guard against damage, not against tampering: anyone who can
write to the folder can rewrite them. A chunk is deleted when no remaining manifest lists it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
import re
import shutil
from collections.abc import Collection
from typing import Any

import numpy as np

from tfsac.errors import TfsacError
from tfsac.utils.files import remove_temporary

FORMAT = 5
MANIFEST, CHUNKS, SEAL = "manifest.json", "memory", "sha256"
STEP = re.compile(r"\d+", re.ASCII)
ROWS = re.compile(r"rows-\d{10,19}-\d{10,19}-[0-9a-f]{12}\.npy", re.ASCII)


class CheckpointError(TfsacError):
    """A checkpoint cannot be written or read."""


def digest(path: pathlib.Path) -> dict[str, Any]:
    """Returns size and SHA-256 of a file."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, SEAL: hashlib.file_digest(file, "sha256").hexdigest()}


def sealed(manifest: dict[str, Any]) -> bytes:
    """Returns a manifest as JSON with its own checksum."""
    plain = {name: value for name, value in manifest.items() if name != SEAL}
    checksum = hashlib.sha256(json.dumps(plain, indent=2).encode()).hexdigest()
    return json.dumps({**plain, SEAL: checksum}, indent=2).encode()


def chunk_name(start: int, stop: int, rows: np.ndarray) -> str:
    """Returns the name of the file for the rows with absolute indices start to stop - 1."""
    return f"rows-{start:010d}-{stop:010d}-{hashlib.sha256(rows.view(np.uint8).data).hexdigest()[:12]}.npy"


def memory_file(worker: int) -> str:
    """Returns the name of the file with the state of a worker's memory other than its rows."""
    return f"memory-{worker}.npz" if worker else "memory.npz"


def memories_in(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the memory entries of all workers in a manifest."""
    return [manifest["memory"], *manifest["memory_of_others"]]


def checkpoints_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the checkpoints in a folder, oldest first."""
    checkpoints = [path for path in folder.glob("*") if STEP.fullmatch(path.name) and path.is_dir()]
    return sorted(checkpoints, key=lambda path: int(path.name))


def read_manifest(checkpoint: pathlib.Path) -> dict[str, Any]:
    """Returns the manifest of a checkpoint; raises OSError or ValueError if it is missing or damaged."""
    content = (checkpoint / MANIFEST).read_bytes()
    manifest = json.loads(content)
    if not isinstance(manifest, dict) or sealed(manifest) != content:
        raise ValueError(f"{MANIFEST} does not have its checksum")
    if manifest["format"] != FORMAT:  # not damaged, so do not fall back to an older checkpoint
        raise CheckpointError(
            f"{checkpoint} has format {manifest['format']}, of another version of tfsac; this one reads {FORMAT}"
        )
    if any(pathlib.PurePath(name).name != name for name in [*manifest["files"], *manifest["run_files"]]):
        raise ValueError(f"{MANIFEST} names files in other folders")
    return manifest


def verify(checkpoint: pathlib.Path, chunks: bool = True) -> dict[str, Any]:
    """Verifies the files of a checkpoint, and the chunks of its memory, and returns its manifest.

    Raises:
        OSError, ValueError: a file is missing or was altered.
    """
    manifest = read_manifest(checkpoint)
    files = {checkpoint / name: expected for name, expected in manifest["files"].items()}
    for memory in memories_in(manifest) if chunks else ():
        files |= {
            checkpoint.parent / CHUNKS / pathlib.PurePath(chunk["file"]).name: chunk for chunk in memory["chunks"]
        }
    for path, expected in files.items():
        if digest(path)[SEAL] != expected[SEAL]:
            raise ValueError(f"{path.name} differs from its checksum")
    return manifest


def newest_complete(
    folder: pathlib.Path, checkpoint: pathlib.Path | None = None, chunks: bool = False
) -> tuple[pathlib.Path, list[str]]:
    """Returns the newest complete checkpoint, and a message for each newer incomplete one.

    Args:
        folder: folder of the checkpoints.
        checkpoint: the only checkpoint to consider; None for all.
        chunks: whether the chunks of its memory must also be complete.
    """
    notes: list[str] = []
    for candidate in reversed(checkpoints_in(folder)) if checkpoint is None else [checkpoint]:
        try:
            verify(candidate, chunks)
        except CheckpointError:
            raise
        except (OSError, ValueError) as error:
            notes.append(f"{candidate} is damaged and is not used: {error}")
            continue
        return candidate, notes
    raise CheckpointError(
        f"There is no checkpoint to continue from in {folder}; initial_weights (--checkpoint_restore_dir) starts a new "
        f"run with the best weights of this one. {' '.join(notes)}"
    )


def clean_up(folder: pathlib.Path) -> None:
    """Removes the temporary files of killed writers, and restores a checkpoint that was about to be replaced."""
    for replaced in folder.glob(".[0-9]*.old"):
        target = folder / replaced.name[1:-4]
        if target.exists():
            shutil.rmtree(replaced)
        else:
            replaced.rename(target)
    remove_temporary(folder)
    remove_temporary(folder / CHUNKS)


def prune(folder: pathlib.Path, keep: int, damaged: Collection[pathlib.Path] = ()) -> None:
    """Deletes all but the `keep` newest undamaged checkpoints, and the chunks that none of them needs."""
    with contextlib.suppress(OSError):  # anything that cannot be deleted now is deleted next time
        clean_up(folder)
        checkpoints = checkpoints_in(folder)
        remaining = [checkpoint for checkpoint in checkpoints if checkpoint not in damaged][-keep:]
        for checkpoint in set(checkpoints) - set(remaining):  # rename first: a kill must not leave a damaged checkpoint
            shutil.rmtree(checkpoint.rename(checkpoint.with_name(f".{checkpoint.name}.tmp")))
        referenced = set[str]()
        for checkpoint in remaining:
            with contextlib.suppress(ValueError):
                manifest = read_manifest(checkpoint)
                referenced |= {chunk["file"] for memory in memories_in(manifest) for chunk in memory["chunks"]}
        for path in (folder / CHUNKS).iterdir():
            if ROWS.fullmatch(path.name) and path.name not in referenced:
                path.unlink()
