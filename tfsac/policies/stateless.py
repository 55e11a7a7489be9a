"""Policies without a state, for a single agent or a team that shares them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.errors import TfsacError
from tfsac.networks import GraphForward, forward_of
from tfsac.networks.network import Networks
from tfsac.parameters import AgentParameters, class_of, is_of_tfsac
from tfsac.policies.actions import ContinuousActions, DiscreteActions
from tfsac.policies.base_policy import BasePolicy, Mode, check_single
from tfsac.policies.distributions import SquashedGaussian
from tfsac.policies.exploration import Exploration
from tfsac.policies.team_axis import fold, unfold
from tfsac.types import ACTION_MASK, ActResult, Arrays, Spec, Tensors, is_valid, limits_of

# Number of observations from which an accelerator evaluates the network; not measured on a GPU. On a CPU NumPy always
# does: up to hundreds it is several times as fast as a graph, and for thousands a graph saves a third at most
# (benchmarks/acting.py).
MIN_ROWS_ON_ACCELERATOR = 1024


class StatelessPolicy(BasePolicy):
    """Samples from the distribution that the network `policy` computes; only its exploration can have a state.

    A subclass chooses actions of single agents, `[B, ...]`; a team's axis is folded into B before and unfolded after.

    Attributes:
        graph_forward: evaluates the network for many observations, from its variables; None without an accelerator, or
            if the policy acts with other weights. Noise, masks and exploration stay in NumPy.
    """

    def __init__(self, parameters: AgentParameters, spec: Spec, networks: Networks, seed: int = 0):
        super().__init__(parameters, spec, {"policy": networks["policy"]}, seed)
        network_spec = networks["policy"], spec.single_agent()
        self.forwards = {"policy": forward_of(*network_spec)}
        self.graph_forward = GraphForward(*network_spec) if tf.config.get_visible_devices("GPU") else None
        exploration = parameters.exploration
        self.exploration = class_of(exploration, Exploration)(exploration) if exploration else None

    @classmethod
    def check(cls, parameters: AgentParameters, spec: Spec, custom_models: bool = False) -> None:
        """Rejects actions of another kind and several rewards per step; see `BasePolicy.check`."""
        super().check(parameters, spec, custom_models)
        check_single(parameters, spec._replace(num_agents=None))

    @abstractmethod
    def distribution(self, outputs: list[Any], observation: Mapping[str, Any]) -> Any:
        """Returns the policy's distribution, with `mode()` and `sample(noise)`.

        Args:
            outputs: outputs of the network's head, arrays or tensors.
            observation: the observation they were computed for.
        """

    def distribution_at(self, observation: Arrays, state: Arrays) -> Any:
        """Returns the policy's distribution; see `BasePolicy.distribution_at`."""
        inputs = dict(observation) if self.spec.num_agents is None else fold(dict(observation))
        return self.distribution(self.outputs("policy", inputs), inputs)

    def act(
        self,
        observation: Arrays,
        state: Arrays | None = None,
        is_first: np.ndarray | None = None,
        mode: Mode = "sample",
        env_steps: int = 0,
    ) -> ActResult:
        """Chooses actions; see `BasePolicy.act`."""
        if self.spec.num_agents is None:
            return ActResult(*self._act(observation, state or {}, mode, env_steps))
        action, state = self._act(fold(dict(observation)), state or {}, mode, env_steps)
        return ActResult(unfold(action, self.spec.num_agents), state)

    def _act(self, observation: Arrays, state: Arrays, mode: Mode, env_steps: int) -> tuple[np.ndarray, Arrays]:
        """Returns actions and the exploration's next state."""
        rows = len(next(iter(observation.values())))
        if mode == "random":
            return self.uniform(observation, rows), state
        forward = self.forwards["policy"]
        if rows >= MIN_ROWS_ON_ACCELERATOR:
            forward = self.graph_forward or forward
        policy = self.distribution(forward(observation), observation)
        if mode == "greedy":
            return policy.mode(), state
        if mode == "sample" or self.exploration is None:
            return policy.sample(self.noise(rows)), state
        noise, state = self.exploration.noise(rows, self.noise, self.rng, state)
        return self.explored(policy.sample(noise), observation, env_steps), state

    def explored(self, action: Any, observation: Arrays, env_steps: int) -> Any:
        """Applies the exploration to the policy's samples."""
        return self.changed(action, observation, env_steps, lambda: self.uniform(observation, len(action)))

    def changed(
        self, action: np.ndarray, observation: Arrays, env_steps: int, uniform: Callable[[], Any]
    ) -> np.ndarray:
        """Applies the exploration to an array of actions; `uniform` draws a random array like it."""
        assert self.exploration is not None
        changed = self.exploration(action, self.rng, uniform, env_steps)
        if not is_of_tfsac(type(self.exploration)):
            self._check_explored(changed, action, observation.get(ACTION_MASK))
        return changed

    def load_acting_weights(self, weights: list[np.ndarray]) -> None:
        """Loads another policy's weights, to act on the CPU; see `BasePolicy.load_acting_weights`."""
        super().load_acting_weights(weights)
        self.graph_forward = None

    def _check_explored(self, changed: Any, action: np.ndarray, mask: np.ndarray | None) -> None:
        """Rejects actions of a user's exploration that the environment would receive differently than the critics."""
        ((_, low, high), *_) = limits_of(action, self.spec.action)
        expected = action.shape, action.dtype.kind
        fits = isinstance(changed, np.ndarray) and (changed.shape, changed.dtype.kind) == expected
        fits = fits and bool(((changed >= low) & (changed <= high)).all())
        if not fits or (mask is not None and not is_valid(changed, mask, self.spec.action).all()):
            requirement = f"valid {action.dtype} actions of shape {action.shape} in [{low}, {high}]"
            raise TfsacError(f"{type(self.exploration).__name__} must return {requirement}, got {changed!r}")

    def act_tensors(
        self, observation: Tensors, noise: tf.Tensor | None = None, state: Tensors | None = None
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns actions as tensors; see `BasePolicy.act_tensors`. A team may have any size here."""
        team = self.spec.num_agents is not None
        inputs = fold(dict(observation)) if team else observation
        policy = self.distribution(self.outputs("policy", inputs), inputs)
        action = policy.mode() if noise is None else policy.sample(fold(noise) if team else noise)
        return unfold(action, leading_sizes(observation)[1]) if team else action, {}

    def sample_noise(self, observation: Tensors) -> tf.Tensor:
        """Draws noise `[E, A]`, for a team `[E, P, A]`."""
        rows = leading_sizes(observation)
        if self.spec.num_agents is None:
            return self.noise_tensor(rows[0])
        return unfold(self.noise_tensor(rows[0] * rows[1]), rows[1])


def leading_sizes(observation: Tensors) -> tf.Tensor:
    """Returns the sizes of the first dimensions, E and (for a team) P, which may be known only at run time."""
    return tf.shape(next(iter(observation.values())))


class CategoricalPolicy(DiscreteActions, StatelessPolicy):
    """Discrete actions `[B]`, numbered from 0, with a logit each; those outside the mask are never chosen."""


class SquashedGaussianPolicy(ContinuousActions, StatelessPolicy):
    """Actions `[B, A]` in (-1, 1), tanh of a Gaussian whose location and log scale the network computes."""

    def distribution(self, outputs: list[Any], observation: Mapping[str, Any]) -> SquashedGaussian:
        """Returns the policy's distribution."""
        return SquashedGaussian(*outputs)
