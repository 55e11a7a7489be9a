"""Platform, a benchmark of parametrised actions (Masson et al. 2016, arXiv 1509.01644), as the level
"tfsac.environments.platform:HybridPlatform-v0". It needs `pip install 'tfsac[platform]'`.
"""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium as gym


def make_platform(**kwargs: Any) -> gym.Env:
    """Returns Platform with its vector of 9 numbers as observation, without the number of simulated steps."""
    importlib.import_module("gym_platform")  # registers Platform-v0
    env = gym.make("Platform-v0", disable_env_checker=True, **kwargs)
    vector = env.observation_space[0]  # type: ignore[index]
    return gym.wrappers.TransformObservation(env, lambda observation: observation[0], vector)


gym.register("HybridPlatform-v0", "tfsac.environments.platform:make_platform")
