"""Checks of spaces and of what an environment returns."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class EnvironmentFailure(RuntimeError):
    """An environment raised, or returned something that cannot be learned from."""


def check(env: gym.Env) -> None:
    """Refuses environments whose spaces a continuous soft actor-critic cannot use.

    Raises:
        ValueError: actions that are not a bounded, non-empty box, or observations that are not boxes or dicts of boxes.
    """
    name = env.spec.id if env.spec else type(env.unwrapped).__name__
    action = env.action_space
    if not isinstance(action, gym.spaces.Box):
        raise ValueError(
            f"{name}: soft actor-critic here acts in a Box of real numbers; discrete actions need another agent. "
            f"Received: {action}"
        )
    if len(action.shape) != 1 or action.shape[0] == 0:
        raise ValueError(f"{name}: actions must be a vector of at least one number. Received: {action}")
    if not np.issubdtype(action.dtype, np.floating):
        raise ValueError(f"{name}: actions must be real numbers. Received: {action}")
    for side, bounds in (("low", action.low), ("high", action.high)):
        bad = np.flatnonzero(~np.isfinite(bounds))
        if bad.size:
            raise ValueError(
                f"{name}: actions need finite bounds; wrap it in gymnasium.wrappers.RescaleAction or give the space "
                f"bounds. Received: {side}={bounds[bad[0]]} in dimension {bad[0]}"
            )
    empty = np.flatnonzero(action.low >= action.high)
    if empty.size:
        i = empty[0]
        raise ValueError(
            f"{name}: each action needs low < high. Received: low={action.low[i]}, high={action.high[i]} in dimension {i}"
        )
    spaces = env.observation_space.spaces if isinstance(env.observation_space, gym.spaces.Dict) else {"observation": env.observation_space}
    if not spaces:
        raise ValueError(f"{name}: the observation is empty. Received: {env.observation_space}")
    for key, space in spaces.items():
        if not isinstance(space, gym.spaces.Box):
            raise ValueError(
                f"{name}: observations must be a Box or a Dict of boxes; gymnasium.wrappers.FlattenObservation turns "
                f"others into a vector. Received: {space} for {key!r}"
            )
        if 0 in space.shape:
            raise ValueError(f"{name}: observation {key!r} has no entries. Received: {space}")
        if np.isnan(space.low).any() or np.isnan(space.high).any():
            raise ValueError(f"{name}: observation {key!r} has NaN bounds. Received: {space}")


def check_finite(observation: dict[str, Any], reward: np.ndarray, level: str, steps: int) -> None:
    """Refuses observations `[N, ...]` and rewards `[N]` that are not finite.

    Raises:
        EnvironmentFailure: names the environment and the step.
    """
    if not np.isfinite(reward).all():
        i = int(np.flatnonzero(~np.isfinite(reward))[0])
        raise EnvironmentFailure(f"{level}: the reward must be finite (environment {i}, step {steps}). Received: {reward[i]}")
    for key, value in observation.items():
        if value.dtype != np.uint8 and not np.isfinite(value).all():
            rows = value.reshape(len(value), -1)
            i, j = (int(x) for x in np.argwhere(~np.isfinite(rows))[0])
            raise EnvironmentFailure(
                f"{level}: observation {key!r} must be finite (environment {i}, step {steps}, entry {j}). "
                f"Received: {rows[i, j]}"
            )
