"""Hindsight replay: sampled transitions and goals, supported environments, runs, and learning."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
import tiny
from goal_tools import BITS, REACH, BitFlipping, Reach, ReachVectorEnv
from resume_tools import RUN, assert_same_run, complete_run, crash_at
from toys import restored, tiny_preset

import tfsac
from tfsac.environments import GoalFunctions, maker
from tfsac.errors import TfsacError
from tfsac.memories import HindsightMemory, TransitionMemory
from tfsac.parameters import (
    EnvironmentParameters,
    HindsightExperienceReplayParameters,
    RunParameters,
    TwinSoftActorCriticAgentParameters,
    override,
    twin_soft_actor_critic_networks,
)
from tfsac.preset_lookup import load_preset
from tfsac.training import Trainer
from tfsac.types import ArraySpec, Spec

NUMBER = ArraySpec((1,), "float32")
SPEC = Spec({"observation": NUMBER, "achieved_goal": NUMBER, "desired_goal": NUMBER}, NUMBER)
# Episodes of environment 0 end after steps 4, 9 and 12, of environment 1 after 6 and 13, of environment 2 never.
LENGTHS, STEPS = [[5, 5, 3], [7, 7], []], 16
UNIFORM = np.random.default_rng(0).random((1, 40_000, 3))


class Numbers:
    """Goals are numbers; the reward is minus the distance, and reaching a goal terminates if `terminates`."""

    time_limit = None

    def __init__(self, terminates=False):
        self.terminates = terminates

    def reward(self, achieved, desired):
        return -np.abs(achieved - desired)[:, 0]

    def terminated(self, achieved, desired):
        return (achieved == desired)[:, 0] if self.terminates else None


def filled(cls=HindsightMemory, capacity=3000, **fields):
    """Returns a memory with episodes of `LENGTHS`; those of environment 1 terminate, the others are truncated.

    In environment e, step t achieves goal 1000 * e + t + 1. Desired goals are negative.
    """
    if cls is HindsightMemory:
        fields = {"goals": Numbers(), **fields}
    memory = cls(SPEC, capacity, len(LENGTHS), **fields)
    ends = np.zeros((STEPS, len(LENGTHS)), bool)
    for env, lengths in enumerate(LENGTHS):
        ends[np.cumsum(lengths, dtype=int) - 1, env] = True
    for t in range(STEPS):
        number = np.float32(1000 * np.arange(len(LENGTHS)) + t)[:, None]
        goal = np.full_like(number, -1 - t)
        observation = {"observation": number, "achieved_goal": number, "desired_goal": goal}
        after = {"observation": number + 1, "achieved_goal": number + 1, "desired_goal": goal}
        terminated = ends[t] & [False, True, False]
        memory.add(observation, number, number[:, 0] / 8, terminated, ends[t] & ~terminated, after)
    return memory


def sample_indices(memory, uniform=UNIFORM):
    """Returns step and environment of sampled transitions, and the step of each goal, -1 for none."""
    index, goal = (slots[0] for slots in memory.draw(uniform))
    row, env = memory._absolute(index) // memory.num_envs, index % memory.num_envs
    assert (goal[goal >= 0] % memory.num_envs == env[goal >= 0]).all()
    return row, env, np.where(goal < 0, -1, memory._absolute(goal) // memory.num_envs)


@pytest.mark.parametrize("rows", [1000, 10])  # a ring buffer of 10 has lost the first 6
def test_only_finished_episodes_are_sampled(rows):
    row, env, _ = sample_indices(filled(capacity=3 * rows))
    oldest = max(STEPS - rows, 0)
    assert {*zip(env, row, strict=True)} == {(e, t) for e, end in ((0, 13), (1, 14)) for t in range(oldest, end)}


def test_memory_is_ready_while_it_has_a_finished_episode():
    memory = HindsightMemory(SPEC, 4, 1, goals=Numbers())
    observation, zero, ready = dict.fromkeys(SPEC.observation, np.zeros((1, 1))), np.zeros(1), []
    for step in range(8):
        memory.add(observation, zero, zero, np.array([False]), np.array([step in (2, 7)]), observation)
        ready.append(memory.ready)
    assert ready == [False, False, True, True, True, True, False, True]


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("terminates", [False, True])
def test_zero_hindsight_goals_match_transition_memory(n_step, terminates):
    options = {"discount": 0.9, "n_step": n_step, "capacity": 33, "reward_filter": lambda reward: np.clip(reward, 0, 9)}
    plain = filled(TransitionMemory, **options)
    hindsight = filled(goals=Numbers(terminates), goals_per_step=0, **options)
    index, goal = hindsight.draw(UNIFORM)
    assert (goal == -1).all()
    for ours, theirs in zip(flat(hindsight.relabel(index, goal)), flat(plain.gather(index)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def flat(batch):
    return [*batch.observation.values(), batch.action, batch.reward, batch.discount, *batch.next_observation.values()]


def test_n_step_window_ends_at_goal_or_episode_end():
    # Steps 5 to 9 of environment 0 are one episode, and goal 8 is achieved after step 7.
    options = {"discount": 0.5, "n_step": 4}
    reached, continuing = filled(goals=Numbers(terminates=True), **options), filled(**options)
    index, goal = np.array([[3 * 5, 3 * 8, 3 * 5]]), np.array([[3 * 7, 3 * 8, -1]])
    batch = reached.relabel(index, goal)
    np.testing.assert_allclose(batch.reward, [[-2 - 0.5 * 1 - 0, 0, (5 + 6 / 2 + 7 / 4 + 8 / 8) / 8]])
    np.testing.assert_allclose(batch.discount, [[0, 0, 0.5**4]])
    np.testing.assert_array_equal(batch.next_observation["observation"][0, :, 0], [8, 9, 9])
    np.testing.assert_array_equal(batch.observation["desired_goal"][0, :, 0], [8, 9, -6])
    np.testing.assert_array_equal(batch.next_observation["desired_goal"][0, :, 0], [8, 9, -9])
    batch = continuing.relabel(index, goal)  # goals do not terminate: step 8 is followed by step 9, the last one
    np.testing.assert_allclose(batch.reward, [[-2 - 0.5 * 1 - 0 - 1 / 8, -0.5, (5 + 6 / 2 + 7 / 4 + 8 / 8) / 8]])
    np.testing.assert_allclose(batch.discount, [[0.5**4, 0.5**2, 0.5**4]])
    # The stored step terminates, but the goal is not reached.
    for memory, bootstraps in ((reached, True), (continuing, False)):
        batch = memory.relabel(np.array([[3 * 13 + 1]]), np.array([[3 * 12 + 1]]))
        assert batch.discount.item() == 0.5 * bootstraps and batch.reward.item() == -1


def test_restored_memory_samples_the_same():
    memory = filled(capacity=30)
    memory.sample(2, 8, np.random.default_rng(0))
    copy = restored(memory, HindsightMemory(SPEC, 30, 3, goals=Numbers()))
    for each in (memory, copy):
        each.end_episodes()  # truncates running episodes
    for _ in range(2):
        row, env, _ = sample_indices(copy)
        assert {*zip(env, row, strict=True)} == {(e, t) for e in range(3) for t in range(6, STEPS)}
        for ours, theirs in zip(memory.draw(UNIFORM), copy.draw(UNIFORM), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert copy.metrics() == memory.metrics() and np.isnan(memory.metrics()["replay/relabelled"])


def test_autoreset_steps_are_never_sampled():
    memory, no = HindsightMemory(SPEC, 6, 1, goals=Numbers(), autoreset=True), np.zeros(1, bool)
    sampled = []
    for row in range(16):  # episodes of three steps, separated by autoreset steps, and a longer one from 11 on
        observation = {key: np.float32([[row]]) for key in SPEC.observation}
        autoreset, truncated = np.array([row in (3, 7)]), np.array([row in (2, 6, 10)])
        memory.add(observation, np.zeros((1, 1)), np.zeros(1), no, truncated, observation, autoreset=autoreset)
        if memory.ready:
            copy = restored(memory, HindsightMemory(SPEC, 6, 1, goals=Numbers(), autoreset=True))
            batches = [each.sample(1, 200, np.random.default_rng(row)) for each in (memory, copy)]
            for ours, theirs in zip(*map(flat, batches), strict=True):
                np.testing.assert_array_equal(ours, theirs)
            sampled.append(sorted({int(number) for number in batches[0].observation["observation"][0, :, 0]}))
    expected = [[*range(3)]] * 4 + [[1, 2, 4, 5, 6]] + [[2, 4, 5, 6], [4, 5, 6], [4, 5, 6]]
    expected += [[5, 6, 8, 9, 10], [6, 8, 9, 10], [8, 9, 10], [8, 9, 10], [9, 10], [10]]
    assert sampled == expected


def test_metrics_are_relabelled_share_and_rewards():
    memory = filled()
    memory.relabel(np.array([[0, 3, 6]]), np.array([[3 * 2, -1, 3 * 2]]))
    assert memory.metrics() == pytest.approx(
        {"replay/relabelled": 2 / 3, "replay/reward_relabelled": (-2 - 0) / 2, "replay/reward_original": 1 / 8}
    )


def goals_of(env, limit=20):
    return GoalFunctions(gym.wrappers.TimeLimit(env, limit))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("penalty", "follow from the goals alone"),
        ("info", "empty info, got KeyError"),
        ("one norm", r"must return `\[K\]`"),
        ("last step", "whose reward was -100"),
        ("no termination", "a bool, got None"),
        ("own step", "until the next reset"),
        ("own goal", "depend on desired_goal"),
    ],
)
def test_rewards_not_determined_by_goals_are_rejected(wrong, words, tmp_path):
    with pytest.raises(TfsacError, match=words):
        Trainer(preset(), tmp_path / "run", quiet=True, env_fn=lambda: gym.wrappers.TimeLimit(Reach(wrong), 50))
    assert not (tmp_path / "run").exists()


def test_reward_wrapper_and_missing_time_limit_are_rejected():
    with pytest.raises(TfsacError, match="TransformReward"):  # random steps need not see what it changes
        goals_of(gym.wrappers.TransformReward(Reach(), lambda reward: reward or 9.0))
    with pytest.raises(TfsacError, match="max_episode_steps"):
        GoalFunctions(Reach())  # episodes would not end
    assert goals_of(Reach()).time_limit == 20


@pytest.mark.parametrize("mode", gym.vector.AutoresetMode)
def test_vector_environment_may_compute_rewards(mode, tmp_path):
    short = preset(**{"schedule.improve_steps": 45, "environment.evaluation": "separate", **MORE})
    result = tfsac.train(short, tmp_path / "run", quiet=True, env_fn=lambda: ReachVectorEnv(3, mode))
    assert result.counters.updates == 45
    with pytest.raises(TfsacError, match="compute_reward"):
        Trainer(short, tmp_path / "none", quiet=True, env_fn=lambda: gym.vector.SyncVectorEnv([Reach] * 2))


def test_scalar_termination_is_called_per_goal_and_reported():
    goals, several = goals_of(Reach("scalar termination")), goals_of(BitFlipping(3))
    assert goals.pair_by_pair and "called for each one" in goals.notes[0] and not several.pair_by_pair
    points = np.float32([[0, 0], [1, 1]])
    np.testing.assert_array_equal(goals.terminated(points, np.float32([[0, 0], [0, 0]])), [True, False])
    np.testing.assert_array_equal(goals.reward(points, np.float32([[0.1, 0], [0, 0]])), [0, -1])
    assert goals_of(Reach()).terminated(points, points) is None
    for wrong, kind, words in (("scalar termination", "facts", "each one"), ("penalty", "warnings", "goals alone")):
        report = tfsac.check_environment(gym.wrappers.TimeLimit(Reach(wrong), 20), 50)
        assert report.usable and any(words in line for line in getattr(report, kind)), report


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"environment.filters.reward_normalization": True}, "reward_rescale_factor"),
        ({"agent.memory.max_size": 20}, "exceed the time limit, 20 steps"),
        ({"agent.networks.policy.observation_keys": ["observation"]}, "networks that read 'desired_goal'"),
        ({"environment.level": "Pendulum-v1"}, "'achieved_goal'"),
    ],
)
def test_incompatible_options_are_rejected(changes, words, tmp_path):
    with pytest.raises(TfsacError, match=words):
        Trainer(override(preset(), changes), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    with pytest.raises(TfsacError, match="kind"):
        override(tiny.taac(), {"agent.memory": {"kind": "hindsight"}})


SHORT = {
    "schedule.heatup_steps": 40,
    "schedule.improve_steps": 60,
    "schedule.steps_between_evaluation_periods": 50,
    "environment.max_episode_steps": None,
}
MORE = {"agent.algorithm.n_step": 3, "environment.filters.observation_normalization": True}


def preset(level=REACH, **changes):
    """Returns the preset of a tiny run: twin SAC on Reach, or discrete SAC on bit flipping."""
    if level == BITS:
        base = tiny.shrunk(load_preset("cart_pole_discrete_sac"))
    else:
        networks = twin_soft_actor_critic_networks((16,), learning_rate=1e-3, batch_size=32)
        base = dataclasses.replace(tiny_preset(), agent=TwinSoftActorCriticAgentParameters(networks=networks))
    memory = HindsightExperienceReplayParameters(max_size=1000)
    return override(base, {"agent.memory": memory, "environment.level": level, **SHORT, **changes})


@pytest.mark.parametrize("level", [REACH, pytest.param(BITS, marks=pytest.mark.slow)])
def test_resumed_run_equals_uninterrupted_run_and_exports(level, tmp_path):
    changed = preset(level, **MORE)
    uninterrupted = complete_run(tmp_path / "uninterrupted", changed)
    assert uninterrupted.counters.updates == 60
    crash_at(tmp_path / "parts", 72, changed)  # within an episode, after the checkpoint at step 50
    resumed = Trainer(changed, tmp_path / "parts", RUN, quiet=True, resume=True)
    resumed.run()
    assert_same_run(resumed, uninterrupted)
    rows = tiny.rows(tmp_path / "uninterrupted")
    shares = [float(row["replay/relabelled"]) for row in rows if row["replay/relabelled"]]
    assert shares and all(0.7 < share < 0.9 for share in shares)
    assert all(-1 <= float(row["replay/reward_relabelled"]) <= 0 for row in rows if row["replay/relabelled"])
    assert rows[-1]["evaluation/is_success"] != ""
    policy = tfsac.load_policy(tmp_path / "uninterrupted")
    assert [*policy.reads.observation] == ["observation", "desired_goal"]
    path = tfsac.export(policy, tmp_path / "exported")
    env = maker(EnvironmentParameters(level))()
    observations = [env.reset(seed=seed)[0] for seed in range(5)]
    assert tfsac.verify(policy, path, observations) < 1e-5
    assert len(tfsac.evaluate(tmp_path / "uninterrupted", episodes=2).returns) == 2


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({"environment.num_envs": 3}, {}),
        pytest.param({"environment.num_envs": 2, "environment.vectorization": "subprocess", "environment.step_timeout_seconds": 60}, {}, marks=pytest.mark.slow),
        pytest.param({}, {"asynchronous_collection": True, "memory_on_disk": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)  # fmt: skip
def test_several_and_subprocess_environments(changes, settings, tmp_path):
    run = RunParameters(seed=1, **settings)
    shorter = {"schedule.improve_steps": 40, "environment.max_episode_steps": 8}
    result = tfsac.train(preset(**shorter, **changes), tmp_path / "run", run, quiet=True)
    assert result.counters.updates >= 32
    assert 0.6 < float(tiny.rows(tmp_path / "run")[-1]["replay/relabelled"]) < 1.0


@pytest.mark.usefixtures("no_tracing")
def test_updates_skipped_before_first_episode_are_made_up(tmp_path):
    late = preset(
        **{"schedule.heatup_steps": 32, "environment.max_episode_steps": 50, "agent.networks.*.batch_size": 16}
    )
    trainer, pending = Trainer(late, tmp_path / "run", quiet=True), []
    for _ in range(52):
        trainer.collect()
        pending.append(sum(trainer._sampler.pending()))
    trainer.close()
    assert pending[:49] == [0] * 49 and pending[49] == 50 - 32  # at the end of the first episode


@pytest.mark.usefixtures("no_tracing")
def test_goals_share_their_statistics(tmp_path):
    trainer = Trainer(preset(**MORE), tmp_path / "run", quiet=True)
    trainer.close()
    statistics = trainer.filters.observations
    assert statistics["achieved_goal"] is statistics["desired_goal"] is not statistics["observation"]
    plain = override(preset(**MORE), {"agent.memory": {"kind": "uniform", "max_size": 1000}})
    other = Trainer(plain, tmp_path / "plain", quiet=True)
    other.close()
    assert other.filters.observations["achieved_goal"] is not other.filters.observations["desired_goal"]
    assert [*other.agent.networks["policy"].embedders] == ["observation", "achieved_goal", "desired_goal"]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "success"), [("hindsight", 1.0), ("uniform", 0.0)])
def test_bit_flipping_is_solved_only_with_hindsight(kind, success, tmp_path):
    changes = {
        "environment.level": BITS,
        "agent.memory": {"kind": kind, "max_size": 100_000},
        "agent.hidden_layers": [256],
        "agent.algorithm.discount": 0.98,
        "agent.algorithm.temperature.alpha": 0.3,
        "agent.algorithm.num_consecutive_playing_steps": "EnvironmentSteps(12)",
        "agent.algorithm.num_consecutive_training_steps": 24,
        "agent.algorithm.num_steps_between_copying_online_weights_to_target": "TrainingSteps(1)",
        "schedule.improve_steps": 4000,
        "schedule.steps_between_evaluation_periods": 5000,
        "schedule.evaluation_steps": "EnvironmentEpisodes(50)",
        "validation.min_reward_threshold": None,
    }
    tfsac.train(override(load_preset("cart_pole_discrete_sac"), changes), tmp_path / "run", quiet=True)
    assert float(tiny.rows(tmp_path / "run")[-1]["evaluation/is_success"]) == pytest.approx(success, abs=0.1)
