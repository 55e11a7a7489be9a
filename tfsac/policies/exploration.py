"""Exploration changes a policy's samples, or their noise, only while experience is collected."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from tfsac.parameters import AdditiveNoiseParameters, EpsilonGreedyParameters, NoiseRepetitionParameters
from tfsac.types import Arrays

NOISE, STEPS_LEFT = "noise", "noise_steps_left"  # fields of a state


class Exploration(ABC):
    """Changes actions that a policy sampled, and optionally the noise of its samples.

    It must not keep data between calls in its attributes: a checkpoint holds only the state that `noise` returns. It
    may depend on the number of environment steps.
    """

    def __init__(self, parameters: Any):
        self.parameters = parameters

    def noise(
        self, rows: int, draw: Callable[[int], np.ndarray], rng: np.random.Generator, state: Arrays
    ) -> tuple[np.ndarray, Arrays]:
        """Returns the noise that the policy samples with, `[B, A]`, and the exploration's next state; by default new
        noise and no state.

        Args:
            rows: B, number of environments, or of environments times team members.
            draw: draws the policy's own noise for B entries.
            rng: the policy's random numbers.
            state: the state returned in the previous step, arrays `[B, ...]` by field; empty at first, and when a run
                with several workers or Ray actors resumes.
        """
        return draw(rows), {}

    @abstractmethod
    def __call__(
        self, action: np.ndarray, rng: np.random.Generator, uniform: Callable[[], np.ndarray], env_steps: int
    ) -> np.ndarray:
        """Returns the actions to take, `[B, ...]`.

        Args:
            action: the policy's samples `[B, ...]`; continuous ones are in [-1, 1].
            rng: the policy's random numbers.
            uniform: draws uniform (valid) actions of the same shape.
            env_steps: environment steps of the run so far.
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


class NoiseRepetition(Exploration):
    """Makes the policy sample several times with the same noise; all environments draw new noise in the same step."""

    parameters: NoiseRepetitionParameters

    def __init__(self, parameters: NoiseRepetitionParameters):
        super().__init__(parameters)
        sums = np.cumsum(np.arange(1.0, parameters.max_repeats + 1.0) ** -parameters.mu)
        self.cdf = sums / sums[-1]  # the probability of at most n steps, for n from 1 on

    def repeats(self, u: float) -> int:
        """Returns the number of steps to use noise for, from a uniform number in [0, 1): the first n with `u < cdf`."""
        return self.parameters.every or 1 + int(np.searchsorted(self.cdf, u, side="right"))

    def noise(
        self, rows: int, draw: Callable[[int], np.ndarray], rng: np.random.Generator, state: Arrays
    ) -> tuple[np.ndarray, Arrays]:
        """Returns the noise of the previous step, or new noise once its steps are over; see `Exploration`."""
        steps_left = state.get(STEPS_LEFT, np.zeros(0, np.int64))
        if len(steps_left) == rows and steps_left[0] > 0:
            return state[NOISE], {NOISE: state[NOISE], STEPS_LEFT: steps_left - 1}
        noise = draw(rows)
        return noise, {NOISE: noise, STEPS_LEFT: np.full(rows, self.repeats(rng.random()) - 1)}

    def __call__(
        self, action: np.ndarray, rng: np.random.Generator, uniform: Callable[[], np.ndarray], env_steps: int
    ) -> np.ndarray:
        """Returns the samples as they are."""
        return action


class EpsilonGreedy(Exploration):
    """Replaces actions `[B]`, or all factors `[B, F]` of one, by uniform ones with probability epsilon, independently
    in each row.
    """

    parameters: EpsilonGreedyParameters

    def __call__(
        self, action: np.ndarray, rng: np.random.Generator, uniform: Callable[[], np.ndarray], env_steps: int
    ) -> np.ndarray:
        """Returns actions, some of them uniform; see `Exploration`."""
        at_random = rng.random(len(action)) < self.parameters.epsilon(env_steps)
        return np.where(at_random.reshape(-1, *[1] * (action.ndim - 1)), uniform(), action)
