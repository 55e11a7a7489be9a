"""Environments that reset themselves in their last step: the last observation, which `info` has, is learned from."""

import warnings

import gymnasium as gym
import numpy as np
import pytest

import tfsac
from tfsac.environments import EnvironmentFailure, Environments, maker
from tfsac.memories import TransitionMemory
from tfsac.parameters import EnvironmentParameters

Box, Dict = gym.spaces.Box, gym.spaces.Dict
LAST = 5
ONE_ARRAY = np.zeros(1, np.float32)


def wrapped(value, how):
    """Returns the last observation as libraries put it into info."""
    if how == "an object array":
        array = np.empty(1, object)
        array[0] = value
        return array
    if how == "one array":
        ONE_ARRAY[:] = value
        return ONE_ARRAY
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
    """May change observations, as far as anybody knows."""


def doubled(env):
    return gym.wrappers.TransformObservation(env, lambda seen: 2 * seen, env.observation_space)


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
    "final_observation": Clock,
    "final_obs": lambda: Clock("final_obs"),
    "terminal_observation": lambda: Clock("terminal_observation"),
    "terminated": lambda: Clock(terminated=True),
    "an object array": lambda: Clock(how="an object array"),
    "None before": lambda: Clock(always="none"),
    "an earlier one before": lambda: Clock(always="kept"),
    "in the same array each time": lambda: Clock(how="one array"),
    "as gymnasium.make has it": lambda: gym.make(CLOCK),
    "below wrappers that keep observations": lambda: gym.wrappers.TimeLimit(Clock(), 50),
    "checked already": lambda: gym.wrappers.TimeLimit(tfsac.environments.checked(Clock()), 50),
}


@pytest.mark.parametrize("one", ENVIRONMENTS.values(), ids=ENVIRONMENTS.keys())
def test_the_last_observation_of_an_episode_is_that_of_info(one):
    results, said = played(one, 2 * LAST)
    for result in (results[LAST - 1], results[-1]):
        assert (result.terminated | result.truncated).all()
        assert result.next_observation["observation"].tolist() == [[5.0]]
        assert result.observation["observation"].tolist() == [[0.0]]
    assert said and all("info['" in text for text in said)


def test_parts_of_a_dict_and_visible_entries_are_those_of_info():
    (*_, result), _ = played(Parts)
    assert result.next_observation["time"].tolist() == [[5.0]] and (result.next_observation["image"] == 5).all()
    (*_, result), _ = played(Clock, visible_entries=(0,))
    assert result.next_observation["observation"].tolist() == [[5.0]]


@pytest.mark.parametrize("wrapper", [doubled, Resetting])
def test_wrappers_that_may_change_observations_are_refused(wrapper):
    with pytest.raises(EnvironmentFailure, match="step must return it"):
        played(lambda: wrapper(Clock()))


class Unending(Clock):
    """Begins a new episode at time 5 and says so in info alone."""

    def step(self, action):
        return *super().step(action)[:3], False, {"final_observation": self.kept}


def test_a_time_limit_that_the_environment_does_not_know_keeps_the_observation_of_its_step():
    """At step 7 a wrapper truncates, and info has the last observation of an episode that ended before."""
    results, _ = played(lambda: gym.wrappers.TimeLimit(Unending(always="kept"), 7), 7)
    assert results[-1].truncated.all() and results[-1].next_observation["observation"].tolist() == [[2.0]]


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


@pytest.mark.filterwarnings("ignore:the last observation")
def test_evaluations_and_demonstrations_take_it_too_and_the_check_reports_it():
    shown = tfsac.demonstrate(lambda observation: np.zeros(1, np.float32), Clock(), episodes=2)
    assert shown.records["next_observation/observation"][:, 0].tolist() == [1, 2, 3, 4, 5] * 2
    env = maker(EnvironmentParameters(CLOCK))()
    env.reset(seed=0)
    assert [env.step(np.zeros(1, np.float32))[0].tolist() for _ in range(LAST)][-1] == [5.0]
    report = tfsac.check_environment(Clock, num_steps=20)
    assert report.usable and any("info['final_observation']" in text for text in report.warnings)
