"""One environment in a process of its own, which can be ended when it hangs."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from tfsac.environments.check import longest_episode
from tfsac.environments.env_fn import name_of_environment
from tfsac.environments.groups import Processes, convert
from tfsac.environments.make import Maker


class IsolatedEnvironment(gym.Env):
    """Steps an environment in another process.

    Args:
        env: one like it, which is closed.
        one: makes it.
        timeout: seconds within which it must answer, or None.

    Attributes:
        time_limit: steps after which its episodes end, or None.

    Raises:
        EnvironmentFailure: from `reset` and `step`: it failed, its process ended, or it did not answer in time.
    """

    def __init__(self, env: gym.Env, one: Callable[[], gym.Env], timeout: float | None):
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.metadata, self.spec = env.metadata, env.spec or EnvSpec(name_of_environment(env))
        self.time_limit = longest_episode(env)
        env.close()
        one = one if isinstance(one, Maker) else Maker(one, None)
        self.process = Processes([one], 1, self.observation_space, timeout)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode.

        Args:
            seed: of the episode, which must be given.
            options: must not be given.
        """
        self._asked("reset", [seed])
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Makes a step; its info lacks what cannot be sent between processes."""
        reward, terminated, truncated, infos = self._asked("step", np.asarray(action)[None])
        info = convert(infos[0], pickle.loads)
        return self._observation(), float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def _asked(self, name: str, content: Any) -> Any:
        self.process.ask(0, name, content)
        return self.process.wait_for_all()[0]

    def _observation(self) -> Any:
        seen = self.process.observations
        if isinstance(seen, dict):
            return {key: np.array(value[0, 0]) for key, value in seen.items()}
        return np.array(seen[0, 0])

    def close(self) -> None:
        """Ends the environment and its process."""
        self.process.close()
