"""A policy as its user sees it: raw observations in, actions in the environment's bounds out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfsac.agents import Agent
from tfsac.environments import ActionRescaling, Filters, as_arrays


class Policy:
    """An agent together with the filters and the rescaling it was trained with.

    Args:
        agent: that acts in [-1, 1] on filtered observations.
        filters: of the run.

    Example:
        >>> policy = tfsac.load_policy("runs/pendulum")
        >>> action = policy.act(observation)
    """

    def __init__(self, agent: Agent, filters: Filters):
        self.agent, self.filters = agent, filters
        self.rescale = ActionRescaling.of(agent.spec)

    def act(self, observation: Any, deterministic: bool = True) -> np.ndarray:
        """Chooses an action.

        Args:
            observation: as the environment gives it, for one environment or with a leading dimension `[N, ...]`.
            deterministic: the mode of the policy instead of a sample.

        Returns:
            action `[A]`, or `[N, A]`, in the environment's bounds.

        Raises:
            ValueError: an observation of other keys or another shape.
        """
        arrays = as_arrays(observation, self.agent.spec)
        key, array = next(iter(arrays.items()))
        single = array.ndim == len(self.agent.spec.observation[key].shape)
        if single:
            arrays = {key: value[None] for key, value in arrays.items()}
        result = self.agent.act(self.filters.observation(arrays), mode="greedy" if deterministic else "sample")
        action = self.rescale(result.action)
        return action[0] if single else action
