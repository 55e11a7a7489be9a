"""Environments that reset themselves in their last step: the last observation, which `info` has, is learned from."""

import copy
import warnings

import gymnasium as gym
import numpy as np
import pytest

import tfsac
from tfsac.environments import EnvironmentFailure, Environments, make, maker
from tfsac.memories import TransitionMemory
from tfsac.parameters import EnvironmentParameters

Box, Dict = gym.spaces.Box, gym.spaces.Dict
LAST = 5


def wrapped(value, how):
    """Returns the last observation as libraries put it into info."""
    if how == "an object array":
        array = np.empty(1, object)
        array[0] = value
        return array
    return value


class Clock(gym.Env):
    """Observes the time; at time 5 an episode ends, and the observation returned is the first of the next one.

    Args:
        key: of the info that has the last observation.
        how: it is put there.
        terminated: whether the task ends then; else it is truncated.
        always: info has the key in every step: None where no episode ended, or an earlier episode's.
    """

    observation_space, action_space = Box(0.0, 99.0, (1,)), Box(-1.0, 1.0, (1,))
    last = LAST

    def __init__(self, key="final_observation", how="", terminated=False, always=None):
        self.key, self.how, self.terminated, self.kept, self.always = key, how, terminated, None, always

    def seen(self):
        return np.array([self.time], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.seen(), {}

    def step(self, action):
        self.time += 1
        ends, observation, info = self.time == self.last, self.seen(), {}
        if ends:
            self.kept = wrapped(observation, self.how)
            info[self.key], (observation, _) = self.kept, self.reset()
        elif self.always:
            info[self.key] = None if self.always == "none" else self.kept
        return observation, 1.0, ends and self.terminated, ends and not self.terminated, info


class Parts(Clock):
    """Observes a dict."""

    observation_space = Dict(time=Box(0.0, 99.0, (1,)), image=Box(0, 255, (2, 2, 1), np.uint8))

    def seen(self):
        return {"time": np.array([self.time], np.float32), "image": np.full((2, 2, 1), self.time, np.uint8)}


class Resetting(gym.Wrapper):
    """Resets the environment in its last step, as a wrapper of gym did."""

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            info = {**info, "terminal_observation": observation}
            observation, _ = self.env.reset()
        return observation, reward, terminated, truncated, info


class Doubled(gym.Wrapper):
    """Changes observations in its own way."""

    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        return 2 * observation, info

    def step(self, action):
        observation, *rest = self.env.step(action)
        return 2 * observation, *rest


class Proxy(gym.Env):
    """Sets and finds all attributes in another environment."""

    def __init__(self, env):
        self.__dict__["env"] = env

    def __setattr__(self, name, value):
        setattr(self.env, name, value)

    def __getattribute__(self, name):
        if name in ("observation_space", "action_space"):
            return getattr(self.env, name)
        return super().__getattribute__(name)

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        return self.env.step(action)


class Ends(gym.Env):
    """Resets nothing; observes the time until 5."""

    observation_space, action_space = Clock.observation_space, Clock.action_space

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.array([self.time], np.float32), 1.0, False, self.time == LAST, {}


def doubled(env, space=None):
    return gym.wrappers.TransformObservation(env, lambda seen: 2 * seen, space or env.observation_space)


gym.register("Clock-v0", entry_point=Clock)
CLOCK = f"{__name__}:Clock-v0"


def played(one, steps=LAST, **fields):
    """Returns the results of steps of environments, and what was said meanwhile."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        environments = Environments(EnvironmentParameters(CLOCK, **fields), 0, one)
        action = np.zeros((environments.num_envs, 1), np.float32)
        results = [environments.step(action) for _ in range(steps)]
        environments.close()
    return results, [str(each.message) for each in said]


ENVIRONMENTS = {
    "final_observation": (Clock, [[5.0]]),
    "final_obs": (lambda: Clock("final_obs"), [[5.0]]),
    "terminal_observation": (lambda: Clock("terminal_observation"), [[5.0]]),
    "terminated": (lambda: Clock(terminated=True), [[5.0]]),
    "an object array": (lambda: Clock(how="an object array"), [[5.0]]),
    "None before": (lambda: Clock(always="none"), [[5.0]]),
    "an earlier one before": (lambda: Clock(always="kept"), [[5.0]]),
    "a wrapper resets": (lambda: Resetting(Ends()), [[5.0]]),
    "wrappers change it": (lambda: doubled(Clock()), [[10.0]]),
    "wrappers of one's own change it": (lambda: Doubled(gym.wrappers.TimeLimit(Clock(), 50)), [[10.0]]),
    "a wrapper resets beneath another": (lambda: doubled(Resetting(Doubled(Ends()))), [[20.0]]),
    "a proxy": (lambda: doubled(Proxy(Clock())), [[10.0]]),
    "frames": (lambda: gym.wrappers.FrameStackObservation(Clock(), 3), [[[3.0], [4.0], [5.0]]]),
    "flattened": (
        lambda: gym.wrappers.FlattenObservation(gym.wrappers.FrameStackObservation(Clock(), 2)),
        [[4.0, 5.0]],
    ),
}


@pytest.mark.parametrize("one, expected", ENVIRONMENTS.values(), ids=ENVIRONMENTS.keys())
def test_the_last_observation_of_an_episode_is_that_of_info(one, expected):
    results, said = played(one, 2 * LAST)
    for result in (results[LAST - 1], results[-1]):
        assert (result.terminated | result.truncated).all()
        np.testing.assert_array_equal(result.next_observation["observation"], expected)
        assert not result.observation["observation"][..., -1:].any()  # the next episode begins at time 0
    assert len(said) == 1 and "info['" in said[0]


def test_parts_of_a_dict_and_visible_entries_are_those_of_info():
    (*_, result), _ = played(Parts)
    assert result.next_observation["time"].tolist() == [[5.0]] and (result.next_observation["image"] == 5).all()
    both = lambda: doubled(gym.wrappers.FrameStackObservation(Clock(), 1))  # noqa: E731
    one = lambda: gym.wrappers.FlattenObservation(both())  # noqa: E731
    (*_, result), _ = played(one, visible_entries=(0,))
    assert result.next_observation["observation"].tolist() == [[10.0]]


def test_a_time_limit_that_the_environment_does_not_know_keeps_the_observation_of_its_step():
    """At step 7 a wrapper truncates, and info has the last observation of an episode that ended before."""
    results, _ = played(lambda: gym.wrappers.TimeLimit(Unending(always="kept"), 7), 7)
    assert results[-1].truncated.all() and results[-1].next_observation["observation"].tolist() == [[2.0]]


class Unending(Clock):
    """Begins a new episode at time 5 and says so in info alone."""

    def step(self, action):
        return *super().step(action)[:3], False, {"final_observation": self.kept}


def test_what_is_no_observation_is_refused_and_infos_key_is_named():
    class Pair(Clock):
        def step(self, action):
            *rest, info = super().step(action)
            return *rest, {key: np.zeros(2, np.float32) for key in info}

    with pytest.raises(EnvironmentFailure, match=r"info\['final_observation'\].* of the shape \(1,\)"):
        played(Pair)


@pytest.mark.slow
def test_processes_and_evaluations_take_it_too_and_say_it_once(monkeypatch):
    monkeypatch.setattr("tfsac.environments.vectorize.usable_cores", lambda: 2)
    results, said = played(None, 2 * LAST, num_envs=4, vectorization="subprocess")
    assert results[-1].next_observation["observation"].tolist() == [[5.0]] * 4
    assert len([text for text in said if "info['final_observation']" in text]) == 1
    one = maker(EnvironmentParameters(CLOCK))
    with pytest.warns(RuntimeWarning, match="final_observation") as warned:
        for env in (one(), one()):
            env.reset(seed=0)
            seen = [env.step(np.zeros(1, np.float32))[0].tolist() for _ in range(LAST)]
            assert seen[-1] == [5.0]
    assert len(warned) == 1


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("terminated", [False, True])
def test_the_memory_has_the_last_observation_and_the_discount_of_the_end(n_step, terminated):
    results, _ = played(lambda: Clock(terminated=terminated), 2 * LAST)
    spec = Environments(EnvironmentParameters(), 0, Clock).spec
    memory = TransitionMemory(spec, 20, discount=0.5, n_step=n_step)
    before = {"observation": np.zeros((1, 1), np.float32)}
    for result in results:
        memory.add(before, np.zeros((1, 1), np.float32), *result[1:4], result.next_observation)
        before = result.observation
    batch = memory.gather(np.arange(2 * LAST))
    following = np.minimum(np.arange(LAST) + n_step, LAST)
    gamma = 0.5 ** (following - np.arange(LAST))
    discount = np.where(terminated & (following == LAST), 0.0, gamma)
    np.testing.assert_array_equal(batch.next_observation["observation"][:, 0], np.tile(following, 2))
    np.testing.assert_array_equal(batch.discount, np.tile(discount, 2))


@pytest.mark.parametrize("new", [Clock, lambda: gym.wrappers.FlattenObservation(Parts())])
def test_the_check_reports_it(new):
    report = tfsac.check_environment(new, num_steps=20)
    assert report.usable and any("info['final_observation']" in text for text in report.warnings)


@pytest.mark.filterwarnings("ignore:the last observation")
def test_demonstrations_have_the_last_observation():
    shown = tfsac.demonstrate(lambda observation: np.zeros(1, np.float32), Clock(), episodes=2)
    assert shown.records["next_observation/observation"][:, 0].tolist() == [1, 2, 3, 4, 5] * 2


@pytest.mark.filterwarnings("ignore:the last observation")
def test_an_environment_that_copies_itself_may_go_on_doing_so():
    env = make(CLOCK)
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.zeros(1, np.float32))
    ahead = copy.deepcopy(env.unwrapped)
    assert [ahead.step(np.zeros(1, np.float32))[0].tolist() for _ in range(2)] == [[4.0], [0.0]]  # as it does itself
    assert env.unwrapped.time == 3


class Ahead(gym.Wrapper):
    """Looks ahead with a shallow copy, as planners do."""

    def step(self, action):
        copy.copy(self.env.unwrapped).step(action)
        return self.env.step(action)


class Counting(Clock):
    last = 99

    def step(self, action):
        if not hasattr(self, "ahead"):
            copied = copy.copy(self)
            copied.ahead = True
            copied.step(action)
        return super().step(action)


@pytest.mark.parametrize("new", [lambda: Ahead(Counting()), lambda: gym.Wrapper(Counting()), Counting])
def test_a_copy_of_an_environment_steps_itself_alone(new):
    env = maker(EnvironmentParameters("x"), new)()
    env.reset(seed=0)
    assert [env.step(np.zeros(1, np.float32))[0].item() for _ in range(3)] == [1, 2, 3]


def test_an_environment_of_the_users_is_afterwards_as_it_was():
    env = gym.Wrapper(Clock())
    assert tfsac.check_environment(env, 20).usable
    env.reset(seed=0)
    seen = [env.step(np.zeros(1, np.float32))[0].item() for _ in range(LAST)]
    assert seen == [1, 2, 3, 4, 0] and "step" not in vars(env.unwrapped)
