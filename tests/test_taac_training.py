"""Whole runs of policies that keep or switch trajectories: what they store and report, interrupted, several
rewards, refused.
"""

import math

import numpy as np
import pytest
import tiny
from environment_tools import TWO
from resume_tools import RUN, complete_run, crashed, same_run

from tfsac.exporting import loading
from tfsac.parameters import RunParameters
from tfsac.policies.temporally_abstract import Trajectory
from tfsac.training import Callback, Evaluation, Trainer
from tfsac.types import LAST

pytestmark = pytest.mark.slow  # whole runs: the quick tests of the parts are elsewhere

FIELDS = {"constant": ("tau_a",), "linear": ("tau_a", "tau_v"), "quadratic": ("tau_a", "tau_v", "tau_u")}
SMALL = {
    "environment.max_episode_steps": 7,
    "schedule.improve_steps": 24,
    "schedule.steps_between_evaluation_periods": 1000,
}


class Batches(Callback):
    """Keeps what the agent learns from."""

    def on_training_begin(self, trainer):
        self.batches, update = [], trainer.agent.update
        trainer.agent.update = lambda batch: self.batches.append(batch) or update(batch)


def trained(folder, preset, *callbacks, **run):
    run = RunParameters(seed=3, updates_between_diagnostics=1, **run)
    trainer = Trainer(preset, folder / "run", run, callbacks=callbacks, quiet=True)
    trainer.run()
    return trainer


# -- a run and its metrics ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run in Pendulum with trajectories that change."""
    changes = {
        "agent.algorithm.trajectory": "linear",
        "environment.filters.reward_normalization": True,
        "environment.filters.reward_clipping_range": [-5.0, 5.0],
        "schedule.evaluation_steps": "EnvironmentEpisodes(2)",
    }
    return trained(tmp_path_factory.mktemp("taac"), tiny.taac(**changes), stochastic_evaluation=True).directory.path


def test_the_columns_about_trajectories_and_temperatures_are_plausible(finished):
    assert [(row["env_steps"], row["updates"]) for row in tiny.rows(finished)] == [("50", "10"), ("100", "60")]
    for row in tiny.rows(finished):
        for kind in ("evaluation", "stochastic_evaluation"):
            rate, repeats = float(row[f"{kind}/switch_rate"]), float(row[f"{kind}/repeats_mean"])
            # Of 60 steps; both episodes begin a trajectory, whether the first choice was to switch or not.
            assert 0.0 <= rate <= 1.0 and 60 / (60 * rate + 2) - 1e-9 <= repeats <= 60 / max(60 * rate, 2.0) + 1e-9
        assert 0.0 < float(row["switch/keep_prob"]) < 1.0
        assert 0.0 < float(row["switch/entropy"]) <= math.log(2.0)
        assert 1.0 <= float(row["switch/repeats"]) <= 1000.0
    assert row["temperature/proposal_alpha"] != row["temperature/choice_alpha"]
    assert row["evaluation/switch_rate"] != row["stochastic_evaluation/switch_rate"]


def test_a_trajectory_lasts_as_long_as_the_steps_for_each_that_began():
    def switching(*switched, lengths):
        return Evaluation(np.zeros(len(lengths)), np.array(lengths), np.array(switched, bool)).switching()

    # The first step of an episode begins a trajectory although the policy keeps the one of zeros.
    assert switching(0, 0, 1, 1, 0, lengths=[3, 2]) == pytest.approx((2 / 5, 5 / 3))
    assert switching(0, 0, 0, 0, lengths=[1, 3]) == (0.0, 2.0)
    row = Evaluation(np.array([1.0]), np.array([2]), np.array([False, True])).summary("x")
    assert (row["x/switch_rate"], row["x/repeats_mean"], row["x/return_mean"]) == (0.5, 1.0, 1.0)
    assert "x/switch_rate" not in Evaluation(np.array([1.0]), np.array([2])).summary("x")


def test_the_best_policy_samples_with_the_temperature_of_its_evaluation(finished):
    policy = loading.load_policy(finished)
    with np.load(finished / "best.npz") as file:
        saved = float(np.exp(file["choice_temperature/log_alpha"]))
    assert float(policy.acting.choice_alpha) == pytest.approx(saved, rel=1e-6) and saved < 1.0


# -- what is stored ----------------------------------------------------------------------------------------------------


STORED = {
    "constant": {},
    "linear, three environments": {
        "agent.algorithm.trajectory": "linear",
        "environment.num_envs": 3,
        "agent.algorithm.randomize_first_state_tau": True,
        "schedule.improve_steps": 48,
    },
    "quadratic, forward": {"agent.algorithm.trajectory": "quadratic", "agent.algorithm.inverse_mode": False},
}


@pytest.mark.parametrize("name", STORED)
def test_every_stored_step_goes_on_from_the_one_before(tmp_path, name):
    changes = {**SMALL, **STORED[name]}
    trainer = trained(tmp_path, tiny.taac(**changes))
    algorithm, envs = trainer.preset.agent.algorithm, trainer.environments.num_envs
    fields, steps = FIELDS[algorithm.trajectory], trainer.memory.total_rows
    assert trainer.counters.updates == changes["schedule.improve_steps"]
    rows = trainer.memory.between(0, steps)
    trajectory = Trajectory(algorithm.trajectory, algorithm.inverse_mode)
    np.testing.assert_array_equal(rows["action"], rows["extra/next_state/tau_a"])
    np.testing.assert_array_equal(rows["first"], np.repeat((np.arange(steps) % 7 == 0)[:, None], envs, axis=1))
    before, after = ({field: rows[f"extra/{when}/{field}"] for field in fields} for when in ("state", "next_state"))
    kept, first = rows["extra/switch"] == 0, rows["first"]
    assert 0.05 < kept.mean() < 0.95 and first.sum() == envs * math.ceil(steps / 7)
    for field, stepped in trajectory.step(before).items():
        np.testing.assert_array_equal(after[field][kept], stepped[kept])
        going_on = ~first[1:]
        np.testing.assert_array_equal(before[field][1:][going_on], after[field][:-1][going_on])
        begins = before[field][first]
        assert np.abs(begins).max() <= 1.0
        assert len(np.unique(begins)) == (begins.size if algorithm.randomize_first_state_tau else 1)
        assert algorithm.randomize_first_state_tau or not begins.any()
    np.testing.assert_array_equal(trainer._collector.policy_state["tau_a"], after["tau_a"][-1])


def test_training_waits_for_a_stretch_and_then_makes_all_updates_that_are_due(tmp_path):
    changes = {
        **SMALL,
        "environment.max_episode_steps": 2,
        "schedule.heatup_steps": "EnvironmentEpisodes(1)",
        "schedule.improve_steps": 4,
        "agent.algorithm.num_consecutive_training_steps": 3,
    }
    seen, counted = Callback(), []
    seen.on_step = lambda trainer: counted.append((trainer.counters.env_steps, trainer.counters.updates))
    trainer = trained(tmp_path, tiny.taac(**changes), seen)
    assert trainer.memory.sequence_length == 4
    assert counted == [(1, 0), (2, 0), (3, 0), (4, 6), (5, 9), (6, 12)]  # the warm-up ends at 2


# -- several rewards ---------------------------------------------------------------------------------------------------


def test_several_rewards_are_normalised_and_learned_each_on_its_own(tmp_path):
    changes = {
        **SMALL,
        "environment.max_episode_steps": None,
        "environment.num_envs": 2,
        "schedule.improve_steps": 30,
        "agent.algorithm.reward_weights": [1.0, -0.5],
        "agent.algorithm.reward_discounts": [0.9, 0.5],
        "environment.filters.reward_normalization": True,
        "environment.filters.reward_clipping_range": [-1.2, 1.2],
    }
    seen = Batches()
    trainer = trained(tmp_path, tiny.taac(TWO, **changes), seen)
    stored = trainer.memory.between(0, 35)
    np.testing.assert_array_equal(stored["reward"][..., 1], 10.0 * (np.arange(35) % 3 + 1)[:, None] * np.ones(2))
    np.testing.assert_allclose(stored["reward"][..., 0], -(stored["action"][..., 0] ** 2), atol=1e-6)
    raw = stored["reward"].reshape(-1, 2).astype(np.float64)
    np.testing.assert_allclose(trainer.filters.rewards.mean, raw.mean(axis=0))
    np.testing.assert_allclose(trainer.filters.rewards.squares / 70, raw.var(axis=0), rtol=1e-6)
    last = seen.batches[-1]
    assert last.reward.shape == (2, 4, 16, 2)  # two updates for a step of two environments

    assert np.abs(last.reward).max() == pytest.approx(1.2)
    # Where nothing was clipped, the second reward is one of 10, 20 and 30 over their deviation.
    steps = last.step_type != LAST
    found = last.reward[..., 1][steps & (last.reward[..., 1] < 1.2)]
    np.testing.assert_allclose(found, 10.0 / np.sqrt(trainer.filters.rewards.squares[1] / 70), rtol=1e-6)
    row = tiny.rows(tmp_path / "run")[-1]
    assert 57.0 <= float(row["training/return_mean"]) <= 60.0 and 57.0 <= float(row["evaluation/return_mean"]) <= 60.0


# -- interrupted runs --------------------------------------------------------------------------------------------------

# Everything that has state, and a memory that is overwritten.
INTERRUPTED = {
    "agent.algorithm.trajectory": "quadratic",
    "agent.algorithm.randomize_first_state_tau": True,
    "agent.algorithm.max_repeat_steps": 4,
    "agent.algorithm.num_updates_between_policy_updates": 2,
    "agent.algorithm.num_consecutive_playing_steps": "EnvironmentSteps(4)",
    "agent.algorithm.num_consecutive_training_steps": 4,
    "agent.algorithm.num_steps_between_copying_online_weights_to_target": "TrainingSteps(3)",
    "agent.networks.*.learning_rate_decay_steps": 10,
    "agent.networks.*.learning_rate_decay_rate": 0.9,
    "agent.memory.max_size": 90,
    "environment.filters.observation_normalization": True,
    "environment.filters.reward_normalization": True,
    "schedule.improve_steps": 110,
    "schedule.steps_between_evaluation_periods": 35,
}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return complete_run(tmp_path_factory.mktemp("uninterrupted") / "run", tiny.taac(**INTERRUPTED))


def test_a_crashed_and_resumed_run_equals_the_uninterrupted_one(tmp_path, uninterrupted):
    preset = tiny.taac(**INTERRUPTED)
    crashed(tmp_path / "run", 77, preset)
    resumed = Trainer(preset, tmp_path / "run", RUN, resume=True, quiet=True)
    assert (resumed.counters.env_steps, resumed.counters.episodes) == (50, 1)
    # In the middle of an episode, whose trajectory goes on.
    assert not resumed.environments.is_first[0] and resumed.environments.length[0] == 20
    last, state = tiny.newest(resumed.memory, 1)[0, 0], resumed._collector.policy_state
    assert set(state) == {"tau_a", "tau_v", "tau_u", "repeats"}
    for field in FIELDS["quadratic"]:
        np.testing.assert_array_equal(state[field][0], last[f"extra/next_state/{field}"])
    assert state["repeats"].dtype == np.int32 and 1 <= state["repeats"][0] <= 20
    resumed.run()
    same_run(resumed, uninterrupted)
    for name, value in uninterrupted._collector.policy_state.items():
        np.testing.assert_array_equal(resumed._collector.policy_state[name], value)
    assert resumed.filters.state() == uninterrupted.filters.state()
