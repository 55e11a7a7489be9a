"""Multi-worker runs: two processes with their own environments and memories, and resuming with one."""

import dataclasses
import functools
import json
import signal
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
import tiny
from cli_tools import error_line
from strategy_tools import start_workers, tf_config, wait_for_workers
from toys import statistics_of, tiny_preset

from tfsac import parameters as p
from tfsac.distributed.partition import WorkerTask
from tfsac.distributed.workers import Workers
from tfsac.environments import Environments
from tfsac.errors import TfsacError
from tfsac.preset_lookup import read_config
from tfsac.training import Trainer

SAVED = {"seed": 3, "checkpoint_save_steps": 100, "updates_between_diagnostics": 1}
ENVS = {"environment.num_envs": 4, "schedule.improve_steps": 100}
NORMALISED = {f"environment.filters.{name}_normalization": True for name in ("observation", "reward")}


def prioritized():
    """Returns a preset with priorities, running statistics, a reset and noise repetition."""
    networks = p.twin_soft_actor_critic_networks((16,), learning_rate=1e-3, batch_size=32)
    memory = p.PrioritizedExperienceReplayParameters(max_size=1_000)
    agent = p.TwinSoftActorCriticAgentParameters(memory=memory, networks=networks)
    more = {"agent.algorithm.reset_steps": [150], "agent.exploration": {"kind": "noise_repetition"}}
    return p.override(dataclasses.replace(tiny_preset(), agent=agent), {**ENVS, **NORMALISED, **more})


PRESETS = {
    "uniform": lambda: p.override(tiny_preset(), {**ENVS, **NORMALISED}),
    "prioritized": prioritized,
    "taac": lambda: tiny.taac(**{**ENVS, "environment.filters.return_scaling": {"bound": 5.0}}),
    "acer": lambda: tiny.acer(
        lstm=True, **{**ENVS, "schedule.improve_steps": 200, "agent.memory.replay_start_size": 20}
    ),
}

# Each process trains presets in turn and records the paths that it writes.
WORKER = """
import json, os, sys
folder, tests, index, *names = sys.argv[1:]
sys.path.insert(0, tests)
wrote = []
def watch(event, arguments):
    if event == "open" and str(arguments[0]).startswith(folder + "/") and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
        wrote.append(str(arguments[0]))
    elif event in ("os.mkdir", "os.rename") and str(arguments[0]).startswith(folder + "/"):
        wrote.append(str(arguments[0]))
sys.addaudithook(watch)
import numpy as np
import test_workers as t
from tfsac.parameters import RunParameters
from tfsac.training import Trainer
for name in names:
    trainer = Trainer(t.PRESETS[name](), f"{folder}/{name}", RunParameters(strategy="multi_worker", **t.SAVED), quiet=True)
    trainer.run()
    np.savez(f"{folder}-{name}-{index}.npz", **t.final_arrays(trainer))
print(json.dumps(wrote))
"""


def final_arrays(trainer):
    """Returns the final arrays of a worker."""
    memory = trainer.memory
    variables = {f"weights/{i}": variable.numpy() for i, variable in enumerate(trainer.agent.variables)}
    counters = trainer.counters
    resets = getattr(trainer.agent, "resets", None)  # a variable if resets are configured
    return {
        **variables,
        "counters": np.array([counters.env_steps, counters.episodes, counters.updates]),
        "resets": 0 if resets is None else resets.numpy(),
        "filters": np.array(json.dumps(trainer.filters.state())),
        "rows": memory.between(memory.oldest_row, memory.total_rows),
    }


@pytest.fixture(scope="module")
def train_together(tmp_path_factory, request):
    """Returns a cached function that trains a preset with two workers; returns the folder and written paths."""
    folder = tmp_path_factory.mktemp("together") / "runs"
    folder.mkdir()

    @functools.cache
    def run(name):
        processes = start_workers(
            [["-c", WORKER, str(folder), str(request.path.parent), str(index), name] for index in range(2)]
        )
        output = wait_for_workers(processes)
        assert [process.returncode for process in processes] == [0, 0], output[0][1][-2000:] + output[1][1][-2000:]
        return folder, [json.loads(out.splitlines()[-1]) for out, _ in output]

    return run


def load_arrays(folder, name):
    loaded = []
    for index in range(2):
        with np.load(f"{folder}-{name}-{index}.npz") as arrays:
            loaded.append(dict(arrays))
    return loaded


@pytest.mark.acceptance
@pytest.mark.parametrize("name", PRESETS)
def test_workers_have_equal_agents_and_only_the_chief_writes(train_together, name):
    folder, (chief_paths, worker_paths) = train_together(name)
    assert worker_paths and all("/checkpoints/" in path and "memory" in path for path in worker_paths)
    assert any(path.endswith(name) or f"{name}/" in path for path in chief_paths)
    assert len(tiny.rows(folder / name)) == len({row["env_steps"] for row in tiny.rows(folder / name)}) > 0
    one, other = load_arrays(folder, name)
    for key in one.keys() - {"rows"}:
        np.testing.assert_array_equal(one[key], other[key], err_msg=key)
    steps, episodes, updates = one["counters"]
    assert steps == (200 if name != "taac" else PRESETS[name]().schedule.heatup_steps.num_steps + 100)
    assert updates == (100 if name != "acer" else updates) > 0 and episodes > 0
    assert one["resets"] == (name == "prioritized")


@pytest.mark.acceptance
@pytest.mark.parametrize("name", ["uniform", "prioritized", "taac"])
def test_each_worker_has_its_own_environments(train_together, name):
    one, other = (arrays["rows"] for arrays in load_arrays(train_together(name)[0], name))
    assert one.shape == other.shape and one.shape[1] == 2
    run_environments = Environments(PRESETS[name]().environment, SAVED["seed"])
    first = run_environments.observation["observation"]
    run_environments.close()
    np.testing.assert_array_equal(one["observation/observation"][0], first[:2])
    np.testing.assert_array_equal(other["observation/observation"][0], first[2:])
    assert (one["action"] != other["action"]).all(
        axis=tuple(range(2, one["action"].ndim))
    ).mean() > 0.99  # different random numbers


@pytest.mark.acceptance
def test_statistics_include_all_workers(train_together):
    arrays = load_arrays(train_together("uniform")[0], "uniform")
    state = json.loads(str(arrays[0]["filters"]))
    run_environments = Environments(PRESETS["uniform"]().environment, SAVED["seed"])
    first = run_environments.observation["observation"]
    run_environments.close()
    rows = np.concatenate([each["rows"] for each in arrays], axis=1)
    assert state["count"] == 4 + rows.size and state["reward"]["count"] == rows.size
    reward = rows["reward"].astype(np.float64)
    assert state["reward"]["mean"] == pytest.approx(reward.mean(), rel=1e-6)
    # Within an episode, the next observation is the following row's observation.
    going = ~(rows["terminated"] | rows["truncated"])[:-1]
    np.testing.assert_array_equal(
        rows["observation/observation"][1:][going], rows["next_observation/observation"][:-1][going]
    )
    observations = np.concatenate([first, rows["observation/observation"][1:].reshape(-1, 3)]).astype(np.float64)
    assert np.allclose(state["mean"]["observation"], observations.mean(axis=0), atol=0.1)  # without the newest


@pytest.mark.acceptance
def test_return_statistics_include_all_workers(train_together):
    arrays = load_arrays(train_together("taac")[0], "taac")
    state, rows = json.loads(str(arrays[0]["filters"])), np.concatenate([each["rows"] for each in arrays], axis=1)
    returns, running = statistics_of(rows, PRESETS["taac"]().agent.algorithm.discount)
    assert state["returns"]["mean"] == pytest.approx(returns.mean(), rel=1e-9)
    np.testing.assert_array_equal(state["returns"]["running"], running)


@pytest.mark.acceptance
@pytest.mark.parametrize("name", ["uniform", "prioritized", "taac"])
def test_one_process_resumes_memories_of_two(train_together, name):
    folder = train_together(name)[0]
    rows = [arrays["rows"] for arrays in load_arrays(folder, name)]
    longer = p.override(PRESETS[name](), {"schedule.improve_steps": 120})
    trainer = Trainer(longer, folder / name, p.RunParameters(**SAVED), resume=True, quiet=True)
    np.testing.assert_array_equal(
        trainer.memory.between(0, trainer.memory.total_rows - 1), np.concatenate(rows, axis=1)[:-1]
    )
    newest = tiny.newest(trainer.memory, 1)
    assert (newest["truncated"] | newest["terminated"]).all()  # running episodes are truncated
    for own, saved in zip(
        trainer.agent.variables, (load_arrays(folder, name)[0][f"weights/{i}"] for i in range(10**6)), strict=False
    ):
        np.testing.assert_array_equal(own.numpy(), saved)
    if name == "prioritized":
        leaves = [np.load(path)["leaves"].reshape(50, 2) for path in newest_states(folder / name)]
        np.testing.assert_array_equal(trainer.memory.state()["leaves"].reshape(50, 4), np.concatenate(leaves, axis=1))
    before = trainer.counters.env_steps
    assert trainer.run().counters.env_steps == before + 20


def newest_states(run_dir):
    checkpoint = max(path for path in (run_dir / "checkpoints").iterdir() if path.name.isdigit())
    return [checkpoint / "memory.npz", checkpoint / "memory-1.npz"]


@pytest.mark.acceptance
def test_one_process_resumes_episodes_of_two(train_together):
    folder = train_together("acer")[0]
    preset = p.override(PRESETS["acer"](), {"schedule.improve_steps": 240})
    trainer = Trainer(preset, folder / "acer", p.RunParameters(**SAVED), resume=True, quiet=True)
    lengths = []
    for path in newest_states(folder / "acer"):
        with np.load(path) as state:
            running = len(state["tape"]) - 1 - np.maximum(state["begin"], 0)
            lengths += [*state["lengths"], *running[running > 0]]
    kept = [steps for _, steps in trainer.memory.episodes]
    assert sorted(kept) == sorted(lengths) and sum(kept) == len(trainer.memory)
    assert trainer.run().counters.env_steps == 240


def train_command(run_dir, *flags):
    changes = {**tiny.CHANGES, **tiny.SHORTER, "environment.num_envs": 2, "schedule.improve_steps": 100_000}
    command = ["-m", "tfsac", "train", f"--run_dir={run_dir}", "--strategy=multi_worker"]
    return [*command, *tiny.assignments(changes), *flags]


def wait_for(path, processes):
    deadline = time.monotonic() + 500
    while not path.exists():
        assert time.monotonic() < deadline and all(process.poll() is None for process in processes)
        time.sleep(0.1)


@pytest.mark.acceptance
def test_killed_worker_ends_a_resumable_run(tmp_path):
    run_dir = tmp_path / "run"
    processes = start_workers([train_command(run_dir, "--checkpoint_save_steps=100")] * 2)
    wait_for(run_dir / "checkpoints" / "000000200", processes)
    processes[1].kill()
    (_, error), _ = wait_for_workers(processes)
    assert [process.returncode for process in processes] == [2, -signal.SIGKILL]
    assert "tfsac: Another worker of this run" in error and f"tfsac train --run_dir={run_dir} --resume" in error

    # Two workers resume; a signal to one ends both.
    processes = start_workers([["-m", "tfsac", "train", f"--run_dir={run_dir}", "--resume"]] * 2)
    wait_for(run_dir / "checkpoints" / "000000500", processes)
    processes[1].send_signal(signal.SIGTERM)
    (output, _), (other, _) = wait_for_workers(processes)
    assert [process.returncode for process in processes] == [128 + signal.SIGTERM] * 2
    assert "Continuing" in output and "Stopped by SIGTERM at step" in output and other == ""
    preset, _ = read_config(run_dir / "config.json")
    trainer = Trainer(preset, run_dir, p.RunParameters(), resume=True, quiet=True)
    steps = trainer.counters.env_steps
    assert f"at step {steps};" in output and len(trainer.memory) == min(steps, 1000)
    trainer.environments.close()


@pytest.mark.parametrize(
    ("flags", "config", "message"),
    [
        ("--strategy=multi_worker", "", "TF_CONFIG"),
        ("--strategy=multi_worker --num_envs=2", tf_config([1, 2], 0), "--run_dir"),
    ],
)
def test_invalid_workers_are_rejected_before_tensorflow_loads(tmp_path, monkeypatch, capsys, flags, config, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TF_CONFIG", config)
    monkeypatch.setitem(sys.modules, "tfsac.training", None)  # an import raises
    monkeypatch.setitem(sys.modules, "tfsac.api", None)
    assert message in error_line(["train", "--preset=pendulum_twin_sac", *flags.split()], capsys)
    assert not any(tmp_path.iterdir())


def test_workers_need_equal_settings(monkeypatch):
    second = Workers(tf.distribute.get_strategy(), WorkerTask(1, 2))
    monkeypatch.setattr(second, "gather_objects", lambda value: [{"run": {"seed": 1, "eager": False}}, value])
    second.check_shared({"run": {"seed": 1, "eager": False}})
    with pytest.raises(TfsacError, match=r"run\.seed=2 at worker 1, 1 at worker 0"):
        second.check_shared({"run": {"seed": 2, "eager": False}})
