"""Environments: rescaling, filters, checks, errors, episode ends, seeds and coming back from a checkpoint."""

import itertools
import json
import re

import gymnasium as gym
import numpy as np
import pytest

from tfsac.environments import (
    ActionRescaling,
    EnvironmentFailure,
    Environments,
    Filters,
    as_arrays,
    check,
    episode_seed,
    make,
    spec_of,
)
from tfsac.parameters import EnvironmentParameters, FilterParameters
from tfsac.types import ArraySpec, Spec, Transition

Box, Dict, Discrete = gym.spaces.Box, gym.spaces.Dict, gym.spaces.Discrete


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

    def make_environments(num_envs=1, seed=3, level=COUNTING, **fields):
        made.append(Environments(EnvironmentParameters(level, num_envs=num_envs, **fields), seed))
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
    rescale = ActionRescaling.of(Spec({}, ArraySpec((3,), "float32", low, high)))
    np.testing.assert_allclose(rescale.inverse(np.stack([low, high])), [[-1, -1, -1], [1, 1, 1]], atol=1e-6)
    given = np.random.default_rng(0).uniform(-1, 1, (20, 3)).astype(np.float32)
    np.testing.assert_allclose(rescale.inverse(rescale(given)), given, atol=1e-6)


def test_actions_without_bounds_cannot_be_rescaled():
    with pytest.raises(ValueError, match=r"Actions are rescaled to bounds. Received: ArraySpec"):
        ActionRescaling.of(Spec({}, ArraySpec((3,), "float32")))


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
    filtered = filters.transition(batch)
    np.testing.assert_array_equal(filtered.observation["state"], filters.observation(before)["state"])
    np.testing.assert_array_equal(filtered.next_observation["state"], filters.observation(after)["state"])
    assert filtered.reward is batch.reward and filtered.action is batch.action and filtered.discount is batch.discount
    np.testing.assert_array_equal(before["state"], observations(4, 1)["state"])


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


REFUSED = {
    "discrete actions": (dict(action=Discrete(2)), "acts in a Box of real numbers", "Discrete(2)"),
    "several discrete actions": (
        dict(action=gym.spaces.MultiDiscrete([2, 3])),
        "another agent",
        "MultiDiscrete([2 3])",
    ),
    "dict of actions": (dict(action=Dict(a=Counting.action_space)), "acts in a Box of real numbers", "Dict("),
    "unbounded above": (dict(action=action_box([-1, -1], [1, np.inf])), "finite bounds", "high=inf in dimension 1"),
    "unbounded below": (dict(action=action_box([-np.inf], [1])), "finite bounds", "low=-inf in dimension 0"),
    "NaN bound": (dict(action=nan_bounds()), "finite bounds", "low=nan in dimension 1"),
    "low equals high": (dict(action=action_box([-1, 3], [1, 3])), "low < high", "low=3.0, high=3.0 in dimension 1"),
    "no action": (dict(action=Box(-1, 1, (0,), np.float32)), "a vector of at least one number", "(0,)"),
    "scalar action": (dict(action=Box(-1, 1, (), np.float32)), "a vector of at least one number", "()"),
    "matrix of actions": (dict(action=Box(-1, 1, (2, 2), np.float32)), "a vector of at least one number", "(2, 2)"),
    "whole numbers": (dict(action=Box(0, 3, (2,), np.int64)), "actions must be real numbers", "int64"),
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
        (ModuleNotFoundError("No module named 'ale_py'", name="ale_py"), "ale_py"),
        (ModuleNotFoundError("No module named 'mujoco.viewer'", name="mujoco.viewer"), "'tfsac[mujoco]'"),
        (ModuleNotFoundError("No module named 'my_robots'", name="my_robots"), "my_robots"),
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
    with pytest.raises(ValueError, match=re.escape("CartPole-v1: soft actor-critic here acts in a Box")):
        make("CartPole-v1")
    assert closed


def test_arguments_and_time_limit_reach_the_level():
    env = make("Pendulum-v1", max_episode_steps=2, g=1.5)
    assert env.unwrapped.g == 1.5
    env.reset(seed=0)
    assert [env.step(np.zeros(1, np.float32))[3] for _ in range(2)] == [False, True]
    env.close()


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


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble, words",
    [
        ("nan reward", "the reward must be finite (environment 1, step 4). Received: nan"),
        ("nan observation", "observation 'observation' must be finite (environment 1, step 4, entry 2). Received: nan"),
        (
            "raise",
            "raised at step 2 (steps of the running episodes: [1, 1]). Received: ZeroDivisionError: the gears stick",
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


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # gymnasium warns beside raising
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
