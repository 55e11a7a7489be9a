"""The last observation of an episode, where an environment resets itself in its last step and keeps it in `info`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

KEYS = ("final_observation", "final_obs", "terminal_observation")


class FinalObservation:
    """Returns the last observation of an episode from `info`, where it is there, as that of the step.

    It is taken where it first appears, below the wrappers of the environment, which then see it as any other: those
    that change observations change it too.

    Args:
        env: with its wrappers, whose `step` methods are replaced.

    Attributes:
        key: of the info from which the last step's observation was taken; else "".
    """

    def __init__(self, env: gym.Env):
        self.key = ""
        self.seen: list[Any] = []  # values in the infos of this step, also where no episode ended
        while isinstance(env, gym.Wrapper):
            env = env.env
            # Environments may set the attributes of another object in their own `__setattr__`.
            object.__setattr__(env, "step", functools.partial(self._step, env.step))

    def step(self, env: gym.Env, action: Any) -> Any:
        """Returns what a step of the environment returns."""
        self.key = ""
        self.seen.clear()
        return self._step(env.step, action)

    def _step(self, step: Callable[[Any], Any], action: Any) -> Any:
        result = step(action)
        info = result[4] if isinstance(result, tuple) and len(result) == 5 else None
        if not isinstance(info, dict) or not info:
            return result
        for key in KEYS:
            value = info.get(key)
            if value is None or any(value is one for one in self.seen):
                continue
            self.seen.append(value)
            if isinstance(value, np.ndarray) and value.dtype == object and value.size == 1:  # of a vector environment
                value = value.item()
            if value is not None and (np.any(result[2]) or np.any(result[3])):
                self.key = key
                return value, *result[1:]
        return result
