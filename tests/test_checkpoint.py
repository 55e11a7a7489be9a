"""Checkpoints are complete, atomic, incremental and verified; a resumed run equals an uninterrupted one."""

import errno
import itertools
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tiny
from resume_tools import RUN, assert_same_run, complete_run, crash_at, ensemble_preset, preset, twin_preset

from tfsac.training import CheckpointError, Trainer
from tfsac.training.checkpoints import FORMAT, identity_of
from tfsac.training.checkpoints import checkpoint as checkpoint_module
from tfsac.training.checkpoints.format import prune, read_manifest, sealed, verify


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return complete_run(tmp_path_factory.mktemp("uninterrupted") / "run", preset())


@pytest.mark.parametrize("step", [163, pytest.param(300, marks=pytest.mark.acceptance)])
@pytest.mark.slow
def test_resumed_run_equals_uninterrupted_run(tmp_path, uninterrupted, step):
    crash_at(tmp_path / "run", step)
    resumed = Trainer(preset(), tmp_path / "run", RUN, resume=True, quiet=True)
    assert resumed.counters.env_steps == step // 50 * 50
    resumed.run()
    assert_same_run(resumed, uninterrupted)


@pytest.mark.acceptance
@pytest.mark.parametrize("make", [twin_preset, ensemble_preset])
def test_all_stateful_parts_resume_exactly(tmp_path, make):
    uninterrupted = complete_run(tmp_path / "uninterrupted", make())
    crash_at(tmp_path / "run", 163, make())
    resumed = Trainer(make(), tmp_path / "run", RUN, resume=True, quiet=True)
    assert resumed.counters.env_steps == 150
    resumed.run()
    assert_same_run(resumed, uninterrupted)


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from resume_tools import RUN, preset
from tfsac.training import Callback, Trainer
from tfsac.training.checkpoints import checkpoint

class KillAt(Callback):
    def on_step(self, trainer):
        if trainer.counters.env_steps == {step}:
            os.kill(os.getpid(), signal.SIGKILL)

if {in_the_middle_of_saving}:
    def kill(path, saves=[]):
        saves.append(path)
        if len(saves) > 12:  # some files of the second checkpoint
            os.kill(os.getpid(), signal.SIGKILL)
    checkpoint.sync = kill
trainer = Trainer(preset(), {run_dir!r}, RUN, callbacks=[KillAt()], quiet=True)
trainer.run()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("step", "saving"), [(-1, True), pytest.param(251, False, marks=pytest.mark.acceptance)])
def test_killed_and_resumed_run_equals_uninterrupted_run(tmp_path, uninterrupted, step, saving):
    tests, run_dir = str(pathlib.Path(__file__).parent), str(tmp_path / "run")
    code = KILLED.format(tests=tests, step=step, run_dir=run_dir, in_the_middle_of_saving=saving)
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    resumed = Trainer(preset(), tmp_path / "run", RUN, resume=True, quiet=True)
    resumed.run()
    assert_same_run(resumed, uninterrupted)


def test_only_newest_checkpoints_and_their_chunks_are_kept(uninterrupted):
    manager = uninterrupted._checkpoints
    paths, chunk_files = manager.saved_checkpoints(), set()
    assert [path.name for path in paths] == ["000000250", "000000300"]
    for path in paths:
        verify(path)
        manifest = read_manifest(path)
        chunks = manifest["memory"]["chunks"]
        chunk_files |= {chunk["file"] for chunk in chunks}
        assert chunks[-1]["stop"] == manifest["memory"]["total_rows"] == int(path.name)
        assert chunks[0]["start"] <= int(path.name) - 120
        assert all(before["stop"] == after["start"] for before, after in itertools.pairwise(chunks))
    assert {path.name for path in manager.chunks.iterdir()} == chunk_files


def test_kill_during_pruning_leaves_no_damaged_checkpoint(tmp_path, uninterrupted, monkeypatch):
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(uninterrupted.directory.path / "checkpoints", checkpoints)

    def killed(path):
        (path / "manifest.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            prune(checkpoints, 1)
    verify(checkpoints / "000000300")
    prune(checkpoints, 1)
    assert sorted(path.name for path in checkpoints.iterdir()) == ["000000300", "memory"]


def test_checkpoints_write_only_new_transitions(tmp_path):
    trainer = crash_at(tmp_path / "run", 101, preset(**{"agent.memory.max_size": 1000}))
    first = {path.name: path.stat().st_mtime_ns for path in trainer._checkpoints.chunks.iterdir()}
    assert len(first) == 2
    trainer.collect()
    trainer.save()
    second = {path.name: path.stat().st_mtime_ns for path in trainer._checkpoints.chunks.iterdir()}
    new = second.keys() - first.keys()
    assert len(new) == 1 and first.items() <= second.items()
    assert "0000000100-0000000102" in new.pop()


def damage_flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (damage_flip, "manifest.json"),
        (damage_flip, "agent.data-00000-of-00001"),
        (lambda path: path.write_bytes(path.read_bytes()[:-7]), "state.json"),
        (pathlib.Path.unlink, "memory.npz"),
    ],
)
def test_damaged_checkpoint_falls_back_to_previous_one(tmp_path, uninterrupted, capsys, damage, name):
    shutil.copytree(uninterrupted.directory.path, tmp_path / "run")
    damage(tmp_path / "run" / "checkpoints" / "000000300" / name)
    resumed = Trainer(preset(), tmp_path / "run", RUN, resume=True)
    assert resumed.counters.env_steps == 250
    assert "000000300 is damaged" in capsys.readouterr().out
    for _ in range(51):
        resumed.collect()
    resumed.save()  # the damaged one does not count as kept
    assert [path.name for path in resumed._checkpoints.saved_checkpoints()] == ["000000250", "000000301"]


@pytest.mark.usefixtures("no_tracing")
def test_damaged_memory_chunk_is_detected(tmp_path, uninterrupted):
    shutil.copytree(uninterrupted.directory.path, tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints" / "memory").iterdir():
        damage_flip(path)
    with pytest.raises(CheckpointError, match=r"no checkpoint to continue from.*000000250 is damaged"):
        Trainer(preset(), tmp_path / "run", RUN, resume=True, quiet=True)


@pytest.mark.usefixtures("no_tracing")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"environment.level": "MountainCarContinuous-v0"}, "environment.level"),
        ({"environment.kwargs.g": 9.0}, "environment.kwargs.g=None"),
    ],
)
def test_checkpoint_of_another_run_is_rejected(tmp_path, uninterrupted, changes, field):
    shutil.copytree(uninterrupted.directory.path, tmp_path / "run")
    before = sorted(path.name for path in (tmp_path / "run").rglob("*"))
    with pytest.raises(CheckpointError, match=field):
        Trainer(preset(**changes), tmp_path / "run", RUN, resume=True, quiet=True)
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == before


@pytest.mark.slow
def test_older_run_without_new_parameter_resumes_at_default(tmp_path, uninterrupted, capsys):
    crash_at(tmp_path / "run", 163)
    for path in (tmp_path / "run" / "checkpoints").glob("0*/manifest.json"):
        manifest = json.loads(path.read_text())
        assert manifest["identity"]["environment"]["filters"].pop("reward_normalization") is False
        path.write_bytes(sealed(manifest))
    with pytest.raises(CheckpointError, match="reward_normalization=False, got True"):
        normalised = preset(**{"environment.filters.reward_normalization": True})
        Trainer(normalised, tmp_path / "run", RUN, resume=True, quiet=True)
    resumed = Trainer(preset(), tmp_path / "run", RUN, resume=True)
    assert resumed.counters.env_steps == 150 and "damaged" not in capsys.readouterr().out
    resumed.run()
    assert_same_run(resumed, uninterrupted)


def test_vectorization_may_change_when_resuming(uninterrupted):
    elsewhere = {"environment.vectorization": "subprocess", "environment.step_timeout_seconds": 60.0}
    identity = identity_of(preset(**elsewhere), RUN.seed, uninterrupted.agent.spec)
    assert identity == uninterrupted._checkpoints.identity


@pytest.mark.usefixtures("no_tracing")
@pytest.mark.slow
def test_checkpoint_of_another_format_is_rejected(tmp_path, uninterrupted):
    shutil.copytree(uninterrupted.directory.path, tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").glob("0*/manifest.json"):
        manifest = {**json.loads(path.read_text()), "format": FORMAT + 1}
        path.write_bytes(sealed(manifest))
    with pytest.raises(CheckpointError, match=f"format {FORMAT + 1}"):
        Trainer(preset(), tmp_path / "run", RUN, resume=True, quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), [(checkpoint_module.np, "save"), (checkpoint_module, "digest")])
def test_full_disk_raises_and_keeps_old_checkpoints(tmp_path, monkeypatch, module, name):
    trainer = crash_at(tmp_path / "run", 120)
    before = sorted(trainer.directory.checkpoints.rglob("*"))

    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full, pytest.raises(CheckpointError, match=r"No space left.*000000050, 000000100"):
        full.setattr(module, name, fail)
        trainer.save()
    assert sorted(trainer.directory.checkpoints.rglob("*")) == before
    assert Trainer(preset(), tmp_path / "run", RUN, resume=True, quiet=True).counters.env_steps == 100


@pytest.mark.slow
def test_several_environments_resume_with_new_episodes(tmp_path, capsys):
    several = preset(**{"environment.num_envs": 2, "agent.memory.max_size": 400})
    crash_at(tmp_path / "run", 170, several)
    resumed = Trainer(several, tmp_path / "run", RUN, resume=True)
    assert "new ones begin" in capsys.readouterr().out
    assert resumed.counters.env_steps == 150
    assert tiny.newest(resumed.memory, 1)["truncated"].all()
    assert resumed.run().counters.env_steps == 300
    manifest = verify(resumed._checkpoints.saved_checkpoints()[-1])
    saved = [np.load(resumed._checkpoints.chunks / chunk["file"]) for chunk in manifest["memory"]["chunks"]]
    np.testing.assert_array_equal(np.concatenate(saved), resumed.memory.between(0, 150))
