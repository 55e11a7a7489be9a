"""A policy as its user sees it: raw observations in, actions in the environment's bounds out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfsac import arguments
from tfsac.agents import Agent, Mode
from tfsac.environments import Filters, action_map, as_arrays
from tfsac.types import ACTION_MASK, SWITCH


class Policy:
    """An agent together with the filters it was trained with, and the environment's own actions.

    A policy with a state remembers it from one action to the next: call `reset` where an episode begins.

    Args:
        agent: that acts in [-1, 1], or with choices from 0, on filtered observations.
        filters: of the run.

    Attributes:
        to_environment: from the agent's actions to the environment's; its `inverse` goes back.
        state: arrays `[E, ...]` by field after the last action; empty after `reset`, and for policies without one.
        switched: whether the last action began a new trajectory, or `[E]` booleans; None for policies that choose anew in each
            step.

    Example:
        >>> policy = tfsac.load_policy("runs/pendulum")
        >>> policy.reset()
        >>> action = policy.act(observation)
    """

    def __init__(self, agent: Agent, filters: Filters):
        arguments.instance("agent", agent, Agent, "an agent; tfsac.load_policy(run_dir) returns the policy of a run")
        self.agent, self.filters = agent, arguments.instance("filters", filters, Filters, "the Filters of the agent's run")
        self.to_environment = action_map(agent.spec)
        self.reset()

    def reset(self) -> None:
        """Forgets the state: what follows is the begin of an episode, in all environments."""
        self.state: dict[str, np.ndarray] = {}
        self.switched: Any = None

    def act(self, observation: Any, deterministic: bool = True) -> np.ndarray:
        """Chooses an action.

        Args:
            observation: as the environment gives it, for one environment or with a leading dimension `[E, ...]`.
            deterministic: the mode of the policy instead of a sample.

        Returns:
            action `[A]`, or `[E, A]`, in the environment's bounds; the number of a choice, or `[E]` of them. With N agents
            there is an action of each: `[N, A]` or `[N]`.

        Raises:
            TypeError: deterministic is no flag.
            ValueError: an observation of other keys or another shape, or that is not finite, a mask without any valid action, or another number
                of environments than in the call before where the policy has a state.
        """
        arguments.flag("deterministic", deterministic)
        arrays = as_arrays(observation, self.agent.spec)
        for key, array in arrays.items():
            if array.dtype == np.float32 and not np.isfinite(array).all():
                raise ValueError(f"Observation {key!r} must be finite. Received: {array}")
        if ACTION_MASK in arrays and not np.array_equal(arrays[ACTION_MASK], observation[ACTION_MASK]):
            raise ValueError(f"{ACTION_MASK!r} holds 0 and 1. Received: {observation[ACTION_MASK]}")
        key, array = next(iter(arrays.items()))
        shape = self.agent.spec.observation[key].shape
        single = array.ndim == len(shape)
        if array.ndim > len(shape) + 1:
            raise ValueError(f"act takes one observation {shape}, or several {('E', *shape)}. Received: {key!r} of the shape {array.shape}")
        if single:
            arrays = {key: value[None] for key, value in arrays.items()}
        if ACTION_MASK in arrays and not arrays[ACTION_MASK].any(axis=-1).all():
            raise ValueError(f"At least one action is valid in every state. Received: {ACTION_MASK}={arrays[ACTION_MASK].astype(int)}")
        mode: Mode = "greedy" if deterministic else "sample"
        result = self.agent.act(self.filters.observation(arrays), self.state, mode=mode)
        self.state, action = dict(result.state), self.to_environment(result.action)
        if SWITCH in result.extras:
            switched = result.extras[SWITCH] > 0
            self.switched = bool(switched[0]) if single else switched
        return action[0] if single else action
