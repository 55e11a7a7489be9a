"""Vector rewards: wrapper, spec and steps of several environments."""

import gymnasium as gym
import numpy as np
import pytest
from environment_tools import TWO_REWARDS, TwoRewards

from tfsac.environments import EnvironmentFailure, Environments, make, maker, spec_of
from tfsac.parameters import EnvironmentParameters
from tfsac.types import ArraySpec

Box = gym.spaces.Box


def environments(level=TWO_REWARDS, **fields):
    return Environments(EnvironmentParameters(level, num_envs=2, **fields), seed=3)


def test_step_returns_sum_and_vector_reward():
    env = make(TWO_REWARDS)
    env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(np.float32([0.5]))
    assert (observation.tolist(), reward, terminated, truncated) == ([0.5], 9.75, False, False)
    assert type(reward) is float
    assert info["vector_reward"].dtype == np.float32 and info["vector_reward"].tolist() == [-0.25, 10.0]
    assert info["steps"] == 1
    assert env.get_wrapper_attr("reward_space") == TwoRewards.reward_space


@pytest.mark.parametrize("space", [None, Box(-1.0, 1.0, (), np.float32), gym.spaces.Discrete(2)], ids=str)
def test_scalar_reward_space_has_one_reward(space):
    env = TwoRewards("one")
    env.reward_space = space
    wrapped = maker(EnvironmentParameters("mine"), lambda: env)()
    wrapped.reset(seed=0)
    assert wrapped.unwrapped is env and spec_of(wrapped).num_rewards is None
    assert wrapped.step(np.float32([1.0]))[1] == 1.0


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_vector_rewards_at_episode_ends(vectorization):
    envs = environments(vectorization=vectorization)
    assert envs.spec.num_rewards == 2
    actions = np.float32([[0.5], [-1.0]])
    results = [envs.step(actions) for _ in range(4)]
    envs.close()
    for result, steps in zip(results, (1, 2, 3, 1), strict=True):
        assert result.reward.dtype == np.float32
        np.testing.assert_array_equal(result.reward, [[-0.25, 10 * steps], [-1, 10 * steps]])
        assert result.terminated.tolist() == [steps == 3] * 2


@pytest.mark.parametrize("trouble, words", [("nan", "finite"), ("too many", r"shape \(2,\)")])
def test_invalid_vector_rewards_are_rejected(trouble, words):
    envs = environments(kwargs={"trouble": trouble})
    envs.step(np.zeros((2, 1), np.float32))
    with pytest.raises(EnvironmentFailure, match=rf"{words}.*\(environment 1, step 2\)$"):
        envs.step(np.float32([[0.0], [1.0]]))


@pytest.mark.filterwarnings("ignore")  # raised by imports of MO-Gymnasium and its float64 bounds
def test_mo_gymnasium_level():
    pytest.importorskip("mo_gymnasium", reason="needs mo-gymnasium")
    envs = environments(level="mo_gymnasium:mo-mountaincarcontinuous-v0")
    assert envs.spec.num_rewards == 2 and envs.spec.observation == {"observation": ArraySpec((2,), "float32")}
    # -1 per step until the flag, and minus the squared action as fuel.
    result = envs.step(np.float32([[0.5], [-1.0]]))
    np.testing.assert_allclose(result.reward, [[-1, -0.25], [-1, -1]], rtol=1e-6)
