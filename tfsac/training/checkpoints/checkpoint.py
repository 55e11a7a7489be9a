"""Saving and restoring a run: complete, atomic checkpoints; the memory is saved in chunks, each row once."""

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
from tfsac.memories import EpisodicMemory, TransitionMemory
from tfsac.memories.reshard import reshard
from tfsac.training.checkpoints.format import (
    CHUNKS,
    FORMAT,
    MANIFEST,
    CheckpointError,
    checkpoints_in,
    chunk_name,
    clean_up,
    digest,
    memories_in,
    memory_file,
    newest_whole,
    prune,
    read_arrays,
    read_manifest,
    wrap_checkpoint_errors,
)
from tfsac.training.checkpoints.identity import with_defaults
from tfsac.training.checkpoints.stacking import read_agent
from tfsac.utils.files import atomic_write, differences, glob_safe, read_object, sealed, sync
from tfsac.utils.machine import option

CHUNK_BYTES = 128 * 2**20  # bounds the size of one file, and the memory that saving it takes


class Restored(NamedTuple):
    """What a checkpoint held beside agent and memory, as it was given to `CheckpointManager.save`; a note for each one
    that was passed over, and the number of workers that shared the run.
    """

    place: pathlib.Path
    state: dict[str, Any]
    arrays: dict[str, np.ndarray]
    run_files: dict[str, bytes]
    notes: list[str]
    workers: int


class CheckpointManager:
    """Saves and restores one run.

    Args:
        directory: of the checkpoints, of which `keep` are kept.
        agent, memory: whose variables and rows are saved.
        identity: what must be equal to restore, as `identity_of` returns it.
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
        self.directory, self.chunks = directory, directory / CHUNKS
        self.agent, self.memory, self.identity, self.keep = agent, memory, identity, keep
        self.checkpoint = tf.train.Checkpoint(agent=agent)
        self.workers = workers or Workers(tf.distribute.get_strategy(), WorkerTask())
        self.saved_chunks: list[list[dict[str, Any]]] = [[] for _ in range(self.workers.task.num_workers)]

    def places(self) -> list[pathlib.Path]:
        """Returns the checkpoints' folders, oldest first."""
        return checkpoints_in(self.directory)

    # -- saving --------------------------------------------------------------------------------------------------------

    def save(
        self,
        step: int,
        state: dict[str, Any],
        arrays: Mapping[str, np.ndarray] | None = None,
        run_files: Mapping[str, bytes] | None = None,
    ) -> pathlib.Path:
        """Saves everything, of the memory what is new since the checkpoint before, and returns the folder.

        Args:
            step: environment steps; names the checkpoint.
            state, arrays: JSON values and arrays of everything that is neither agent nor memory.
            run_files: contents of files of the run's folder by name, to mend them from.

        Raises:
            CheckpointError: the disk is full or cannot be written; earlier checkpoints are as they were.
        """
        place = self.directory / f"{step:09d}"
        temporary = self.directory / f".{place.name}.{os.getpid()}"
        written: list[pathlib.Path] = []
        chief = self.workers.task.is_chief
        try:
            if chief:
                self.chunks.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir()
            saved = [self._save_memory(worker, temporary, written) for worker in range(self.workers.task.num_workers)]
            if chief:
                self._write(place, temporary, step, state, arrays or {}, run_files or {}, saved)
        except (OSError, tf.errors.OpError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            for path in written:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
            kept = ", ".join(path.name for path in self.places()) or "none"
            raise CheckpointError(f"the checkpoint at step {step} cannot be written: {error} (kept: {kept})") from error
        self.saved_chunks = [memory["chunks"] for memory in saved]
        if chief:
            prune(self.directory, step, self.keep)
        return place

    def _write(
        self,
        place: pathlib.Path,
        temporary: pathlib.Path,
        step: int,
        state: dict[str, Any],
        arrays: Mapping[str, np.ndarray],
        run_files: Mapping[str, bytes],
        saved: list[dict[str, Any]],
    ) -> None:
        """Completes what is written beside the checkpoint's place and puts it there."""
        with glob_safe(temporary) as folder:
            self.checkpoint.write(str(folder / "agent"))
        (temporary / "state.json").write_text(json.dumps(state))
        np.savez(temporary / "state.npz", **arrays)  # type: ignore[arg-type]
        for name, content in run_files.items():
            (temporary / name).write_bytes(content)
        manifest = {
            "format": FORMAT,
            "step": step,
            "identity": self.identity,
            "files": {path.name: digest(path) for path in sorted(temporary.iterdir())},
            "run_files": list(run_files),
            "memory": saved[0],
            "memory_of_others": saved[1:],
        }
        (temporary / MANIFEST).write_bytes(sealed(manifest))
        for path in [*temporary.iterdir(), temporary, self.chunks]:
            sync(path)
        if place.exists():  # the last step of a run may be one of its period, too
            place.replace(self.directory / f".{place.name}.old")
        temporary.replace(place)
        sync(self.directory)

    def _save_memory(self, worker: int, temporary: pathlib.Path, written: list[pathlib.Path]) -> dict[str, Any]:
        """Writes what is new in the memory of one worker, and returns how the manifest names it all."""
        memory, workers = self.memory, self.workers
        counts = workers.gather({"rows": np.array([[memory.oldest_row, memory.total_rows]])})["rows"][worker]
        oldest, total = (int(count) for count in counts)
        chunks: list[dict[str, Any]] = []
        for chunk in self._complete([chunk for chunk in self.saved_chunks[worker] if chunk["stop"] > oldest]):
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
            (temporary / memory_file(worker)).write_bytes(content)
        return {"total_rows": total, "chunks": chunks}

    def _complete(self, chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns chunks, without their file where it is gone and has to be written again; the same at every worker."""
        if self.workers.task.is_chief:

            def gone(chunk: dict[str, Any]) -> bool:
                path = self.chunks / chunk["file"]
                return not path.is_file() or path.stat().st_size != chunk["bytes"]

            chunks = [{"start": c["start"], "stop": c["stop"]} if gone(c) else c for c in chunks]
        return json.loads(self.workers.broadcast(0, json.dumps(chunks).encode()))

    def _save_rows(self, worker: int, start: int, stop: int, written: list[pathlib.Path]) -> dict[str, Any]:
        """Writes a chunk of one worker's memory, and returns how the manifest names it."""
        rows = self._rows_of(worker, start, stop)
        if not self.workers.task.is_chief:
            return {"start": start, "stop": stop}
        path = self.chunks / chunk_name(start, stop, rows)
        if not path.exists():
            written.append(path)
        with atomic_write(path) as file:
            np.save(file, rows)
        return {"start": start, "stop": stop, "file": path.name, **digest(path)}

    def _rows_of(self, worker: int, start: int, stop: int) -> np.ndarray:
        """Returns rows of one worker's memory, at every worker."""
        mine = worker == self.workers.task.index
        rows = self.memory.between(start, stop) if mine else self.memory.between(*[self.memory.oldest_row] * 2)
        if self.workers.task.num_workers == 1:
            return rows
        content = self.workers.broadcast(worker, rows.tobytes())
        return np.frombuffer(content, rows.dtype).reshape(-1, *rows.shape[1:])

    def rewrite_newest_chunk(self) -> None:
        """Makes the next checkpoint save the newest rows again, because they were changed after they were saved."""
        self.saved_chunks = [chunks[:-1] for chunks in self.saved_chunks]

    # -- restoring -----------------------------------------------------------------------------------------------------

    def restore(self) -> Restored:
        """Restores agent and memory from the newest checkpoint that is whole."""
        if self.workers.task.is_chief:
            clean_up(self.directory)
        place, notes = self._choose()
        manifest = read_manifest(place)
        with wrap_checkpoint_errors(place):
            self._check_identity(place, manifest["identity"])
            self._read_memory(place, manifest)
            read_agent(self.agent, place)
            arrays, state = read_arrays(place / "state.npz"), read_object(place / "state.json")
        run_files = {name: (place / name).read_bytes() for name in manifest["run_files"]}
        return Restored(place, state, arrays, run_files, notes, len(memories_in(manifest)))

    def _choose(self) -> tuple[pathlib.Path, list[str]]:
        """Returns what `newest_whole` does at the chief, at every worker."""
        choice: dict[str, Any] = {}
        if self.workers.task.is_chief:
            try:
                place, notes = newest_whole(self.directory, chunks=True)
                choice = {"place": place.name, "notes": notes}
            except CheckpointError as error:
                choice = {"error": str(error)}
        choice = json.loads(self.workers.broadcast(0, json.dumps(choice).encode()))
        if "error" in choice:
            raise CheckpointError(choice["error"])
        return self.directory / choice["place"], choice["notes"]

    def _check_identity(self, place: pathlib.Path, identity: dict[str, Any]) -> None:
        found = differences(identity if identity == self.identity else with_defaults(identity), self.identity)
        if found:
            name, theirs, ours = found[0]
            raise CheckpointError(
                f"a resumed run keeps its agent and environment: {place} has {name}={theirs!r}, got {ours!r}"
                f"{f' (and {len(found) - 1} more)' if found[1:] else ''}. For a new run with its weights there is "
                f"{option('--checkpoint_restore_dir', 'initial_weights')}"
            )

    def take_memory(self, directory: pathlib.Path) -> None:
        """Fills the memory with that of another run's newest checkpoint in `directory`."""
        other = CheckpointManager(directory, self.agent, self.memory, self.identity, workers=self.workers)
        place, _ = other._choose()
        manifest = read_manifest(place)
        theirs, ours = (
            (made["agent"]["memory"]["kind"], made["agent"]["memory"]["max_size"], made["environment"]["num_envs"])
            for made in (manifest["identity"], self.identity)
        )
        if theirs != ours:
            raise CheckpointError(f"the memory of {place} has kind, max_size and num_envs {theirs}, this run {ours}")
        with wrap_checkpoint_errors(place):
            other._read_memory(place, manifest)
        self.memory.end_episodes()

    def _read_memory(self, place: pathlib.Path, manifest: dict[str, Any]) -> None:
        saved, task = memories_in(manifest), self.workers.task
        states = [read_arrays(place / memory_file(worker)) for worker in range(len(saved))]
        if len(saved) == task.num_workers:
            for chunk in saved[task.index]["chunks"]:
                # The first chunk may begin with rows that are not kept any more: a ring overwrites them, episodes leave
                # them out.
                self.memory.put(chunk["start"], self._read_rows(chunk))
            self.memory.total_rows = saved[task.index]["total_rows"]
            self.memory.restore(states[task.index])
            self.saved_chunks = [memory["chunks"] for memory in saved]
        else:
            rows = [((chunk["start"], self._read_rows(chunk)) for chunk in memory["chunks"]) for memory in saved]
            totals = [memory["total_rows"] for memory in saved]
            reshard(self.memory, task.index, rows, states, totals, task.num_workers)

    def _read_rows(self, chunk: dict[str, Any]) -> np.ndarray:
        """Returns the rows of a chunk, mapped into memory."""
        return np.load(self.chunks / chunk["file"], mmap_mode="r", allow_pickle=False)
