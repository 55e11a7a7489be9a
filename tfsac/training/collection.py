"""Collect experience: act in all environments, one step at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfsac.environments import Environments, Filters, VectorEnvironments
from tfsac.policies import BasePolicy, Mode
from tfsac.policies.base_policy import with_reward
from tfsac.training.non_finite import refuse_non_finite_action
from tfsac.types import OBSERVATION, Step

POLICY_STATE, ACTOR_WEIGHTS = "policy_state/", "handed/"  # arrays of a checkpoint


class Collector:
    """Runs a policy in its environments, with observations normalised by the filters.

    Attributes:
        policy_state: `[E, ...]` by field, for policies with a state.
        actor_weights: the newest weights, if the acting policy is not the learning one; part of a checkpoint.
    """

    def __init__(self, policy: BasePolicy, filters: Filters, environments: Environments | VectorEnvironments):
        self.policy, self.filters, self.environments = policy, filters, environments
        self.policy_state: Mapping[str, np.ndarray] = {}
        self.actor_weights: list[np.ndarray] = []

    def step(self, random_until: float, env_steps: int) -> Step:
        """Acts once in every environment.

        Args:
            random_until: number of environment steps before which actions are uniform instead of the policy's.
            env_steps: environment steps of the run so far.

        Raises:
            EnvironmentFailure, KeyboardInterrupt: an environment raised; the state is unchanged.
            NonFiniteError: the action is not finite.
        """
        environments = self.environments
        mode: Mode = "random" if env_steps < random_until else "explore"
        normalised = self.filters.observation(environments.observation)
        rng_state = self.policy.rng.bit_generator.state
        first = environments.is_first
        try:
            action, policy_state, extras = self.policy.act(normalised, self.policy_state, first, mode, env_steps)
            refuse_non_finite_action(action)
            step = environments.step(action)
        except BaseException:  # a failed step must not consume random numbers
            self.policy.rng.bit_generator.state = rng_state
            raise
        self.policy_state = with_reward(policy_state, step.reward)
        return step._replace(extras=dict(extras))

    def sync_from(self, learned: BasePolicy, actor_weights: list[np.ndarray] | None = None) -> None:
        """Acts with the weights of the agent's policy from now on; `actor_weights` are from the last update, if any."""
        if learned is not self.policy:
            self._set_weights(learned.actor_weights(actor_weights))

    def _set_weights(self, weights: list[np.ndarray]) -> None:
        self.actor_weights = weights
        self.policy.load_acting_weights(weights)

    def reseed(self, seed: Sequence[int]) -> None:
        """Switches to another stream of random numbers."""
        self.policy.rng = np.random.default_rng(seed)

    def state(self) -> dict[str, Any]:
        """Returns the state for a checkpoint, as JSON values."""
        return {"environments": self.environments.state(), "rng": self.policy.rng.bit_generator.state}

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays for a checkpoint: observations, policy state and acting weights."""
        return {
            **{OBSERVATION + key: value for key, value in self.environments.observation.items()},
            **{POLICY_STATE + name: value for name, value in self.policy_state.items()},
            **{f"{ACTOR_WEIGHTS}{i}": value for i, value in enumerate(self.actor_weights)},
        }

    def restore(
        self, state: dict[str, Any], arrays: Mapping[str, np.ndarray], episode: Any, learned: BasePolicy
    ) -> bool:
        """Restores the state of a checkpoint, and returns whether the running episodes continue; else new ones start.

        `episode` are the steps of the running episode, see `Environments.restore`; `learned` is the agent's policy.
        """
        self.policy.rng.bit_generator.state = state["rng"]
        prefixes = POLICY_STATE, ACTOR_WEIGHTS, OBSERVATION
        self.policy_state, weights, observation = (
            {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
            for prefix in prefixes
        )
        if weights and learned is not self.policy:
            self._set_weights(list(weights.values()))
        else:
            self.sync_from(learned)
        return self.environments.restore(state["environments"], episode, observation)
