"""Runs with demonstrations or prior data: rewards do not affect SQIL, runs resume exactly, and data are raw."""

import dataclasses
import functools
import json

import gymnasium as gym
import numpy as np
import pytest
import tiny
from cli_tools import folder_contents
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
from resume_tools import RUN, assert_same_run, complete_run, crash_at, preset, rows_without_clocks, weights
from toys import tiny_preset

import tfsac
from tfsac import api, cli, exporting
from tfsac import parameters as p
from tfsac.environments import make
from tfsac.errors import TfsacError
from tfsac.memories import TransitionMemory, save_demonstrations
from tfsac.training import Trainer

POLE, PENDULUM = "TfsacGarbagePole-v0", "TfsacGarbagePendulum-v0"
LEVELS = {"discrete": POLE, "twin": PENDULUM}


class Garbage:
    """Returns random rewards around a million; `reward_seed` and the episode's seed determine them."""

    def __init__(self, reward_seed=0, **kwargs):
        super().__init__(**kwargs)
        self.reward_seed, self.rewards = reward_seed, None

    def reset(self, *, seed=None, options=None):
        self.rewards = np.random.default_rng([self.reward_seed, seed])
        return super().reset(seed=seed)

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 1e6 * self.rewards.standard_normal(), terminated, truncated, info


for level, env_class in ((POLE, CartPoleEnv), (PENDULUM, PendulumEnv)):
    gym.register(level, entry_point=type(level, (Garbage, env_class), {}), max_episode_steps=20)


def demonstrate(path, level, seed=0):
    """Records random episodes."""
    env = make(level)
    env.action_space.seed(seed)
    save_demonstrations(path, tfsac.demonstrate(lambda observation: env.action_space.sample(), env, 3, seed))
    env.close()
    return path


def imitation(kind, path, **changes):
    """Returns the preset of a tiny SQIL run with everything that rewards could affect."""
    sizes = {"layers": (16,), "learning_rate": 1e-3, "batch_size": 32}
    usual = {"environment.level": LEVELS[kind], "environment.max_episode_steps": None}
    if kind == "discrete":
        agent = p.DiscreteSoftActorCriticAgentParameters(networks=p.discrete_soft_actor_critic_networks(**sizes))
        usual["agent.exploration"] = {"initial_epsilon": 0.9, "final_epsilon": 0.05, "decay_steps": 60}
    else:
        agent = p.TwinSoftActorCriticAgentParameters(networks=p.twin_soft_actor_critic_networks(**sizes))
    usual |= {
        "agent.memory": {"kind": "sqil", "demonstrations": str(path), "max_size": 1000},
        "agent.algorithm.n_step": 2,
        "environment.filters.observation_normalization": True,
        "schedule.improve_steps": 80,
        "schedule.steps_between_evaluation_periods": 60,
    }
    return p.override(dataclasses.replace(tiny_preset(), agent=agent), {**usual, **changes})


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demonstrations")
    return {kind: demonstrate(folder / f"{kind}.npz", level) for kind, level in LEVELS.items()}


@pytest.fixture(scope="module")
def complete(tmp_path_factory, demonstrations):
    """Returns a function that returns the finished SQIL run of an agent, trained once."""
    folder = tmp_path_factory.mktemp("complete")
    return functools.cache(lambda kind: complete_run(folder / kind, imitation(kind, demonstrations[kind])))


OTHER_REWARDS = {"environment.kwargs": {"reward_seed": 1}}


def update_metrics(run_dir):
    """Returns the metrics of a run without returns."""
    returns = ("training/", "evaluation/")
    return [{k: x for k, x in row.items() if not k.startswith(returns)} for row in rows_without_clocks(run_dir)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["twin", pytest.param("discrete", marks=pytest.mark.acceptance)])
def test_environment_rewards_do_not_affect_sqil(tmp_path, demonstrations, complete, kind):
    run = complete(kind)
    other = complete_run(tmp_path / "other", imitation(kind, demonstrations[kind], **OTHER_REWARDS))
    assert run.counters == other.counters and run.counters.updates == 80
    before, after = weights(run), weights(other)
    assert before.keys() == after.keys() and "temperature/0" in before
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    reported = update_metrics(run.directory.path)
    assert reported == update_metrics(tmp_path / "other") and "loss/policy" in reported[0]
    for field in run.memory.ring.dtype.names:
        same = np.array_equal(run.memory.ring[field], other.memory.ring[field])
        assert same == (field != "reward"), field
    assert np.abs(run.memory.ring["reward"]).max() > 1e6  # the memory stores them


STEPS = 30  # per episode


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Episodes of a run whose filters change rewards and observations."""
    folder = tmp_path_factory.mktemp("recorded")
    changes = {
        "environment.filters.reward_rescale_factor": 7.0,
        "environment.filters.reward_clipping_range": [-1.0, 0.0],
        "environment.filters.observation_normalization": True,
        "environment.max_episode_steps": STEPS,
    }
    run_dir = tiny.untrained_run(folder / "run", "Pendulum-v1", p.override(tiny_preset(), changes))
    flags = [f"--run_dir={run_dir}", f"--out={folder / 'data.npz'}", "--episodes=2", "--stochastic"]
    assert cli.run(["record", *flags]) == 0
    return folder / "data.npz"


def with_data(path):
    """Returns the preset of a tiny run with prior data, n-step returns and everything else with state."""
    networks = p.twin_soft_actor_critic_networks((16,), learning_rate=1e-3, batch_size=32)
    changes = {
        "agent": p.TwinSoftActorCriticAgentParameters(networks=networks),
        "agent.memory": {"kind": "prior_data", "demonstrations": str(path), "share": 0.25, "max_size": 120},
        "agent.algorithm.n_step": 3,
        "environment.filters.return_scaling": {"bound": 5.0},
        "environment.max_episode_steps": 40,
    }
    return p.override(preset(), changes)


def test_recorded_files_have_raw_rewards_and_observations(recorded):
    env = make("Pendulum-v1", max_episode_steps=STEPS)
    with np.load(recorded) as file:
        data = {name: file[name] for name in file.files}
    for i in range(0, 2 * STEPS, 7):  # simulate single steps
        cos, sin, speed = data["observation/observation"][i].astype(np.float64)
        env.reset(seed=0)
        env.unwrapped.state = np.array([np.arctan2(sin, cos), speed])
        following, reward, *_ = env.step(2.0 * data["action"][i])
        assert data["reward"][i] == pytest.approx(reward, rel=1e-4, abs=1e-4)
        np.testing.assert_allclose(data["next_observation/observation"][i], following, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["prior data", "twin", pytest.param("discrete", marks=pytest.mark.acceptance)])
def test_resumed_run_equals_uninterrupted_run(tmp_path, demonstrations, recorded, complete, kind):
    if kind == "prior data":
        parameters = with_data(recorded)
        uninterrupted = complete_run(tmp_path / "uninterrupted", parameters)
    else:
        parameters, uninterrupted = imitation(kind, demonstrations[kind]), complete(kind)
    crash_at(tmp_path / "run", 167, parameters)
    resumed = Trainer(parameters, tmp_path / "run", RUN, resume=True, quiet=True)
    assert resumed.counters.env_steps == 150
    resumed.run()
    assert_same_run(resumed, uninterrupted)


def resume_error(run_dir):
    """Returns the error of resuming a run, which must not change its folder."""
    before = folder_contents(run_dir)
    with pytest.raises((TfsacError, OSError)) as error:
        cli.run(["train", "--resume", f"--run_dir={run_dir}"])
    assert folder_contents(run_dir) == before
    return str(error.value)


@pytest.mark.usefixtures("no_export_or_plot")
@pytest.mark.slow
def test_changed_demonstrations_are_rejected_but_may_move(tmp_path):
    run_dir, path = tmp_path / "run", demonstrate(tmp_path / "expert.npz", POLE)
    crash_at(run_dir, 60, imitation("discrete", path))
    moved = path.rename(path.with_name("moved.npz"))
    assert str(path) in resume_error(run_dir)
    demonstrate(path, POLE, seed=50)
    assert "demonstrations" in resume_error(run_dir)
    assert cli.run(["train", "--resume", f"--run_dir={run_dir}", f"--set=agent.memory.demonstrations={moved}"]) == 0
    assert json.loads((run_dir / "config.json").read_text())["resumed"][0]["env_steps"] == 50


@pytest.mark.slow
def test_trained_policy_does_not_need_its_demonstrations(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = demonstrate(tmp_path / "expert.npz", POLE)
    api.train(imitation("discrete", "expert.npz"), tmp_path / "run", RUN, quiet=True)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["preset"]["agent"]["memory"]["demonstrations"] == str(path)
    path.unlink()
    assert api.evaluate(tmp_path / "run", 2).lengths.max() <= 20
    policy = tfsac.load_policy(tmp_path / "run")
    observations = api.observations_of(tmp_path / "run", policy)
    assert exporting.verify(policy, tmp_path / "run" / "policy", observations) == 0
    recording = api.record(tmp_path / "run", tmp_path / "again.npz", 2)
    assert recording.records.dtype == TransitionMemory(policy.acting.spec._replace(extras={}), 1).ring.dtype
