"""Base classes for policies with discrete or continuous actions: uniform actions and the noise of samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.policies.distributions import MaskedCategorical, likeliest
from tfsac.types import ACTION_MASK, Arrays


class DiscreteActions:
    """Discrete actions `[B]`, numbered from 0, with a logit each; those outside the mask are never chosen."""

    num_actions: int
    rng: np.random.Generator
    distribution_at: Any

    def distribution(self, outputs: list[Any], observation: Mapping[str, Any]) -> MaskedCategorical:
        """Returns the distribution of logits `[B, A]`, arrays or tensors."""
        return MaskedCategorical(outputs[0], observation.get(ACTION_MASK))

    def is_tie(self, observation: Arrays, state: Arrays) -> bool:
        """Returns whether the two likeliest actions are equal up to rounding; see `BasePolicy.is_tie`."""
        return self.distribution_at(observation, state).is_tie()

    def uniform(self, observation: Arrays, rows: int) -> np.ndarray:
        """Draws valid actions, all equally likely."""
        noise, mask = self.noise(rows), observation.get(ACTION_MASK)
        return likeliest(noise if mask is None else np.where(mask, noise, -1.0))

    def noise(self, rows: int) -> np.ndarray:
        """Draws the noise of a sample, uniform in [0, 1), `[rows, A]`."""
        return self.rng.random((rows, self.num_actions), np.float32)

    def noise_tensor(self, rows: int | tf.Tensor) -> tf.Tensor:
        """Draws the noise of a sample with TensorFlow's random numbers."""
        return fresh_uniform([rows, self.num_actions])


class ContinuousActions:
    """Actions `[B, A]`, which are sampled with standard normal noise."""

    action_size: int
    rng: np.random.Generator

    def uniform(self, observation: Arrays, rows: int) -> np.ndarray:
        """Draws actions uniform in [-1, 1]."""
        return self.rng.uniform(-1.0, 1.0, (rows, self.action_size)).astype(np.float32)

    def noise(self, rows: int) -> np.ndarray:
        """Draws the noise of a sample, standard normal, `[rows, A]`."""
        return self.rng.standard_normal((rows, self.action_size), np.float32)

    def noise_tensor(self, rows: int | tf.Tensor) -> tf.Tensor:
        """Draws the noise of a sample with TensorFlow's random numbers."""
        return fresh_normal([rows, self.action_size])


def fresh_uniform(shape: Any) -> tf.Tensor:
    """Draws uniform noise in [0, 1), different in every process."""
    return tf.raw_ops.RandomUniform(shape=shape, dtype=tf.float32)


def fresh_normal(shape: Any) -> tf.Tensor:
    """Draws standard normal noise, different in every process."""
    # A global seed set at export must not make exports repeat samples: seeds of zero are drawn at run time.
    return tf.raw_ops.RandomStandardNormal(shape=shape, dtype=tf.float32)
