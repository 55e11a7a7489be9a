"""The squashed Gaussian policy of soft actor-critic with continuous actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.networks import Network
from tfsac.parameters import AgentParameters
from tfsac.policies.base_policy import fresh_normal
from tfsac.policies.distributions import SquashedGaussian
from tfsac.policies.stateless import StatelessPolicy
from tfsac.types import Spec


class SquashedGaussianPolicy(StatelessPolicy):
    """Actions `[B, A]` in (-1, 1), tanh of a Gaussian whose location and log scale the network computes.

    Args:
        parameters, spec, networks, seed: see `BasePolicy`.

    Attributes:
        action_size: A.
    """

    def __init__(self, parameters: AgentParameters, spec: Spec, networks: Mapping[str, Network], seed: int = 0):
        super().__init__(parameters, spec, networks, seed)
        self.action_size = spec.single_agent().action.shape[0]

    def distribution(self, outputs: list[Any], observation: Mapping[str, Any]) -> SquashedGaussian:
        """Returns the policy's distribution."""
        return SquashedGaussian(*outputs)

    def uniform(self, observation: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """Draws actions uniform in [-1, 1]."""
        return self.rng.uniform(-1.0, 1.0, (rows, self.action_size)).astype(np.float32)

    def noise(self, rows: int) -> np.ndarray:
        """Draws standard normal noise."""
        return self.rng.standard_normal((rows, self.action_size), np.float32)

    def noise_tensor(self, rows: int | tf.Tensor) -> tf.Tensor:
        """Draws standard normal noise."""
        return fresh_normal([rows, self.action_size])
