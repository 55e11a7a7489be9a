"""Spaces: supported spaces, specs, and actions in the environment's units."""

import functools

import gymnasium as gym
import numpy as np
import pytest

import tfsac
from tfsac.environments import Environments, action_map, as_arrays, check, check_environment, checked_action, spec_of
from tfsac.environments.spaces import spaces_by_key
from tfsac.errors import TfsacError
from tfsac.parameters import EnvironmentParameters
from tfsac.types import ArraySpec, Spec

Box, Dict, Discrete = gym.spaces.Box, gym.spaces.Dict, gym.spaces.Discrete
MultiBinary, MultiDiscrete = gym.spaces.MultiBinary, gym.spaces.MultiDiscrete
VECTOR, ACTION = Box(-np.inf, np.inf, (3,), np.float32), Box(-2.0, 2.0, (1,), np.float32)


def spaces_env(observation=VECTOR, action=ACTION):
    env = gym.Env()
    env.observation_space, env.action_space = observation, action
    return env


def test_actions_are_rescaled_to_their_bounds():
    low, high = np.array([[-1, 0], [-2, 4]], np.float32), np.array([[1, 10], [2, 6]], np.float32)
    rescale = action_map(Spec({}, ArraySpec((2, 2), "float32", low, high), num_agents=2))
    actions = np.array([[[0, -1], [1, 0.5]], [[-1, 1], [0, 0]]], np.float32)
    expected = [[[0, 0], [2, 5.5]], [[-1, 10], [0, 5]]]
    np.testing.assert_allclose(rescale(actions), expected)
    np.testing.assert_allclose(rescale.inverse(np.array(expected)), actions)
    for outside, bound in ((-5.0, low), (5.0, high)):
        np.testing.assert_array_equal(rescale(np.full((1, 2, 2), outside, np.float32))[0], bound)


class Contained(gym.Env):
    """Asserts that its space contains each action; the sum of the action is the reward and the observation.

    Args:
        space: the action space.
    """

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, space):
        self.action_space = space
        if isinstance(space, MultiDiscrete):
            self.observation_space = Dict(agent_state=Box(-np.inf, np.inf, (space.shape[0], 1), np.float32))

    def observe(self, value):
        shape = spaces_by_key(self.observation_space)
        observations = {key: np.full(space.shape, value, np.float32) for key, space in shape.items()}
        return observations if isinstance(self.observation_space, Dict) else observations["observation"]

    def reset(self, *, seed=None, options=None):
        return self.observe(0.0), {}

    def step(self, action):
        assert self.action_space.contains(action), (type(action), action.dtype)
        return self.observe(np.sum(action)), float(np.sum(action)), False, False, {}


@pytest.mark.parametrize(
    "space, action, total",
    [
        (Discrete(120, start=-100, dtype=np.int8), 119, 19),
        (MultiDiscrete([3, 3], dtype=np.int32, start=[1, 1]), [0, 2], 4),
        (Box(-2.0, 2.0, (1,), np.float64), [0.5], 1.0),
    ],
    ids=str,
)
def test_space_contains_every_action(space, action, total):
    env_fn = functools.partial(Contained, space)
    environments = Environments(EnvironmentParameters(), 0, env_fn)
    result = environments.step(np.array([action]))
    assert result.reward.tolist() == [total]
    state, observation = environments.state(), environments.observation
    assert environments.restore(state, (np.array([action]), {}), observation) is True  # replays the same action
    environments.close()
    assert tfsac.check_environment(env_fn, num_steps=20).usable


def test_float64_bounds_are_rounded_inwards():
    env_fn = functools.partial(Contained, Box(-0.1, np.pi, (2,), np.float64))
    spec = spec_of(env_fn())
    assert (spec.action.low >= -0.1).all() and (spec.action.high <= np.pi).all()
    np.testing.assert_allclose([spec.action.low, spec.action.high], [[-0.1] * 2, [np.pi] * 2], rtol=2e-7)
    environments = Environments(EnvironmentParameters(), 0, env_fn)
    for action in (-1.0, 1.0):
        environments.step(np.full((1, 2), action, np.float32))
    environments.close()
    for bound in (-0.1, np.pi):  # the float64 bound is accepted
        assert checked_action("act returns", np.full(2, bound), spec.action).dtype == np.float32
    assert checked_action("act returns", [0, 1], spec.action).dtype == np.float32
    with pytest.raises(TfsacError, match="act returns"):
        checked_action("act returns", np.full(2, 3.1416), spec.action)


def test_spec_of_spaces():
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


TWO_KEYS = Spec(
    {"observation": ArraySpec((3,), "float32"), "image": ArraySpec((2, 2, 1), "uint8")}, ArraySpec((1,), "float32")
)
VALID = {"observation": np.zeros((2, 3)), "image": np.full((2, 2, 2, 1), 255)}


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"observation": np.zeros((2, 4))}, "shape"),
        ({"speed": np.zeros(2)}, "keys"),
        ({"image": np.ones((2, 2, 1), np.uint8)}, "leading dimensions"),
        ({"image": np.full((2, 2, 2, 1), 256)}, "0 to 255"),
    ],
)
def test_observations_that_differ_from_the_spec_are_rejected(changes, words):
    assert [array.dtype for array in as_arrays(VALID, TWO_KEYS).values()] == [np.float32, np.uint8]
    with pytest.raises(TfsacError, match=words):
        as_arrays({**VALID, **changes}, TWO_KEYS)


UNSUPPORTED = {
    "MultiBinary actions": (dict(action=MultiBinary(3)), "actions must be a Box"),
    "unbounded": (dict(action=Box(np.float32([-1, -1]), np.float32([1, np.inf]))), r"1.0, inf\]"),
    "discrete observation": (dict(observation=Discrete(5)), "FlattenObservation"),
    "action_mask with continuous actions": (
        dict(observation=Dict(state=VECTOR, action_mask=MultiBinary(1)), action=ACTION),
        "discrete",
    ),
    "agent_state without a member axis": (
        dict(observation=Dict(agent_state=VECTOR), action=MultiDiscrete([4, 4, 4])),
        "agent_state",
    ),
    "members with different numbers of actions": (
        dict(observation=Dict(agent_state=Box(-1, 1, (2, 3))), action=MultiDiscrete([4, 3])),
        "equal sizes",
    ),
}


@pytest.mark.parametrize("spaces, words", UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
def test_unsupported_spaces_are_rejected(spaces, words):
    with pytest.raises(TfsacError, match=words):
        check(spaces_env(**spaces))


@pytest.mark.parametrize("keys", [["a/b"], ["self"], ["Arm", "arm"]], ids=str)
def test_observation_keys_must_be_exportable(keys):
    observation = Dict({**dict.fromkeys(keys, VECTOR), "action_mask": MultiBinary(3)})
    with pytest.raises(TfsacError, match="exported"):
        check(spaces_env(observation, Discrete(3)))


@pytest.mark.parametrize("name", ["Observation", "Reward"])
def test_normalize_wrappers_must_be_frozen(name):
    wrapper = getattr(gym.wrappers, f"Normalize{name}")
    env = gym.wrappers.TimeLimit(wrapper(gym.make("Pendulum-v1")), 5)
    with pytest.raises(TfsacError, match=f"{name.lower()}_normalization"):
        check(env)
    env.env.update_running_mean = False
    check(env)
    vector = gym.vector.SyncVectorEnv([lambda: wrapper(gym.make("Pendulum-v1"))] * 2)
    assert f"{name.lower()}_normalization" in str(check_environment(lambda: vector))
