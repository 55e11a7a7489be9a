"""Exploration: what is added to a policy's samples while experience is collected, and nowhere else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from tfsac.parameters import AdditiveNoiseParameters, EpsilonGreedyParameters


class Exploration(ABC):
    """Changes actions that a policy sampled.

    It keeps nothing between calls that a checkpoint would have to hold: it may depend on the environment steps.

    Args:
        parameters: of the exploration.
    """

    def __init__(self, parameters: Any):
        self.parameters = parameters

    @abstractmethod
    def __call__(
        self, action: np.ndarray, rng: np.random.Generator, uniform: Callable[[], np.ndarray], env_steps: int
    ) -> np.ndarray:
        """Returns the actions to take, `[B, ...]`.

        Args:
            action: the policy's samples `[B, ...]`; continuous ones are in [-1, 1].
            rng: the policy's random numbers.
            uniform: draws uniform (valid) actions of the same shape.
            env_steps: of the run so far.
        """


class AdditiveNoise(Exploration):
    """Adds Gaussian noise to actions `[B, A]` and clips them to [-1, 1]."""

    parameters: AdditiveNoiseParameters

    def __call__(
        self, action: np.ndarray, rng: np.random.Generator, uniform: Callable[[], np.ndarray], env_steps: int
    ) -> np.ndarray:
        """Returns noisy actions; see `Exploration`."""
        noise = rng.standard_normal(action.shape, np.float32) * np.float32(self.parameters.noise_std)
        return np.clip(action + noise, -1.0, 1.0)


class EpsilonGreedy(Exploration):
    """Replaces actions `[B]` by uniform ones with probability epsilon, each row on its own."""

    parameters: EpsilonGreedyParameters

    def __call__(
        self, action: np.ndarray, rng: np.random.Generator, uniform: Callable[[], np.ndarray], env_steps: int
    ) -> np.ndarray:
        """Returns actions, some of them uniform; see `Exploration`."""
        at_random = rng.random(len(action)) < self.parameters.epsilon(env_steps)
        return np.where(at_random, uniform(), action)
