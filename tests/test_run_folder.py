"""Run directories: locks, repair after crashes, full disks, the last policy and unusual paths."""

import contextlib
import errno
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from cli_tools import folder_contents
from toys import tiny_preset

from tfsac import api, cli
from tfsac.errors import TfsacError
from tfsac.exporting import export, loading, verify
from tfsac.exporting.exported import load_exported
from tfsac.parameters import RunParameters, override
from tfsac.training import Callback, CheckpointError, RunDirectory, Trainer
from tfsac.utils.files import LOCK, atomic_write, sync

RUN = RunParameters(checkpoint_save_steps=25, updates_between_diagnostics=1)
OBSERVATION = np.array([0.6, -0.8, 0.3], np.float32)
SHORT = {
    "schedule.heatup_steps": 30,
    "schedule.improve_steps": 30,
    "schedule.steps_between_evaluation_periods": 20,
    "agent.networks.*.batch_size": 16,
}


def preset(**changes):
    return override(tiny_preset(), SHORT | changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    api.train(preset(), folder, RUN, quiet=True)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


@contextlib.contextmanager
def resumed(folder, parameters=RUN):
    trainer = Trainer(preset(), folder, parameters, resume=True)
    try:
        yield trainer
    finally:
        trainer.close()


HOLD_LOCK = """
import pathlib, sys, time
from tfsac.training.run_directory import RunDirectory
directory = RunDirectory(pathlib.Path(sys.argv[1]))
directory.acquire_lock()
print("locked", flush=True)
time.sleep(100)
"""


@pytest.mark.slow
def test_run_is_locked_by_one_process(run):
    before = folder_contents(run)
    holder = subprocess.Popen([sys.executable, "-c", HOLD_LOCK, str(run)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(BlockingIOError, match="being trained already"):
            Trainer(preset(), run, RUN, resume=True, quiet=True)
        assert folder_contents(run) == before
        assert api.evaluate(run, 1).returns.shape == (1,)  # readers need no lock
    finally:
        holder.kill()
        holder.communicate()
    with resumed(run) as trainer:
        assert trainer.counters.env_steps == 60


@pytest.mark.usefixtures("no_tracing")
@pytest.mark.slow
def test_second_new_run_in_a_folder_is_rejected(tmp_path):
    first = Trainer(preset(), tmp_path / "run", RUN, quiet=True)
    with pytest.raises(FileExistsError, match="exists"):
        Trainer(preset(), tmp_path / "run", RUN, quiet=True)
    for name in ("config.json", "metrics.csv"):  # a race: the second run checks before the first one writes
        (tmp_path / "run" / name).unlink()
    with pytest.raises(BlockingIOError, match="being trained already"):
        Trainer(preset(), tmp_path / "run", RUN, quiet=True)
    first.close()


@pytest.mark.slow
def test_lock_is_held_until_the_export(tmp_path, monkeypatch):
    locked = []
    monkeypatch.setattr(api, "export", lambda *args, **kwargs: locked.append(trainer.directory.lock.is_locked))
    trainer = Trainer(preset(), tmp_path / "run", RUN, quiet=True)
    assert trainer.directory.lock.is_locked
    api.finish(trainer)
    assert locked == [True] and not trainer.directory.lock.is_locked


@pytest.mark.usefixtures("no_tracing")
def test_stale_lock_file_is_no_run(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).write_text("process 1 on another\n")  # left by a killed process
    RunDirectory(tmp_path / "run").refuse_existing()
    with pytest.raises(CheckpointError, match="no checkpoint to continue from"):
        Trainer(preset(), tmp_path / "nothing", RUN, resume=True, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def overwrite(path):
    path.write_bytes(bytes(range(256)))


@pytest.mark.slow
@pytest.mark.parametrize("damage", [overwrite, pathlib.Path.unlink])
def test_damaged_files_are_restored_from_the_checkpoint(run, finished, damage):
    for name in ("metrics.csv", "best.npz"):
        damage(run / name)
    with resumed(run):
        for name in ("metrics.csv", "best.npz"):
            assert (run / name).read_bytes() == (finished / name).read_bytes()


def test_resume_cleans_up_after_killed_writers(run):
    for name in (".best.npz.123.tmp", ".metrics.csv.5.tmp", "mine.txt", ".mine.3"):
        (run / name).write_text("half")
    for folder in (run / ".policy.abc123.tmp", run / "checkpoints" / ".000000840.tmp"):
        (folder / "inside").mkdir(parents=True)
    (run / "checkpoints" / "000000060").rename(run / "checkpoints" / ".000000060.old")
    with resumed(run) as trainer:
        assert trainer.counters.env_steps == 60
    assert {path.name for path in run.iterdir() if path.name.startswith(".")} == {LOCK, ".mine.3"}
    assert (run / "mine.txt").exists()
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"000000050", "000000060", "memory"}


@pytest.mark.usefixtures("no_tracing")
def test_edited_config_is_rejected_on_resume(run):
    config, copy = run / "config.json", run / "checkpoints" / "000000060" / "config.json"
    content = config.read_text()
    config.write_text(content.replace("EnvironmentSteps(30)", "EnvironmentSteps(70)"))  # an edited schedule
    with pytest.raises(TfsacError, match=f"{config} .*checksum.* {copy}"), resumed(run):
        pass
    config.write_bytes(b'{"run": 3}')
    with pytest.raises(TfsacError, match=str(copy)):
        RunDirectory(run).read()
    config.write_text(content.replace('"sha256"', '"earlier versions have no checksum"'))
    with resumed(run) as trainer:
        assert trainer.counters.env_steps == 60
    config.unlink()
    with resumed(run):
        assert RunDirectory(run).read()[0] == preset()  # written again


def raise_disk_full(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_atomic_write_keeps_the_old_file_on_error(tmp_path):
    (tmp_path / "file").write_text("before")
    with pytest.raises(OSError, match="No space left"), atomic_write(tmp_path / "file") as file:
        file.write(b"half")
        raise_disk_full()
    assert (tmp_path / "file").read_text() == "before" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_run_without_space_for_its_policy_is_resumable(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    monkeypatch.setattr(tf.saved_model, "save", raise_disk_full)
    with pytest.raises(OSError, match="No space left"):
        api.train(preset(), folder, RUN, quiet=True)
    names = {path.name for path in folder.iterdir()} - {"learning_curve.png", "events", LOCK}
    assert names == {"best.npz", "checkpoints", "config.json", "metrics.csv"}
    monkeypatch.undo()
    assert api.train(preset(), folder, RUN, resume=True, quiet=True).counters.env_steps == 60
    assert (folder / "policy" / "saved_model.pb").is_file() and (folder / "learning_curve.png").is_file()


def test_last_policy_of_a_checkpoint(tmp_path):
    run_parameters, actions = RunParameters(checkpoint_save_steps=10, num_checkpoints_to_keep=9), {}

    class RecordActions(Callback):
        def on_step(self, trainer):
            actions[trainer.counters.env_steps] = trainer.policy.act(OBSERVATION)

    normalised = preset(**{"environment.filters.observation_normalization": True})
    trainer = Trainer(normalised, tmp_path / "run", run_parameters, callbacks=[RecordActions()], quiet=True)
    trainer.run()
    trained = trainer.policy.act(OBSERVATION)
    for rows in (tmp_path / "run" / "checkpoints" / "memory").iterdir():
        rows.write_bytes(b"")  # not needed for acting
    for step in (40, 50):
        np.testing.assert_array_equal(
            loading.load_policy(tmp_path / "run", step=step, last=True).act(OBSERVATION), actions[step]
        )
    assert not np.array_equal(actions[40], actions[50])
    policy = loading.load_policy(tmp_path / "run", last=True, critics=True)
    np.testing.assert_array_equal(policy.act(OBSERVATION), trained)
    assert policy.values(OBSERVATION, [0.5]).keys() == {"v", "q"}
    (tmp_path / "run" / "checkpoints" / "000000060" / "state.json").write_text("{}")
    np.testing.assert_array_equal(loading.load_policy(tmp_path / "run", last=True).act(OBSERVATION), actions[50])
    with pytest.raises(CheckpointError, match="60 is damaged"):
        loading.load_policy(tmp_path / "run", step=60, last=True)


def test_commands_with_last_policy(run, tmp_path, capsys):
    trained = loading.load_policy(run, last=True)
    out = tmp_path / "last"
    assert cli.run(["export", f"--run_dir={run}", f"--out={out}", "--last"]) == 0
    np.testing.assert_allclose(load_exported(out)(OBSERVATION), trained.act(OBSERVATION), atol=1e-6)
    capsys.readouterr()
    lines = []
    for flags in ([], ["--last"], ["--last", "--step=60"]):
        assert cli.run(["evaluate", f"--run_dir={run}", "--episodes=1", *flags]) == 0
        lines.append(capsys.readouterr().out.splitlines()[0])
    assert lines[0] != lines[1] == lines[2]


class ChangeDirectory(Callback):
    """Changes the working directory during training."""

    def on_step(self, trainer):
        os.chdir("/")


@pytest.mark.slow
def test_folder_with_special_characters(tmp_path, finished, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = api.train(preset(), "a[1]*? (64)/run", RUN, callbacks=[ChangeDirectory()], quiet=True)
    folder = tmp_path / "a[1]*? (64)" / "run"
    assert result.run_dir == folder
    assert {path.name for path in folder.iterdir()} == {path.name for path in finished.iterdir()}
    with resumed(folder) as trainer:
        assert trainer.counters.env_steps == 60
        assert trainer.resume_command == f"tfsac train '--run_dir={folder}' --resume"  # quoted for the shell
    np.testing.assert_array_equal(api.evaluate(folder, 1).returns, api.evaluate(finished, 1).returns)
    policy = loading.load_policy(folder)
    for path in (folder / "policy", export(policy, folder.with_name("lite"), "tflite")):
        assert verify(policy, path, api.observations_of(folder, policy)) < 1e-5


def test_only_memory_chunks_are_deleted(run, tmp_path):
    memory = run / "checkpoints" / "memory"
    (tmp_path / "foreign.npy").write_text("mine")
    old = "rows-0000000000-0000000001-0123456789ab.npy"
    for name in (old, "rows-mine.npy", "notes.txt", f".{old}.123.tmp"):
        (memory / name).write_text("mine")
    link = memory / old.replace("a", "c")
    link.symlink_to(tmp_path / "foreign.npy")
    with resumed(run) as trainer:
        trainer.save()
    assert {"rows-mine.npy", "notes.txt"} <= {path.name for path in memory.iterdir()}
    assert not (memory / old).exists() and not link.is_symlink() and not (memory / f".{old}.123.tmp").exists()
    assert (tmp_path / "foreign.npy").read_text() == "mine"


def test_sync_ignores_folders_without_fsync(monkeypatch, tmp_path):
    def flush(descriptor, number=errno.EINVAL):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", flush)
    sync(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda descriptor: flush(descriptor, errno.ENOSPC))
    with pytest.raises(OSError, match="space"):
        sync(tmp_path)


def test_run_directory_expands_tilde(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert RunDirectory("~/runs/one").path == tmp_path / "runs" / "one"
