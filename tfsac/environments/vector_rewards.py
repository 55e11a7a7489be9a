"""Environments with several rewards a step, as MO-Gymnasium has them, as environments of Gymnasium."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np

from tfsac.environments.check import EnvironmentFailure
from tfsac.environments.spaces import NUM_REWARDS

VECTOR_REWARD = "vector_reward"  # key of the info of a step


class VectorRewards(gym.Wrapper):
    """Returns the sum of D rewards as the reward of a step, and float32 `info["vector_reward"]` `[D]` beside it.

    Args:
        env: has a `reward_space`, a Box `(D,)`, and its steps return arrays `[D]`.
    """

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self.reward_space = env.get_wrapper_attr("reward_space")
        self.metadata = {**(env.metadata or {}), NUM_REWARDS: self.reward_space.shape[0]}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Makes a step.

        Raises:
            EnvironmentFailure: not as many rewards as the `reward_space` has.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        rewards = np.array(reward, np.float32)
        if rewards.shape != self.reward_space.shape:
            raise EnvironmentFailure(
                f"A step returns rewards of the shape {self.reward_space.shape}, as `reward_space` has it; a wrapper "
                f"that makes one reward of them sets its `reward_space` to None. Received: shape {rewards.shape}"
            )
        return observation, float(rewards.sum()), terminated, truncated, {**info, VECTOR_REWARD: rewards}


def has_vector_rewards(env: gym.Env) -> bool:
    """Returns whether the steps of an environment return several rewards: it has a `reward_space`, a Box `(D,)`."""
    if NUM_REWARDS in (env.metadata or {}) or not env.has_wrapper_attr("reward_space"):
        return False
    space = env.get_wrapper_attr("reward_space")
    return isinstance(space, gym.spaces.Box) and len(space.shape) == 1
