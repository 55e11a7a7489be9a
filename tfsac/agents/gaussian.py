"""What agents with a squashed Gaussian policy share: acting, and the policy's part of an export."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tfsac.agents.acting import ActingAgent
from tfsac.agents.base import Mode, ModelMaker
from tfsac.agents.noise import fresh_normal
from tfsac.distributions import LOG_SCALE_MAX, LOG_SCALE_MIN, SquashedGaussian
from tfsac.parameters import AdditiveNoiseParameters, AgentParameters
from tfsac.types import Spec, check_actions


class GaussianAgent(ActingAgent):
    """Acts with a network `policy` that returns location and log scale of each action dimension.

    Args:
        parameters, spec, seed, eager, models, jit_compile: see `Agent`.

    Raises:
        ValueError: discrete actions.
    """

    def __init__(
        self,
        parameters: AgentParameters,
        spec: Spec,
        seed: int = 0,
        eager: bool = False,
        models: ModelMaker | None = None,
        jit_compile: bool = False,
    ):
        check_actions(parameters.kind, spec.action)
        super().__init__(parameters, spec, seed, eager, models, jit_compile)
        self.action_size = spec.of_one_agent().action.shape[0]

    def choose(self, observation: Mapping[str, np.ndarray], mode: Mode, env_steps: int) -> np.ndarray:
        """Chooses actions `[N, A]` in [-1, 1]; exploration is Gaussian noise added to a sample; "greedy" is tanh(mean)."""
        shape = (len(next(iter(observation.values()))), self.action_size)
        if mode == "random":
            return self.rng.uniform(-1.0, 1.0, shape).astype(np.float32)
        loc, log_scale = self.policy_output(observation)
        if mode == "greedy":
            return np.tanh(loc)
        scale = np.exp(np.clip(log_scale, LOG_SCALE_MIN, LOG_SCALE_MAX))
        action = np.tanh(loc + scale * self.rng.standard_normal(shape, np.float32))
        if mode == "explore" and isinstance(self.exploration, AdditiveNoiseParameters):
            noise = self.rng.standard_normal(shape, np.float32) * np.float32(self.exploration.noise_std)
            action = np.clip(action + noise, -1.0, 1.0)
        return action

    def chosen_tensor(self, observation: Mapping[str, tf.Tensor], noise: tf.Tensor | None) -> tf.Tensor:
        """Returns actions `[B, A]`: the mode, or a sample made with standard normal noise `[B, A]`."""
        policy = SquashedGaussian(*self.networks["policy"](observation))
        return policy.mode() if noise is None else policy.sample_and_log_prob(noise)[0]

    def noise_tensor(self, rows: int | tf.Tensor) -> tf.Tensor:
        """Draws standard normal noise `[rows, A]`."""
        return fresh_normal([rows, self.action_size])

    def update_noise(self, name: str) -> tf.Tensor:
        """Returns standard normal noise for this replica's rows of an update, `[B, A]`; see `noise`."""
        return self.noise(name, [self.rows, self.action_size])
