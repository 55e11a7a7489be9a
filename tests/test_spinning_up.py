"""`tfsac.sac`, the Spinning Up interface: arguments, progress.txt, custom networks and `test_policy`."""

import contextlib
import csv
import dataclasses
import functools
import inspect
import io
import json
import math
import os
import signal

import gymnasium as gym
import keras
import numpy as np
import pytest
import tiny

import tfsac
from tfsac import api, exporting
from tfsac.environments import make
from tfsac.errors import TfsacError
from tfsac.parameters import EnvironmentParameters
from tfsac.preset_lookup import load_preset, read_config
from tfsac.spinning_up import functions
from tfsac.spinning_up.functions import mlp_actor_critic, model_maker
from tfsac.spinning_up.sac_arguments import SpinningUpArguments
from tfsac.training import Callback, CheckpointError

TINY = {
    "steps_per_epoch": 60, "epochs": 2, "batch_size": 8, "start_steps": 40, "update_after": 20, "update_every": 10,
    "num_test_episodes": 2, "max_ep_len": 15,
}  # fmt: skip
SMALL = {"hidden_sizes": (8,)}
COLUMNS = [
    "Epoch", "AverageEpRet", "StdEpRet", "MaxEpRet", "MinEpRet",
    "AverageTestEpRet", "StdTestEpRet", "MaxTestEpRet", "MinTestEpRet", "EpLen", "TestEpLen", "TotalEnvInteracts",
    "AverageQ1Vals", "StdQ1Vals", "MaxQ1Vals", "MinQ1Vals", "AverageQ2Vals", "StdQ2Vals", "MaxQ2Vals", "MinQ2Vals",
    "AverageLogPi", "StdLogPi", "MaxLogPi", "MinLogPi", "LossPi", "LossQ1", "LossQ2", "Time",
]  # fmt: skip


def pendulum():
    return gym.make("Pendulum-v1")


class Endless(gym.Env):
    """Never terminates, is not registered, and has two actions with different bounds."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Box(np.float32([-0.3, 5.0]), np.float32([0.7, 9.0]))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        assert self.action_space.contains(np.asarray(action, np.float32)), action
        observation = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return observation, 1.0 - float(action[0]) ** 2, False, False, {}


def custom_actor_critic(observation_space, action_space, width=8):
    """A custom actor_critic: silu instead of relu, and values of shape [B]."""
    observation, action = keras.Input(observation_space.shape), keras.Input(action_space.shape)
    x = keras.layers.Dense(width, "silu")(observation)
    policy = keras.Model(observation, [keras.layers.Dense(action_space.shape[0])(x) for _ in range(2)])

    def q():
        x = keras.layers.Dense(width, "silu")(keras.layers.Concatenate()([observation, action]))
        return keras.Model([observation, action], keras.layers.Reshape(())(keras.layers.Dense(1)(x)))

    return policy, q(), q()


class Spy(Callback):
    """Records the trainer and its metrics; optionally sends SIGTERM."""

    def __init__(self, end_at):
        self.end_at = end_at
        self.metrics, self.first_update, self.weights = [], None, None

    def on_training_begin(self, trainer):
        self.trainer, self.weights = trainer, trainer.agent.networks["policy"].model.get_weights()

    def on_step(self, trainer):
        if trainer.counters.env_steps == self.end_at:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_updates(self, trainer, metrics):
        self.first_update = self.first_update or trainer.counters.env_steps
        self.metrics.append((trainer.counters.env_steps, metrics))


def run_sac(env_fn, actor_critic=mlp_actor_critic, end_at=None, **arguments):
    """Calls `tfsac.sac`; returns its result, a spy and the printed text."""
    spy, printed = Spy(end_at), io.StringIO()

    def finish(trainer):
        trainer._hooks.callbacks.append(spy)
        return api.finish(trainer)

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(functions, "finish", finish)
        result = tfsac.sac(env_fn, actor_critic, **{**TINY, **arguments})
    return result, spy, printed.getvalue()


def progress(run_dir):
    with (run_dir / "progress.txt").open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def as_floats(rows, *exclude):
    return [{name: float(value) for name, value in row.items() if name not in exclude} for row in rows]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run of the default networks on Pendulum."""
    logger = {"output_dir": tmp_path_factory.mktemp("spinup") / "plain", "exp_name": "swing"}
    return run_sac(functools.partial(make, "Pendulum-v1"), ac_kwargs=SMALL, logger_kwargs=logger)


@pytest.fixture(scope="module")
def custom(tmp_path_factory):
    """A run of custom networks in an unregistered environment."""
    logger = {"output_dir": tmp_path_factory.mktemp("spinup") / "custom"}
    return run_sac(Endless, custom_actor_critic, ac_kwargs={"width": 12}, seed=5, logger_kwargs=logger)


class Stopped(Exception):
    pass


def trainer_arguments(monkeypatch, env_fn=pendulum, **arguments):
    """Returns the arguments that `tfsac.sac` passes to the trainer."""
    given = {}

    def trainer(preset, run_dir, run, resume, callbacks, **others):
        given.update(preset=preset, run_dir=run_dir, run=run, resume=resume, callbacks=callbacks, **others)
        raise Stopped

    monkeypatch.setattr(functions, "Trainer", trainer)
    with pytest.raises(Stopped):
        tfsac.sac(env_fn, **arguments)
    return given


def parameter_at(given, path):
    value = given["preset"]
    if path.startswith("run."):
        value, path = given["run"], path.removeprefix("run.")
    for part in path.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


ARGUMENTS = {  # a value and the parameters that it sets
    "seed": (7, {"run.seed": 7}),
    "steps_per_epoch": (200, {
        "schedule.steps_between_evaluation_periods.num_steps": 200, "schedule.improve_steps.num_steps": 19_000,
        "run.checkpoint_save_steps": 200,
    }),
    "epochs": (3, {"schedule.improve_steps.num_steps": 11_000}),
    "replay_size": (5000, {"agent.memory.max_size": 5000}),
    "gamma": (0.9, {"agent.algorithm.discount": 0.9}),
    "polyak": (0.9, {"agent.algorithm.rate_for_copying_weights_to_target": 0.1}),
    "lr": (0.01, {"agent.networks.policy.learning_rate": 0.01, "agent.networks.q.learning_rate": 0.01}),
    "alpha": (0.5, {"agent.algorithm.temperature.alpha": 0.5}),
    "batch_size": (64, {"agent.networks.policy.batch_size": 64, "agent.networks.q.batch_size": 64}),
    "start_steps": (123, {"schedule.random_action_steps": 123}),
    "update_after": (500, {"schedule.heatup_steps.num_steps": 500, "schedule.improve_steps.num_steps": 399_500}),
    "update_every": (5, {
        "agent.algorithm.num_consecutive_playing_steps.num_steps": 5,
        "agent.algorithm.num_consecutive_training_steps": 5,
    }),
    "num_test_episodes": (4, {"schedule.evaluation_steps.num_steps": 4}),
    "max_ep_len": (50, {"environment.max_episode_steps": 50}),
    "save_freq": (3, {"run.checkpoint_save_steps": 12_000}),
    "ac_kwargs": ({"hidden_sizes": (32, 16, 8), "activation": "tanh"}, {
        "agent.networks.policy.input_embedders_parameters.observation.scheme": (32,),
        "agent.networks.policy.middleware_parameters.scheme": (16, 8),
        "agent.networks.q.head_parameters.network_layers_sizes": (32, 16, 8),
        "agent.networks.policy.input_embedders_parameters.observation.activation_function": "tanh",
        "agent.networks.policy.middleware_parameters.activation_function": "tanh",
        "agent.networks.q.head_parameters.activation_function": "tanh",
    }),
}  # fmt: skip


def test_each_argument_sets_only_its_parameters(monkeypatch):
    default = trainer_arguments(monkeypatch)
    all_paths = {path for _, paths in ARGUMENTS.values() for path in paths}
    for name, (value, expected) in ARGUMENTS.items():
        given = trainer_arguments(monkeypatch, **{name: value})
        assert {path: parameter_at(given, path) for path in expected} == expected
        assert {path for path in all_paths if parameter_at(given, path) != parameter_at(default, path)} == set(expected)


def test_function_signature_and_defaults():
    defaults = {name: p.default for name, p in inspect.signature(tfsac.sac).parameters.items()}
    assert defaults.keys() == {"env_fn", "actor_critic", "logger_kwargs"} | ARGUMENTS.keys()
    assert defaults["actor_critic"] is tfsac.mlp_actor_critic
    as_floats = dataclasses.asdict(SpinningUpArguments())
    assert {name: defaults[name] for name in as_floats} == as_floats


def test_preset_matches_function_defaults():
    preset = load_preset("spinningup_sac")
    default_preset = SpinningUpArguments().preset(EnvironmentParameters("HalfCheetah-v5"))
    assert dataclasses.replace(preset, validation=default_preset.validation) == default_preset
    assert preset.agent.algorithm.update_order == "simultaneous"
    assert preset.agent.networks["q"].head_parameters.loss_weight == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env_fn": tiny.CameraArm}, "FlattenObservation"),
        ({"logger_kwargs": {"outputdir": "x"}}, "outputdir"),
    ],
)
def test_invalid_arguments_write_nothing(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TfsacError, TypeError), match=message):
        tfsac.sac(**{"env_fn": pendulum, **arguments})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("env_fn", "level", "limit"),
    [
        (lambda: gym.make("Pendulum-v1", max_episode_steps=5000), None, 1000),
        (lambda: gym.wrappers.TimeLimit(Endless(), 70), None, 70),
        (functools.partial(gym.make, "Pendulum-v1"), "Pendulum-v1", 200),
        (functools.partial(gym.make, "Pendulum-v1", g=9.0), None, 200),
    ],
)
def test_level_and_time_limit_of_env_fn(env_fn, level, limit, monkeypatch):
    given = trainer_arguments(monkeypatch, env_fn)
    environment = given["preset"].environment
    assert environment.max_episode_steps == limit
    assert given["env_fn"] is (env_fn if level is None else None) and level in (None, environment.level)


@pytest.mark.slow
def test_progress_columns_and_values(plain):
    result, spy, _ = plain
    rows, metrics = progress(result.run_dir), tiny.rows(result.run_dir)
    assert list(rows[0]) == COLUMNS
    assert [(row["Epoch"], row["TotalEnvInteracts"]) for row in rows] == [("1", "60"), ("2", "120")]
    names = {
        "AverageEpRet": "training/return_mean", "StdEpRet": "training/return_std", "MaxEpRet": "training/return_max",
        "MinEpRet": "training/return_min", "AverageTestEpRet": "evaluation/return_mean",
        "StdTestEpRet": "evaluation/return_std", "MaxTestEpRet": "evaluation/return_max",
        "MinTestEpRet": "evaluation/return_min", "EpLen": "training/length_mean", "TestEpLen": "evaluation/length_mean",
        "AverageQ1Vals": "q/q1", "AverageQ2Vals": "q/q2", "AverageLogPi": "policy/log_prob", "LossPi": "loss/policy",
        "LossQ1": "loss/q1", "LossQ2": "loss/q2", "Time": "wall_seconds",
    }  # fmt: skip
    for row, of_metrics in zip(rows, metrics, strict=True):
        assert {column: row[column] for column in names} == {column: of_metrics[name] for column, name in names.items()}
    for row, first, last in zip(rows, (0, 60), (60, 120), strict=True):
        metrics_of_epoch = np.concatenate([m for steps, m in spy.metrics if first < steps <= last])
        assert len(metrics_of_epoch) == (40 if first == 0 else 60)
        for column, name in (("Q1Vals", "q/q1"), ("Q2Vals", "q/q2"), ("LogPi", "policy/log_prob")):
            values = metrics_of_epoch[:, spy.trainer.update_metrics.index(name)]
            statistics = [float(row[word + column]) for word in ("Average", "Std", "Max", "Min")]
            np.testing.assert_allclose(statistics, [values.mean(), values.std(), values.max(), values.min()], rtol=1e-5)
            assert statistics[1] > 0


def test_schedule_config_and_printed_tables(plain):
    result, spy, printed = plain
    assert (result.reason, result.counters.env_steps, result.counters.updates) == ("finished", 120, 100)
    assert spy.first_update == 30  # update_after + update_every
    assert sorted(path.name for path in (result.run_dir / "checkpoints").glob("0*")) == ["000000060", "000000120"]

    config = json.loads((result.run_dir / "config.json").read_text())
    assert {name: config[name] for name in TINY} == TINY
    assert (config["exp_name"], config["seed"], config["gamma"]) == ("swing", 0, 0.99)
    assert config["ac_kwargs"] == {"hidden_sizes": [8]} and config["actor_critic"].endswith("mlp_actor_critic")
    _, *tables = [lines for lines in printed.split("-" * 36) if lines.strip()]
    assert len(tables) == 2 and "evaluation return" not in printed
    for lines, row in zip(tables, progress(result.run_dir), strict=True):
        printed_values = dict(line.strip("| ").split("|") for line in lines.strip().splitlines())
        assert [name.strip() for name in printed_values] == COLUMNS
        for name, value in printed_values.items():
            assert math.isclose(float(value), float(row[name.strip()]), rel_tol=1e-4)
    with pytest.raises(FileExistsError):
        tfsac.sac(pendulum, ac_kwargs=SMALL, **TINY, logger_kwargs={"output_dir": result.run_dir})


@pytest.mark.usefixtures("no_export_or_plot")
@pytest.mark.slow
def test_progress_after_resume(plain, tmp_path):
    logger = {"output_dir": tmp_path / "run", "exp_name": "swing"}
    env_fn, resumed = functools.partial(make, "Pendulum-v1"), {"logger_kwargs": {**logger, "resume": True}}
    first, _, printed = run_sac(env_fn, end_at=95, ac_kwargs=SMALL, logger_kwargs=logger)
    assert first.reason == "SIGTERM" and "resume=True" in printed
    with (tmp_path / "run" / "progress.txt").open("a") as file:  # an epoch after the last checkpoint
        file.write("\t".join(["2", *"0" * 10, "120", *"0" * 16]) + "\n")
    with pytest.raises(CheckpointError, match="keeps its"):
        run_sac(env_fn, ac_kwargs=SMALL, gamma=0.5, **resumed)
    run_sac(env_fn, ac_kwargs=SMALL, **resumed)
    statistics = [word + name for word in ("Std", "Max", "Min") for name in ("Q1Vals", "Q2Vals", "LogPi")]
    resumed, straight = (as_floats(progress(run), "Time") for run in (tmp_path / "run", plain[0].run_dir))
    assert len(resumed) == 2 and resumed[0] == straight[0] and resumed[1].keys() == straight[1].keys()
    assert {name for name in straight[1] if resumed[1][name] != straight[1][name]} <= set(statistics)
    assert resumed[1]["StdQ1Vals"] != straight[1]["StdQ1Vals"]


@pytest.mark.slow
def test_custom_actor_critic_with_time_limit(custom):
    result, spy, _ = custom
    rows = tiny.newest(spy.trainer.memory, 120)[:, 0]
    np.testing.assert_array_equal(np.flatnonzero(rows["truncated"]), np.arange(14, 120, 15))
    assert not rows["terminated"].any()
    np.testing.assert_array_equal(spy.trainer.memory.gather(np.arange(120)).discount, np.float32(0.99))
    assert result.counters.episodes == 8
    assert {row["TestEpLen"] for row in progress(result.run_dir)} == {"15.0"}
    assert [tuple(w.shape) for w in spy.weights] == [(2, 12), (12,), (12, 2), (2,), (12, 2), (2,)]
    observations = list(np.random.default_rng(3).uniform(-1, 1, (30, 2)).astype(np.float32))
    assert exporting.verify(spy.trainer.policy, result.run_dir / "policy", observations) < 1e-5


@pytest.mark.parametrize("actor_critic", [mlp_actor_critic, custom_actor_critic])
def test_critics_are_joined_and_initial_weights_repeat(actor_critic):
    created, env = [], Endless()

    def record(*spaces):
        created.append(actor_critic(*spaces))
        return created[-1]

    make_models = model_maker(record, env, {}, seed=4)
    first, second = make_models(), make_models()
    observation, action = np.float32([[0.1, -0.5], [0.7, 0.2], [0.0, 0.9]]), np.float32([[0.5, -1], [0.1, 1], [0, 0]])
    q_values = first["q"]([{"observation": observation}, action]).numpy()
    assert q_values.shape == (3, 2) and not np.allclose(q_values[:, 0], q_values[:, 1])
    for i in (0, 1):
        np.testing.assert_allclose(q_values[:, i], np.reshape(created[0][1 + i]([observation, action]), 3), rtol=1e-6)
    for ours, theirs in zip(first["policy"]({"observation": observation}), created[0][0](observation), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for name in ("policy", "q"):
        for a, b in zip(first[name].trainable_variables, second[name].trainable_variables, strict=True):
            assert a is not b
            np.testing.assert_array_equal(a, b)


def test_test_policy_without_actor_critic(custom, capsys):
    result, spy, _ = custom
    evaluation = tfsac.test_policy(result.run_dir, Endless, episodes=3, max_ep_len=7)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in printed[:3]] == [["episode", str(i)] for i in range(3)]
    assert printed[3].split() == ["mean", "return", f"{evaluation.returns.mean():.2f}", "length", "7.0"]
    env, num_episodes = gym.wrappers.TimeLimit(Endless(), 7), api.EnvironmentEpisodes(3)
    live = api.run_episodes(spy.trainer.policy.act, env, num_episodes, evaluation_index=api.AFTER_TRAINING)
    np.testing.assert_allclose(evaluation.returns, live.returns, rtol=1e-5)
    assert tfsac.test_policy(result.run_dir, Endless, 1).lengths.tolist() == [15]


def test_test_policy_uses_the_level_of_the_run(plain, capsys):
    result, *_ = plain
    done = tfsac.test_policy(result.run_dir, episodes=2)
    assert done.lengths.tolist() == [15, 15] and len(capsys.readouterr().out.splitlines()) == 3
    assert done.returns.tolist() == pytest.approx(api.evaluate(result.run_dir, 2).returns.tolist(), rel=1e-4)
    with pytest.raises(TfsacError, match="another environment"):
        tfsac.test_policy(result.run_dir, Endless)


@pytest.mark.slow
@pytest.mark.usefixtures("no_export_or_plot")
def test_spinup_command(tmp_path, capsys):
    given = [f"--{name}={value}" for name, value in {**TINY, "epochs": 1}.items()]
    own = ["--env=Pendulum-v1", "--hid=9", "--l=1", "--gamma=0.9", "--seed=3", "--exp_name=typed"]
    assert tfsac.cli.run(["spinup", *own, *given, f"--run_dir={tmp_path / 'run'}"]) == 0
    printed = capsys.readouterr().out
    assert "finished at step 60, best test -" in printed and str(tmp_path / "run") in printed
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["exp_name"], config["gamma"], config["ac_kwargs"]) == ("typed", 0.9, {"hidden_sizes": [9]})
    preset, run = read_config(tmp_path / "run" / "config.json")
    assert (preset.environment.level, preset.agent.algorithm.discount, run.seed) == ("Pendulum-v1", 0.9, 3)
    assert [row["TotalEnvInteracts"] for row in progress(tmp_path / "run")] == ["60"]
