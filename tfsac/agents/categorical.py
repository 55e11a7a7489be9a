"""What agents with a categorical policy share: acting, masks, and the policy's part of an export."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tfsac.agents.acting import ActingAgent
from tfsac.agents.base import Mode, ModelMaker
from tfsac.agents.noise import fresh_uniform
from tfsac.distributions import MaskedCategorical
from tfsac.parameters import AgentParameters, EpsilonGreedyParameters
from tfsac.types import ACTION_MASK, DiscreteSpec, Spec, check_actions


class CategoricalAgent(ActingAgent):
    """Acts with a network `policy` that returns a logit of each action.

    Args:
        parameters, spec, seed, eager, models, jit_compile: see `Agent`.

    Attributes:
        num_actions: how many there are.

    Raises:
        ValueError: actions that are no choice.
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
        assert isinstance(spec.action, DiscreteSpec)
        self.num_actions = spec.action.num_actions

    def choose(self, observation: Mapping[str, np.ndarray], mode: Mode, env_steps: int) -> np.ndarray:
        """Chooses actions `[N]`; exploration is epsilon-greedy for each row on its own; "greedy" takes the likeliest."""
        mask = observation.get(ACTION_MASK)
        shape = (len(next(iter(observation.values()))), self.num_actions)
        if mode == "random":
            return self._uniform(shape, mask)
        (logits,) = self.policy_output(observation)
        if mode == "greedy":
            return best(logits, mask)
        action = best(logits + self.rng.gumbel(size=shape), mask)
        if mode == "explore" and isinstance(self.exploration, EpsilonGreedyParameters):
            at_random = self.rng.random(shape[0]) < self.exploration.epsilon(env_steps)
            action = np.where(at_random, self._uniform(shape, mask), action)
        return action

    def _uniform(self, shape: tuple[int, int], mask: np.ndarray | None) -> np.ndarray:
        return best(self.rng.random(shape), mask)

    def policy(self, observation: Mapping[str, tf.Tensor]) -> MaskedCategorical:
        """Returns the policy at folded observations."""
        return MaskedCategorical(self.networks["policy"](observation), observation.get(ACTION_MASK))

    def num_valid(self, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns how many actions are valid at folded observations, `[B]` float32."""
        if ACTION_MASK in observation:
            return tf.reduce_sum(tf.cast(observation[ACTION_MASK], tf.float32), axis=-1)
        rows = tf.shape(next(iter(observation.values())))[:1]
        return tf.fill(rows, float(self.num_actions))

    def chosen_tensor(self, observation: Mapping[str, tf.Tensor], noise: tf.Tensor | None) -> tf.Tensor:
        """Returns actions `[B]`: the likeliest, or a sample made with uniform noise `[B, A]` in [0, 1)."""
        policy = self.policy(observation)
        return policy.mode() if noise is None else policy.sample(noise)

    def noise_tensor(self, rows: int | tf.Tensor) -> tf.Tensor:
        """Draws uniform noise `[rows, A]`."""
        return fresh_uniform([rows, self.num_actions])


def best(score: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Returns the valid actions of the largest score, `[N]`.

    Args:
        score: `[N, A]`.
        mask: `[N, A]`, or None where all actions are valid.
    """
    return np.argmax(score if mask is None else np.where(mask, score, -np.inf), axis=-1).astype(np.int32)
