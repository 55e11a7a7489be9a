"""ACER runs: rollouts and updates, resuming, evaluation, and learning."""

import gymnasium as gym
import numpy as np
import pytest
import tiny
from resume_tools import RUN, assert_same_run, complete_run, crash_at, run_state, weights

from tfsac import api
from tfsac.parameters import RunParameters
from tfsac.training import Callback, Trainer

T = 6  # steps of a rollout
ENDS = [
    6,
    8,
    14,
    16,
    22,
    24,
]  # steps at which rollouts end: after T steps, or earlier with an episode truncated after five


class DiscreteCliff(gym.ActionWrapper):
    """The cliff with two actions, with rewards of 0.1 and 0.3."""

    def __init__(self):
        super().__init__(tiny.Cliff())
        self.action_space = gym.spaces.Discrete(2)

    def action(self, action):
        return np.float32([0.1 + 0.2 * action])


gym.register("TfsacDiscreteCliff-v0", DiscreteCliff)
tiny.register()
DISCRETE_CLIFF, CLIFF = f"{__name__}:TfsacDiscreteCliff-v0", "TfsacCliff-v0"


class Watch(Callback):
    """Records stored steps, batches, the number of updates after each step, and the initial weights."""

    def on_training_begin(self, trainer):
        self.stored, self.stacks, self.counted, self.first = [], [], [], weights(trainer)
        add, update = trainer.memory.add, trainer.agent.update
        trainer.memory.add = lambda *step: self.stored.append(step) or add(*step)
        trainer.agent.update = lambda stack: self.stacks.append(stack) or update(stack)

    def on_step(self, trainer):
        self.counted.append(trainer.counters.updates)


def run_preset(folder, preset, *callbacks):
    run = RunParameters(seed=3, updates_between_diagnostics=1)
    trainer = Trainer(preset, folder / "run", run, callbacks=callbacks, quiet=True)
    trainer.run()
    return trainer


def cliff(level=CLIFF, lstm=False, shared=False, **changes):
    """Returns a preset with 24 steps per environment; replay starts with 10 steps of finished episodes."""
    envs = changes.get("environment.num_envs", 1)
    short = {
        "environment.max_episode_steps": None,
        "agent.memory.replay_start_size": 10,
        "agent.algorithm.t_max": T,
        "schedule.improve_steps": 24 * envs,
        "schedule.steps_between_evaluation_periods": 16 * envs,
    }
    return tiny.acer(level, lstm, shared, **{**short, **changes})


@pytest.fixture(scope="module", params=[(DISCRETE_CLIFF, False, False, 3), (CLIFF, True, True, 1)])
def recorded(request, tmp_path_factory):
    """A `Watch` callback, the trainer of its run, and the number of environments."""
    *kind, envs = request.param
    watch, folder = Watch(), tmp_path_factory.mktemp("recorded")
    return watch, run_preset(folder, cliff(*kind, **{"environment.num_envs": envs}), watch), envs


@pytest.mark.slow
def test_each_rollout_is_followed_by_online_and_replay_updates(recorded):
    watch, trainer, envs = recorded
    # Replay starts after 11 finished steps within the first 14 steps, or after 8 steps of each of three environments.
    updates = dict(zip(ENDS, [1, 2, 5, 8, 11, 14] if envs == 1 else [1, 4, 7, 10, 13, 16], strict=True))
    assert watch.counted == [max((n for end, n in updates.items() if end <= step), default=0) for step in range(1, 25)]
    assert [len(stack.reward) for stack in watch.stacks] == np.diff([0, *updates.values()]).tolist()
    assert trainer.agent.compiled.traces == 1 and int(trainer.agent.updates.numpy()) == trainer.counters.updates
    assert all(np.isfinite(value).all() for value in weights(trainer).values())
    assert [name for name, value in weights(trainer).items() if np.array_equal(value, watch.first[name])] == []
    written = [(int(row["env_steps"]), int(row["updates"])) for row in tiny.rows(trainer.directory.path)]
    assert written == [(end * envs, updates[end]) for end in (16, 24)]


@pytest.mark.slow
def test_rollouts_contain_the_collected_steps(recorded):
    watch, _, envs = recorded
    begin = 0
    for end, stack in zip(ENDS, watch.stacks, strict=True):
        steps, full = end - begin, end - begin == T
        fresh = {name: getattr(stack, name)[0] for name in ("reward", "nonterminal", "is_first", "length", "on_policy")}
        # Three steps up to a termination and three of the next episode; then two steps up to its truncation.
        assert fresh["length"][:, 0].tolist() == ([3] * 6 if full else [2, 2, 0, 0, 0, 0])
        assert fresh["is_first"][:, 0].tolist() == ([1, 0, 0, 1, 0, 0] if full else [0] * 6)
        assert fresh["nonterminal"][:, 0].tolist() == ([1, 1, 0, 1, 1, 1] if full else [1, 1, 0, 0, 0, 0])
        assert fresh["on_policy"][:, 0].tolist() == [1] * steps + [0] * (T - steps)
        for value in fresh.values():
            assert (value[:, :envs] == value[:, :1]).all() or value is fresh["reward"]
            assert not value[:, envs:].any()  # padding columns
        at, action, reward = zip(*(step[:3] for step in watch.stored[begin:end]), strict=True)
        np.testing.assert_array_equal(
            stack.observation["observation"][0, :steps, :envs], [row["observation"] for row in at]
        )
        np.testing.assert_array_equal(stack.action[0, :steps, :envs], action)
        np.testing.assert_array_equal(fresh["reward"][:steps, :envs], reward)
        # Observations after the third or fifth step of an even-numbered episode.
        np.testing.assert_allclose(stack.observation["observation"][0, T, :envs], [[0.3 if full else 0.5, 1.0]] * envs)
        for name, value in stack.initial_state.items():
            np.testing.assert_array_equal(value[0, :envs], watch.stored[begin][6]["state/" + name])
            assert value[0].any() == (begin > 0 and not full) and not value[1:].any()
        begin = end


def test_disable_online_update_waits_for_replay(tmp_path):
    watch = Watch()
    trainer = run_preset(tmp_path, cliff(DISCRETE_CLIFF, **{"agent.algorithm.disable_online_update": True}), watch)
    assert [watch.counted[end - 1] for end in ENDS] == [0, 0, 2, 4, 6, 8]
    assert all(not stack.on_policy.any() and stack.length.any() for stack in watch.stacks)
    assert trainer.agent.compiled.traces == 1


# Everything with state, and a memory that drops episodes.
INTERRUPTED = {
    "agent.algorithm.replay_times": "poisson",
    "agent.algorithm.statistics_decay": 0.9,
    "agent.memory.max_size": 70,
    "agent.networks.*.optimizer_type": "RMSProp",
    "agent.networks.*.learning_rate_decay_steps": 120,
    "agent.networks.*.learning_rate_decay_type": "linear",
    "environment.filters.observation_normalization": True,
    "environment.filters.reward_normalization": True,
    "schedule.improve_steps": 130,
    "schedule.steps_between_evaluation_periods": 35,
}


@pytest.fixture(
    scope="module",
    params=[
        ("Pendulum-v1", True, True),
        pytest.param(("CartPole-v1", True, False), marks=pytest.mark.acceptance),
        pytest.param(("Pendulum-v1", False, False), marks=pytest.mark.acceptance),
        pytest.param(("CartPole-v1", False, False), marks=pytest.mark.acceptance),
    ],
)
def uninterrupted(request, tmp_path_factory):
    """The finished run of an agent: level, LSTM, shared trunk."""
    return complete_run(tmp_path_factory.mktemp("uninterrupted") / "run", tiny.acer(*request.param, **INTERRUPTED))


@pytest.mark.slow
@pytest.mark.parametrize("step", [77, pytest.param(101, marks=pytest.mark.acceptance)])
def test_resumed_run_equals_uninterrupted_run(tmp_path, uninterrupted, step):
    preset = uninterrupted.preset
    assert uninterrupted.memory.total_rows > 100 > len(uninterrupted.memory)  # episodes were dropped
    crash_at(tmp_path / "run", step, preset)
    resumed = Trainer(preset, tmp_path / "run", RUN, resume=True, quiet=True)
    assert resumed.counters.env_steps == step // 50 * 50
    assert resumed.memory.size > resumed.memory.rollout_begin  # in the middle of a rollout
    rate = resumed.agent.optimizers["policy"].learning_rate.numpy()
    assert rate == pytest.approx(1e-3 * (1 - resumed.counters.updates / 120), rel=1e-4)
    if resumed.agent.policy.recurrent_state:
        assert all(resumed._collector.policy_state[name].any() for name in resumed.agent.policy.recurrent_state)
    resumed.run()
    assert_same_run(resumed, uninterrupted)
    slots = [value for name, value in run_state(resumed).items() if "optimizer policy" in name and value.ndim == 2]
    assert slots and all(value.any() for value in slots)


@pytest.mark.slow
def test_several_environments_resume_with_new_episodes(tmp_path, capsys):
    preset = tiny.acer("Pendulum-v1", True, True, **{"environment.num_envs": 3, "schedule.improve_steps": 240})
    crash_at(tmp_path / "run", 204, preset)
    resumed = Trainer(preset, tmp_path / "run", RUN, resume=True)
    assert "new ones begin" in capsys.readouterr().out
    assert resumed.counters.env_steps == 201 and resumed.environments.is_first.all()  # 67 steps of each
    memory = resumed.memory
    assert [steps for _, steps in memory.episodes] == [30] * 6 + [7] * 3  # running episodes are truncated
    assert not memory.between(memory.oldest_row, memory.total_rows)["terminated"].any()
    assert memory.size == memory.rollout_begin  # the incomplete rollout is dropped
    assert all(value.any() for value in resumed._collector.policy_state.values())
    resumed.collect()
    assert not any(value.any() for value in memory.initial_state.values())
    assert (memory.batches(0, 4, resumed._sampler.rng).is_first[0, 0] == [1, 1, 1, 0]).all()
    assert resumed.run().counters.env_steps == 240


@pytest.mark.slow
def test_evaluation_samples_unless_deterministic(tmp_path):
    changes = {"schedule.evaluation_steps": "EnvironmentEpisodes(4)"}
    run_preset(tmp_path / "sampled", cliff(CLIFF, **changes))
    run_preset(tmp_path / "mode", cliff(CLIFF, **{**changes, "agent.algorithm.use_deterministic_for_evaluation": True}))
    sampled, mode = (tiny.rows(tmp_path / name / "run")[-1] for name in ("sampled", "mode"))
    assert sampled["training/return_mean"] == mode["training/return_mean"]
    assert sampled["evaluation/return_mean"] != mode["evaluation/return_mean"]
    # With the mode, all odd episodes of an environment are equal, and so are all even ones.
    assert float(mode["evaluation/return_std"]) > 0


LEARNING = {
    "environment.num_envs": 8,
    "agent.networks.*.batch_size": 8,
    "agent.networks.*.learning_rate": 3e-3,
    "agent.algorithm.n_times_replay": 4,
    "agent.algorithm.use_deterministic_for_evaluation": True,
    "agent.memory.max_size": 2000,
    "agent.memory.replay_start_size": 200,
    "schedule.improve_steps": 6000,
    "schedule.steps_between_evaluation_periods": 3000,
    "schedule.evaluation_steps": "EnvironmentEpisodes(100)",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "kwargs", "threshold"),
    [
        ("DiscreteIdentity", {"size": 5, "masked": True}, 0.95),  # chance: 0.33
        ("Identity", {}, -0.15),  # uniform actions get -2.7, zeros -1.1
    ],
)
def test_one_step_tasks_are_solved(tmp_path, level, kwargs, threshold):
    preset = tiny.acer(f"toys:{level}-v0", **{**LEARNING, "environment.kwargs": kwargs, "agent.algorithm.t_max": 4})
    assert run_preset(tmp_path, preset)._evaluator.best_return > threshold
    assert api.evaluate(tmp_path / "run", 200, seed=7).returns.mean() > threshold


@pytest.mark.acceptance
@pytest.mark.parametrize(("lstm", "shared"), [(True, True), (True, False), (False, False)])
def test_only_lstm_solves_memory_task(tmp_path, lstm, shared):
    changes = {"agent.algorithm.t_max": 8, "schedule.improve_steps": 10_000}
    preset = tiny.acer("toys:RememberFirst-v0", lstm, shared, **{**LEARNING, **changes})
    best = run_preset(tmp_path, preset)._evaluator.best_return
    again = api.evaluate(tmp_path / "run", 200, seed=7).returns.mean()
    if lstm:
        assert best > 0.95 and again > 0.95
    else:
        assert best < 0.7 and again < 0.65  # chance: 0.5, with a standard deviation of 0.05 over 100 episodes
