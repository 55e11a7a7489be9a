"""Vectorised environments: episode ends, seeds, masks, subprocesses, and restoring from a checkpoint."""

import json
import os
import signal

import gymnasium as gym
import numpy as np
import pytest

from tfsac.environments import EnvironmentFailure, Environments, maker, spec_of, vectorize
from tfsac.errors import TfsacError
from tfsac.parameters import EnvironmentParameters
from tfsac.random_streams import episode_seed
from tfsac.types import ArraySpec, DiscreteSpec

Box, Dict, Discrete = gym.spaces.Box, gym.spaces.Dict, gym.spaces.Discrete


class Counting(gym.Env):
    """Observes a random number, the step count and the sum of actions; an action below -1.9 terminates."""

    observation_space = Box(-np.inf, np.inf, (3,), np.float32)
    action_space = Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation = np.array([self.np_random.uniform(), 0.0, 0.0], np.float32)
        return self.observation.copy(), {}

    def step(self, action):
        self.observation += np.array([0.0, 1.0, action[0]], np.float32)
        reward = float(10.0 * self.observation[0] + action[0])
        return self.observation.copy(), reward, bool(action[0] < -1.9), False, {}


gym.register("Counting-v0", entry_point=Counting)
# With the module's name, so that subprocesses can make it.
COUNTING = f"{__name__}:Counting-v0"
SECOND_ENDS = np.array([[0.0], [-1.0]], np.float32)
NEUTRAL = 0.0


@pytest.fixture
def environments():
    """Creates environments and closes them at the end."""
    created = []

    def make_environments(num_envs=1, seed=3, level=COUNTING, env_fn=None, **fields):
        created.append(Environments(EnvironmentParameters(level, num_envs=num_envs, **fields), seed, env_fn))
        return created[-1]

    yield make_environments
    for each in created:
        each.close()


def actions(*rows):
    return np.array(rows, np.float32)[:, None]


def test_environments_must_have_the_same_spaces():
    levels = iter(("Pendulum-v1", "MountainCarContinuous-v0"))
    with pytest.raises(TfsacError, match="same observation_space"):
        Environments(EnvironmentParameters("Pendulum-v1", num_envs=2), 0, lambda: gym.make(next(levels)))


def test_visible_entries_select_and_order_observations():
    env = maker(EnvironmentParameters(COUNTING, visible_entries=(2, 1)))()
    assert spec_of(env).observation == {"observation": ArraySpec((2,), "float32")}
    np.testing.assert_array_equal(env.reset(seed=0)[0], [0.0, 0.0])
    observations = [env.step(np.float32([0.5]))[0] for _ in range(2)]
    np.testing.assert_array_equal(observations, [[0.5, 1.0], [1.0, 2.0]])  # sum of actions, steps


@pytest.mark.parametrize(
    "observation, entries", [(Box(-1.0, 1.0, (3,)), (0, 3)), (Box(0, 255, (8, 8, 3), np.uint8), (0,))], ids=str
)
def test_invalid_visible_entries_are_rejected_and_env_is_closed(observation, entries):
    env, closed = gym.Env(), []
    env.observation_space, env.action_space, env.close = observation, Counting.action_space, lambda: closed.append(True)
    with pytest.raises(TfsacError, match="visible_entries"):
        maker(EnvironmentParameters("mine", visible_entries=entries), lambda: env)()
    assert closed == [True]


class Moves(gym.Env):
    """Observes its last action, 5 to 7, and has a configurable mask at reset or after action 7.

    Args:
        mask: the configured mask.
        when: "reset", "step", or "end" to terminate as well.
    """

    observation_space = Dict(last=Box(0, 7, (1,), np.float32), action_mask=gym.spaces.MultiBinary(3))
    action_space = Discrete(3, start=5)

    def __init__(self, mask=(1, 1, 1), when="step"):
        self.mask, self.when = mask, when

    def observe(self, last, configured):
        mask = np.array(self.mask) if configured else np.array([1, 0, 1], np.int8)
        return {"last": np.array([last], np.float32), "action_mask": mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(0, self.when == "reset"), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.observe(action, action == 7), float(action), bool(action == 7 and self.when == "end"), False, {}


gym.register("Moves-v0", entry_point=Moves)
MOVES = f"{__name__}:Moves-v0"


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_discrete_actions_are_offset_by_start(environments, vectorization):
    envs = environments(2, level=MOVES, vectorization=vectorization)
    assert envs.spec.action == DiscreteSpec(3, (), 5)
    result = envs.step(np.array([0, 2], np.int32))
    np.testing.assert_array_equal(result.reward, [5, 7])
    np.testing.assert_array_equal(result.next_observation["last"], [[5], [7]])
    mask = result.next_observation["action_mask"]
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, [[True, False, True], [True, True, True]])


@pytest.mark.parametrize(
    "mask, when, actions",
    [
        ([0, 0, 0], "reset", []),
        ([0, 0, 0], "step", [[0, 0], [0, 2]]),
        ([1], "step", [[0, 2]]),  # would be broadcast
        ([1, 0.5, 0], "step", [[0, 2]]),
        ([1, 256, 0], "step", [[0, 2]]),  # would wrap around
    ],
)
def test_empty_or_misshapen_masks_are_rejected(environments, mask, when, actions):
    with pytest.raises(EnvironmentFailure, match=rf"(?s)^{MOVES}: .*action_mask.*environment {int(bool(actions))}"):
        envs = environments(2, level=MOVES, kwargs={"mask": mask, "when": when})
        for action in actions:
            envs.step(np.array(action, np.int32))


def popping(config):
    """Makes an environment and removes an entry from its argument."""
    return Moves(when=config.pop("when"))


gym.register("Popping-v0", entry_point=popping)


def test_environment_may_modify_its_kwargs():
    parameters = EnvironmentParameters(level=f"{__name__}:Popping-v0", kwargs={"config": {"when": "end"}})
    assert [maker(parameters)().unwrapped.when for _ in range(2)] == ["end", "end"]
    assert parameters.kwargs == {"config": {"when": "end"}}


def test_terminated_step_may_have_an_empty_mask(environments):
    result = environments(level=MOVES, kwargs={"mask": [0, 0, 0], "when": "end"}).step(np.array([2], np.int32))
    assert result.terminated.tolist() == [True]
    assert result.next_observation["action_mask"].tolist() == [[False] * 3]
    assert result.following["action_mask"].tolist() == [[True, False, True]]


def test_every_team_member_needs_a_valid_action():
    env = gym.Env()
    env.observation_space = Dict(agent_state=Box(-1.0, 1.0, (2, 1)), action_mask=gym.spaces.MultiBinary((2, 3)))
    env.action_space = gym.spaces.MultiDiscrete([3, 3])
    mask = np.array([[1, 1, 1], [0, 0, 0]], np.int8)
    env.reset = lambda **_: ({"agent_state": np.zeros((2, 1), np.float32), "action_mask": mask}, {})
    with pytest.raises(EnvironmentFailure, match="allows no action"):
        Environments(EnvironmentParameters(), 0, lambda: env)


def test_ended_environment_resets_and_others_continue(environments):
    envs = environments(num_envs=2)
    begin = envs.observation["observation"]
    envs.step(actions(0.25, 0.25))
    result = envs.step(SECOND_ENDS)
    last, now = result.next_observation["observation"], result.following["observation"]
    assert now[1, 0] != begin[1, 0]
    np.testing.assert_array_equal(now[1, 1:], [0, 0])
    np.testing.assert_array_equal(now, envs.observation["observation"])
    np.testing.assert_array_equal(now[0], last[0])
    np.testing.assert_array_equal(envs.is_first, [False, True])
    np.testing.assert_array_equal(envs.length, [2, 0])
    np.testing.assert_array_equal(result.length, [2, 2])
    np.testing.assert_array_equal(envs.episode, [0, 1])
    reward = result.reward.copy()
    later = envs.step(actions(0.5, NEUTRAL))
    np.testing.assert_array_equal(later.following["observation"][:, 1], [3, 1])
    assert envs.steps == 6 and not envs.is_first.any()
    np.testing.assert_allclose(last[1], [begin[1, 0], 2, 0.5 - 2.0])  # results of earlier steps are not overwritten
    np.testing.assert_array_equal(result.reward, reward)


class Resetting(Counting):
    """Resets in the step that ends an episode, with the final observation in `info`."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated:
            info["final_observation"], observation = observation, self.reset()[0]
        return observation, reward, terminated, truncated, info


def test_environment_that_resets_itself_is_rejected(environments):
    envs = environments(env_fn=Resetting)
    envs.step(actions(NEUTRAL))
    with pytest.raises(EnvironmentFailure, match="leave the reset to tfsac"):
        envs.step(actions(-1.0))


def first_draws(envs, episodes):
    """Returns the random number of each episode of each environment, `[episodes, N]`."""
    draws = []
    for _ in range(episodes):
        draws.append(envs.observation["observation"][:, 0])
        envs.step(np.full((envs.num_envs, 1), -1.0, np.float32))
    return np.array(draws)


def test_episode_seeds_depend_on_run_environment_and_episode(environments):
    draws = first_draws(environments(num_envs=3, seed=3), 4)
    assert len(np.unique(draws)) == 12
    np.testing.assert_array_equal(draws[:, :1], first_draws(environments(num_envs=1, seed=3), 4))
    assert not np.isin(first_draws(environments(num_envs=3, seed=4), 4), draws).any()


def test_episode_seeds_are_unique():
    keys = [(seed, purpose, i, e) for seed in range(3) for purpose in range(2) for i in range(5) for e in range(20)]
    assert len({episode_seed(*key) for key in keys}) == len(keys)
    assert max(episode_seed(*key) for key in keys) < 2**31  # the limit of simulators
    assert episode_seed(0, 0, 0, 1) == int(np.random.SeedSequence([0, 0, 0, 1]).generate_state(1)[0]) % 2**31


@pytest.mark.slow
def test_subprocesses_match_sync_and_ignore_ctrl_c(environments, monkeypatch):
    monkeypatch.setattr(vectorize, "usable_cores", lambda: 2)
    fields = dict(num_envs=4, max_episode_steps=4)
    sync, processes = environments(**fields), environments(**fields, vectorization="subprocess")
    assert len(processes.groups) == 2
    usual, ends = actions(0.25, -0.5, 0.125, 0.5), actions(0.25, -1.0, 0.125, 0.5)
    for step in range(5):
        action = ends if step == 1 else usual  # ends an episode in one group only
        expected, actual = sync.step(action), processes.step(action)
        np.testing.assert_array_equal(expected.terminated, actual.terminated)
        np.testing.assert_array_equal(expected.next_observation["observation"], actual.next_observation["observation"])
        np.testing.assert_array_equal(expected.following["observation"], actual.following["observation"])
        np.testing.assert_array_equal(expected.reward, actual.reward)
    assert sync.state() == processes.state() and max(sync.episode) > 0
    os.kill(processes.groups[0].process.pid, signal.SIGINT)
    processes.step(usual)


REPLAY = actions(0.25, -0.5, 0.125)


def play(envs, num_episodes=1):
    """Ends some episodes, makes three steps of the next one, and returns state, running episode and observation."""
    for _ in range(num_episodes):
        envs.step(np.full((envs.num_envs, 1), -1.0, np.float32))
    observations = []
    for action in REPLAY:
        observations.append(envs.observation["observation"][0])
        envs.step(np.tile(action, (envs.num_envs, 1)))
    return json.loads(json.dumps(envs.state())), (REPLAY, {"observation": np.array(observations)}), envs.observation


def test_restore_within_an_episode(environments):
    old, new = environments(max_episode_steps=5), environments(max_episode_steps=5)
    state, episode, observation = play(old)
    assert new.restore(state, episode, observation) is True
    assert new.state() == old.state()
    np.testing.assert_array_equal(new.observation["observation"], observation["observation"])
    assert not new.is_first.any()
    for action in (0.5, NEUTRAL, NEUTRAL):  # past the time limit, into the next episode
        expected, actual = old.step(actions(action)), new.step(actions(action))
        for field in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(expected, field), getattr(actual, field))
        np.testing.assert_array_equal(expected.following["observation"], actual.following["observation"])
    assert new.episode.tolist() == [2]


def test_restore_at_the_start_of_an_episode(environments):
    old, new = environments(), environments()
    old.step(actions(-1.0))
    assert new.restore(old.state(), (np.zeros((0, 1), np.float32), {}), old.observation) is True
    assert new.is_first.all() and new.state() == old.state()


@pytest.mark.parametrize("replayed", [None, REPLAY[:2], np.concatenate([REPLAY[:2], actions(0.9)]), REPLAY])
def test_restore_starts_new_episode_if_replay_fails(environments, replayed, monkeypatch):
    old, new = environments(), environments()
    state, (_, observations), observation = play(old)
    if replayed is REPLAY:
        monkeypatch.setattr(new.groups[0], "step", lambda action: 1 / 0)
    assert new.restore(state, replayed if replayed is None else (replayed, observations), observation) is False
    assert new.is_first.all() and new.episode.tolist() == [2] and new.length.tolist() == [0]
    assert new.steps == old.steps
    reference = first_draws(environments(), 3)[2]
    np.testing.assert_array_equal(new.observation["observation"][:, 0], reference)


def test_restore_of_several_environments_starts_new_episodes(environments):
    old, new = environments(num_envs=2), environments(num_envs=2)
    old.step(actions(NEUTRAL, NEUTRAL))
    old.step(SECOND_ENDS)
    assert new.restore(old.state(), None, old.observation) is False
    assert new.is_first.all() and new.episode.tolist() == [1, 1]
    assert new.observation["observation"][0, 0] != old.observation["observation"][0, 0]
    np.testing.assert_array_equal(new.observation["observation"][1], old.observation["observation"][1])


class ResetAfterEnd(Counting):
    """Can only be reset when its episode is over."""

    over, drifts = True, 0.0

    def reset(self, *, seed=None, options=None):
        if not self.over:
            raise RuntimeError("the episode is not over")
        self.over = False
        return super().reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, self.over, truncated, info = super().step(action)
        return observation + ResetAfterEnd.drifts, reward, self.over, truncated, info


@pytest.mark.parametrize("num_envs, drifts, exact", [(1, 0.0, True), (1, 1.0, False), (3, 0.0, False)])
def test_restore_with_env_that_resets_only_after_episode_end(monkeypatch, num_envs, drifts, exact):
    parameters = EnvironmentParameters(num_envs=num_envs)
    state, episode, observation = play(Environments(parameters, 3, ResetAfterEnd))
    monkeypatch.setattr(ResetAfterEnd, "drifts", drifts)
    for begin in (False, True):
        new = Environments(parameters, 3, ResetAfterEnd, begin=begin)
        assert new.restore(state, episode, observation) is exact
        assert new.is_first.all() is not exact and new.episode.tolist() == [1 if exact else 2] * num_envs
        if exact:
            np.testing.assert_array_equal(new.observation["observation"], observation["observation"])
