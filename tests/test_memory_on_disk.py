"""Replay memories in a memory-mapped file: reserved at once, no file left behind. `test_frames` compares samples."""

import gc
import mmap
import os
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from toys import tiny_preset

from tfsac.memories import EpisodicMemory, TransitionMemory, on_disk
from tfsac.parameters import RunParameters
from tfsac.training import Trainer
from tfsac.training.checkpoints import CheckpointManager
from tfsac.training.checkpoints import checkpoint as checkpoint_module
from tfsac.types import ArraySpec, Spec

SPEC = Spec({"observation": ArraySpec((2,), "float32")}, ArraySpec((1,), "float32"))


def test_ring_is_an_unnamed_memory_map(tmp_path):
    memory = TransitionMemory(SPEC, 20, 2, allocate=on_disk(tmp_path))
    assert isinstance(memory.ring.base, mmap.mmap) and type(memory.ring) is np.ndarray
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [TransitionMemory, EpisodicMemory])
def test_save_and_restore_use_little_memory(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(checkpoint_module, "CHUNK_BYTES", 50_000)
    spec = Spec({"observation": ArraySpec((128,), "float32")}, ArraySpec((1,), "float32"))
    sizes = {"capacity": 2000, "num_envs": 100, **({"t_max": 20} if kind is EpisodicMemory else {})}
    old, new = (kind(spec, **sizes, allocate=on_disk(tmp_path)) for _ in range(2))
    observation, done = {"observation": np.ones((100, 128))}, np.ones(100, bool)
    for step in range(20):
        old.add(observation, np.ones((100, 1)), np.full(100, step), done & (step == 19), ~done, observation)
    if kind is EpisodicMemory:
        old.batches(0, 100, np.random.default_rng(0))  # checkpoints include the current rollout
    managers = [CheckpointManager(tmp_path / "checkpoints", tf.Module(), memory, {}) for memory in (old, new)]
    for work in (lambda: managers[0].save(0, {}), managers[1].restore):
        gc.collect()  # exclude garbage of earlier tests
        tracemalloc.start()
        work()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert 50_000 <= peak < 700_000
    saved = old.between(old.oldest_row, old.total_rows)
    assert saved.nbytes > 1_000_000
    np.testing.assert_array_equal(new.between(new.oldest_row, new.total_rows), saved)


def test_space_is_reserved_in_one_call(tmp_path, monkeypatch):
    reserve, blocks = os.posix_fallocate, []

    def recorded(file, offset, size):
        reserve(file, offset, size)
        blocks.append((size, 512 * os.fstat(file).st_blocks))

    monkeypatch.setattr(os, "posix_fallocate", recorded)
    array = on_disk(tmp_path)((1000, 3), np.dtype([("a", "float32"), ("b", "bool")]))
    assert array.shape == (1000, 3) and not array["a"].any() and not array["b"].any()
    assert len(blocks) == 1 and blocks[0][0] == 15_000 <= blocks[0][1]


def test_too_large_memory_leaves_no_run_folder(tmp_path):
    run = RunParameters(memory_on_disk=True)
    with pytest.raises(OSError, match="free"):
        Trainer(tiny_preset(agent__memory__max_size=10**12), tmp_path / "runs" / "one", run, quiet=True)
    assert list(tmp_path.iterdir()) == []
