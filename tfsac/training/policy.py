"""A policy as its user sees it: raw observations in, actions in the environment's bounds out."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tfsac import argument_checks
from tfsac.agents import Agent
from tfsac.environments import Filters, action_map, as_arrays, checked_action
from tfsac.policies import BasePolicy, Mode
from tfsac.policies.base_policy import state_before
from tfsac.training.non_finite import all_finite
from tfsac.types import ACTION_MASK, SWITCH, Spec


class Policy:
    """A trained policy: raw observations in, the environment's own actions out.

    A policy with a state keeps it from one action to the next: call `reset` at the start of an episode.

    Args:
        acting: the policy that acts in [-1, 1], or with discrete actions from 0, on normalised observations.
        filters: of the run.
        critics: the agent, which `values` and `tfsac.export(..., values=True)` need; see `tfsac.load_policy`.

    Attributes:
        to_environment: from the agent's actions to the environment's; its `inverse` goes back.
        state: arrays `[E, ...]` by field after the last action; empty after `reset`, and for policies without one.
        switched: whether the last action started a new trajectory, or `[E]` booleans; None for policies without
            temporal abstraction.

    Example:
        >>> policy = tfsac.load_policy("runs/pendulum")
        >>> policy.reset()
        >>> action = policy.act(observation)
    """

    def __init__(self, acting: BasePolicy, filters: Filters, critics: Agent | None = None):
        argument_checks.instance(
            "acting", acting, BasePolicy, "an agent's policy; tfsac.load_policy(run_dir) returns the policy of a run"
        )
        self.acting, self.critics, self.filters = (
            acting,
            critics,
            argument_checks.instance("filters", filters, Filters, "the Filters of the run"),
        )
        self.to_environment = action_map(acting.spec)
        self.reset()

    def __getattr__(self, name: str) -> Any:
        """Names what somebody may look for.

        Raises:
            AttributeError: always; Python asks here for what a policy does not have.
        """
        hints = {
            "predict": "act(observation) returns an action alone; deterministic=False samples it",
            "agent": "acting is the policy of the agent, and critics the agent where it was loaded",
            "learn": "tfsac.train trains",
            "save": "tfsac.export(policy, path) writes it",
        }
        hint = hints.get(name, "help(policy) lists what it has")
        raise AttributeError(f"A policy has no {name}. {hint}. Received: policy.{name}")

    def reset(self) -> None:
        """Sets the state to the initial one: an episode starts, in all environments."""
        self.state: dict[str, np.ndarray] = {}
        self.switched: Any = None

    def act(self, observation: Any, deterministic: bool = True) -> np.ndarray:
        """Chooses an action.

        Args:
            observation: as the environment gives it, for one environment or with a leading dimension `[E, ...]`.
            deterministic: the mode of the policy instead of a sample.

        Returns:
            action `[A]`, or `[E, A]`, in the environment's bounds; the number of a discrete action, or `[E]` of them.
            With P agents there is an action of each: `[P, A]` or `[P]`.

        Raises:
            TypeError: deterministic is no flag.
            ValueError: an observation of other keys or another shape, or that is not finite, a mask without any valid
                action, or another number of environments than in the call before where the policy has a state; an
                observation for which the policy computes no finite action.
        """
        chosen, action = self.choose(observation, deterministic)
        if not all_finite(chosen):
            raise ValueError(
                "The policy's numbers overflow here: its weights or the observation are too large. Received: "
                f"{argument_checks.shown(observation)}"
            )
        return action

    def choose(self, observation: Any, deterministic: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Returns the agent's action and the environment's; where the policy's numbers overflow, these are NaN or
        those of action -1.

        Args:
            observation, deterministic: see `act`.

        Raises:
            TypeError, ValueError: as `act`, but for overflows.
        """
        argument_checks.flag("deterministic", deterministic)
        arrays, single = batched(observation, self.acting.spec)
        mode: Mode = "greedy" if deterministic else "sample"
        result = self.acting.act(self.filters.observation(arrays), self.state, mode=mode)
        self.state, action = dict(result.state), self.to_environment(result.action)
        if SWITCH in result.extras:
            switched = result.extras[SWITCH] > 0
            self.switched = bool(switched[0]) if single else switched
        return (result.action[0], action[0]) if single else (result.action, action)

    def values(self, observation: Any, action: Any) -> dict[str, np.ndarray]:
        """Returns what the critics think of actions, as the exported signature "values" does.

        A policy with a state is asked in the one after its last action, so call it before `act`.

        Args:
            observation: as in `act`, for one environment or with a leading dimension `[E, ...]`.
            action: as `act` returns it, in the environment's bounds, of one environment or `[E, ...]`.

        Returns:
            "q", the smallest critic's (of an ensemble, what its policy maximises), and "v" where the agent has one, in
            units of the filtered reward: a number each, or `[E]`. With P agents `[P]`, or `[E, P]`. Policies with
            temporal abstraction have "switch_q" and "keep_q" instead.

        Raises:
            ValueError: a policy without critics, or one whose critics have an LSTM of their own; an observation as
                `act` refuses it; an action of another shape, or beyond the bounds.
        """
        if self.critics is None:
            raise ValueError(
                "The values are those of critics, so load the policy with them: "
                "tfsac.load_policy(run_dir, critics=True). Received: a policy without critics"
            )
        arrays, single = batched(observation, self.acting.spec)
        rows = len(next(iter(arrays.values())))
        taken = checked_action("values takes", action, self.acting.spec.action, () if single else (rows,))
        given = (
            self.filters.observation(arrays),
            self.to_environment.inverse(taken[None] if single else taken),
            dict(state_before(self.state, None, self.acting.initial_state(rows))),
        )
        values = self.critics.value_tensors(*tf.nest.map_structure(tf.constant, given))
        return {name: value.numpy()[0] if single else value.numpy() for name, value in values.items()}


def batched(observation: Any, spec: Spec) -> tuple[dict[str, np.ndarray], bool]:
    """Returns raw observations as arrays `[E, ...]` by key, and whether it was one, without a leading dimension.

    Args:
        observation: as the environment gives it, for one environment or with a leading dimension `[E, ...]`.
        spec: of observations.

    Raises:
        ValueError: an observation of other keys or another shape, or that is not finite, or a mask without any valid
            action.
    """
    arrays = as_arrays(observation, spec)
    for key, array in arrays.items():
        if array.dtype == np.float32 and not np.isfinite(array).all():
            raise ValueError(f"Observation {key!r} must be finite. Received: {array}")
    if ACTION_MASK in arrays and not np.array_equal(arrays[ACTION_MASK], observation[ACTION_MASK]):
        raise ValueError(f"{ACTION_MASK!r} holds 0 and 1. Received: {observation[ACTION_MASK]}")
    key, array = next(iter(arrays.items()))
    shape = spec.observation[key].shape
    single = array.ndim == len(shape)
    if array.ndim > len(shape) + 1:
        raise ValueError(
            f"A policy takes one observation {shape}, or several {argument_checks.several(shape)}. "
            f"Received: {key!r} of the shape {array.shape}"
        )
    if not single and not len(array):
        raise ValueError(f"A policy takes at least one observation. Received: {key!r} of the shape {array.shape}")
    if single:
        arrays = {key: value[None] for key, value in arrays.items()}
    if ACTION_MASK in arrays and not arrays[ACTION_MASK].any(axis=-1).all():
        raise ValueError(
            f"At least one action is valid in every state. Received: {ACTION_MASK}={arrays[ACTION_MASK].astype(int)}"
        )
    return arrays, single
