"""Runs of recurrent soft actor-critic: stored states, resuming, evaluation, export and a memory task."""

import numpy as np
import pytest
import tiny
from resume_tools import RUN, assert_same_run, complete_run, crash_at

from tfsac import api, exporting
from tfsac.errors import TfsacError
from tfsac.exporting import loading
from tfsac.parameters import RunParameters
from tfsac.random_streams import EVALUATION, episode_seed
from tfsac.training import Trainer

pytestmark = pytest.mark.slow  # whole runs; unit tests are elsewhere

KINDS = {"continuous": ("Pendulum-v1", False), "discrete": ("CartPole-v1", True)}
SHORT = {
    "environment.max_episode_steps": 7,
    "schedule.improve_steps": 24,
    "schedule.steps_between_evaluation_periods": 1000,
}


def preset_of(kind, **changes):
    level, discrete = KINDS[kind]
    return tiny.recurrent(level, discrete, **changes)


@pytest.mark.parametrize("kind", KINDS)
def test_stored_previous_actions_rewards_and_states(tmp_path, kind):
    changes = {
        **SHORT,
        "agent.algorithm.initial_state": "stored",
        "environment.num_envs": 2,
        "environment.filters.reward_rescale_factor": 0.1,
        "environment.filters.reward_normalization": True,
        "schedule.improve_steps": 48,
    }
    trainer = Trainer(preset_of(kind, **changes), tmp_path / "run", RunParameters(seed=3), quiet=True)
    batches, update = [], trainer.agent.update
    trainer.agent.update = lambda batch: batches.append(batch) or update(batch)
    trainer.run()
    rows = trainer.memory.between(0, trainer.memory.total_rows)
    first, collector = rows["first"], trainer._collector
    assert trainer.counters.updates == 48 and first.sum() >= 2 * len(rows) // 7
    start = -1 if kind == "discrete" else 0
    for name, before in (("previous_action", "action"), ("previous_reward", "reward")):
        stored = rows[f"extra/state/{name}"]
        np.testing.assert_array_equal(stored[1:][~first[1:]], rows[before][:-1][~first[1:]])
        assert (stored[first] == (start if name == "previous_action" else 0)).all()
        np.testing.assert_array_equal(collector.policy_state[name], rows[before][-1])
    for field in ("hidden", "cell", "q_hidden", "q_cell"):
        stored = rows[f"extra/state/{field}"]
        assert not stored[first].any() and stored[~first].any(axis=-1).all()
    last = batches[-1]
    assert last.observation["observation"].shape[1:3] == (8, 4) and last.initial_state["hidden"].shape[1:] == (4, 6)
    # Networks read raw rewards; updates use normalised ones.
    raw = last.extras["state/previous_reward"][:, 1:]
    nonzero = (last.reward[:, :-1] != 0) & (raw != 0)
    assert nonzero.any() and (np.abs(last.reward[:, :-1] - raw)[nonzero] > 1e-3).all()


INTERRUPTED = {
    "agent.algorithm.initial_state": "stored",
    "agent.algorithm.num_updates_between_policy_updates": 2,
    "agent.algorithm.num_consecutive_playing_steps": "EnvironmentSteps(4)",
    "agent.algorithm.num_consecutive_training_steps": 4,
    "agent.algorithm.num_steps_between_copying_online_weights_to_target": "TrainingSteps(3)",
    "agent.memory.max_size": 90,
    "environment.filters.observation_normalization": True,
    "schedule.improve_steps": 110,
    "schedule.steps_between_evaluation_periods": 35,
}


@pytest.mark.parametrize("kind", ["continuous", pytest.param("discrete", marks=pytest.mark.acceptance)])
def test_resume_after_crash_is_exact(tmp_path, kind):
    preset = preset_of(kind, **INTERRUPTED)
    uninterrupted = complete_run(tmp_path / "whole", preset)
    crash_at(tmp_path / "run", 77, preset)
    resumed = Trainer(preset, tmp_path / "run", RUN, resume=True, quiet=True)
    assert resumed.counters.env_steps == 50 and not resumed.environments.is_first[0]
    last, state = tiny.newest(resumed.memory, 1)[0, 0], resumed._collector.policy_state
    assert set(state) == {"hidden", "cell", "q_hidden", "q_cell", "previous_action", "previous_reward"}
    np.testing.assert_array_equal(state["previous_action"][0], last["action"])
    assert state["previous_reward"][0] == last["reward"]
    resumed.run()
    assert_same_run(resumed, uninterrupted)
    for name, value in uninterrupted._collector.policy_state.items():
        np.testing.assert_array_equal(resumed._collector.policy_state[name], value)


@pytest.fixture(scope="module", params=KINDS)
def run_dir(request, tmp_path_factory):
    """A run directory with an untrained policy."""
    level, _ = KINDS[request.param]
    preset = preset_of(request.param, **{"environment.max_episode_steps": 20})
    return tiny.untrained_run(tmp_path_factory.mktemp("recurrent") / "run", level, preset)


def play_episode(run_dir, act, observe, episode=0):
    """Plays one episode of the first evaluation after training; returns its return."""
    env = loading.environment_of(run_dir)
    observation, _ = env.reset(seed=episode_seed(0, EVALUATION, 1, episode))
    total, done = 0.0, False
    while not done:
        observation, reward, terminated, truncated, _ = env.step(act(observation))
        observe(reward)
        total, done = total + float(reward), terminated or truncated
    env.close()
    return total


def test_evaluate_and_record_pass_rewards_and_reset(run_dir, tmp_path):
    expected = []
    for episode in range(2):
        policy = loading.load_policy(run_dir)
        expected.append(play_episode(run_dir, policy.act, policy.observe, episode))
    assert api.evaluate(run_dir, 2).returns.tolist() == expected
    assert api.record(run_dir, tmp_path / "shown.npz", 2).returns.tolist() == expected


def test_acting_without_the_last_reward_raises(run_dir):
    policy = loading.load_policy(run_dir)
    observation = np.zeros(policy.reads.observation["observation"].shape, np.float32)
    policy.observe(1.0)  # ignored before the first action
    policy.act(observation)
    for call in (policy.act, policy.distribution):
        with pytest.raises(TfsacError, match="observe"):
            call(observation)
    policy.observe(1.0)
    policy.distribution(observation)
    policy.act(observation)
    assert policy.state["previous_reward"].shape == (1,)
    policy.reset()
    several = np.stack([observation] * 3)
    policy.act(several)
    policy.observe([1.0, 2.0, 3.0])
    assert policy.act(several).shape[0] == 3


@pytest.mark.parametrize("format", ["saved_model", "tflite"])
def test_export_matches_the_policy(run_dir, tmp_path, format):
    if format == "tflite":
        pytest.importorskip("ai_edge_litert", reason="needs tfsac[litert]")
    policy = loading.load_policy(run_dir)
    path = exporting.export(policy, tmp_path / "exported", format)
    observations = api.observations_of(run_dir, policy)
    assert exporting.verify(policy, path, observations) < 1e-5
    exported = exporting.load_exported(path)
    assert exported.fields == {"hidden", "cell", "previous_action", "previous_reward"}
    assert set(exported.reads) == {"observation"}
    policy.reset()
    expected = play_episode(run_dir, policy.act, policy.observe)
    assert play_episode(run_dir, exported, exported.observe) == pytest.approx(expected, rel=1e-4)
    with pytest.raises(TfsacError, match="observe"):
        exported.reset()
        exported(observations[0])
        exported(observations[1])
    with pytest.raises(TfsacError, match="values"):
        exporting.export(loading.load_policy(run_dir, critics=True), tmp_path / "with_values", format, values=True)


MEMORY_TASK = {
    "agent.algorithm.temperature": {"kind": "fixed", "alpha": 0.02},
    "agent.algorithm.rate_for_copying_weights_to_target": 0.02,
    "agent.algorithm.burn_in": 0,
    "agent.memory.max_size": 10_000,
    "agent.networks.*.learning_rate": 3e-3,
    "agent.networks.*.batch_size": 16,
    "agent.networks.*.middleware_parameters.number_of_lstm_cells": 16,
    "schedule.heatup_steps": 200,
    "schedule.improve_steps": 1800,
    "schedule.evaluation_steps": "EnvironmentEpisodes(40)",
    "schedule.steps_between_evaluation_periods": 2000,
}


def test_memory_task_is_learned(tmp_path):
    preset = tiny.recurrent("toys:RememberFirst-v0", discrete=True, **MEMORY_TASK)
    result = Trainer(preset, tmp_path / "run", RunParameters(seed=1), quiet=True).run()
    assert result.best_return > 0.9  # 0.5 without memory
