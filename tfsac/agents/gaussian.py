"""What agents with a squashed Gaussian policy share: acting, and the policy's part of an export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.agents.base import Agent, Mode, ModelMaker
from tfsac.distributions import LOG_SCALE_MAX, LOG_SCALE_MIN, SquashedGaussian
from tfsac.networks import NumpyForward
from tfsac.parameters import AgentParameters
from tfsac.types import ActResult, Spec


class GaussianAgent(Agent):
    """Acts with the network `policy`, in NumPy where it is dense and in a compiled graph otherwise.

    Args:
        parameters, spec, seed, eager, models: see `Agent`.
    """

    def __init__(
        self, parameters: AgentParameters, spec: Spec, seed: int = 0, eager: bool = False, models: ModelMaker | None = None
    ):
        super().__init__(parameters, spec, seed, eager, models)
        self.exploration = parameters.exploration
        self.forward = NumpyForward(self.networks["policy"]) if NumpyForward.supports(self.networks["policy"]) else None
        self._policy = tf.function(
            lambda observation: self.networks["policy"](observation),
            input_signature=[{k: tf.TensorSpec([None, *a.shape], a.dtype) for k, a in spec.observation.items()}],
        )

    def act(self, observation: Mapping[str, np.ndarray], state: Any = (), is_first: Any = None, mode: Mode = "sample") -> ActResult:
        """Chooses actions for observations `[N, ...]`.

        Args:
            observation: arrays by key, filtered as in training.
            state: of the policy; this one has none.
            is_first: `[N]`, unused by a policy without state.
            mode: "random" is uniform, "sample" draws from the policy, "explore" adds the exploration noise to a sample,
                "greedy" is tanh(mean).

        Returns:
            actions `[N, A]` in [-1, 1].

        Raises:
            ValueError: an unknown mode.
        """
        rows = len(next(iter(observation.values())))
        shape = (rows, *self.spec.action.shape)
        if mode == "random":
            return ActResult(self.rng.uniform(-1.0, 1.0, shape).astype(np.float32))
        if mode not in ("explore", "sample", "greedy"):
            raise ValueError(f"mode is 'random', 'explore', 'sample' or 'greedy'. Received: {mode!r}")
        loc, log_scale = self.policy_output(observation)
        if mode == "greedy":
            return ActResult(np.tanh(loc))
        scale = np.exp(np.clip(log_scale, LOG_SCALE_MIN, LOG_SCALE_MAX))
        action = np.tanh(loc + scale * self.rng.standard_normal(shape, np.float32))
        if mode == "explore" and self.exploration is not None:
            noise = self.rng.standard_normal(shape, np.float32) * np.float32(self.exploration.noise_std)
            action = np.clip(action + noise, -1.0, 1.0)
        return ActResult(action)

    def policy_output(self, observation: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Returns loc and unclipped log scale `[N, A]` of the policy."""
        if self.forward is not None:
            return self.forward(dict(observation))
        loc, log_scale = self._policy(dict(observation))
        return loc.numpy(), log_scale.numpy()

    def action_tensor(self, observation: Mapping[str, tf.Tensor], noise_BA: tf.Tensor | None = None) -> tf.Tensor:
        """Returns what `act` does as tensors, to be exported: actions `[B, A]` in [-1, 1].

        Args:
            observation: filtered, `[B, ...]` by key.
            noise_BA: standard normal, for a sample; None for the mode.
        """
        policy = SquashedGaussian(*self.networks["policy"](observation))
        return policy.mode() if noise_BA is None else policy.sample_and_log_prob(noise_BA)[0]

    def acting_weights(self) -> list[tf.Tensor]:
        """Returns the policy's weights where acting computes in NumPy."""
        return [tf.identity(v.value) for v in self.networks["policy"].trainable_variables] if self.forward else []

    def refresh(self, outputs: list[np.ndarray] | None = None) -> None:
        """Hands the policy's weights to the NumPy forward pass."""
        if self.forward is not None:
            self.forward.load([w.numpy() for w in self.acting_weights()] if outputs is None else outputs)
