"""Complete, atomic checkpoints; the memory is saved in chunks, each row once.

    checkpoints/
      000010000/   manifest.json, state.json, state.npz, memory.npz, agent.*  by environment steps
      memory/      rows-<first>-<last>-<hash>.npy                            by absolute row index, never rewritten

Where several workers share a run, the first one writes for all: the manifest lists the rows of every worker's memory.

A checkpoint is written beside its place, synced to disk and renamed. Its manifest lists every file and chunk with size and
SHA-256. A chunk is deleted when no kept manifest names it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pathlib
import shutil
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.cluster import Place
from tfsac.files import differences, sync, written_aside
from tfsac.memories import EpisodicMemory, TransitionMemory
from tfsac.memories.deal import deal
from tfsac.training.identity import with_defaults
from tfsac.training.workers import Workers

FORMAT = 2
CHUNK_BYTES = 128 * 2**20  # bounds the size of one file, and the memory that saving it takes


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, or none can be read."""


def digest(path: pathlib.Path) -> dict[str, Any]:
    """Returns size and SHA-256 of a file."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


class CheckpointManager:
    """Saves and restores one run.

    Args:
        directory: of the checkpoints.
        agent: whose variables are saved.
        memory: whose rows are saved.
        identity: what must be equal to restore, as `identity_of` returns it.
        keep: how many checkpoints to keep.
        workers: that share the run, all of which call `save` and `restore` together; None where there is one.

    Attributes:
        workers_before: number of workers of the run that was restored.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        agent: tf.Module,
        memory: TransitionMemory | EpisodicMemory,
        identity: dict[str, Any],
        keep: int = 2,
        workers: Workers | None = None,
    ):
        self.directory, self.chunks = directory, directory / "memory"
        self.agent, self.memory, self.identity, self.keep = agent, memory, identity, keep
        self.checkpoint = tf.train.Checkpoint(agent=agent)
        self.workers = workers or Workers(tf.distribute.get_strategy(), Place())
        self.workers_before = self.workers.place.workers
        self.saved_chunks = self._nothing_saved()  # of every worker, in the newest checkpoint

    # -- saving --------------------------------------------------------------------------------------------------------

    def save(self, step: int, state: dict[str, Any], arrays: dict[str, np.ndarray] | None = None) -> pathlib.Path:
        """Saves everything.

        Args:
            step: environment steps; names the checkpoint.
            state: JSON values of everything that is neither agent nor memory.
            arrays: of the same, where they are arrays.

        Returns:
            the checkpoint's folder.

        Raises:
            CheckpointError: the disk is full or cannot be written; earlier checkpoints are as they were.
        """
        place = self.directory / f"{step:09d}"
        aside = self.directory / f".{place.name}.{os.getpid()}"
        written: list[pathlib.Path] = []
        try:
            self._make_folders(aside)
            memories = [self._save_memory(worker, aside, written) for worker in range(self.workers.place.workers)]
            if self.workers.place.chief:
                self._write(place, aside, step, state, arrays or {}, memories)
        except OSError as error:
            shutil.rmtree(aside, ignore_errors=True)
            for path in written:
                path.unlink(missing_ok=True)
            kept = [path.name for path in self.places()]
            raise CheckpointError(
                f"The checkpoint at step {step} could not be written to {self.directory}; "
                f"{'kept: ' + ', '.join(kept) if kept else 'there is none before it'}. Received: {error}"
            ) from error
        self.saved_chunks = [memory["chunks"] for memory in memories]
        if self.workers.place.chief:
            self._prune()
        return place

    def _make_folders(self, aside: pathlib.Path) -> None:
        if self.workers.place.chief:
            self.chunks.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()

    def _write(
        self,
        place: pathlib.Path,
        aside: pathlib.Path,
        step: int,
        state: dict[str, Any],
        arrays: dict[str, np.ndarray],
        memories: list[dict[str, Any]],
    ) -> None:
        """Completes what is written aside and puts it in its place."""
        try:
            self.checkpoint.write(str(aside / "agent"))
        except tf.errors.OpError as error:
            raise OSError(str(error)) from error
        (aside / "state.json").write_text(json.dumps(state))
        np.savez(aside / "state.npz", **arrays)  # type: ignore[arg-type]
        files = {path.name: digest(path) for path in sorted(aside.iterdir())}
        manifest = {"format": FORMAT, "step": step, "identity": self.identity, "files": files}
        manifest |= {"memory": memories[0], "memory_of_others": memories[1:]}
        (aside / "manifest.json").write_text(json.dumps(manifest, indent=1))
        for path in [*aside.iterdir(), aside]:
            sync(path)
        if place.exists():  # saved at the same step before, by a run that was resumed from an earlier one
            place.replace(self.directory / f".{place.name}.old")
        aside.replace(place)
        sync(self.directory)

    def _save_memory(self, worker: int, aside: pathlib.Path, written: list[pathlib.Path]) -> dict[str, Any]:
        """Writes what is new in the memory of one worker, and returns how the manifest names it all."""
        memory, workers = self.memory, self.workers
        counts = workers.gather({"rows": np.array([[memory.oldest_row, memory.total_rows]])})["rows"][worker]
        oldest, total = (int(count) for count in counts)
        chunks = [chunk for chunk in self.saved_chunks[worker] if chunk["stop"] > oldest]
        start = chunks[-1]["stop"] if chunks else oldest
        while start < total:
            stop = min(start + max(1, CHUNK_BYTES // memory.row_bytes), total)
            rows = self._rows_of(worker, start, stop)
            chunk: dict[str, Any] = {"start": start, "stop": stop}
            if workers.place.chief:
                name = f"rows-{start:010d}-{stop:010d}-{hashlib.sha256(rows.view(np.uint8).data).hexdigest()[:12]}.npy"
                path = self.chunks / name
                if not path.exists():
                    written.append(path)
                    with written_aside(path) as file:
                        np.save(file, rows)
                chunk |= {"file": name, **digest(path)}
            chunks.append(chunk)
            start = stop
        mine, packed = worker == workers.place.worker, io.BytesIO()
        np.savez(packed, **(memory.state() if mine else {}))  # type: ignore[arg-type]
        content = workers.receive(worker, packed.getvalue())
        if workers.place.chief:
            (aside / _file_of(worker)).write_bytes(content)
        return {"total_rows": total, "chunks": chunks}

    def _rows_of(self, worker: int, start: int, stop: int) -> np.ndarray:
        """Returns rows of one worker's memory, at every worker."""
        mine = worker == self.workers.place.worker
        rows = self.memory.between(start, stop) if mine else self.memory.between(*[self.memory.oldest_row] * 2)
        if self.workers.place.workers == 1:
            return rows
        content = self.workers.receive(worker, rows.tobytes())
        return np.frombuffer(content, rows.dtype).reshape(-1, *rows.shape[1:])

    def _nothing_saved(self) -> list[list[dict[str, Any]]]:
        return [[] for _ in range(self.workers.place.workers)]

    def rewrite_newest_chunk(self) -> None:
        """Makes the next checkpoint save the newest rows again, because they were changed after they were saved."""
        self.saved_chunks = [chunks[:-1] for chunks in self.saved_chunks]

    def _prune(self) -> None:
        with contextlib.suppress(OSError):  # what cannot be deleted now is deleted next time
            for path in self.places()[: -self.keep]:
                shutil.rmtree(path)
            for path in self.directory.glob(".*.old"):
                shutil.rmtree(path)
            named = set()
            for path in self.places():
                named |= {chunk["file"] for chunk in _chunks(json.loads((path / "manifest.json").read_text()))}
            for path in self.chunks.iterdir():
                if path.name not in named:
                    path.unlink()

    # -- restoring -----------------------------------------------------------------------------------------------------

    def places(self) -> list[pathlib.Path]:
        """Returns the checkpoints' folders, oldest first."""
        if not self.directory.is_dir():
            return []
        return sorted(path for path in self.directory.iterdir() if path.name.isdigit() and path.is_dir())

    def restore(self) -> tuple[dict[str, Any], dict[str, np.ndarray], list[str]]:
        """Restores agent and memory from the newest checkpoint that is whole.

        Returns:
            the state and arrays given to `save`, and a line for each damaged checkpoint that was passed over.

        Raises:
            CheckpointError: there is no checkpoint, none is whole, or it belongs to another run.
        """
        refused = []
        for place in reversed(self.places()):
            try:
                manifest = self.verify(place)
            except (OSError, ValueError, KeyError) as error:
                refused.append(f"{place} is damaged and was not used: {error}")
                continue
            self._check_identity(place, manifest["identity"])
            self._read(place, manifest)
            with np.load(place / "state.npz") as arrays:
                return json.loads((place / "state.json").read_text()), dict(arrays), refused
        problem = "; ".join(refused) if refused else "it has none"
        raise CheckpointError(f"There is no checkpoint to continue from. Received: {self.directory} ({problem})")

    def verify(self, place: pathlib.Path) -> dict[str, Any]:
        """Returns the manifest of a checkpoint after checking every file that it names.

        Raises:
            ValueError, KeyError, OSError: something is missing, truncated or altered.
            CheckpointError: another version's format.
        """
        manifest = json.loads((place / "manifest.json").read_text())
        if manifest["format"] != FORMAT:  # not damaged, so none before it is used
            raise CheckpointError(
                f"{place} was written by another version of tfsac, which can read it: this one reads format {FORMAT}. "
                f"Received: format {manifest['format']}"
            )
        files = {place / name: expected for name, expected in manifest["files"].items()}
        files |= {self.chunks / chunk["file"]: chunk for chunk in _chunks(manifest)}
        for path, expected in files.items():
            found = digest(path)
            if found["sha256"] != expected["sha256"]:
                raise ValueError(f"{path.name} should have {expected['bytes']} bytes with another checksum. Received: {found['bytes']} bytes")
        return manifest

    def _check_identity(self, place: pathlib.Path, identity: dict[str, Any]) -> None:
        found = differences(identity if identity == self.identity else with_defaults(identity), self.identity)
        if found:
            name, theirs, ours = found[0]
            raise CheckpointError(
                f"{place} belongs to another run: its {name} is {theirs!r}"
                f"{' and ' + str(len(found) - 1) + ' more fields differ' if len(found) > 1 else ''}. "
                f"Received: {name}={ours!r}"
            )

    def _read(self, place: pathlib.Path, manifest: dict[str, Any]) -> None:
        memories, own = _memories(manifest), self.workers.place.worker
        self.workers_before = len(memories)
        if len(memories) == self.workers.place.workers:
            for chunk in memories[own]["chunks"]:
                # The first chunk may begin with rows that are not kept any more: a ring overwrites them, episodes leave them out.
                self.memory.put(chunk["start"], np.load(self.chunks / chunk["file"]))
            self.memory.total_rows = memories[own]["total_rows"]
            self.memory.restore(_arrays(place / _file_of(own)))
            self.saved_chunks = [memory["chunks"] for memory in memories]
        else:
            self._deal(place, memories)
        self.checkpoint.read(str(place / "agent")).assert_consumed()

    def _deal(self, place: pathlib.Path, memories: list[dict[str, Any]]) -> None:
        """Takes this worker's share of what another number of workers had kept."""
        states = [_arrays(place / _file_of(worker)) for worker in range(len(memories))]
        rows = [
            ((chunk["start"], np.load(self.chunks / chunk["file"], mmap_mode="r")) for chunk in memory["chunks"])
            for memory in memories
        ]
        totals, place_of_worker = [memory["total_rows"] for memory in memories], self.workers.place
        deal(self.memory, place_of_worker.worker, rows, states, totals, place_of_worker.workers)
        self.saved_chunks = self._nothing_saved()


def _file_of(worker: int) -> str:
    return f"memory-{worker}.npz" if worker else "memory.npz"


def _memories(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns what a manifest says of every worker's memory; those written before there were several have one."""
    return [manifest["memory"], *manifest.get("memory_of_others", [])]


def _chunks(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [chunk for memory in _memories(manifest) for chunk in memory["chunks"]]


def _arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    with np.load(path) as arrays:
        return dict(arrays)
