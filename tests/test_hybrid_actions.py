"""Hybrid action spaces: specs, conversion between nested actions and agent arrays, masks, and validation."""

import importlib

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from toys import HybridIdentity

import tfsac
from tfsac.environments import check_environment, checked, flat_mask, make, nested_mask
from tfsac.environments.actions import HybridActionMap, action_spec, checked_action
from tfsac.errors import TfsacError
from tfsac.types import ArraySpec, FactorsSpec, arrays_of, rows_of

SPACES = {
    "multi_discrete": MultiDiscrete([3, 1, 4], start=[0, 5, -2]),
    "matrix": MultiDiscrete(np.array([[2, 3], [4, 2]]), dtype=np.int32),
    "dict": Dict(
        {
            "turn": Box(np.float32([-2, 0]), np.float32([2, 10])),
            "choose": Discrete(3, start=7),
            "press": MultiDiscrete([2, 2]),
        }
    ),
    "tuple": Tuple((Box(-1, 1, (2, 3), np.float64), Discrete(4), Box(0, 5, (1,)))),
    "only a box": Dict(turn=Box(-1, 1, (2,))),
    "one factor": Tuple((Discrete(2),)),
    "parametrised": Tuple((Discrete(3), Tuple((Box(0, 30, (1,)), Box(0, 720, (1,)), Box(0, 430, (1,)))))),
    "dict in dict": Dict(arm=Dict(grip=Discrete(2), move=Box(-1, 1, (3,))), leg=MultiDiscrete([3, 2])),
}


@pytest.mark.parametrize("name", SPACES)
def test_batched_actions_match_single_actions(name):
    action, space = action_spec(SPACES[name]), SPACES[name]
    rng, action_map = np.random.default_rng(0), HybridActionMap(action)
    discrete = rng.integers(0, action.sizes, (4, len(action.sizes))).astype(np.int32) if action.sizes else None
    size = action.action_size
    continuous = rng.uniform(-1, 1, (4, size)).astype(np.float32) if size else None
    unfolded = action_map(action.whole(discrete, continuous))
    for i, row in enumerate(rows_of(unfolded)):
        assert space.contains(row)
        part = action.whole(*(None if x is None else x[i] for x in (discrete, continuous)))
        for x, y in zip(arrays_of(action_map(part)), arrays_of(row), strict=True):
            np.testing.assert_array_equal(x, y)
        for x, y in zip(arrays_of(action_map.inverse(row)), arrays_of(part), strict=True):
            np.testing.assert_allclose(x, y, atol=1e-6)
    again = action.parts(action_map.inverse(unfolded))
    for x, y in zip(again, (discrete, continuous), strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            np.testing.assert_allclose(x, y, atol=1e-6)
            assert x.dtype == y.dtype


def test_factors_follow_the_order_of_the_space():
    action = action_spec(SPACES["dict"])
    assert [*action.leaves] == ["choose", "press", "turn"]  # Gymnasium sorts keys
    assert action.sizes == (3, 2, 2) and action.action_size == 2 and action.num_joint_actions == 12
    assert action.leaves["choose"] == FactorsSpec((3,), (7,), (), "int64")
    unfolded = HybridActionMap(action)({"discrete": np.int32([2, 0, 1]), "continuous": np.float32([0.5, -1])})
    assert unfolded["choose"] == 9 and unfolded["press"].tolist() == [0, 1] and unfolded["turn"].tolist() == [1, 0]
    nested = action_spec(SPACES["parametrised"])
    assert [*nested.leaves] == ["action_0", "action_1_0", "action_1_1", "action_1_2"]
    assert isinstance(nested.leaves["action_1_0"], ArraySpec)


@pytest.mark.parametrize("name", ["multi_discrete", "matrix", "dict", "tuple", "parametrised"])
def test_flat_and_nested_masks_convert(name):
    space, action = SPACES[name], action_spec(SPACES[name])
    rng = np.random.default_rng(1)
    for _ in range(5):
        flat = rng.random(sum(action.sizes)) < 0.5
        flat[action.offsets] = True
        nested = nested_mask(flat, action)
        np.testing.assert_array_equal(flat_mask(nested, action), flat)
        for _ in range(20):  # Gymnasium accepts the mask
            discrete, _ = action.parts(HybridActionMap(action).inverse(space.sample(mask=nested)))
            assert flat[discrete + action.offsets].all()
    with pytest.raises(TfsacError, match="array for each factor"):
        flat_mask((np.ones(2), np.ones(2)), action)


def test_nested_mask_ignores_key_order_and_accepts_lists():
    action = action_spec(Dict({"b": Discrete(2), "a": Discrete(3)}))
    np.testing.assert_array_equal(flat_mask({"b": [1, 0], "a": [0, 1, 1]}, action), [False, True, True, True, False])
    lists = [np.int8([1, 0]), [0, 1, 1]]  # allowed for Tuple spaces
    np.testing.assert_array_equal(
        flat_mask(lists, action_spec(MultiDiscrete([2, 3]))), [True, False, False, True, True]
    )


class Env(gym.Env):
    def __init__(self, action, mask):
        observation = Box(-1, 1, (2,))
        self.observation_space = Dict(observation=observation, action_mask=mask) if mask is not None else observation
        self.action_space = action


WRONG = {
    "too many combinations": (MultiDiscrete([17] * 3), None, "4096"),
    "MultiBinary": (MultiBinary(3), None, "MultiDiscrete of twos"),
    "integers in a Box": (Dict(a=Box(0, 5, (2,), np.int64)), None, "floats"),
    "an unbounded Box": (Tuple((Discrete(2), Box(-np.inf, np.inf, (2,)))), None, "finite bounds"),
    "bounds near the largest float32": (Dict(a=Box(-3e38, 3e38, (2,)), b=Discrete(2)), None, "finite bounds"),
    "reserved key": (Dict(action=Discrete(3), b=Discrete(2)), None, "keys of actions"),
    "a mask of combinations": (MultiDiscrete([3, 2]), MultiBinary(6), "combinations"),
    "a mask of continuous actions": (Dict(a=Box(-1, 1, (2,))), MultiBinary(2), "discrete actions"),
    "a nested mask of other sizes": (MultiDiscrete([3, 2]), Tuple((MultiBinary(3), MultiBinary(3))), "shape"),
}


@pytest.mark.parametrize(("action", "mask", "word"), WRONG.values(), ids=WRONG)
def test_unsupported_spaces_are_rejected(action, mask, word):
    with pytest.raises(TfsacError, match=word):
        checked(Env(action, mask))


@pytest.mark.parametrize(
    ("structure", "mask"), [("dict", "nested"), ("tuple", "nested"), ("multi_discrete", "nested"), ("nested", "flat")]
)
def test_check_makes_valid_steps(structure, mask):
    report = check_environment(lambda: HybridIdentity(structure, mask), num_steps=50)
    assert report.usable, report
    assert "the same seed and actions give the same trajectory" in report.facts


@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
@pytest.mark.parametrize(("structure", "mask"), [("dict", "nested"), ("tuple", "flat"), ("nested", "")])
def test_vector_environments_accept_actions_batched_by_leaf(structure, mask, mode):
    mode = gym.vector.AutoresetMode[mode]
    makers = [lambda: HybridIdentity(structure, mask)] * 3
    report = check_environment(lambda: gym.vector.SyncVectorEnv(makers, autoreset_mode=mode), num_steps=20)
    assert report.usable, report


def test_platform_env_spec_is_json_serialisable():
    importlib.import_module("tfsac.environments.platform")  # registers the environment, even without gym_platform
    assert "make_platform" in gym.spec("HybridPlatform-v0").to_json()


def test_mask_with_an_empty_factor_is_rejected():
    env = checked(HybridIdentity("dict", "flat"))
    env.reset(seed=0)
    observation = {"observation": np.zeros(10, np.float32), "action_mask": np.int8([1, 1, 1, 0, 0, 1, 1, 1])}
    env.unwrapped._observe = lambda: observation
    with pytest.raises(TfsacError, match="action_mask"):
        env.reset()


@pytest.mark.parametrize(
    ("action", "word"),
    [
        ({"choose": 5, "press": [0, 1]}, "structure"),
        ({"choose": 8, "press": [0, 1], "turn": [0.0, 1.0]}, "'choose'"),
        ({"choose": 5, "press": [0, 1], "turn": [0.0, 11.0]}, "'turn'"),
    ],
)
def test_invalid_actions_of_scripts_are_rejected(action, word):
    with pytest.raises(TfsacError, match=word):
        checked_action("act returns", action, action_spec(HybridIdentity().action_space))


def test_demonstrate_rejects_masked_actions():
    env = make("toys:HybridIdentity-v0", mask="flat")

    def act(observation):
        return {"choose": np.int64(5), "press": np.array([0, 0]), "turn": np.float32([0, 5])}

    with pytest.raises(TfsacError, match="mask"):
        tfsac.demonstrate(act, env, episodes=20)
