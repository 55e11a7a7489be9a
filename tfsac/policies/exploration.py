"""Exploration: what is added to a policy's samples while experience is collected, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfsac.parameters import AdditiveNoiseParameters, EpsilonGreedyParameters

Explore = Callable[[np.ndarray, np.random.Generator, Callable[[], np.ndarray], int], np.ndarray]


def additive_noise(parameters: AdditiveNoiseParameters) -> Explore:
    """Returns exploration that adds Gaussian noise to actions `[B, A]` and clips them to [-1, 1]."""

    def explore(
        action: np.ndarray, rng: np.random.Generator, uniform: Callable[[], np.ndarray], env_steps: int
    ) -> np.ndarray:
        noise = rng.standard_normal(action.shape, np.float32) * np.float32(parameters.noise_std)
        return np.clip(action + noise, -1.0, 1.0)

    return explore


def epsilon_greedy(parameters: EpsilonGreedyParameters) -> Explore:
    """Returns exploration that replaces actions `[B]` by uniform ones with probability epsilon, each row on its own."""

    def explore(
        action: np.ndarray, rng: np.random.Generator, uniform: Callable[[], np.ndarray], env_steps: int
    ) -> np.ndarray:
        at_random = rng.random(len(action)) < parameters.epsilon(env_steps)
        return np.where(at_random, uniform(), action)

    return explore


def no_exploration(
    action: np.ndarray, rng: np.random.Generator, uniform: Callable[[], np.ndarray], env_steps: int
) -> np.ndarray:
    """Leaves actions as the policy sampled them."""
    return action


def make_exploration(parameters: Any) -> Explore:
    """Returns the exploration that parameters describe, a function of four arguments that returns actions.

    These arguments are the policy's sample `[B, ...]`, the policy's random numbers, a function that draws uniform
    (valid) actions of the same shape, and the environment steps of the run so far.

    Args:
        parameters: of the exploration; None for samples as they are.
    """
    if isinstance(parameters, AdditiveNoiseParameters):
        return additive_noise(parameters)
    return epsilon_greedy(parameters) if isinstance(parameters, EpsilonGreedyParameters) else no_exploration
