"""Several environments as one, so that each process of gymnasium's `AsyncVectorEnv` steps its share of them.

With a process for each environment, messages cost more than the stepping gains where there are fewer cores than environments.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tfsac.environments.vector_rewards import VECTOR_REWARD


class Group(gym.Env):
    """G environments, stepped one after the other; everything has a leading dimension G.

    Args:
        makers: of each environment.
    """

    def __init__(self, makers: Sequence[Callable[[], gym.Env]]):
        self.vector = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.DISABLED)
        self.metadata = self.vector.metadata
        self.observation_space, self.action_space = self.vector.observation_space, self.vector.action_space

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in each environment that has a seed, one or None for each of them."""
        began = np.array([one is not None for one in seed])
        return self.vector.reset(seed=seed, options=None if began.all() else {"reset_mask": began})[0], {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps all environments; of the infos, which cost time on their way, only what is read comes along."""
        observation, reward, terminated, truncated, info = self.vector.step(action)
        read = {VECTOR_REWARD: info[VECTOR_REWARD]} if VECTOR_REWARD in info else {}
        return observation, reward, terminated, truncated, read

    def close(self) -> None:
        """Ends the environments."""
        self.vector.close()


def group_of(makers: Sequence[Callable[[], gym.Env]]) -> Group:
    """Makes a group; Ctrl-C does not reach a process that is its own, because the run ends as it sees fit."""
    if multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return Group(makers)


def processes_for(environments: int, cores: int) -> int:
    """Returns how many processes share so many environments equally: one for each core, or the next larger number that can."""
    return next(count for count in range(min(cores, environments), environments + 1) if environments % count == 0)
