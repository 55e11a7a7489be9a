"""Complete, atomic checkpoints; the memory is saved in chunks, each row once.

    checkpoints/
      000010000/   manifest.json, state.json, state.npz, memory.npz, agent.*    by environment steps
                   metrics.csv, best.npz, config.json                          copies of the run's files at that time
      memory/      rows-<first>-<last>-<hash>.npy                              by absolute row index, never changed
      damaged-000010000/                                                       set aside, never read or deleted

Where several workers share a run, the first one writes for all: the manifest lists the rows of every worker's memory.

A checkpoint is written beside its place, synced to disk and renamed. Its manifest lists every file and chunk with size
and SHA-256, and has a checksum of its own. A chunk is deleted when no kept manifest names it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfsac.distributed.tf_config import WorkerTask
from tfsac.distributed.workers import Workers
from tfsac.files import Header, differences, neutral, read_npz, read_object, sealed, sync
from tfsac.machine import option
from tfsac.memories import EpisodicMemory, TransitionMemory
from tfsac.memories.reshard import reshard
from tfsac.memories.salvage import put_back_without
from tfsac.parameters import ParameterError
from tfsac.training.checkpoints.checkpoint_folder import CheckpointFolder
from tfsac.training.checkpoints.identity import with_defaults
from tfsac.training.checkpoints.manifest import (
    FORMAT,
    MANIFEST,
    CheckpointError,
    chunks_of,
    digest,
    memories,
    memory_file,
    read_manifest,
    understanding,
)

CHUNK_BYTES = 128 * 2**20  # bounds the size of one file, and the memory that saving it takes


class Restored(NamedTuple):
    """What a checkpoint held beside agent and memory.

    Attributes:
        place: its folder.
        state, arrays, run_files: as they were given to `CheckpointManager.save`.
        notes: a line for each checkpoint that was passed over, and for rows that are gone.
        workers: number of workers that shared the run.
        whole: whether all rows of the memory were there.
    """

    place: pathlib.Path
    state: dict[str, Any]
    arrays: dict[str, np.ndarray]
    run_files: dict[str, bytes]
    notes: list[str]
    workers: int
    whole: bool


class CheckpointManager:
    """Saves and restores one run.

    Args:
        directory: of the checkpoints.
        agent: whose variables are saved.
        memory: whose rows are saved.
        identity: what must be equal to restore, as `identity_of` returns it.
        keep: how many checkpoints to keep.
        workers: that share the run, all of which call `save` and `restore` together; None where there is one.
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
        self.folder = CheckpointFolder(directory)
        self.directory, self.chunks = directory, self.folder.chunks
        self.agent, self.memory, self.identity, self.keep = agent, memory, identity, keep
        self.checkpoint = tf.train.Checkpoint(agent=agent)
        self.workers = workers or Workers(tf.distribute.get_strategy(), WorkerTask())
        self.saved_chunks = self._nothing_saved()  # of every worker, in the newest checkpoint

    # -- saving --------------------------------------------------------------------------------------------------------

    def save(
        self,
        step: int,
        state: dict[str, Any],
        arrays: Mapping[str, np.ndarray] | None = None,
        run_files: Mapping[str, bytes] | None = None,
    ) -> pathlib.Path:
        """Saves everything.

        Chunks of the memory that the checkpoint before has too are looked at, see `Chunks`; one that is missing or
        changed is written again.

        Args:
            step: environment steps; names the checkpoint.
            state: JSON values of everything that is neither agent nor memory.
            arrays: of the same, where they are arrays.
            run_files: contents of files of the run's folder by name, to mend them from.

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
            saved = [self._save_memory(worker, aside, written) for worker in range(self.workers.task.num_workers)]
            if self.workers.task.is_chief:
                self._write(place, aside, step, state, arrays or {}, run_files or {}, saved)
        except (OSError, ValueError) as error:
            shutil.rmtree(aside, ignore_errors=True)
            with contextlib.suppress(OSError):
                for path in written:
                    path.unlink(missing_ok=True)
            kept = [path.name for path in self.folder.places()]
            raise CheckpointError(
                f"The checkpoint at step {step} could not be written to {self.directory}; "
                f"{'kept: ' + ', '.join(kept) if kept else 'there is none before it'}. "
                f"Received: {str(error).replace('Received: ', '')}"
            ) from error
        self.saved_chunks = [memory["chunks"] for memory in saved]
        if self.workers.task.is_chief:
            self.folder.prune(self.keep)
        return place

    def _make_folders(self, aside: pathlib.Path) -> None:
        if self.workers.task.is_chief:
            self.folder.refuse_links()
            self.chunks.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()

    def _write(
        self,
        place: pathlib.Path,
        aside: pathlib.Path,
        step: int,
        state: dict[str, Any],
        arrays: Mapping[str, np.ndarray],
        run_files: Mapping[str, bytes],
        saved: list[dict[str, Any]],
    ) -> None:
        """Completes what is written aside and puts it in its place."""
        try:
            with neutral(aside) as folder:
                self.checkpoint.write(str(folder / "agent"))
        except tf.errors.OpError as error:
            raise OSError(str(error)) from error
        (aside / "state.json").write_text(json.dumps(state))
        np.savez(aside / "state.npz", **arrays)  # type: ignore[arg-type]
        for name, content in run_files.items():
            (aside / name).write_bytes(content)
        files = {path.name: digest(path) for path in sorted(aside.iterdir())}
        manifest = {
            "format": FORMAT,
            "step": step,
            "identity": self.identity,
            "files": files,
            "run_files": list(run_files),
        }
        manifest |= {"memory": saved[0], "memory_of_others": saved[1:]}
        (aside / MANIFEST).write_bytes(sealed(manifest))
        for path in [*aside.iterdir(), aside, self.chunks.folder]:
            sync(path)
        if place.exists():  # the last step of a run may be one of its period, too
            place.replace(self.directory / f".{place.name}.old")
        aside.replace(place)
        sync(self.directory)

    def _save_memory(self, worker: int, aside: pathlib.Path, written: list[pathlib.Path]) -> dict[str, Any]:
        """Writes what is new in the memory of one worker, and returns how the manifest names it all."""
        memory, workers = self.memory, self.workers
        counts = workers.gather({"rows": np.array([[memory.oldest_row, memory.total_rows]])})["rows"][worker]
        oldest, total = (int(count) for count in counts)
        chunks: list[dict[str, Any]] = []
        for chunk in self._looked_at([chunk for chunk in self.saved_chunks[worker] if chunk["stop"] > oldest]):
            if "file" not in chunk:
                chunk = self._save_rows(worker, max(chunk["start"], oldest), chunk["stop"], written)
            chunks.append(chunk)
        start = chunks[-1]["stop"] if chunks else oldest
        while start < total:
            stop = min(start + max(1, CHUNK_BYTES // memory.row_bytes), total)
            chunks.append(self._save_rows(worker, start, stop, written))
            start = stop
        mine, packed = worker == workers.task.index, io.BytesIO()
        np.savez(packed, **(memory.state() if mine else {}))  # type: ignore[arg-type]
        content = workers.broadcast(worker, packed.getvalue())
        if workers.task.is_chief:
            (aside / memory_file(worker)).write_bytes(content)
        return {"total_rows": total, "chunks": chunks}

    def _looked_at(self, chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns chunks, without their file where it has to be written again; the same at every worker."""
        if self.workers.task.is_chief:
            chunks = [{"start": c["start"], "stop": c["stop"]} if self.chunks.problem(c) else c for c in chunks]
        return json.loads(self.workers.broadcast(0, json.dumps(chunks).encode()))

    def _save_rows(self, worker: int, start: int, stop: int, written: list[pathlib.Path]) -> dict[str, Any]:
        """Writes a chunk of one worker's memory, and returns how the manifest names it."""
        rows = self._rows_of(worker, start, stop)
        if not self.workers.task.is_chief:
            return {"start": start, "stop": stop}
        name = self.chunks.name(start, stop, rows)
        if not (self.chunks.folder / name).exists():
            written.append(self.chunks.folder / name)
        return self.chunks.write(name, start, stop, rows)

    def _rows_of(self, worker: int, start: int, stop: int) -> np.ndarray:
        """Returns rows of one worker's memory, at every worker."""
        mine = worker == self.workers.task.index
        rows = self.memory.between(start, stop) if mine else self.memory.between(*[self.memory.oldest_row] * 2)
        if self.workers.task.num_workers == 1:
            return rows
        content = self.workers.broadcast(worker, rows.tobytes())
        return np.frombuffer(content, rows.dtype).reshape(-1, *rows.shape[1:])

    def _nothing_saved(self) -> list[list[dict[str, Any]]]:
        return [[] for _ in range(self.workers.task.num_workers)]

    def rewrite_newest_chunk(self) -> None:
        """Makes the next checkpoint save the newest rows again, because they were changed after they were saved."""
        self.saved_chunks = [chunks[:-1] for chunks in self.saved_chunks]

    # -- restoring -----------------------------------------------------------------------------------------------------

    def places(self) -> list[pathlib.Path]:
        """Returns the checkpoints' folders, oldest first."""
        return self.folder.places()

    def restore(self, skip_damaged_rows: bool = False) -> Restored:
        """Restores agent and memory from the newest checkpoint that is whole.

        Args:
            skip_damaged_rows: where every checkpoint is damaged, use the newest one of which only rows of the memory
                are, without these rows.

        Raises:
            CheckpointError: there is no checkpoint, none is whole, or it belongs to another run.
        """
        place, gone, damaged = self._agreed(skip_damaged_rows)
        manifest = read_manifest(place)
        with understanding(place):
            self._check_identity(place, manifest["identity"])
            self._read(place, manifest, gone)
            arrays = _arrays(place / "state.npz")
            state = read_object(place / "state.json")
        run_files = {name: (place / name).read_bytes() for name in manifest["run_files"]}
        notes = [f"Without the damaged rows {first} to {last} of the replay memory." for first, last in gone]
        for path, reason in damaged.items():
            moved = f"; it is now {self.folder.set_aside(path).name}" if self.workers.task.is_chief else ""
            notes.append(f"{path} is damaged and was not used{moved}: {reason}")
        return Restored(place, state, arrays, run_files, notes, len(memories(manifest)), not gone)

    def _agreed(self, skip_damaged_rows: bool) -> tuple[pathlib.Path, list[tuple[int, int]], dict[pathlib.Path, str]]:
        """Returns what `CheckpointFolder.choose` does at the chief, at every worker."""
        told: dict[str, Any] = {}
        if self.workers.task.is_chief:
            try:
                place, gone, damaged = self.folder.choose(skip_damaged_rows, self.workers.task.num_workers)
                told = {
                    "place": place.name,
                    "gone": gone,
                    "damaged": {path.name: reason for path, reason in damaged.items()},
                }
            except CheckpointError as error:
                told = {"error": str(error)}
        told = json.loads(self.workers.broadcast(0, json.dumps(told).encode()))
        if "error" in told:
            raise CheckpointError(told["error"])
        damaged = {self.directory / name: reason for name, reason in told["damaged"].items()}
        return self.directory / told["place"], [(first, last) for first, last in told["gone"]], damaged

    def _check_identity(self, place: pathlib.Path, identity: dict[str, Any]) -> None:
        try:
            found = differences(identity if identity == self.identity else with_defaults(identity), self.identity)
        except ParameterError as error:
            raise CheckpointError(
                f"{place} was written by another version of tfsac, with other parameters: {error}"
            ) from error
        if found:
            name, theirs, ours = found[0]
            raise CheckpointError(
                "A resumed run keeps its agent and environment; a new one begins with its weights by "
                f"{option('--checkpoint_restore_dir', 'initial_weights')}. "
                f"{place} has {f'no {name}' if theirs is None else f'{name}={theirs!r}'}"
                f"{f' and differs in {len(found) - 1} more' if len(found) > 1 else ''}. Received: {name}={ours!r}"
            )

    def take_memory(self, directory: pathlib.Path) -> None:
        """Fills the memory with that of another run's newest checkpoint whose own files are whole.

        Args:
            directory: of its checkpoints.

        Raises:
            CheckpointError: there is none, or rows of its memory are gone.
            ValueError: the memory is of another kind, size or number of environments, or of other fields.
        """
        other = CheckpointManager(directory, self.agent, self.memory, self.identity, workers=self.workers)
        place = other.folder.newest_whole(other.places())
        manifest = read_manifest(place)
        theirs, ours = (
            (made["agent"]["memory"]["kind"], made["agent"]["memory"]["max_size"], made["environment"]["num_envs"])
            for made in (manifest["identity"], self.identity)
        )
        if theirs != ours:
            message = f"The memory of {place} has another kind, max_size or num_envs: {theirs}"
            raise ParameterError(f"{message}. Received: {ours}")
        if damaged := [problem for chunk in chunks_of(manifest) if (problem := other.chunks.problem(chunk))]:
            raise CheckpointError(f"Rows of the replay memory are gone. Received: {place} ({'; '.join(damaged)})")
        with understanding(place):
            other._read_memory(place, manifest)
        self.memory.end_episodes()

    def _read(self, place: pathlib.Path, manifest: dict[str, Any], gone: list[tuple[int, int]]) -> None:
        saved = memories(manifest)
        if gone:
            parts = [
                (c["start"], c["stop"], None if (c["start"], c["stop"] - 1) in gone else self.chunks.rows(c))
                for c in saved[0]["chunks"]
            ]
            put_back_without(self.memory, parts, _arrays(place / memory_file(0)), saved[0]["total_rows"])
            self.saved_chunks = self._nothing_saved()
        else:
            self._read_memory(place, manifest)
        with neutral(place) as folder:
            self.checkpoint.read(str(folder / "agent")).assert_consumed()

    def _read_memory(self, place: pathlib.Path, manifest: dict[str, Any]) -> None:
        saved, own = memories(manifest), self.workers.task.index
        if len(saved) == self.workers.task.num_workers:
            for chunk in saved[own]["chunks"]:
                # The first chunk may begin with rows that are not kept any more: a ring overwrites them, episodes leave
                # them out.
                self.memory.put(chunk["start"], self.chunks.rows(chunk))
            self.memory.total_rows = saved[own]["total_rows"]
            self.memory.restore(_arrays(place / memory_file(own)))
            self.saved_chunks = [memory["chunks"] for memory in saved]
        else:
            self._reshard(place, saved)

    def _reshard(self, place: pathlib.Path, saved: list[dict[str, Any]]) -> None:
        """Takes this worker's shard of what another number of workers had kept."""
        states = [_arrays(place / memory_file(worker)) for worker in range(len(saved))]
        rows = [((chunk["start"], self.chunks.rows(chunk)) for chunk in memory["chunks"]) for memory in saved]
        totals, task = [memory["total_rows"] for memory in saved], self.workers.task
        reshard(self.memory, task.index, rows, states, totals, task.num_workers)
        self.saved_chunks = self._nothing_saved()


def _arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a file that was written without compression."""

    def choose(headers: dict[str, Header]) -> list[str]:
        if sum(int(np.prod(header.shape)) * header.dtype.itemsize for header in headers.values()) > path.stat().st_size:
            raise ValueError("its arrays are larger than the file")
        return list(headers)

    return read_npz(path, "a file of a checkpoint", choose)
