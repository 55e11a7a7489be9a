"""Small things for tests, also for those of users: tiny environments, presets and batches.

Importing this module registers the environments; as levels they are written "tfsac.testing:Identity-v0" and
"tfsac.testing:Faulty-v0".
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np

from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    SoftActorCriticAgentParameters,
    override,
    soft_actor_critic_networks,
)
from tfsac.types import ArraySpec, Spec, Transition


class Identity(gym.Env):
    """One step: the best action is the observation; the reward is minus the squared distance.

    Args:
        size: of observation and action; the bounds differ by dimension.
    """

    def __init__(self, size: int = 2):
        high = np.arange(1, size + 1, dtype=np.float32)
        self.observation_space = gym.spaces.Box(-high, high)
        self.action_space = gym.spaces.Box(-high, high)
        self.state = np.zeros(size, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Draws the observation."""
        super().reset(seed=seed)
        high = self.observation_space.high  # type: ignore[attr-defined]
        self.state = self.np_random.uniform(-0.8 * high, 0.8 * high).astype(np.float32)
        return self.state, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Ends the episode."""
        return self.state, -float(np.square(action - self.state).sum()), True, False, {}


class Faulty(gym.Env):
    """Episodes of ten steps; at one step it does something wrong.

    Args:
        fail_at: number of the step, counted over all episodes.
        how: "raise", or return a NaN in "reward" or "observation", or a "huge" reward.
    """

    def __init__(self, fail_at: int = 100, how: Literal["raise", "reward", "observation", "huge"] = "raise"):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,))
        self.action_space = gym.spaces.Box(-1, 1, (1,))
        self.fail_at, self.how, self.steps, self.length = fail_at, how, 0, 0

    def _observe(self) -> np.ndarray:
        return self.np_random.standard_normal(3).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed)
        self.length = 0
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Fails when it is time."""
        self.steps, self.length = self.steps + 1, self.length + 1
        observation, reward = self._observe(), float(action[0])
        if self.steps == self.fail_at:
            if self.how == "raise":
                raise RuntimeError("the simulator fell over")
            if self.how == "observation":
                observation[1] = np.nan
            else:
                reward = float("nan") if self.how == "reward" else 3e38
        return observation, reward, False, self.length == 10, {}


gym.register("Identity-v0", entry_point="tfsac.testing:Identity")
gym.register("Faulty-v0", entry_point="tfsac.testing:Faulty")


def tiny_preset(level: str = "Pendulum-v1", **changes: Any) -> Preset:
    """Returns an experiment of seconds: 16-wide networks, 100 random and 100 trained steps, two evaluations.

    Args:
        level: environment id.
        **changes: by path with underscores doubled for dots: ``agent__algorithm__discount=0.9``.
    """
    preset = Preset(
        agent=SoftActorCriticAgentParameters(
            memory=ExperienceReplayParameters(max_size=1_000),
            networks=soft_actor_critic_networks((16, 16), learning_rate=1e-3, batch_size=32),
        ),
        environment=EnvironmentParameters(level=level, max_episode_steps=None if ":" in level else 30),
        schedule=ScheduleParameters(
            heatup_steps=EnvironmentSteps(100),
            improve_steps=EnvironmentSteps(100),
            evaluation_steps=EnvironmentEpisodes(1),
            steps_between_evaluation_periods=EnvironmentSteps(100),
        ),
        validation=PresetValidationParameters(min_reward_threshold=0.0),
    )
    return override(preset, {path.replace("__", "."): value for path, value in changes.items()})


def vector_spec(observation: int = 3, action: int = 2) -> Spec:
    """Returns the spec of a vector observation and actions between -1 and 1."""
    bound = np.ones(action, np.float32)
    return Spec({"observation": ArraySpec((observation,), "float32")}, ArraySpec((action,), "float32", -bound, bound))


def random_batches(spec: Spec, updates: int, batch_size: int, seed: int = 0) -> Transition:
    """Returns `[U, B, ...]` batches of noise that fit a spec; a tenth of the steps are terminal."""
    rng = np.random.default_rng(seed)
    shape = (updates, batch_size)

    def draw(array: ArraySpec) -> np.ndarray:
        if array.dtype == "uint8":
            return rng.integers(0, 256, (*shape, *array.shape), np.uint8)
        return rng.standard_normal((*shape, *array.shape)).astype(array.dtype)

    return Transition(
        observation={key: draw(array) for key, array in spec.observation.items()},
        action=rng.uniform(-1, 1, (*shape, *spec.action.shape)).astype(np.float32),
        reward=rng.standard_normal(shape).astype(np.float32),
        discount=np.float32(0.99) * (rng.random(shape) > 0.1).astype(np.float32),
        next_observation={key: draw(array) for key, array in spec.observation.items()},
        extras={key: draw(array) for key, array in spec.extras.items()},
    )
