"""TAAC runs: metrics, stored trajectories, vector rewards and resuming."""

import math

import numpy as np
import pytest
import tiny
from environment_tools import TWO_REWARDS
from resume_tools import RUN, assert_same_run, complete_run, crash_at

from tfsac.exporting import loading
from tfsac.parameters import RunParameters
from tfsac.policies.temporally_abstract import Trajectory
from tfsac.training import Callback, Evaluation, Trainer
from tfsac.types import LAST

pytestmark = pytest.mark.slow  # whole runs; unit tests are elsewhere

FIELDS = {"constant": ("tau_a",), "linear": ("tau_a", "tau_v"), "quadratic": ("tau_a", "tau_v", "tau_u")}
SHORT = {
    "environment.max_episode_steps": 7,
    "schedule.improve_steps": 24,
    "schedule.steps_between_evaluation_periods": 1000,
}


class Batches(Callback):
    """Records the batches of all updates."""

    def on_training_begin(self, trainer):
        self.batches, update = [], trainer.agent.update
        trainer.agent.update = lambda batch: self.batches.append(batch) or update(batch)


def trained(folder, preset, *callbacks, **run):
    run = RunParameters(seed=3, updates_between_diagnostics=1, **run)
    trainer = Trainer(preset, folder / "run", run, callbacks=callbacks, quiet=True)
    trainer.run()
    return trainer


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a TaacL run on Pendulum."""
    changes = {
        "agent.algorithm.trajectory": "linear",
        "environment.filters.reward_normalization": True,
        "environment.filters.reward_clipping_range": [-5.0, 5.0],
        "schedule.evaluation_steps": "EnvironmentEpisodes(2)",
    }
    return trained(tmp_path_factory.mktemp("taac"), tiny.taac(**changes), stochastic_evaluation=True).directory.path


def test_trajectory_and_temperature_metrics(finished):
    assert [(row["env_steps"], row["updates"]) for row in tiny.rows(finished)] == [("50", "10"), ("100", "60")]
    for row in tiny.rows(finished):
        for kind in ("evaluation", "stochastic_evaluation"):
            rate, repeats = float(row[f"{kind}/switch_rate"]), float(row[f"{kind}/repeats_mean"])
            # 60 steps in two episodes; an episode starts a trajectory even without a switch.
            assert 0.0 <= rate <= 1.0 and 60 / (60 * rate + 2) - 1e-9 <= repeats <= 60 / max(60 * rate, 2.0) + 1e-9
        assert 0.0 < float(row["switch/keep_prob"]) < 1.0
        assert 0.0 < float(row["switch/entropy"]) <= math.log(2.0)
        assert 1.0 <= float(row["switch/repeats"]) <= 1000.0
    assert row["temperature/proposal_alpha"] != row["temperature/choice_alpha"]
    assert row["evaluation/switch_rate"] != row["stochastic_evaluation/switch_rate"]


def test_switch_rate_and_mean_repeats():
    def switching(*switched, lengths):
        return Evaluation(np.zeros(len(lengths)), np.array(lengths), np.array(switched, bool)).switching()

    # The first step of an episode starts a trajectory even if the policy keeps the zero action.
    assert switching(0, 0, 1, 1, 0, lengths=[3, 2]) == pytest.approx((2 / 5, 5 / 3))
    assert switching(0, 0, 0, 0, lengths=[1, 3]) == (0.0, 2.0)
    row = Evaluation(np.array([1.0]), np.array([2]), np.array([False, True])).summary("x")
    assert (row["x/switch_rate"], row["x/repeats_mean"], row["x/return_mean"]) == (0.5, 1.0, 1.0)
    assert "x/switch_rate" not in Evaluation(np.array([1.0]), np.array([2])).summary("x")


def test_best_policy_has_its_choice_temperature(finished):
    policy = loading.load_policy(finished)
    with np.load(finished / "best.npz") as file:
        saved = float(np.exp(file["choice_temperature/log_alpha"]))
    assert float(policy.acting.choice_alpha) == pytest.approx(saved, rel=1e-6) and saved < 1.0


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
def test_stored_trajectories_are_continuous(tmp_path, name):
    changes = {**SHORT, **STORED[name]}
    trainer = trained(tmp_path, tiny.taac(**changes))
    algorithm, envs = trainer.preset.agent.algorithm, trainer.environments.num_envs
    fields, steps = FIELDS[algorithm.trajectory], trainer.memory.total_rows
    assert trainer.counters.updates == changes["schedule.improve_steps"]
    rows = trainer.memory.between(0, steps)
    trajectory = Trajectory(algorithm.trajectory, algorithm.inverse_mode)
    np.testing.assert_array_equal(rows["action"], rows["extra/next_state/tau_a"])
    np.testing.assert_array_equal(rows["first"], np.repeat((np.arange(steps) % 7 == 0)[:, None], envs, axis=1))
    before, after = ({field: rows[f"extra/{when}/{field}"] for field in fields} for when in ("state", "next_state"))
    keeps, first = rows["extra/switch"] == 0, rows["first"]
    assert 0.05 < keeps.mean() < 0.95 and first.sum() == envs * math.ceil(steps / 7)
    for field, stepped in trajectory.step(before).items():
        np.testing.assert_array_equal(after[field][keeps], stepped[keeps])
        continues = ~first[1:]
        np.testing.assert_array_equal(before[field][1:][continues], after[field][:-1][continues])
        initial = before[field][first]
        assert np.abs(initial).max() <= 1.0
        assert len(np.unique(initial)) == (initial.size if algorithm.randomize_first_state_tau else 1)
        assert algorithm.randomize_first_state_tau or not initial.any()
    np.testing.assert_array_equal(trainer._collector.policy_state["tau_a"], after["tau_a"][-1])


def test_updates_wait_for_the_first_sequence(tmp_path):
    changes = {
        **SHORT,
        "environment.max_episode_steps": 2,
        "schedule.heatup_steps": "EnvironmentEpisodes(1)",
        "schedule.improve_steps": 4,
        "agent.algorithm.num_consecutive_training_steps": 3,
    }
    callback, counts = Callback(), []
    callback.on_step = lambda trainer: counts.append((trainer.counters.env_steps, trainer.counters.updates))
    trainer = trained(tmp_path, tiny.taac(**changes), callback)
    assert trainer.memory.sequence_length == 4
    assert counts == [(1, 0), (2, 0), (3, 0), (4, 6), (5, 9), (6, 12)]  # the heat-up ends at 2


def test_vector_rewards_are_normalised_separately(tmp_path):
    changes = {
        **SHORT,
        "environment.max_episode_steps": None,
        "environment.num_envs": 2,
        "schedule.improve_steps": 30,
        "agent.algorithm.reward_weights": [1.0, -0.5],
        "agent.algorithm.reward_discounts": [0.9, 0.5],
        "environment.filters.reward_normalization": True,
        "environment.filters.reward_clipping_range": [-1.2, 1.2],
    }
    callback = Batches()
    trainer = trained(tmp_path, tiny.taac(TWO_REWARDS, **changes), callback)
    stored = trainer.memory.between(0, 35)
    np.testing.assert_array_equal(stored["reward"][..., 1], 10.0 * (np.arange(35) % 3 + 1)[:, None] * np.ones(2))
    np.testing.assert_allclose(stored["reward"][..., 0], -(stored["action"][..., 0] ** 2), atol=1e-6)
    raw = stored["reward"].reshape(-1, 2).astype(np.float64)
    np.testing.assert_allclose(trainer.filters.rewards.mean, raw.mean(axis=0))
    np.testing.assert_allclose(trainer.filters.rewards.squares / 70, raw.var(axis=0), rtol=1e-6)
    last = callback.batches[-1]
    assert last.reward.shape == (2, 4, 16, 2)  # two updates for a step of two environments
    assert np.abs(last.reward).max() == pytest.approx(1.2)
    # Unclipped, the second reward is 10, 20 or 30 divided by the standard deviation.
    steps = last.step_type != LAST
    unclipped = last.reward[..., 1][steps & (last.reward[..., 1] < 1.2)]
    np.testing.assert_allclose(unclipped, 10.0 / np.sqrt(trainer.filters.rewards.squares[1] / 70), rtol=1e-6)
    row = tiny.rows(tmp_path / "run")[-1]
    assert 57.0 <= float(row["training/return_mean"]) <= 60.0 and 57.0 <= float(row["evaluation/return_mean"]) <= 60.0


# Every kind of state, and a memory that wraps.
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


def test_resume_after_crash_is_exact(tmp_path):
    preset = tiny.taac(**INTERRUPTED)
    uninterrupted = complete_run(tmp_path / "uninterrupted", preset)
    crash_at(tmp_path / "run", 77, preset)
    resumed = Trainer(preset, tmp_path / "run", RUN, resume=True, quiet=True)
    assert (resumed.counters.env_steps, resumed.counters.episodes) == (50, 1)
    # In the middle of an episode and of a trajectory.
    assert not resumed.environments.is_first[0] and resumed.environments.length[0] == 20
    last, state = tiny.newest(resumed.memory, 1)[0, 0], resumed._collector.policy_state
    assert set(state) == {"tau_a", "tau_v", "tau_u", "repeats"}
    for field in FIELDS["quadratic"]:
        np.testing.assert_array_equal(state[field][0], last[f"extra/next_state/{field}"])
    assert state["repeats"].dtype == np.int32 and 1 <= state["repeats"][0] <= 20
    resumed.run()
    assert_same_run(resumed, uninterrupted)
    for name, value in uninterrupted._collector.policy_state.items():
        np.testing.assert_array_equal(resumed._collector.policy_state[name], value)
    assert resumed.filters.state() == uninterrupted.filters.state()
