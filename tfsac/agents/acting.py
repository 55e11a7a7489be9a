"""Acting with the network `policy`, of one agent or of several that share it: folding, and evaluation outside of updates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import get_args

import numpy as np
import tensorflow as tf

from tfsac.agents.base import Agent, Mode, ModelMaker
from tfsac.agents.team import fold, unfold
from tfsac.networks import forward_of
from tfsac.parameters import AgentParameters
from tfsac.types import ActResult, Spec

MODES: tuple[str, ...] = get_args(Mode)


class ActingAgent(Agent):
    """An agent whose policy has no state. Its network is evaluated in NumPy where it is dense, in a compiled graph otherwise.

    A subclass chooses actions for single agents, `[B, ...]`; where the spec has several, their axis is folded into B before
    and unfolded after.

    Args:
        parameters, spec, seed, eager, models, jit_compile: see `Agent`.

    Raises:
        ValueError: several rewards a step.
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
        if spec.num_rewards is not None:
            raise ValueError(
                f"This agent ({parameters.kind!r}) learns from one reward a step; several are for agents of kind "
                f"'temporally_abstract_actor_critic'. Received: {spec.num_rewards} rewards"
            )
        super().__init__(parameters, spec, seed, eager, models, jit_compile)
        self.forward = forward_of(self.networks["policy"], spec.of_one_agent())

    @abstractmethod
    def choose(self, observation: Mapping[str, np.ndarray], mode: Mode, env_steps: int) -> np.ndarray:
        """Chooses actions `[B, ...]` as `act` says."""

    @abstractmethod
    def chosen_tensor(self, observation: Mapping[str, tf.Tensor], noise: tf.Tensor | None) -> tf.Tensor:
        """Returns what `choose` does as tensors: the mode, or a sample made with noise `[B, ...]`."""

    @abstractmethod
    def noise_tensor(self, rows: int | tf.Tensor) -> tf.Tensor:
        """Draws the noise of `chosen_tensor`, `[rows, ...]`."""

    @abstractmethod
    def values_of(self, observation: Mapping[str, tf.Tensor], action: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the values of observations and actions, `[B]` by name."""

    def act(
        self,
        observation: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray] | None = None,
        is_first: np.ndarray | None = None,
        mode: Mode = "sample",
        env_steps: int = 0,
    ) -> ActResult:
        """Chooses actions; see `Agent.act`."""
        if mode not in MODES:
            raise ValueError(f"mode is 'random', 'explore', 'sample' or 'greedy'. Received: {mode!r}")
        if self.spec.num_agents is None:
            return ActResult(self.choose(observation, mode, env_steps))
        return ActResult(unfold(self.choose(fold(dict(observation)), mode, env_steps), self.spec.num_agents))

    def act_tensors(
        self, observation: Mapping[str, tf.Tensor], noise: tf.Tensor | None = None, state: Mapping[str, tf.Tensor] | None = None
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns actions as tensors; see `Agent.act_tensors`. Any number of agents can share the policy here."""
        if self.spec.num_agents is None:
            return self.chosen_tensor(observation, noise), {}
        action = self.chosen_tensor(fold(dict(observation)), None if noise is None else fold(noise))
        return unfold(action, _leading(observation)[1]), {}

    def acting_noise(self, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Draws noise `[E, ...]`, of several agents `[E, N, ...]`."""
        rows = _leading(observation)
        if self.spec.num_agents is None:
            return self.noise_tensor(rows[0])
        return unfold(self.noise_tensor(rows[0] * rows[1]), rows[1])

    def value_tensors(
        self, observation: Mapping[str, tf.Tensor], action: tf.Tensor, state: Mapping[str, tf.Tensor] | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns values by name, `[E]`; of several agents, `[E, N]`."""
        if self.spec.num_agents is None:
            return self.values_of(observation, action)
        return unfold(self.values_of(fold(dict(observation)), fold(action)), _leading(observation)[1])

    # -- the policy outside of updates ---------------------------------------------------------------------------------

    def policy_output(self, observation: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Returns what the policy's head computes, arrays `[B, A]`."""
        return self.forward(dict(observation))

    @property
    def acts_in_graph(self) -> bool:
        """Whether acting reads variables."""
        return not self.forward.variables

    def acting_weights(self) -> list[tf.Tensor]:
        """Returns the policy's weights where acting computes in NumPy."""
        return [tf.identity(v.value) for v in self.forward.variables]

    def refresh(self, outputs: list[np.ndarray] | None = None) -> None:
        """Hands the policy's weights to the NumPy forward pass."""
        self.forward.load([w.numpy() for w in self.acting_weights()] if outputs is None else outputs)


def _leading(observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns the sizes of the first dimensions, E and with several agents N, where they are known only when it runs."""
    return tf.shape(next(iter(observation.values())))
