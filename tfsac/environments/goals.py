"""Rewards of goal environments for goals other than the desired ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.environments.actions import nested_mask
from tfsac.environments.checked_env import format_error, time_limit_of
from tfsac.environments.spaces import NUM_REWARDS, name_of_environment, spaces_by_key, spec_of
from tfsac.errors import TfsacError
from tfsac.types import ACHIEVED_GOAL, ACTION_MASK, AGENT_STATE, DESIRED_GOAL, HybridSpec

STEPS = 20  # steps to check, then up to the end of the episode, where rewards may differ
MAX_STEPS = 1000
REWARD, TERMINATED = "compute_reward", "compute_terminated"


class GoalFunctions:
    """Vectorised `compute_reward` and, if available, `compute_terminated` of a goal environment.

    Random steps check that `compute_reward(achieved_goal, desired_goal, {})` for the goal achieved after a step equals
    the reward of that step, even in the next episode; that it depends on the desired goal; and that it returns the same
    for many pairs of goals as for each pair. If `compute_terminated` does not, it is called for one pair at a time.

    Args:
        env: an environment with the observation keys "achieved_goal" and "desired_goal"; it is reset and stepped.

    Attributes:
        time_limit: time limit of an episode in steps, or None if unknown.
        notes: findings, one per line.

    Raises:
        TfsacError: the environment's rewards cannot be computed for other goals.
    """

    def __init__(self, env: gym.Env):
        self.name, self.time_limit, self.notes = name_of_environment(env), time_limit_of(env), list[str]()
        spaces = spaces_by_key(env.observation_space)
        goals = [spaces.get(key) for key in (ACHIEVED_GOAL, DESIRED_GOAL)]
        reward, self._terminated = (_function(env, name) for name in (REWARD, TERMINATED))
        wrong_goals = None in goals or goals[0].shape != goals[1].shape  # type: ignore[union-attr]
        if wrong_goals or reward is None:
            needs = f"the observations {ACHIEVED_GOAL!r} and {DESIRED_GOAL!r} of one shape, and {REWARD}"
            found = f"with {env.observation_space}" if wrong_goals else f"without {REWARD}"
            raise TfsacError(f"hindsight replay needs {needs}, got {self.name} {found}")
        if AGENT_STATE in spaces or NUM_REWARDS in (env.metadata or {}):
            raise TfsacError(f"hindsight replay needs one agent and one reward per step, got {self.name}")
        self.dtypes = [goal.dtype for goal in goals]  # type: ignore[union-attr]
        self._reward: Callable[..., Any] = reward
        self.pair_by_pair = False
        outside: Any = env
        while isinstance(outside, gym.Wrapper) and not hasattr(type(outside), REWARD):
            if isinstance(outside, gym.RewardWrapper):
                raise TfsacError(f"{REWARD} of {self.name} lacks the changes of rewards by {type(outside).__name__}")
            outside = outside.env
        self._check(env)

    def _check(self, env: gym.Env) -> None:
        space, pairs = copy.deepcopy(env.action_space), list[tuple[np.ndarray, np.ndarray]]()
        space.seed(0)
        kind, ended, rewards = spec_of(env).action, True, list[float]()
        for step in range(MAX_STEPS):
            if ended and step >= STEPS:
                break
            if ended:
                observation, _ = env.reset(seed=step)
            goal, mask = copy.deepcopy(observation[DESIRED_GOAL]), observation.get(ACTION_MASK)
            if mask is not None:
                mask = nested_mask(mask, kind) if isinstance(kind, HybridSpec) else np.asarray(mask, np.int8)
            action = space.sample(mask)
            observation, reward, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
            pairs.append((np.array(observation[ACHIEVED_GOAL]), np.array(goal)))
            rewards.append(float(reward))
            self._confirm(*pairs[-1], rewards[-1])
        else:
            if self.time_limit is None:
                needs = f"episodes that end, and none of {self.name} did in {MAX_STEPS} random steps"
                raise TfsacError(f"hindsight replay needs {needs}: set environment.max_episode_steps")
        env.reset(seed=MAX_STEPS)  # the environment's internal state now belongs to another episode
        pairs = pairs[:STEPS]
        for pair, reward in zip(pairs, rewards, strict=False):
            self._confirm(*pair, reward, ", but only until the next reset")
        achieved = np.stack([goal for goal, _ in pairs])
        # Add other goals, and achieved goals, whose rewards differ.
        pairs += [*zip(achieved, np.roll(achieved, 1, axis=0), strict=True), *zip(achieved, achieved, strict=True)]
        if not self._is_vectorised(self._reward, pairs):
            raise TfsacError(f"{REWARD} of {self.name} must return `[K]` for goals `[K, ...]`, each as for one goal")
        by_goal = self.reward(*map(np.stack, zip(*pairs, strict=True))).reshape(3, -1)
        if (by_goal == by_goal[0]).all():
            raise TfsacError(f"{REWARD} of {self.name} must depend on desired_goal, got {by_goal[0, 0]} for all goals")
        if self._terminated and not self._is_vectorised(self._terminated, pairs):
            self.pair_by_pair = True
            self.notes.append(f"{TERMINATED} of {self.name} takes only one goal, so it is called for each one.")

    def _confirm(self, achieved: np.ndarray, desired: np.ndarray, reward: float, when: str = "") -> None:
        """Raises TfsacError if the computed reward for a pair of goals is not the reward of the step."""
        computed = self._call(self._reward, achieved, desired)
        is_number = np.shape(computed) == () and np.asarray(computed).dtype.kind in "biuf"
        if not is_number or not np.isclose(float(computed), reward, rtol=1e-5, atol=1e-6):
            raise TfsacError(
                f"hindsight replay needs rewards that follow from the goals alone: {REWARD} of {self.name} gave "
                f"{computed!r} for a step whose reward was {reward!r}{when}"
            )

    def _is_vectorised(self, function: Callable[..., Any], pairs: list[tuple[np.ndarray, np.ndarray]]) -> bool:
        one_by_one = np.array([self._call(function, *pair) for pair in pairs])
        if one_by_one.dtype.kind not in "biuf":
            returned = f"a number and a bool, got {one_by_one[0]!r}"
            raise TfsacError(f"{REWARD} and {TERMINATED} of {self.name} must return {returned}")
        try:
            together = np.asarray(function(*map(np.stack, zip(*pairs, strict=True)), {}))
        except Exception:  # any exception means that the function does not support several goals
            return False
        return together.shape == one_by_one.shape and np.allclose(together, one_by_one, rtol=1e-5, atol=1e-6)

    def _call(self, function: Callable[..., Any], achieved: np.ndarray, desired: np.ndarray) -> Any:
        try:
            return function(achieved, desired, {})
        except Exception as error:
            called = f"{REWARD} and {TERMINATED} are called with two goals and an empty info"
            raise TfsacError(f"hindsight replay cannot use {self.name}: {called}, got {format_error(error)}") from error

    def reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Returns the rewards of pairs of goals `[K, ...]`, float32 `[K]`."""
        return np.asarray(self._reward(*self._of_environment(achieved, desired), {}), np.float32)

    def terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray | None:
        """Returns whether an episode terminates for each pair of goals `[K, ...]`, `[K]`; None if the environment has
        no `compute_terminated`.
        """
        if self._terminated is None:
            return None
        pairs = self._of_environment(achieved, desired)
        if self.pair_by_pair:
            return np.array([self._terminated(*pair, {}) for pair in zip(*pairs, strict=True)], bool)
        return np.asarray(self._terminated(*pairs, {}), bool)

    def _of_environment(self, *goals: np.ndarray) -> list[np.ndarray]:
        """Returns goals in the environment's own dtypes."""
        return [goal.astype(dtype) for goal, dtype in zip(goals, self.dtypes, strict=True)]


def _function(env: gym.Env, name: str) -> Any:
    """Returns a function of an environment or of the `VectorEnv` that it represents, or None."""
    if env.has_wrapper_attr(name):
        return env.get_wrapper_attr(name)
    vector_env = getattr(env.unwrapped, "vector_env", None)
    return getattr(vector_env and vector_env.unwrapped, name, None)
