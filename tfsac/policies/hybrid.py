"""The policy for factored and hybrid actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.errors import TfsacError
from tfsac.networks.network import Networks
from tfsac.parameters import AgentParameters
from tfsac.policies.actions import fresh_normal, fresh_uniform
from tfsac.policies.base_policy import check_keys, check_single
from tfsac.policies.distributions import HybridDistribution
from tfsac.policies.stateless import StatelessPolicy
from tfsac.types import ACTION_MASK, Arrays, HybridSpec, Spec


class HybridPolicy(StatelessPolicy):
    """Several factors, continuous dimensions, or both, independent of each other; see `HybridSpec`. Values of factors
    outside the mask are never chosen.
    """

    def __init__(self, parameters: AgentParameters, spec: Spec, networks: Networks, seed: int = 0):
        super().__init__(parameters, spec, networks, seed)
        assert isinstance(spec.action, HybridSpec)
        self.action = spec.action

    @classmethod
    def check(cls, parameters: AgentParameters, spec: Spec, custom_models: bool = False) -> None:
        """Rejects other actions, teams, several rewards, and exploration without factors."""
        if not isinstance(spec.action, HybridSpec):
            usual = "for a Discrete, a Box or a team use other agents, as the presets 'discrete' and"
            actions = f"MultiDiscrete, Dict and Tuple actions; {usual} 'continuous' do"
            raise TfsacError(f"The agent {parameters.kind!r} is for {actions}")
        check_single(parameters, spec)
        check_keys(spec, {"uniform"})
        if parameters.exploration is not None and not spec.action.sizes:
            raise TfsacError(f"agent.exploration needs discrete actions, got {parameters.exploration}")

    def distribution(self, outputs: list[Any], observation: Mapping[str, Any]) -> HybridDistribution:
        """Returns the distribution for the outputs of the policy's head, arrays or tensors."""
        return HybridDistribution(self.action, outputs, observation.get(ACTION_MASK))

    def is_tie(self, observation: Arrays, state: Arrays) -> bool:
        """Returns whether the two likeliest values of a factor are equal up to rounding; see `BasePolicy.is_tie`."""
        discrete = self.distribution_at(observation, state).discrete
        return discrete is not None and discrete.is_tie()

    def explored(self, action: Any, observation: Arrays, env_steps: int) -> Any:
        """Returns actions whose factors the exploration has changed, all of an environment together."""
        discrete, continuous = self.action.parts(action)

        def uniform() -> np.ndarray:
            return self.action.parts(self.uniform(observation, len(discrete)))[0]

        return self.action.whole(self.changed(discrete, observation, env_steps, uniform), continuous)

    def uniform(self, observation: Arrays, rows: int) -> Any:
        """Draws factors uniformly among their valid values, and continuous dimensions uniformly in [-1, 1]."""
        score = self.rng.random((rows, sum(self.action.sizes)))
        discrete = self.action.best(score + observation.get(ACTION_MASK, 0))
        return self.action.whole(discrete, self.rng.uniform(-1.0, 1.0, (rows, self.action_size)).astype(np.float32))

    def noise(self, rows: int) -> Any:
        """Draws the noise of a sample: uniform in [0, 1) `[rows, S]`, and standard normal `[rows, A]`."""
        return self._noise(rows, self.rng.random, self.rng.standard_normal, np.float32)

    def noise_tensor(self, rows: int | tf.Tensor) -> Any:
        """Draws the noise of a sample with TensorFlow's random numbers."""
        return self._noise(rows, fresh_uniform, fresh_normal)

    def _noise(self, rows: Any, uniform: Callable[..., Any], normal: Callable[..., Any], *dtype: Any) -> Any:
        shapes = [rows, sum(self.action.sizes)], [rows, self.action_size]
        return self.action.whole(uniform(shapes[0], *dtype), normal(shapes[1], *dtype))
