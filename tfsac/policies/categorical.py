"""The categorical policy of discrete actions, with action masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.networks import Network
from tfsac.parameters import AgentParameters
from tfsac.policies.base_policy import fresh_uniform
from tfsac.policies.distributions import MaskedCategorical, likeliest
from tfsac.policies.stateless import StatelessPolicy
from tfsac.types import ACTION_MASK, DiscreteSpec, Spec


class CategoricalPolicy(StatelessPolicy):
    """Discrete actions `[B]`, numbered from 0, with a logit each; those outside the mask are never chosen.

    Args:
        parameters, spec, networks, seed: see `BasePolicy`.

    Attributes:
        num_actions: how many there are, A.
    """

    def __init__(self, parameters: AgentParameters, spec: Spec, networks: Mapping[str, Network], seed: int = 0):
        super().__init__(parameters, spec, networks, seed)
        assert isinstance(spec.action, DiscreteSpec)
        self.num_actions = spec.action.num_actions

    def distribution(self, outputs: list[Any], observation: Mapping[str, Any]) -> MaskedCategorical:
        """Returns the policy's distribution."""
        return MaskedCategorical(outputs[0], observation.get(ACTION_MASK))

    def is_tie(self, observation: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]) -> bool:
        """Returns whether two actions are the likeliest but for rounding; see `BasePolicy.is_tie`."""
        return self.distribution_at(observation, state).is_tie()

    def uniform(self, observation: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """Draws valid actions, all equally likely."""
        return uniform_actions(self.noise(rows), observation.get(ACTION_MASK))

    def noise(self, rows: int) -> np.ndarray:
        """Draws uniform noise in [0, 1)."""
        return self.rng.random((rows, self.num_actions), np.float32)

    def noise_tensor(self, rows: int | tf.Tensor) -> tf.Tensor:
        """Draws uniform noise in [0, 1)."""
        return fresh_uniform([rows, self.num_actions])


def uniform_actions(noise: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Returns valid actions, all equally likely, `[B]`.

    Args:
        noise: uniform in [0, 1), `[B, A]`.
        mask: `[B, A]`, or None where all actions are valid.
    """
    return likeliest(noise if mask is None else np.where(mask, noise, -1.0))
