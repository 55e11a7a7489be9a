"""Whether an environment plays the same episode again, from the same seed and actions. No TensorFlow."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np


def same(one: Any, other: Any) -> bool:
    """Returns whether two observations, or nested dicts and lists of arrays and numbers, are equal."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f"))


def why_not_repeated(first: list[Any], env: gym.Env, actions: list[Any], seed: int) -> str | None:
    """Plays actions again from the same seed, and returns why `trajectory` differs from the first one, or None where it
    does not. Where it differs, they are played with the global random numbers seeded, too.
    """
    if same(first, trajectory(env, actions, seed)):
        return None
    both = []
    for _ in range(2):
        with _global_random_numbers(seed):
            both.append(trajectory(env, actions, seed))
    if same(*both):
        return (
            "it draws from NumPy's or Python's global random numbers: "
            "use self.np_random, which super().reset(seed=seed) seeds"
        )
    return "something outlives reset, or random numbers are not seeded in reset(seed=...)"


def trajectory(env: gym.Env, actions: list[Any], seed: int) -> list[Any]:
    """Returns what an environment shows and rewards from a seed with actions, until its episode ends."""
    observation = copy.deepcopy(env.reset(seed=seed)[0])
    seen = [observation]
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(copy.deepcopy(action))
        seen.append((copy.deepcopy(observation), reward, bool(terminated), bool(truncated)))
        if terminated or truncated:
            break
    return seen


@contextlib.contextmanager
def _global_random_numbers(seed: int) -> Iterator[None]:
    numbers, others = np.random.get_state(), random.getstate()
    np.random.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(numbers)
        random.setstate(others)
