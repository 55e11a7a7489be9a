"""Environments: actions, filters, checks, masks, errors, episode ends, seeds and coming back from a checkpoint."""

import functools
import itertools
import json
import multiprocessing
import os
import re
import signal
import threading
import time

import gymnasium as gym
import numpy as np
import pytest

import tfsac
from tfsac.environments import (
    ActionNumbering,
    ActionRescaling,
    EnvironmentFailure,
    Environments,
    Filters,
    Team,
    action_map,
    as_arrays,
    check,
    checked_action,
    episode_seed,
    make,
    maker,
    spec_of,
    vectorize,
)
from tfsac.environments.check import check_masks
from tfsac.environments.groups import WakefulPipe, _start
from tfsac.environments.spaces import spaces_by_key
from tfsac.parameters import AtariPreprocessingParameters, EnvironmentParameters, FilterParameters
from tfsac.testing import DiscreteIdentity, discrete_spec, random_batches, team_spec, vector_spec
from tfsac.types import ArraySpec, DiscreteSpec, Sequence, Spec, Transition

Box, Dict, Discrete = gym.spaces.Box, gym.spaces.Dict, gym.spaces.Discrete
MultiBinary, MultiDiscrete = gym.spaces.MultiBinary, gym.spaces.MultiDiscrete


class Counting(gym.Env):
    """Shows a number drawn at reset, the steps so far and the sum of actions; an action below -1.9 ends the task.

    An action above 1.9 makes the trouble that `trouble` names.
    """

    observation_space = Box(-np.inf, np.inf, (3,), np.float32)
    action_space = Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, trouble=""):
        self.trouble = trouble

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen = np.array([self.np_random.uniform(), 0.0, 0.0], np.float32)
        if self.trouble == "nan at reset":
            self.seen[0] = np.nan
        return self.seen.copy(), {}

    def step(self, action):
        self.seen += np.array([0.0, 1.0, action[0]], np.float32)
        reward = float(10.0 * self.seen[0] + action[0])
        if action[0] > 1.9 and self.trouble == "raise":
            raise ZeroDivisionError("the gears stick")
        if action[0] > 1.9 and self.trouble == "nan reward":
            reward = float("nan")
        if action[0] > 1.9 and self.trouble == "nan observation":
            self.seen[2] = np.nan
        return self.seen.copy(), reward, bool(action[0] < -1.9), False, {}


gym.register("Counting-v0", entry_point=Counting)
# With the module's name the processes of a vector environment can make it too.
COUNTING = f"{__name__}:Counting-v0"
SECOND_ENDS = np.array([[0.0], [-1.0]], np.float32)
NEUTRAL, TROUBLE = 0.0, 1.0


@pytest.fixture
def environments():
    """Makes environments and closes them at the end."""
    made = []

    def make_environments(num_envs=1, seed=3, level=COUNTING, one=None, **fields):
        made.append(Environments(EnvironmentParameters(level, num_envs=num_envs, **fields), seed, one))
        return made[-1]

    yield make_environments
    for each in made:
        each.close()


def actions(*rows):
    return np.array(rows, np.float32)[:, None]


# -- actions and observations ------------------------------------------------------------------------------------------


def test_each_action_dimension_is_rescaled_to_its_own_bounds():
    rescale = ActionRescaling(np.array([-1, 0, -3], np.float32), np.array([2, 10, -1], np.float32))
    given = np.array([[-1, -1, -1], [0, 0, 0], [1, 1, 1], [0.5, -0.5, 0.5]], np.float32)
    expected = [[-1, 0, -3], [0.5, 5, -2], [2, 10, -1], [1.25, 2.5, -1.5]]
    np.testing.assert_allclose(rescale(given), expected, rtol=1e-6)


def test_rescaled_actions_never_leave_the_bounds():
    low, high = np.array([-0.4, 0.1], np.float32), np.array([0.4, 0.7], np.float32)
    action = ActionRescaling(low, high)(np.array([[-5.0, 5.0], [1.0, -1.0]], np.float32))
    assert action.dtype == np.float32
    assert (action >= low).all() and (action <= high).all()
    np.testing.assert_array_equal(action[0], [low[0], high[1]])


def test_the_inverse_of_rescaling_comes_back_to_the_same_action():
    low, high = np.array([-1, 0, -3], np.float32), np.array([2, 10, -1], np.float32)
    rescale = action_map(Spec({}, ArraySpec((3,), "float32", low, high)))
    np.testing.assert_allclose(rescale.inverse(np.stack([low, high])), [[-1, -1, -1], [1, 1, 1]], atol=1e-6)
    given = np.random.default_rng(0).uniform(-1, 1, (20, 3)).astype(np.float32)
    np.testing.assert_allclose(rescale.inverse(rescale(given)), given, atol=1e-6)


def test_actions_without_bounds_cannot_be_rescaled():
    with pytest.raises(ValueError, match=r"Actions are rescaled to bounds. Received: ArraySpec"):
        action_map(Spec({}, ArraySpec((3,), "float32")))


def test_each_agent_of_a_team_is_rescaled_to_its_own_bounds():
    low, high = np.array([[-1, 0], [-2, 4]], np.float32), np.array([[1, 10], [2, 6]], np.float32)
    rescale = action_map(Spec({}, ArraySpec((2, 2), "float32", low, high), num_agents=2))
    given = np.array([[[0, -1], [1, 0.5]], [[-1, 1], [0, 0]]], np.float32)
    expected = [[[0, 0], [2, 5.5]], [[-1, 10], [0, 5]]]
    np.testing.assert_allclose(rescale(given), expected)
    np.testing.assert_allclose(rescale.inverse(np.array(expected)), given)


def test_choices_are_numbered_from_zero_here_and_from_the_start_in_the_environment():
    number = action_map(Spec({}, DiscreteSpec(3, (), 5)))
    assert number == ActionNumbering(5)
    given = np.array([[0, 2], [1, 1]], np.int32)
    theirs, ours = number(given), number.inverse(np.array([[5, 7], [6, 6]]))
    np.testing.assert_array_equal(theirs, [[5, 7], [6, 6]])
    np.testing.assert_array_equal(ours, given)
    assert theirs.dtype == np.int64 and ours.dtype == np.int32


class Contained(gym.Env):
    """Takes no action that its space does not have, and shows and rewards it.

    Args:
        space: of the actions.
    """

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, space):
        self.action_space = space
        if isinstance(space, MultiDiscrete):
            self.observation_space = Dict(agent_state=Box(-np.inf, np.inf, (space.shape[0], 1), np.float32))

    def seen(self, value):
        shape = spaces_by_key(self.observation_space)
        seen = {key: np.full(space.shape, value, np.float32) for key, space in shape.items()}
        return seen if isinstance(self.observation_space, Dict) else seen["observation"]

    def reset(self, *, seed=None, options=None):
        return self.seen(0.0), {}

    def step(self, action):
        assert self.action_space.contains(action), (type(action), action.dtype)
        return self.seen(np.sum(action)), float(np.sum(action)), False, False, {}


@pytest.mark.parametrize(
    "space, action, total",
    [
        (Discrete(3, dtype=np.int32), 2, 2),
        (Discrete(3, dtype=np.uint8), 2, 2),
        (Discrete(120, start=-100, dtype=np.int8), 119, 19),
        (Discrete(3, start=2**40, dtype=np.int64), None, None),
        (MultiDiscrete([3, 3], dtype=np.int32, start=[1, 1]), [0, 2], 4),
        (MultiDiscrete([3, 3], dtype=np.int8), [1, 2], 3),
        (Box(-2.0, 2.0, (1,), np.float64), [0.5], 1.0),
    ],
    ids=str,
)
def test_the_space_contains_every_action(space, action, total):
    one = functools.partial(Contained, space)
    if action is None:  # an export's int32 would not have it
        with pytest.raises(ValueError, match="int32"):
            check(one())
        return
    environments = Environments(EnvironmentParameters(), 0, one)
    result = environments.step(np.array([action]))
    assert result.reward.tolist() == [total]
    state, observation = environments.state(), environments.observation
    assert environments.restore(state, np.array([action]), observation) is True  # the same action, replayed
    environments.close()
    assert tfsac.check_environment(one, num_steps=20).usable


class Parallel:
    """Two agents of PettingZoo, each of whose spaces contains its actions."""

    possible_agents, metadata, render_mode = ["one", "other"], {}, None

    def __init__(self, space):
        self.space = space

    def observation_space(self, agent):
        return Box(-1.0, 1.0, (1,), np.float32)

    def action_space(self, agent):
        return self.space

    def close(self):
        pass

    def reset(self, seed=None, options=None):
        return {agent: np.zeros(1, np.float32) for agent in self.possible_agents}, {}

    def step(self, actions):
        assert all(self.space.contains(action) for action in actions.values()), actions
        answers = [dict.fromkeys(self.possible_agents, value) for value in (1.0, False, False)]
        return self.reset()[0], *answers, {}


@pytest.mark.parametrize("space", [Discrete(3, dtype=np.int8), Box(-0.1, np.pi, (1,), np.float64)], ids=str)
def test_the_space_of_each_agent_of_a_team_contains_its_action(space):
    environments = Environments(EnvironmentParameters(), 0, lambda: Team(Parallel(space)))
    for bound in (-1, 1):
        environments.step(np.full((1, *environments.spec.action.shape), max(bound, 0 if space.shape == () else -1)))
    environments.close()


def test_environment_receives_actions_in_its_own_units(environments):
    result = environments().step(actions(0.5))
    assert result.next_observation["observation"][0, 2] == pytest.approx(1.0)


def spaces_env(observation=Counting.observation_space, action=Counting.action_space):
    env = gym.Env()
    env.observation_space, env.action_space = observation, action
    return env


def test_spec_holds_shapes_types_and_bounds():
    image, vector = Box(0, 255, (8, 8, 3), np.uint8), Box(-1, 1, (4,), np.float64)
    flags = Box(0, 1, (2,), np.int64)
    env = spaces_env(Dict(image=image, vector=vector, flags=flags), Box(np.float32([-1, -2]), np.float32([1, 3])))
    spec = spec_of(env)
    assert spec.observation == {
        "flags": ArraySpec((2,), "float32"),
        "image": ArraySpec((8, 8, 3), "uint8"),
        "vector": ArraySpec((4,), "float32"),
    }
    assert spec.action.shape == (2,)
    np.testing.assert_array_equal(spec.action.low, [-1, -2])
    np.testing.assert_array_equal(spec.action.high, [1, 3])


class Strict(Counting):
    """Takes no action outside of its space."""

    action_space = Box(-0.1, np.pi, (2,), np.float64)

    def step(self, action):
        assert self.action_space.contains(action), action
        return super().step(action[:1])


def test_bounds_are_rounded_inwards_so_that_the_space_has_every_action():
    env = Strict()
    spec = spec_of(env)
    assert (spec.action.low >= -0.1).all() and (spec.action.high <= np.pi).all()
    np.testing.assert_allclose([spec.action.low, spec.action.high], [[-0.1] * 2, [np.pi] * 2], rtol=2e-7)
    environments = Environments(EnvironmentParameters(), 0, Strict)
    for action in (-1.0, 1.0):
        environments.step(np.full((1, 2), action, np.float32))
    environments.close()
    for bound in (-0.1, np.pi):  # what the environment itself calls its bound is accepted
        assert checked_action("act returns", np.full(2, bound), spec.action).dtype == np.float32
    assert checked_action("act returns", [0, 1], spec.action).dtype == np.float32
    with pytest.raises(ValueError, match="act returns an action from"):
        checked_action("act returns", np.full(2, 3.1416), spec.action)


@pytest.mark.parametrize(
    "mask", [MultiBinary(3), Box(0, 1, (3,), np.int8), Box(0.0, 1.0, (3,)), MultiDiscrete([2, 2, 2])], ids=str
)
def test_spec_of_a_choice_has_its_start_and_a_mask_of_bools(mask):
    env = spaces_env(Dict(state=Counting.observation_space, action_mask=mask), Discrete(3, start=5))
    check(env)
    spec = spec_of(env)
    assert spec.action == DiscreteSpec(3, (), 5) and spec.num_agents is None
    assert spec.observation == {"state": ArraySpec((3,), "float32"), "action_mask": ArraySpec((3,), "bool")}
    arrays = as_arrays({"state": np.zeros(3), "action_mask": np.array([0, 1, 1], mask.dtype)}, spec)
    assert arrays["action_mask"].dtype == bool and arrays["action_mask"].tolist() == [False, True, True]


def test_arrays_take_the_types_of_the_spec():
    spec = Spec({"observation": ArraySpec((2,), "float32")}, ArraySpec((1,), "float32"))
    arrays = as_arrays(np.array([[1.0, 2.0]]), spec)
    assert arrays["observation"].dtype == np.float32
    np.testing.assert_array_equal(arrays["observation"], [[1, 2]])


@pytest.mark.parametrize(
    "observation, words",
    [
        (np.zeros((5, 3)), "Observation 'observation' ends in the shape (2,). Received: (5, 3)"),
        ({"speed": np.zeros(2)}, "Observations have the keys ['observation']. Received: ['speed']"),
    ],
)
def test_observations_that_do_not_fit_the_spec_are_refused(observation, words):
    spec = Spec({"observation": ArraySpec((2,), "float32")}, ArraySpec((1,), "float32"))
    with pytest.raises(ValueError, match=re.escape(words)):
        as_arrays(observation, spec)


# -- filters -----------------------------------------------------------------------------------------------------------

VECTOR_AND_IMAGE = Spec(
    {"state": ArraySpec((3,), "float32"), "camera": ArraySpec((2, 2, 1), "uint8")}, ArraySpec((1,), "float32")
)


def normalising(**fields):
    return Filters(FilterParameters(observation_normalization=True, **fields), VECTOR_AND_IMAGE)


def observations(rows, seed=0):
    rng = np.random.default_rng(seed)
    state = rng.normal([1000.0, -2.0, 0.0], [0.5, 3.0, 20.0], (rows, 3)).astype(np.float32)
    return {"state": state, "camera": rng.integers(0, 256, (rows, 2, 2, 1), np.uint8)}


def part(observation, start, stop):
    return {key: value[start:stop] for key, value in observation.items()}


@pytest.mark.parametrize("cuts", [(0, 1000), (0, 1, 2, 500, 1000), (0, 999, 1000)])
def test_running_statistics_equal_numpys_however_the_data_arrives(cuts):
    data, filters = observations(1000), normalising(observation_clipping=100.0)
    for start, stop in itertools.pairwise(cuts):
        filters.learn(part(data, start, stop))
    exact = data["state"].astype(np.float64)
    mean, inverse = filters.scale()["state"]
    np.testing.assert_allclose(mean, exact.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(1 / inverse, exact.std(axis=0), rtol=1e-6)
    filtered = filters.observation(data)["state"]
    assert filtered.dtype == np.float32
    np.testing.assert_allclose(filtered, (exact - exact.mean(axis=0)) / exact.std(axis=0), atol=2e-3)


def test_normalised_observations_are_clipped():
    filters = normalising(observation_clipping=1.5)
    filters.learn(observations(100))
    filtered = filters.observation({**observations(1), "state": np.array([[1e6, -2.0, -1e6]], np.float32)})["state"]
    np.testing.assert_array_equal(filtered[0, [0, 2]], [1.5, -1.5])
    assert abs(filtered[0, 1]) < 0.5


def test_a_constant_entry_stays_finite():
    filters = normalising()
    data = {**observations(10), "state": np.full((10, 3), 7.0, np.float32)}
    filters.learn(data)
    np.testing.assert_allclose(filters.observation(data)["state"], 0.0, atol=1e-6)


def test_images_are_left_alone():
    filters, data = normalising(), observations(10)
    filters.learn(data)
    assert filters.observation(data)["camera"] is data["camera"]


def test_leading_dimensions_do_not_matter():
    filters, data = normalising(), observations(12)
    filters.learn(data)
    stacked = {key: value.reshape(3, 4, *value.shape[1:]) for key, value in data.items()}
    flat = filters.observation(data)["state"]
    np.testing.assert_array_equal(filters.observation(stacked)["state"], flat.reshape(3, 4, 3))


@pytest.mark.parametrize(
    "filters", [Filters(FilterParameters(), VECTOR_AND_IMAGE), normalising()], ids=["off", "unlearned"]
)
def test_observations_pass_unchanged_when_there_is_nothing_to_normalise_with(filters):
    data = observations(3)
    np.testing.assert_array_equal(filters.observation(data)["state"], data["state"])


def test_the_agents_of_a_team_share_the_statistics():
    team = Spec({"agent_state": ArraySpec((4, 3), "float32")}, DiscreteSpec(2, (4,)), num_agents=4)
    filters, alone, data = (
        Filters(FilterParameters(observation_normalization=True), team),
        normalising(),
        observations(40),
    )
    filters.learn({"agent_state": data["state"].reshape(10, 4, 3)})
    alone.learn(data)
    assert filters.count == alone.count == 40
    for shared, single in zip(filters.scale()["agent_state"], alone.scale()["state"], strict=True):
        np.testing.assert_array_equal(shared, single)
    filtered = filters.observation({"agent_state": data["state"].reshape(10, 4, 3)})["agent_state"]
    np.testing.assert_array_equal(filtered, alone.observation(data)["state"].reshape(10, 4, 3))


def test_rewards_are_scaled_and_then_clipped():
    filters = Filters(FilterParameters(reward_rescale_factor=5.0, reward_clipping_range=(-1.0, 10.0)), VECTOR_AND_IMAGE)
    reward = filters.reward(np.array([-3.0, -0.1, 1.0, 2.5], np.float32))
    np.testing.assert_allclose(reward, [-1.0, -0.5, 5.0, 10.0])
    assert reward.dtype == np.float32


def test_only_the_observations_of_a_sampled_batch_are_filtered_and_the_memory_does_not_change():
    filters = normalising(reward_rescale_factor=2.0)  # the memory has filtered the rewards
    filters.learn(observations(50))
    before, after, reward = observations(4, 1), observations(4, 2), np.ones(4, np.float32)
    batch = Transition(before, np.zeros((4, 1)), reward, np.full(4, 0.9), after)
    filtered = filters.batch(batch)
    np.testing.assert_array_equal(filtered.observation["state"], filters.observation(before)["state"])
    np.testing.assert_array_equal(filtered.next_observation["state"], filters.observation(after)["state"])
    assert filtered.reward is batch.reward and filtered.action is batch.action and filtered.discount is batch.discount
    np.testing.assert_array_equal(before["state"], observations(4, 1)["state"])
    rows = np.zeros(4)
    stretches = filters.batch(Sequence(before, np.zeros((4, 1)), reward, rows, rows, {"switch": rows}))
    np.testing.assert_array_equal(stretches.observation["state"], filtered.observation["state"])
    assert stretches.reward is reward and stretches.step_type is rows and stretches.extras == {"switch": rows}


GOING = np.array(False)  # no episode ends


def normalising_rewards(num_rewards=None, **fields):
    spec = VECTOR_AND_IMAGE._replace(num_rewards=num_rewards)
    return Filters(FilterParameters(reward_normalization=True, **fields), spec)


@pytest.mark.parametrize("cuts", [(0, 600), (0, 1, 2, 250, 600)])
@pytest.mark.parametrize("num_rewards", [None, 2])
def test_rewards_are_divided_by_their_own_deviation_and_keep_their_mean(num_rewards, cuts):
    rewards = np.random.default_rng(0).normal([30.0, -0.5], [4.0, 0.1], (600, 2)).astype(np.float32)
    rewards = rewards[:, 0] if num_rewards is None else rewards
    filters = normalising_rewards(num_rewards)
    for start, stop in itertools.pairwise(cuts):
        filters.learn_reward(rewards[start:stop], GOING)
    filtered = filters.reward(rewards.reshape(3, 200, *rewards.shape[1:]))
    assert filtered.dtype == np.float32
    expected = rewards.astype(np.float64) / rewards.astype(np.float64).std(axis=0)
    np.testing.assert_allclose(filtered.reshape(rewards.shape), expected, rtol=1e-5)


def test_rewards_are_normalised_before_they_are_rescaled_and_clipped():
    filters = normalising_rewards(reward_rescale_factor=3.0, reward_clipping_range=(-5.0, 5.0))
    filters.learn_reward(np.float32([8.0, 12.0]), GOING)  # deviation 2
    filtered = filters.reward(np.float32([-8.0, -2.0, 0.0, 3.0, 12.0]))
    np.testing.assert_allclose(filtered, [-5.0, -3.0, 0.0, 4.5, 5.0], rtol=1e-6)


def test_rewards_that_were_constant_so_far_stay_as_they_are():
    filters = normalising_rewards(2)
    filters.learn_reward(np.float32([[2.0, 1.0], [2.0, 3.0]]), GOING)
    np.testing.assert_allclose(filters.reward(np.float32([[2.0, 2.0], [5.0, 1.0]])), [[2, 2], [5, 1]], rtol=1e-5)


@pytest.mark.parametrize("filters", [normalising_rewards(), normalising()], ids=["unlearned", "off"])
def test_rewards_pass_unchanged_when_there_is_nothing_to_normalise_with(filters):
    if not filters.parameters.reward_normalization:
        filters.learn_reward(np.float32([1.0, 5.0]), GOING)
    np.testing.assert_array_equal(filters.reward(np.float32([-3.0, 7.0])), [-3.0, 7.0])
    np.testing.assert_array_equal(filters.observation(observations(3))["state"], observations(3)["state"])


@pytest.mark.parametrize("num_rewards", [None, 2])
def test_restored_reward_statistics_continue_exactly_also_through_json(num_rewards):
    rng, shape = np.random.default_rng(0), (7,) if num_rewards is None else (7, 2)
    first, second, later = normalising_rewards(num_rewards), normalising_rewards(num_rewards), rng.normal(size=shape)
    first.learn_reward(rng.normal(1e3, 3.0, shape).astype(np.float32), GOING)
    second.restore(json.loads(json.dumps(first.state())))
    for filters in (first, second):
        filters.learn_reward(later, GOING)
    assert first.state() == second.state()
    assert first.state()["reward"]["count"] == 14
    assert np.shape(first.state()["reward"]["mean"]) == shape[1:]
    np.testing.assert_array_equal(first.reward(later), second.reward(later))


def test_statistics_of_a_run_without_normalised_rewards_begin_with_a_factor_of_one():
    old, filters, rewards = normalising(), normalising(reward_normalization=True), np.float32([8.0, 12.0])
    old.learn(observations(50))
    assert "reward" not in old.state()
    filters.restore(json.loads(json.dumps(old.state())))
    data = observations(9, seed=6)
    np.testing.assert_array_equal(filters.observation(data)["state"], old.observation(data)["state"])
    np.testing.assert_array_equal(filters.reward(rewards), rewards)
    filters.learn_reward(rewards, GOING)  # deviation 2
    np.testing.assert_allclose(filters.reward(rewards), [4.0, 6.0], rtol=1e-6)


def test_restored_statistics_continue_exactly_also_through_json():
    first, second = normalising(), normalising()
    first.learn(observations(333))
    second.restore(json.loads(json.dumps(first.state())))
    for filters in (first, second):
        filters.learn(observations(77, seed=5))
    assert first.state() == second.state()
    data = observations(9, seed=6)
    np.testing.assert_array_equal(first.observation(data)["state"], second.observation(data)["state"])


# -- checks of spaces --------------------------------------------------------------------------------------------------


def action_box(low, high, dtype=np.float32):
    low, high = np.array(low, dtype), np.array(high, dtype)
    return Box(low, high, low.shape, dtype)


def nan_bounds():
    space = Box(-1.0, 1.0, (2,), np.float32)
    space.low[1] = np.nan
    return space


def masked(mask):
    return dict(observation=Dict(state=Counting.observation_space, action_mask=mask), action=Discrete(3))


REFUSED = {
    "several choices": (dict(action=MultiDiscrete([2, 3])), "or a Discrete;", "MultiDiscrete([2 3])"),
    "switches": (dict(action=MultiBinary(3)), "actions are a Box `(A,)` of floats or a", "MultiBinary(3)"),
    "tuple of actions": (dict(action=gym.spaces.Tuple([Discrete(2)])), "of a team of P agents", "Tuple("),
    "dict of actions": (dict(action=Dict(a=Counting.action_space)), "actions are a Box `(A,)` of floats", "Dict("),
    "one choice": (dict(action=Discrete(1)), "discrete actions are at least two", "Discrete(1)"),
    "beyond int32": (dict(action=Discrete(3, start=2**31 - 2)), "numbered in int32", "Discrete(3, start=2147483646)"),
    "below int32": (dict(action=Discrete(3, start=-(2**31) - 1)), "numbered in int32", "start=-2147483649)"),
    "no width in float32": (
        dict(action=Box(np.array([1.0]), np.array([1.0 + 1e-9]), dtype=np.float64)),
        "low < high, also in float32",
        "in dimension 0",
    ),
    "unbounded above": (dict(action=action_box([-1, -1], [1, np.inf])), "finite bounds", "high=inf in dimension 1"),
    "unbounded below": (dict(action=action_box([-np.inf], [1])), "finite bounds", "low=-inf in dimension 0"),
    "NaN bound": (dict(action=nan_bounds()), "finite bounds", "low=nan in dimension 1"),
    "low equals high": (dict(action=action_box([-1, 3], [1, 3])), "low < high", "low=3.0, high=3.0 in dimension 1"),
    "no action": (dict(action=Box(-1, 1, (0,), np.float32)), "a vector of at least one number", "(0,)"),
    "scalar action": (dict(action=Box(-1, 1, (), np.float32)), "a vector of at least one number", "()"),
    "matrix of actions": (dict(action=Box(-1, 1, (2, 2), np.float32)), "a vector of at least one number", "(2, 2)"),
    "half floats": (dict(action=Box(-1, 1, (2,), np.float16)), "floats of 32 bits or more", "float16"),
    "whole numbers": (dict(action=Box(0, 3, (2,), np.int64)), "actions must be floats", "int64"),
    "tuple": (dict(observation=gym.spaces.Tuple([Counting.observation_space])), "FlattenObservation", "Tuple("),
    "discrete observation": (
        dict(observation=Discrete(5)),
        "a Box or a Dict of boxes",
        "Discrete(5) for 'observation'",
    ),
    "discrete in dict": (
        dict(observation=Dict(a=Counting.observation_space, b=Discrete(5))),
        "a Dict of boxes",
        "for 'b'",
    ),
    "empty dict": (dict(observation=Dict()), "the observation is empty", "Dict()"),
    "empty observation": (dict(observation=Box(-1, 1, (0,), np.float32)), "'observation' has no entries", "(0,)"),
    "mask of another size": (masked(MultiBinary(4)), "an entry for each action, shape (3,)", "(4,), MultiBinary(4)"),
    "mask of several rows": (masked(MultiBinary((2, 3))), "shape (3,)", "(2, 3), MultiBinary((2, 3))"),
    "mask of a number": (masked(Discrete(2)), "shape (3,)", "(), Discrete(2)"),
    "mask of large numbers": (masked(Box(0, 2, (3,), np.int8)), "holds 0 and 1", "Box(0, 2, (3,), int8)"),
    "mask of three values": (masked(MultiDiscrete([2, 3, 2])), "holds 0 and 1", "MultiDiscrete([2 3 2])"),
    "mask from one": (masked(MultiDiscrete([2, 2, 2], start=[1, 1, 1])), "holds 0 and 1", "start=[1 1 1])"),
    "mask of real actions": (
        dict(observation=masked(MultiBinary(1))["observation"]),
        "'action_mask' would have no effect on real actions",
        "Box(-2.0, 2.0, (1,), float32)",
    ),
    "mask alone": (
        dict(observation=Dict(action_mask=MultiBinary(3)), action=Discrete(3)),
        "must see more than its",
        "Dict(",
    ),
    "NaN observation bound": (dict(observation=nan_bounds()), "'observation' has NaN bounds", "Box("),
}


@pytest.mark.parametrize("spaces, words, received", REFUSED.values(), ids=REFUSED.keys())
def test_spaces_that_cannot_be_used_are_refused_with_words_that_help(spaces, words, received):
    with pytest.raises(ValueError) as error:
        check(spaces_env(**spaces))
    message, _, tail = str(error.value).rpartition("Received: ")
    assert words in message and "Env" in message
    assert received in tail


def test_a_dict_of_boxes_is_accepted():
    env = spaces_env(Dict(image=Box(0, 255, (8, 8, 3), np.uint8), speed=Box(-np.inf, np.inf, (2,), np.float32)))
    check(env)
    assert set(spec_of(env).observation) == {"image", "speed"}


class Changing(Counting):
    """Has another action space at some time.

    Args:
        when: "made", "step", "reset", or "in place", where the space itself is changed at a later reset.
    """

    made = 0

    def __init__(self, when):
        super().__init__()
        self.when, self.began = when, 0
        Changing.made += 1
        self.action_space = Box(-2.0, 2.0, (1,), np.float32)
        if when == "made" and Changing.made > 1:
            self.action_space = Box(-1.0, 1.0, (1,), np.float32)

    def change(self, when):
        if when == self.when:
            self.action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.began += 1
        if self.began > 1:
            self.change("reset")
            self.action_space.high[:] = 1.5 if self.when == "in place" else self.action_space.high
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.change("step")
        return super().step(action)


@pytest.mark.parametrize("when", ["made", "step", "reset", "in place"])
def test_spaces_that_change_are_refused_and_found_by_the_check(when, monkeypatch):
    monkeypatch.setattr(Changing, "made", 0)
    with pytest.raises((EnvironmentFailure, ValueError), match=r"action_space.* Received: Box\(-"):
        environments = Environments(EnvironmentParameters(num_envs=2), 0, lambda: Changing(when))
        environments.step(np.full((2, 1), -1.0, np.float32))
    monkeypatch.setattr(Changing, "made", 0)
    problems = tfsac.check_environment(lambda: Changing(when), num_steps=200).problems
    assert len(problems) == 1 and "action_space" in problems[0]


def test_an_evaluation_environment_of_a_level_with_other_spaces_is_refused(monkeypatch):
    monkeypatch.setattr(Changing, "made", 0)
    monkeypatch.setitem(
        gym.registry, "Changing-v0", gym.envs.registration.EnvSpec("Changing-v0", lambda: Changing("made"))
    )
    one = maker(EnvironmentParameters("Changing-v0"))
    one()
    with pytest.raises(ValueError, match="have the same action_space"):
        one()


# -- making ------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")  # gymnasium warns of old versions beside raising
@pytest.mark.parametrize(
    "level, words",
    [
        ("Pendulun-v1", "Did you mean 'Pendulum-v1'?"),
        ("Pendulum-v9", "Did you mean 'Pendulum-v1'?"),
        ("Pendulum-v0", "Pendulum-v1"),
        ("zzzzzzzzzzzzz-v1", "Gymnasium has no environment of this id."),
        ("Pendulum v1!", "Did you mean 'Pendulum-v1'?"),
    ],
)
def test_an_unknown_level_is_answered_with_the_nearest(level, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        make(level)
    assert str(error.value).endswith(f"Received: {level!r}")


@pytest.mark.parametrize(
    "raised, command",
    [
        (
            gym.error.DependencyNotInstalled('Box2D is not installed, run `pip install "gymnasium[box2d]"`'),
            "'tfsac[box2d]'",
        ),
        (
            gym.error.DependencyNotInstalled('MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`'),
            "'tfsac[mujoco]'",
        ),
        (gym.error.DependencyNotInstalled("pygame is not installed"), "pygame"),
        (ModuleNotFoundError("No module named 'ale_py'", name="ale_py"), "'tfsac[atari]'"),
        (ModuleNotFoundError("No module named 'pettingzoo'", name="pettingzoo"), "'tfsac[multi-agent]'"),
        (ModuleNotFoundError("No module named 'mujoco.viewer'", name="mujoco.viewer"), "'tfsac[mujoco]'"),
    ],
)
def test_a_missing_package_is_answered_with_the_command_that_installs_it(monkeypatch, raised, command):
    def fail(*args, **kwargs):
        raise raised

    monkeypatch.setattr(gym, "make", fail)
    with pytest.raises(ImportError, match=re.escape(f"type: pip install {command}. Received: 'Robot-v1'")) as error:
        make("Robot-v1")
    assert str(raised) in str(error.value)


def test_an_argument_that_the_level_does_not_take_is_refused():
    with pytest.raises(ValueError, match=r"Pendulum-v1 does not take these arguments.*Received: {'gravty': 3}"):
        make("Pendulum-v1", gravty=3)


def test_a_level_with_unusable_spaces_is_refused_and_closed(monkeypatch):
    closed = []
    monkeypatch.setattr(gym.Wrapper, "close", lambda self: closed.append(type(self)))
    with pytest.raises(ValueError, match=re.escape("Blackjack-v1: observations must be a Box")):
        make("Blackjack-v1")
    assert closed


def test_arguments_and_time_limit_reach_the_level():
    env = make("Pendulum-v1", max_episode_steps=2, g=1.5)
    assert env.unwrapped.g == 1.5
    env.reset(seed=0)
    assert [env.step(np.zeros(1, np.float32))[3] for _ in range(2)] == [False, True]
    env.close()


def test_atari_preprocessing_of_other_levels_is_refused():
    parameters = EnvironmentParameters("CartPole-v1", atari=AtariPreprocessingParameters())
    with pytest.raises(ValueError, match=r"levels that begin with 'ALE/'\. .* Received: 'CartPole-v1'$"):
        maker(parameters)()


def test_environments_side_by_side_have_the_same_spaces():
    made = iter(("Pendulum-v1", "MountainCarContinuous-v0"))
    with pytest.raises(ValueError, match=r"have the same observation_space, .* Received: Box"):
        Environments(EnvironmentParameters("Pendulum-v1", num_envs=2), 0, lambda: gym.make(next(made)))


@pytest.mark.parametrize("env_fn", [None, Counting], ids=["a level", "an environment of one's own"])
def test_only_the_visible_entries_are_seen_and_in_their_order(env_fn):
    env = maker(EnvironmentParameters(COUNTING, visible_entries=(2, 1)), env_fn)()
    assert spec_of(env).observation == {"observation": ArraySpec((2,), "float32")}
    np.testing.assert_array_equal(env.reset(seed=0)[0], [0.0, 0.0])
    seen = [env.step(np.float32([0.5]))[0] for _ in range(2)]
    np.testing.assert_array_equal(seen, [[0.5, 1.0], [1.0, 2.0]])  # sum of actions, steps


def test_visible_entries_keep_their_bounds_and_the_task_its_dynamics():
    whole, part = make("CartPole-v1"), make("CartPole-v1", visible_entries=(2, 0))
    np.testing.assert_allclose(part.observation_space.high, [np.radians(24), 4.8], rtol=1e-6)  # angle, position
    np.testing.assert_allclose(part.observation_space.low, [-np.radians(24), -4.8], rtol=1e-6)
    np.testing.assert_array_equal(part.reset(seed=3)[0], whole.reset(seed=3)[0][[2, 0]])
    for action in (1, 1, 0):
        seen, expected = part.step(action), whole.step(action)
        np.testing.assert_array_equal(seen[0], expected[0][[2, 0]])
        assert seen[1:4] == expected[1:4] and part.observation_space.contains(seen[0])


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_environments_side_by_side_show_the_visible_entries(environments, vectorization):
    envs = environments(num_envs=2, vectorization=vectorization, visible_entries=(2, 1))
    result = envs.step(actions(0.25, -0.5))  # 0.5 and -1.0 in the environment's bounds
    np.testing.assert_array_equal(result.next_observation["observation"], [[0.5, 1.0], [-1.0, 1.0]])


@pytest.mark.parametrize(
    "observation, entries, words",
    [
        (Box(-1.0, 1.0, (3,)), (0, 3), "from 0 to 2. Received: (0, 3)"),
        (Box(0, 255, (8, 8, 3), np.uint8), (0,), "a vector, a Box `(O,)`. Received: Box(0, 255, (8, 8, 3), uint8)"),
        (
            Dict(state=Box(-1.0, 1.0, (3,))),
            (0,),
            "a vector, a Box `(O,)`. Received: Dict('state': Box(-1.0, 1.0, (3,), float32))",
        ),
        (Discrete(3), (0,), "Received: Discrete(3) for 'observation'"),
    ],
    ids=["past the end", "image", "dict", "number"],
)
def test_visible_entries_that_are_not_there_are_refused_and_the_environment_is_closed(observation, entries, words):
    env, closed = spaces_env(observation), []
    env.close = lambda: closed.append(True)
    with pytest.raises(ValueError) as error:
        maker(EnvironmentParameters("mine", visible_entries=entries), lambda: env)()
    assert str(error.value).endswith(words) and closed == [True]


@pytest.mark.parametrize(
    "entries, words", [((-1,), "from 0 to 3. Received: (-1,)"), ((), "has no entries. Received: Box(")]
)
def test_visible_entries_are_checked_without_parameters_too(entries, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        make("CartPole-v1", visible_entries=entries)


# -- choices and masks -------------------------------------------------------------------------------------------------


class Moves(gym.Env):
    """Three moves, 5 to 7, the one before shown; after move 7 the next mask, or the first one, is what was asked for.

    Args:
        mask: what the environment shows as its mask then.
        when: "reset", "step", or "end", where the task ends with it.
        space: of the mask.
    """

    observation_space = Dict(last=Box(0, 7, (1,), np.float32), action_mask=MultiBinary(3))
    action_space = Discrete(3, start=5)

    def __init__(self, mask=(1, 1, 1), when="step", space=None):
        self.mask, self.when = mask, when
        if space is not None:
            self.observation_space = Dict(last=self.observation_space["last"], action_mask=space)

    def observe(self, last, wrong):
        mask = np.array(self.mask) if wrong else np.array([1, 0, 1], np.int8)
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
def test_choices_reach_the_environment_with_its_own_numbers(environments, vectorization):
    envs = environments(2, level=MOVES, vectorization=vectorization)
    assert envs.spec.action == DiscreteSpec(3, (), 5)
    result = envs.step(np.array([0, 2], np.int32))
    np.testing.assert_array_equal(result.reward, [5, 7])
    np.testing.assert_array_equal(result.next_observation["last"], [[5], [7]])
    mask = result.next_observation["action_mask"]
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, [[True, False, True], [True, True, True]])


def test_cart_pole_is_played_and_comes_back_from_a_checkpoint(environments):
    old, new = environments(level="CartPole-v1"), environments(level="CartPole-v1")
    assert old.spec == Spec({"observation": ArraySpec((4,), "float32")}, DiscreteSpec(2))
    played = np.array([0, 1, 1, 0, 1], np.int32)
    for action in played:
        result = old.step(action[None])
        assert result.reward.tolist() == [1.0]
    assert new.restore(old.state(), played, old.observation) is True
    np.testing.assert_array_equal(new.observation["observation"], old.observation["observation"])
    pushed = [old.step(np.zeros(1, np.int32)) for _ in range(20)]
    ends = [step for step in pushed if step.terminated[0]]
    assert ends and abs(ends[0].next_observation["observation"][0, 2]) > 0.2  # radians: the pole has fallen


@pytest.mark.parametrize(
    "when, actions, words",
    [
        ("reset", [], "(environment 0, step 0). Received: [0 0 0]"),
        ("step", [[0, 0], [0, 2]], "(environment 1, step 4). Received: [0 0 0]"),
    ],
)
def test_a_mask_without_a_valid_action_is_named_with_environment_and_step(environments, when, actions, words):
    def play():
        envs = environments(2, level=MOVES, kwargs={"mask": [0, 0, 0], "when": when})
        for action in actions:
            envs.step(np.array(action, np.int32))

    with pytest.raises(EnvironmentFailure, match=re.escape(f"'action_mask' leaves no valid action {words}")) as error:
        play()
    assert str(error.value).startswith(MOVES)


def test_a_game_that_is_over_needs_no_valid_action(environments):
    result = environments(level=MOVES, kwargs={"mask": [0, 0, 0], "when": "end"}).step(np.array([2], np.int32))
    assert result.terminated.tolist() == [True]
    assert result.next_observation["action_mask"].tolist() == [[False] * 3]
    assert result.observation["action_mask"].tolist() == [[True, False, True]]


def test_the_agent_without_a_valid_action_is_named():
    mask = np.ones((2, 3, 4), bool)
    check_masks({"action_mask": mask}, "Level", 6)
    mask[1, 2] = False
    check_masks({"action_mask": mask}, "Level", 6, ended=np.array([False, True]))
    words = "Level: 'action_mask' leaves no valid action (environment 1, agent 2, step 6). Received: [0 0 0 0]"
    with pytest.raises(EnvironmentFailure, match=re.escape(words)):
        check_masks({"action_mask": mask}, "Level", 6, ended=np.array([True, False]))


WRONG_MASKS = {
    "short": ([1, 1], None, "'action_mask' must have the shape (3,) (environment 1, step 0). Received: (2,)"),
    "one entry": (
        [1],
        None,
        "'action_mask' must have the shape (3,) (environment 1, step 0). Received: (1,)",
    ),  # would be broadcast
    "several rows": (
        [[1, 1, 1]],
        None,
        "'action_mask' must have the shape (3,) (environment 1, step 0). Received: (1, 3)",
    ),
    "two": ([1, 2, 0], None, "'action_mask' must hold 0 and 1 (environment 1, step 0). Received: [1 2 0]"),
    "a half": ([1, 0.5, 0], None, "'action_mask' must hold 0 and 1 (environment 1, step 0). Received: [1.  0.5 0. ]"),
    "a half of reals": (
        [1, 0.5, 0],
        Box(0.0, 1.0, (3,)),
        "'action_mask' must hold 0 and 1 (environment 1, step 0). Received: [1.  0.5 0. ]",
    ),
    "wrapped around": (
        [1, 256, 0],
        None,
        "'action_mask' must hold 0 and 1 (environment 1, step 0). Received: [  1 256   0]",
    ),
    "not a number": (
        [1, float("nan"), 0],
        Box(0.0, 1.0, (3,)),
        "'action_mask' must hold 0 and 1 (environment 1, step 0). Received: [ 1. nan  0.]",
    ),
}


@pytest.mark.parametrize("mask, space, words", WRONG_MASKS.values(), ids=WRONG_MASKS.keys())
def test_a_mask_that_does_not_fit_its_space_is_refused(environments, mask, space, words):
    envs = environments(2, level=MOVES, one=functools.partial(make, MOVES, mask=mask, space=space))
    with pytest.raises(EnvironmentFailure, match=re.escape(words)) as error:
        envs.step(np.array([0, 2], np.int32))
    assert str(error.value).startswith(f"{MOVES}: ")


def test_a_mask_that_does_not_fit_is_refused_in_a_subprocess_too(environments):
    envs = environments(level=MOVES, vectorization="subprocess", kwargs={"mask": [1]})
    with pytest.raises(EnvironmentFailure, match=re.escape("(3,) (environment 0, step 0). Received: (1,)")):
        envs.step(np.array([2], np.int32))


def test_masks_of_an_environment_of_ones_own_are_checked_too():
    env = maker(EnvironmentParameters("mine"), lambda: Moves(mask=[2, 1, 1], when="reset"))()
    with pytest.raises(EnvironmentFailure, match=r"must hold 0 and 1. Received: \[2 1 1\]"):
        env.reset()


# -- what the package offers for tests ---------------------------------------------------------------------------------


def test_discrete_identity_rewards_the_target_alone():
    env = make("tfsac.testing:DiscreteIdentity-v0", size=5)
    targets = set()
    for seed in range(30):
        shown, _ = env.reset(seed=seed)
        assert sorted(shown) == [0, 0, 0, 0, 1]
        target = int(shown.argmax())
        targets.add(target)
        assert env.step(target)[1:4] == (1.0, True, False)
        env.reset(seed=seed)
        assert env.step((target + 1) % 5)[1] == 0.0
    assert targets == set(range(5))


def test_half_of_the_wrong_actions_of_masked_identity_cannot_be_chosen():
    env = DiscreteIdentity(size=4, masked=True)
    masks = set()
    for seed in range(30):
        observation, _ = env.reset(seed=seed)
        mask, target = observation["action_mask"], observation["observation"].argmax()
        assert mask.sum() == 2 and mask[target] == 1
        masks.add(tuple(mask))
        with pytest.raises(ValueError, match=rf"one of \[\d \d\]. Received: {mask.argmin()}$"):
            env.step(mask.argmin())
        assert env.step(target)[1] == 1.0
    assert len(masks) == 6


@pytest.mark.parametrize(
    "spec",
    [
        vector_spec(),
        discrete_spec(),
        discrete_spec(5, 3, masked=True),
        team_spec(),
        team_spec(3, masked=True),
        team_spec(discrete=False),
    ],
    ids=["vector", "choice", "masked", "team", "masked team", "team of real actions"],
)
def test_random_batches_fit_their_spec(spec):
    spec = spec._replace(extras={"is_expert": ArraySpec((), "float32")})
    batch = random_batches(spec, 3, 50)
    assert batch.action.shape == (3, 50, *spec.action.shape) and batch.action.dtype == spec.action.dtype
    assert batch.reward.shape == batch.discount.shape == batch.extras["is_expert"].shape == (3, 50)
    for observation in (batch.observation, batch.next_observation):
        for key, array in spec.observation.items():
            assert observation[key].shape == (3, 50, *array.shape) and observation[key].dtype == array.dtype
    if isinstance(spec.action, DiscreteSpec):
        assert set(batch.action.ravel()) == set(range(spec.action.num_actions))
    else:
        assert (np.abs(batch.action) <= 1).all() and batch.action.std() > 0.5
    if "action_mask" in spec.observation:
        mask, after = batch.observation["action_mask"], batch.next_observation["action_mask"]
        assert np.take_along_axis(mask, batch.action[..., None], axis=-1).all()
        assert after.any(axis=-1).all() and not after.all() and not mask.all()


# -- several side by side ----------------------------------------------------------------------------------------------


def test_an_ended_task_and_a_time_limit_are_told_apart(environments):
    envs = environments(num_envs=2, max_episode_steps=3)
    for _ in range(2):
        result = envs.step(actions(NEUTRAL, NEUTRAL))
        assert not result.terminated.any() and not result.truncated.any()
    result = envs.step(SECOND_ENDS)
    np.testing.assert_array_equal(result.terminated, [False, True])
    np.testing.assert_array_equal(result.truncated[0], True)


def test_the_last_observation_is_kept_beside_the_first_of_the_next_episode(environments):
    envs = environments(num_envs=2)
    begin = envs.observation["observation"]
    envs.step(actions(0.25, 0.25))
    result = envs.step(SECOND_ENDS)
    last, now = result.next_observation["observation"], result.observation["observation"]
    np.testing.assert_allclose(last[1], [begin[1, 0], 2, 0.5 - 2.0])
    assert now[1, 0] != begin[1, 0]
    np.testing.assert_array_equal(now[1, 1:], [0, 0])
    np.testing.assert_array_equal(now, envs.observation["observation"])


def test_an_environment_whose_episode_goes_on_is_not_reset_with_its_neighbour(environments):
    envs = environments(num_envs=2)
    envs.step(actions(0.25, 0.25))
    result = envs.step(SECOND_ENDS)
    np.testing.assert_array_equal(result.observation["observation"][0], result.next_observation["observation"][0])
    np.testing.assert_array_equal(envs.is_first, [False, True])
    np.testing.assert_array_equal(envs.length, [2, 0])
    np.testing.assert_array_equal(result.length, [2, 2])
    np.testing.assert_array_equal(envs.episode, [0, 1])
    result = envs.step(actions(NEUTRAL, NEUTRAL))
    np.testing.assert_array_equal(result.observation["observation"][:, 1], [3, 1])
    assert envs.steps == 6
    assert not envs.is_first.any()


def test_results_do_not_change_with_later_steps(environments):
    envs = environments(num_envs=2)
    first = envs.step(actions(0.25, 0.5))
    kept = first.next_observation["observation"].copy()
    reward = first.reward.copy()
    envs.step(actions(0.75, -0.5))
    np.testing.assert_array_equal(first.next_observation["observation"], kept)
    np.testing.assert_array_equal(first.reward, reward)


def first_draws(envs, episodes):
    """The number that each environment draws at the reset of each episode, `[episodes, N]`."""
    draws = []
    for _ in range(episodes):
        draws.append(envs.observation["observation"][:, 0])
        envs.step(np.full((envs.num_envs, 1), -1.0, np.float32))
    return np.array(draws)


def test_every_episode_has_a_seed_of_its_own_that_follows_from_the_runs(environments):
    draws = first_draws(environments(num_envs=3, seed=3), 4)
    assert len(np.unique(draws)) == 12
    np.testing.assert_array_equal(draws, first_draws(environments(num_envs=3, seed=3), 4))
    assert not np.isin(first_draws(environments(num_envs=3, seed=4), 4), draws).any()


def test_an_environment_sees_the_same_episodes_whatever_runs_beside_it(environments):
    np.testing.assert_array_equal(first_draws(environments(3), 3)[:, :1], first_draws(environments(1), 3))


def test_seeds_fit_into_signed_numbers_of_32_bits_and_runs_of_before_continue_with_theirs(environments):
    seeds = [episode_seed(0, 0, 0, episode) for episode in range(100)]
    before = [episode_seed(0, 0, 0, episode, below=2**32) for episode in range(100)]
    assert 2**30 < max(seeds) < 2**31 < max(before)
    assert before[:4] == [int(np.random.SeedSequence([0, 0, 0, i]).generate_state(1)[0]) for i in range(4)]
    new, old = environments(seed=0), environments(seed=0)
    state = new.state()
    assert state["seeds_below"] == 2**31
    old.restore({key: value for key, value in state.items() if key != "seeds_below"}, None, {})
    for each, expected in ((new, seeds), (old, before)):
        drawn = first_draws(each, 5)[:, 0]
        np.testing.assert_array_equal(drawn, [Counting().reset(seed=seed)[0][0] for seed in expected[:5]])
    assert old.state()["seeds_below"] == 2**32


def test_seeds_differ_by_run_purpose_environment_and_episode():
    where = [(seed, purpose, i, e) for seed in range(3) for purpose in range(2) for i in range(5) for e in range(20)]
    assert len({episode_seed(*each) for each in where}) == len(where)
    assert episode_seed(3, 0, 1, 2) == episode_seed(3, 0, 1, 2)


def test_subprocesses_give_the_same_numbers(environments):
    fields = dict(num_envs=2, max_episode_steps=3)
    sync, processes = environments(**fields), environments(**fields, vectorization="subprocess")
    np.testing.assert_array_equal(sync.observation["observation"], processes.observation["observation"])
    rng = np.random.default_rng(0)
    for step in range(5):
        action = SECOND_ENDS if step == 1 else rng.uniform(-0.9, 0.9, (2, 1)).astype(np.float32)
        one, two = sync.step(action), processes.step(action)
        for field in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(one, field), getattr(two, field), err_msg=field)
        np.testing.assert_array_equal(one.next_observation["observation"], two.next_observation["observation"])
        np.testing.assert_array_equal(one.observation["observation"], two.observation["observation"])
    assert sync.state() == processes.state()
    assert sync.episode.tolist() == [1, 2]


@pytest.mark.slow
def test_processes_are_as_many_as_cores_and_ctrl_c_does_not_reach_them(environments, monkeypatch):
    monkeypatch.setattr(vectorize, "usable_cores", lambda: 2)
    fields = dict(num_envs=4, max_episode_steps=4)
    sync, processes = environments(**fields), environments(**fields, vectorization="subprocess")
    assert processes.groups.others == len(processes.groups.processes.processes) == 1
    given, ends = actions(0.25, -0.5, 0.125, 0.5), actions(0.25, -1.0, 0.125, 0.5)
    for step in range(5):
        action = ends if step == 1 else given  # ends an episode in one group and not in the other
        one, two = sync.step(action), processes.step(action)
        np.testing.assert_array_equal(one.next_observation["observation"], two.next_observation["observation"])
        np.testing.assert_array_equal(one.observation["observation"], two.observation["observation"])
        np.testing.assert_array_equal(one.reward, two.reward)
    assert sync.state() == processes.state() and max(sync.episode) > 0
    os.kill(processes.groups.processes.processes[0].pid, signal.SIGINT)
    processes.step(given)


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble, words",
    [
        ("nan reward", "the reward must be finite (environment 1, step 4). Received: nan"),
        ("nan observation", "observation 'observation' must be finite (environment 1, step 4, entry 2). Received: nan"),
        (
            "raise",
            f"step raised (environment 1, step 2). Received: ZeroDivisionError: the gears stick ({__file__}, line ",
        ),
    ],
)
def test_a_failing_environment_is_named_with_the_step(environments, trouble, words):
    envs = environments(num_envs=2, kwargs={"trouble": trouble})
    envs.step(actions(NEUTRAL, NEUTRAL))
    with pytest.raises(EnvironmentFailure, match=re.escape(words)) as error:
        envs.step(actions(NEUTRAL, TROUBLE))
    assert str(error.value).startswith(COUNTING)


def test_an_observation_that_is_not_finite_at_reset_is_refused(environments):
    with pytest.raises(EnvironmentFailure, match=r"must be finite.*Received: nan"):
        environments(kwargs={"trouble": "nan at reset"})


def test_a_failure_in_a_subprocess_is_reported_too(environments):
    envs = environments(vectorization="subprocess", kwargs={"trouble": "raise"})
    with pytest.raises(EnvironmentFailure, match="Received: ZeroDivisionError: the gears stick"):
        envs.step(actions(TROUBLE))


def test_a_wrong_level_in_subprocesses_is_refused_as_in_this_process(environments):
    with pytest.raises(ValueError, match=r"Did you mean 'Pendulum-v1'?"):
        environments(level="Pendulun-v1", vectorization="subprocess")


# -- coming back -------------------------------------------------------------------------------------------------------

PLAYED = actions(0.25, -0.5, 0.125)


def played(envs, ended=1):
    """Ends some episodes, plays three steps of the next one and returns what a checkpoint keeps."""
    for _ in range(ended):
        envs.step(np.full((envs.num_envs, 1), -1.0, np.float32))
    for action in PLAYED:
        envs.step(np.tile(action, (envs.num_envs, 1)))
    return json.loads(json.dumps(envs.state())), envs.observation


def test_one_environment_comes_back_into_the_middle_of_its_episode(environments):
    old, new = environments(max_episode_steps=5), environments(max_episode_steps=5)
    state, observation = played(old)
    assert new.restore(state, PLAYED, observation) is True
    assert new.state() == old.state()
    np.testing.assert_array_equal(new.observation["observation"], observation["observation"])
    assert not new.is_first.any()
    for action in (0.5, NEUTRAL, NEUTRAL):  # over the time limit, into the next episode
        one, two = old.step(actions(action)), new.step(actions(action))
        for field in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(one, field), getattr(two, field))
        np.testing.assert_array_equal(one.observation["observation"], two.observation["observation"])
    assert new.episode.tolist() == [2]


def test_one_environment_comes_back_to_the_beginning_of_an_episode(environments):
    old, new = environments(), environments()
    old.step(actions(-1.0))
    assert new.restore(old.state(), np.zeros((0, 1), np.float32), old.observation) is True
    assert new.is_first.all()
    assert new.state() == old.state()
    np.testing.assert_array_equal(new.observation["observation"], old.observation["observation"])


@pytest.mark.parametrize("replayed", [None, PLAYED[:2], np.concatenate([PLAYED[:2], actions(0.9)])])
def test_a_new_episode_begins_where_the_running_one_cannot_be_repeated(environments, replayed):
    old, new = environments(), environments()
    state, observation = played(old)
    assert new.restore(state, replayed, observation) is False
    assert new.is_first.all() and new.episode.tolist() == [2] and new.length.tolist() == [0]
    assert new.steps == old.steps
    reference = environments()
    for _ in range(2):
        reference.step(actions(-1.0))
    np.testing.assert_array_equal(new.observation["observation"], reference.observation["observation"])


def test_a_new_episode_begins_where_the_running_one_fails_when_it_is_repeated(environments, monkeypatch):
    old, new = environments(), environments()
    state, observation = played(old)
    monkeypatch.setattr(new.groups, "step", lambda action: 1 / 0)
    assert new.restore(state, PLAYED, observation) is False
    assert new.is_first.all() and new.episode.tolist() == [2] and new.length.tolist() == [0]


@pytest.mark.parametrize("num_envs", [1, 2])
def test_infos_of_an_environment_with_one_reward_are_its_own(environments, num_envs):
    class Telling(Counting):
        def step(self, action):
            return *super().step(action)[:4], {"vector_reward": [1.0] * int(self.np_random.integers(1, 9))}

    envs = environments(num_envs=num_envs, one=Telling)
    for _ in range(5):
        assert envs.step(actions(*[NEUTRAL] * num_envs)).reward.shape == (num_envs,)


@pytest.mark.slow
def test_a_function_that_cannot_be_sent_to_processes_is_told_so(environments):
    lock = threading.Lock()

    def made():
        assert lock
        return Counting()

    with pytest.raises(EnvironmentFailure, match=r"cannot be sent to other processes: .*sync .*Received: TypeError"):
        environments(num_envs=2, vectorization="subprocess", one=made)


def test_a_script_without_a_guard_is_told_so():
    class Process:
        def start(self):
            raise RuntimeError(
                "An attempt has been made before the current process has finished its bootstrapping phase."
            )

    with pytest.raises(
        EnvironmentFailure, match=r'runs the script again; .* below `if __name__ == "__main__":`.*Received: '
    ):
        _start(Process())


def test_several_environments_begin_new_episodes(environments):
    old, new = environments(num_envs=2), environments(num_envs=2)
    state, observation = played(old)
    assert new.restore(state, PLAYED, observation) is False
    assert new.is_first.all() and new.episode.tolist() == [2, 2]
    assert not np.isin(new.observation["observation"][:, 0], observation["observation"][:, 0]).any()


def test_an_episode_that_had_not_begun_keeps_its_seed(environments):
    old, new = environments(num_envs=2), environments(num_envs=2)
    old.step(actions(NEUTRAL, NEUTRAL))
    old.step(SECOND_ENDS)
    assert new.restore(old.state(), None, old.observation) is False
    assert new.episode.tolist() == [1, 1]
    np.testing.assert_array_equal(new.observation["observation"][1], old.observation["observation"][1])


class Strict1(Counting):
    """May only be reset when its episode is over, and counts its resets."""

    over, resets, drifts = True, 0, 0.0

    def reset(self, *, seed=None, options=None):
        if not self.over:
            raise RuntimeError("the episode is not over")
        self.over = False
        Strict1.resets += 1
        return super().reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        self.over = terminated
        return observation + Strict1.drifts, reward, terminated, truncated, info


@pytest.mark.parametrize("num_envs, drifts, exact", [(1, 0.0, True), (1, 1.0, False), (3, 0.0, False)])
def test_an_environment_that_is_only_reset_after_its_episode_comes_back(monkeypatch, num_envs, drifts, exact):
    parameters = EnvironmentParameters(num_envs=num_envs)
    old = Environments(parameters, 3, Strict1)
    state, observation = played(old)
    monkeypatch.setattr(Strict1, "drifts", drifts)
    new = Environments(parameters, 3, Strict1, begin=False)
    monkeypatch.setattr(Strict1, "resets", 0)
    assert new.restore(state, PLAYED, observation) is exact
    assert Strict1.resets == (2 if drifts else num_envs)  # a new environment where the old one cannot be reset
    assert new.is_first.all() is not exact and new.episode.tolist() == [1 if exact else 2] * num_envs
    again = Environments(parameters, 3, Strict1)
    assert again.restore(state, PLAYED, observation) is exact  # also where its first episode had begun
    if exact:
        np.testing.assert_array_equal(new.observation["observation"], observation["observation"])


def test_parts_of_an_observation_that_do_not_belong_together_are_refused():
    spec = Spec({"observation": ArraySpec((3,), "float32"), "action_mask": ArraySpec((4,), "bool")}, DiscreteSpec(4))
    good = {"observation": np.zeros((2, 3)), "action_mask": np.ones((2, 4))}
    assert as_arrays(good, spec)["action_mask"].dtype == bool
    with pytest.raises(
        ValueError, match=r"same leading dimensions\. Received: \{'observation': \(2,\), 'action_mask': \(\)\}"
    ):
        as_arrays({**good, "action_mask": np.ones(4)}, spec)


def test_a_pipe_stays_awake_where_messages_are_close_and_sleeps_where_they_are_not(monkeypatch):
    monkeypatch.setattr("tfsac.environments.groups.AWAKE", 0.1)  # a busy machine stops a process for longer than usual
    here, there = multiprocessing.Pipe()
    pipe = WakefulPipe(there)
    for message in (1, 2):
        here.send(message)
        assert pipe.recv() == message and pipe.close_by
    began = time.thread_time()
    timer = threading.Timer(0.5, here.send, [3])
    timer.start()
    assert pipe.recv() == 3 and not pipe.close_by
    assert time.thread_time() - began < 0.25
    timer.join()
    pipe.send(4)
    assert here.recv() == 4
    here.close()
    with pytest.raises(EOFError):
        pipe.recv()
