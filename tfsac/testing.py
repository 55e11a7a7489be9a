"""A tiny environment to try discrete agents in; as a level it is written "tfsac.testing:DiscreteIdentity-v0"."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary


class DiscreteIdentity(gym.Env):
    """One step: the reward is 1 for choosing the target that the observation shows as a one-hot vector, else 0. With
    `masked`, half of the wrong actions are not valid, as an "action_mask" shows, and raise a ValueError.
    """

    def __init__(self, size: int = 4, masked: bool = False):
        observation = Box(0.0, 1.0, (size,), np.float32)
        self.observation_space = Dict(observation=observation, action_mask=MultiBinary(size)) if masked else observation
        self.action_space = Discrete(size)
        self.size, self.masked, self.target, self.mask = size, masked, 0, np.ones(size, np.int8)

    def _observe(self) -> Any:
        shown = np.eye(self.size, dtype=np.float32)[self.target]
        return {"observation": shown, "action_mask": self.mask} if self.masked else shown

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draws the target and the mask."""
        super().reset(seed=seed)
        self.target, self.mask = int(self.np_random.integers(self.size)), np.ones(self.size, np.int8)
        if self.masked:
            wrong = np.delete(np.arange(self.size), self.target)
            self.mask[self.np_random.permutation(wrong)[: self.size // 2]] = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Ends the episode."""
        if not self.mask[action]:
            raise ValueError(f"The action must be valid, one of {np.flatnonzero(self.mask)}. Received: {action}")
        return self._observe(), float(action == self.target), True, False, {}


gym.register("DiscreteIdentity-v0", entry_point="tfsac.testing:DiscreteIdentity")
