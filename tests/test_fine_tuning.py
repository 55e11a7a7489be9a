"""Fine-tuning: more steps for a run, and runs that start with the weights and memory of another run."""

import json
import shutil
import signal

import numpy as np
import pytest
import tiny
from resume_tools import weights

import tfsac
from tfsac.errors import TfsacError
from tfsac.parameters import AutoAlphaParameters, FixedAlphaParameters, override, to_json
from tfsac.preset_lookup import load_preset
from tfsac.training import RunDirectory, Trainer
from tfsac.training.policy_weights import save_weights

PRESETS = {
    "v": lambda: tiny.short_preset(environment__filters__observation_normalization=True),
    "twin": lambda: tiny.shrunk(load_preset("pendulum_twin_sac"), **tiny.SHORTER),
    "taac": lambda: tiny.taac(),
    "acer": lambda: tiny.acer(lstm=True),
}


def save_randomized(trainer, folder):
    """Saves a run with random weights, target networks, temperatures and statistics."""
    rng = np.random.default_rng(7)
    variables = [variable for network in trainer.agent.networks.values() for variable in network.trainable_variables]
    variables += [variable for some in trainer.agent.trained.values() for variable in some]
    for variable in variables:
        variable.assign(0.1 * rng.standard_normal(variable.shape))
    trainer.agent.policy.refresh()
    if trainer.filters.observations:
        trainer.filters.learn({"observation": rng.standard_normal((9, 3)) + 5.0})
    directory = RunDirectory(folder)
    directory.create(trainer.preset, trainer.settings)
    save_weights(directory.best, trainer.agent, trainer.filters)
    return folder


@pytest.mark.usefixtures("no_tracing")
@pytest.mark.parametrize("name", ["v", *(pytest.param(x, marks=pytest.mark.acceptance) for x in ("acer", "taac"))])
def test_run_starts_with_all_weights_of_another_run(name, tmp_path):
    preset = PRESETS[name]()
    source = Trainer(preset, tmp_path / "unused", quiet=True)
    save_randomized(source, tmp_path / "source")
    slower = override(preset, {"agent.networks.*.learning_rate": 1e-5})
    trainer = Trainer(slower, tmp_path / "run", quiet=True, initial_weights=tmp_path / "source")
    theirs, ours = weights(source), weights(trainer)
    assert theirs.keys() == ours.keys() and any("target" in key for key in ours)
    for key, value in theirs.items():
        np.testing.assert_array_equal(value, ours[key], err_msg=key)
    assert trainer.filters.state() == source.filters.state()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["initial_weights"] == str(tmp_path / "source")
    assert float(trainer.agent.optimizers["policy"].learning_rate) == np.float32(1e-5)
    observation = trainer.environments.observation
    theirs, ours = (each.agent.policy.act(observation, mode="greedy").action for each in (source, trainer))
    np.testing.assert_array_equal(theirs, ours)


@pytest.mark.usefixtures("no_tracing")
@pytest.mark.slow
def test_fixed_temperature_is_not_loaded(tmp_path):
    learned = tiny.shrunk(
        load_preset("pendulum_twin_sac"), **tiny.SHORTER, **{"agent.algorithm.temperature": AutoAlphaParameters(0.7)}
    )
    fixed = override(learned, {"agent.algorithm.temperature": FixedAlphaParameters(0.3)})
    save_randomized(Trainer(learned, tmp_path / "a", quiet=True), tmp_path / "learned")
    for i, (preset, alpha) in enumerate([(fixed, 0.3), (learned, None)]):
        trainer = Trainer(preset, tmp_path / f"run{i}", quiet=True, initial_weights=tmp_path / "learned")
        value = float(trainer.agent.temperature.value())
        assert value == pytest.approx(alpha) if alpha else abs(value - 0.7) > 0.01


def other_statistics(folder):
    return save_randomized(Trainer(PRESETS["v"](), folder.with_name("unused"), quiet=True), folder)


WRONG = {
    "other agent": (lambda folder: tiny.untrained_run(folder, "Pendulum-v1", PRESETS["twin"]()), "other networks"),
    "normalised observations": (other_statistics, "observation_normalization"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_incompatible_weights_are_rejected_before_writing(name, tmp_path):
    make, message = WRONG[name]
    source = make(tmp_path / "source")
    with pytest.raises(TfsacError, match=message):
        tfsac.train(tiny.short_preset(), tmp_path / "run", quiet=True, initial_weights=source)
    assert not (tmp_path / "run").exists()


MEMORIES = {
    "uniform": lambda: tiny.short_preset(environment__filters__reward_normalization=True),
    "prioritised": lambda: override(PRESETS["twin"](), {"agent.memory": {"kind": "prioritized", "max_size": 45}}),
    "taac": lambda: tiny.taac(),
    "acer": lambda: tiny.acer(lstm=True),
}


def stored(memory):
    """Returns all stored transitions of a memory."""
    return memory.between(memory.oldest_row, memory.total_rows).copy()


@pytest.mark.usefixtures("no_export_or_plot")
@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=pytest.mark.acceptance if x in ("taac", "prioritised") else ()) for x in MEMORIES]
)
@pytest.mark.slow
def test_run_starts_with_weights_and_memory_of_another_run(name, tmp_path):
    preset = MEMORIES[name]()
    source = Trainer(preset, tmp_path / "source", quiet=True)
    source.run()
    source.memory.end_episodes()
    slower = override(preset, {"agent.networks.*.learning_rate": 1e-5, "schedule.improve_steps": 20})
    options = {"initial_weights": tmp_path / "source", "restore_memory": True}
    unfinished = tmp_path / "source" / "checkpoints" / ".000000070.1"  # the source run may be writing it
    unfinished.mkdir()
    trainer = Trainer(slower, tmp_path / "run", quiet=True, **options)
    assert unfinished.is_dir()
    np.testing.assert_array_equal(stored(trainer.memory), stored(source.memory))
    assert trainer.memory.total_rows == source.memory.total_rows and trainer.counters.env_steps == 0
    for key, value in source.memory.state().items():
        if key not in (
            "batches",
            "sampled",
            "tape",
            "begin",
            "rollout_begin",
            "rollout_first",
        ):  # state of running episodes
            np.testing.assert_array_equal(trainer.memory.state()[key], value, err_msg=key)
    if name == "uniform":
        best = json.loads(str(np.load(tmp_path / "source" / "best.npz")["filters"]))
        assert trainer.filters.state()["reward"] == best["reward"]
    trainer.train_one_step()
    if name != "acer":  # learns from complete rollouts only
        assert trainer.counters.updates == 1
    trainer.close()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["restore_memory"] is True and config["initial_weights"] == str(tmp_path / "source")
    assert config["preset"]["schedule"]["heatup_steps"] == "EnvironmentEpisodes(0)"


@pytest.fixture(scope="module")
def with_memory(tmp_path_factory):
    """A finished run whose memory is in its newest checkpoint."""
    folder = tmp_path_factory.mktemp("memory") / "source"
    Trainer(MEMORIES["uniform"](), folder, quiet=True).run()
    return folder


@pytest.mark.usefixtures("no_export_or_plot")
@pytest.mark.slow
def test_run_with_restored_memory_resumes(with_memory, tmp_path):
    options = {"initial_weights": with_memory, "restore_memory": True}
    preset = override(MEMORIES["uniform"](), {"schedule.improve_steps": 15})
    run = tfsac.RunParameters(memory_on_disk=True)
    first = Trainer(preset, tmp_path / "run", run, quiet=True, **options)
    assert first.run().counters.updates == 15
    resumed = Trainer(load_preset(tmp_path / "run" / "config.json"), tmp_path / "run", quiet=True, resume=True)
    np.testing.assert_array_equal(*(stored(trainer.memory) for trainer in (resumed, first)))
    resumed.close()
    changes = {"schedule.improve_steps": 25, "schedule.random_action_steps": 1000}
    longer = override(MEMORIES["uniform"](), changes)
    assert tfsac.train(longer, tmp_path / "run", resume=True, quiet=True).counters.updates == 25
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["initial_weights"] == str(with_memory) and len(config["resumed"]) == 2
    assert config["preset"]["schedule"]["random_action_steps"] is None


@pytest.mark.usefixtures("no_tracing")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "damaged", "word"),
    [
        ({"agent.memory.max_size": 500}, False, "max_size"),
        ({"environment.visible_entries": [2, 1, 0]}, False, "visible_entries"),
        ({}, True, "rows-"),
    ],
)
def test_incompatible_memory_is_rejected_before_writing(with_memory, tmp_path, changes, damaged, word):
    source = tmp_path / "source"
    shutil.copytree(with_memory, source)
    if damaged:
        next((source / "checkpoints" / "memory").iterdir()).write_bytes(b"rows")
    preset = override(MEMORIES["uniform"](), changes)
    with pytest.raises(TfsacError, match=word):
        Trainer(preset, tmp_path / "run", quiet=True, initial_weights=source, restore_memory=True)
    assert not (tmp_path / "run").exists()


def test_restore_memory_requires_initial_weights(tmp_path):
    with pytest.raises(TfsacError, match="initial_weights"):
        Trainer(tiny.short_preset(), tmp_path / "run", quiet=True, restore_memory=True)


class Interrupt(tfsac.Callback):
    """Interrupts a run at its first step, like a signal."""

    def on_step(self, trainer):
        trainer._signals.received = signal.SIGTERM


@pytest.mark.usefixtures("no_export_or_plot")
@pytest.mark.slow
def test_finished_run_can_be_extended(tmp_path, capsys):
    preset, run = tiny.short_preset(), tfsac.RunParameters(seed=3, checkpoint_save_steps=50)
    tfsac.train(preset, tmp_path / "run", run, quiet=True)
    capsys.readouterr()
    same = tfsac.train(preset, tmp_path / "run", resume=True)
    assert same.counters.env_steps == 60 and "has completed its schedule" in capsys.readouterr().out
    longer = override(preset, {"schedule.improve_steps": 35})
    (tmp_path / "run" / "policy").mkdir()  # like an exported policy
    interrupted = tfsac.train(longer, tmp_path / "run", resume=True, callbacks=[Interrupt()], quiet=True)
    assert interrupted.signal and not (tmp_path / "run" / "policy").exists()
    longer = tfsac.train(longer, tmp_path / "run", resume=True)
    printed = capsys.readouterr().out
    assert longer.counters.env_steps == 75 and "has completed its schedule" not in printed
    assert [int(row["env_steps"]) for row in tiny.rows(tmp_path / "run")] == [50, 60, 75]
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["preset"]["schedule"]["improve_steps"] == "EnvironmentSteps(35)"
    assert config["run"] == to_json(run) and [entry["env_steps"] for entry in config["resumed"]] == [60, 60, 61]
