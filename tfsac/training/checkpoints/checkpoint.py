"""Save and restore a run: complete, atomic checkpoints; the memory is saved in chunks, each row once."""

from __future__ import annotations

import itertools
import json
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfsac.distributed.partition import WorkerTask
from tfsac.distributed.workers import Workers
from tfsac.memories import EpisodicMemory, PrioritizedMemory, TransitionMemory
from tfsac.memories.reshard import reshard
from tfsac.parameters import AgentParameters, EnvironmentParameters, Preset, from_json, to_json
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
    newest_complete,
    prune,
    read_manifest,
    sealed,
)
from tfsac.types import Spec
from tfsac.utils.files import atomic_write, differences, glob_safe, read_arrays, read_object, sync

DEMONSTRATIONS = "demonstrations"  # the file may be moved; the memory identifies it by its content
CHUNK_BYTES = 128 * 2**20  # bounds the size of one file, and the RAM needed to save it


class Restored(NamedTuple):
    """The arguments of `CheckpointManager.save` apart from agent and memory, a note for each damaged checkpoint that
    was skipped, and the number of workers of the run.
    """

    path: pathlib.Path
    state: dict[str, Any]
    arrays: dict[str, np.ndarray]
    run_files: dict[str, bytes]
    notes: list[str]
    workers: int


class CheckpointManager:
    """Saves and restores one run.

    Args:
        directory: folder of the checkpoints; the newest `keep` are kept.
        agent, memory: provide the variables and rows to save.
        identity: values from `identity_of` that must match on restore.
        workers: workers of the run, which must call `save` and `restore` together; None for a single one.
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
        self.saved_chunks: list[dict[str, Any]] = []  # of this worker's memory
        self.damaged: list[pathlib.Path] = []  # checkpoints that were skipped

    def saved_checkpoints(self) -> list[pathlib.Path]:
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
        """Saves everything, including the memory's rows since the previous checkpoint, and returns the folder.

        Args:
            step: environment steps; names the checkpoint.
            state, arrays: JSON values and arrays of everything except agent and memory.
            run_files: contents of files of the run's folder by name, to restore them from.

        Raises:
            CheckpointError: the disk is full or not writable; earlier checkpoints are unchanged.
        """
        target = self.directory / f"{step:09d}"
        temporary = self.directory / f".{target.name}.tmp"
        chief = self.workers.task.is_chief
        try:
            if chief:
                self.chunks.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir()
            self.workers.gather({"ready": np.ones(1)})  # the other workers need the folder
            memory = self._save_memory(temporary)
            memories = self.workers.gather_objects(memory)
            if chief:
                with glob_safe(temporary) as folder:
                    self.checkpoint.write(str(folder / "agent"))
                (temporary / "state.json").write_text(json.dumps(state))
                np.savez(temporary / "state.npz", **(arrays or {}))  # type: ignore[arg-type]
                for name, content in (run_files or {}).items():
                    (temporary / name).write_bytes(content)
                manifest = {
                    "format": FORMAT,
                    "step": step,
                    "identity": self.identity,
                    "files": {path.name: digest(path) for path in sorted(temporary.iterdir())},
                    "run_files": list(run_files or {}),
                    "memory": memories[0],
                    "memory_of_others": memories[1:],
                }
                (temporary / MANIFEST).write_bytes(sealed(manifest))
                for path in [*temporary.iterdir(), temporary, self.chunks]:
                    sync(path)
                if target.exists():  # the last step of a run may already have a periodic checkpoint
                    target.replace(self.directory / f".{target.name}.old")
                temporary.replace(target)
                sync(self.directory)
        except (OSError, tf.errors.OpError) as error:
            if chief:
                prune(self.directory, self.keep, self.damaged)  # also removes this partial checkpoint
            names = ", ".join(path.name for path in self.saved_checkpoints()) or "none"
            raise CheckpointError(
                f"the checkpoint at step {step} cannot be written: {error} (kept: {names})"
            ) from error
        self.saved_chunks = memory["chunks"]
        self.damaged = [path for path in self.damaged if path != target]
        if chief:
            prune(self.directory, self.keep, self.damaged)
        return target

    def _save_memory(self, temporary: pathlib.Path) -> dict[str, Any]:
        """Writes the new rows of this worker's memory, and returns the memory's manifest entry."""
        memory = self.memory
        oldest, total = memory.oldest_row, memory.total_rows
        needed = (chunk for chunk in self.saved_chunks if chunk["stop"] > oldest)
        chunks = list(itertools.takewhile(lambda chunk: (self.chunks / chunk["file"]).is_file(), needed))
        start = chunks[-1]["stop"] if chunks else oldest
        while start < total:
            stop = min(start + max(1, CHUNK_BYTES // memory.row_bytes), total)
            rows = memory.between(start, stop)
            path = self.chunks / chunk_name(start, stop, rows)
            with atomic_write(path) as file:
                np.save(file, rows)
            chunks.append({"start": start, "stop": stop, "file": path.name, **digest(path)})
            start = stop
        with atomic_write(temporary / memory_file(self.workers.task.index)) as file:
            np.savez(file, **memory.state())  # type: ignore[arg-type]
        return {"total_rows": total, "chunks": chunks}

    def rewrite_newest_chunk(self) -> None:
        """Makes the next checkpoint save the newest rows again, because they changed after they were saved."""
        self.saved_chunks = self.saved_chunks[:-1]

    # -- restoring -----------------------------------------------------------------------------------------------------

    def restore(self) -> Restored:
        """Restores agent and memory from the newest complete checkpoint."""
        if self.workers.task.is_chief:
            clean_up(self.directory)
        self.workers.gather({"clean": np.ones(1)})  # the other workers wait for it
        checkpoint, notes = newest_complete(self.directory, chunks=True)
        self.workers.check_shared({"checkpoint": checkpoint.name})
        self.damaged = [path for path in self.saved_checkpoints() if int(path.name) > int(checkpoint.name)]
        manifest = read_manifest(checkpoint)
        self._check_identity(checkpoint, manifest["identity"])
        self._read_memory(checkpoint, manifest)
        read_agent(self.agent, checkpoint)
        arrays, state = read_arrays(checkpoint / "state.npz"), read_object(checkpoint / "state.json")
        run_files = {name: (checkpoint / name).read_bytes() for name in manifest["run_files"]}
        return Restored(checkpoint, state, arrays, run_files, notes, len(memories_in(manifest)))

    def _check_identity(self, checkpoint: pathlib.Path, identity: dict[str, Any]) -> None:
        changed = differences(identity if identity == self.identity else _with_defaults(identity), self.identity)
        if changed:
            name, saved, current = min(changed, key=lambda change: not change[0].endswith(".kind"))  # or the first
            advice = ". To start a new run with its weights, use initial_weights (--checkpoint_restore_dir)"
            raise CheckpointError(
                f"a resumed run keeps its agent and environment: {checkpoint} has {name}={saved!r}, got {current!r}"
                f"{'' if 'shapes' in name or 'normalization' in name else advice}"
            )

    def take_memory(self, directory: pathlib.Path) -> None:
        """Loads the memory of another run's newest checkpoint in `directory`."""
        checkpoint, _ = newest_complete(directory, chunks=True)
        self.workers.check_shared({"checkpoint": checkpoint.name})
        manifest = read_manifest(checkpoint)
        names = ("kind", "max_size", "alpha")
        saved, current = (
            {name: x["agent"]["memory"].get(name) for name in names} | {"num_envs": x["environment"]["num_envs"]}
            for x in (manifest["identity"], self.identity)
        )
        if saved != current:
            raise CheckpointError(f"the memory of {checkpoint} has {saved}, this run {current}")
        self._read_memory(checkpoint, manifest)
        if isinstance(self.memory, PrioritizedMemory):  # beta rises again
            self.memory.batches, self.memory.sampled = 0, None
        self.saved_chunks = []  # the chunks are in the other run's folder
        self.memory.end_episodes()

    def _read_memory(self, checkpoint: pathlib.Path, manifest: dict[str, Any]) -> None:
        saved, task = memories_in(manifest), self.workers.task
        if len(saved) == task.num_workers:
            local = saved[task.index]
            for chunk in local["chunks"]:
                # The first chunk may start with rows that the memory no longer keeps: a ring overwrites them, an
                # episode memory omits them.
                self.memory.put(chunk["start"], _read_rows(checkpoint, chunk))
            self.memory.total_rows = local["total_rows"]
            self.memory.restore(read_arrays(checkpoint / memory_file(task.index)))
            self.saved_chunks = local["chunks"]
        else:
            states = [read_arrays(checkpoint / memory_file(worker)) for worker in range(len(saved))]
            rows = [((chunk["start"], _read_rows(checkpoint, chunk)) for chunk in memory["chunks"]) for memory in saved]
            totals = [memory["total_rows"] for memory in saved]
            reshard(self.memory, task.index, rows, states, totals, task.num_workers)


def _read_rows(checkpoint: pathlib.Path, chunk: dict[str, Any]) -> np.ndarray:
    """Returns the rows of a chunk, memory-mapped."""
    return np.load(checkpoint.parent / CHUNKS / chunk["file"], mmap_mode="r", allow_pickle=False)


def read_agent(agent: tf.Module, checkpoint: pathlib.Path) -> None:
    """Reads an agent's variables from a checkpoint's folder; raises CheckpointError if they belong to another agent."""
    try:
        with glob_safe(checkpoint) as folder:
            tf.train.Checkpoint(agent=agent).read(str(folder / "agent")).assert_consumed()
    except (ValueError, AssertionError, tf.errors.OpError) as error:
        raise CheckpointError(f"{checkpoint} has other networks, for example from other models: {error}") from error


def identity_of(preset: Preset, seed: int, spec: Spec) -> dict[str, Any]:
    """Returns environment, agent, seed and shapes of a run as JSON values; the schedule may change on resume."""
    arrays = {**spec.observation, **spec.action_fields}
    return {
        **_identity(preset.environment, preset.agent),
        "seed": seed,
        "shapes": {name: list(array.shape) for name, array in arrays.items()},
    }


def _with_defaults(identity: dict[str, Any]) -> dict[str, Any]:
    """Returns the identity of a checkpoint with defaults for parameters that were added later."""
    agent, memory = identity["agent"], dict(identity["agent"]["memory"])
    if memory["kind"] in ("sqil", "prior_data"):
        memory[DEMONSTRATIONS] = DEMONSTRATIONS
    agent_class: Any = AgentParameters  # a union of classes
    environment = from_json(EnvironmentParameters, json.dumps(identity["environment"]))
    return {**identity, **_identity(environment, from_json(agent_class, json.dumps({**agent, "memory": memory})))}


def _identity(environment_parameters: EnvironmentParameters, agent_parameters: AgentParameters) -> dict[str, Any]:
    environment, agent = to_json(environment_parameters), to_json(agent_parameters)
    agent["memory"].pop(DEMONSTRATIONS, None)
    for name in ("vectorization", "step_timeout_seconds"):  # these do not affect the steps
        del environment[name]
    return {"environment": environment, "agent": agent}
