"""The public interface of a trained policy: raw observations in, actions in the environment's bounds out."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.agents import Agent
from tfsac.environments import Filters, action_map, checked_action
from tfsac.environments.spaces import ONE_SEQUENCE, batched, unflattened
from tfsac.errors import TfsacError
from tfsac.policies import BasePolicy, Mode
from tfsac.policies.base_policy import read_by, state_before, with_reward
from tfsac.training.non_finite import refuse_non_finite_action
from tfsac.types import PREVIOUS_REWARD, SWITCH, arrays_of, map_action
from tfsac.utils.machine import use_tensorflow

NO_REWARD = "this policy reads the reward of its last action: call observe(reward) after every step"
NO_CRITICS = "values need critics: load the policy with tfsac.load_policy(run_dir, critics=True)"


class Policy:
    """A trained policy: raw observations in, the environment's own actions out.

    A policy with a state keeps it between actions: call `reset` at the start of an episode, and `observe` after each
    step if the policy reads the last reward. Threads may share a policy without a state; a policy with a state serves
    one sequence of actions at a time.

    Args:
        acting: the policy that acts in [-1, 1], or with discrete actions from 0, on normalised observations.
        filters: filters of the run.
        critics: the agent, which `values` and `tfsac.export(..., values=True)` need; see `tfsac.load_policy`.

    Attributes:
        reads: the spec, with only the observations that the policy reads.
        to_environment: maps the agent's actions to the environment's; `inverse` maps them back.
        state: arrays `[E, ...]` by field after the last action; empty after `reset` and for policies without a state.
        switched: whether the last action started a new trajectory, a bool or `[E]` booleans; None for policies without
            temporal abstraction.

    Example:
        >>> policy = tfsac.load_policy("runs/pendulum")
        >>> policy.reset()
        >>> action = policy.act(observation)
    """

    def __init__(self, acting: BasePolicy, filters: Filters, critics: Agent | None = None):
        self.acting, self.critics, self.filters = acting, critics, filters
        self.reads = read_by(acting.acts_through, acting.networks, acting.spec)
        self.to_environment = action_map(acting.spec)
        self.reset()

    def reset(self) -> None:
        """Resets the state at the start of an episode in all environments."""
        self.state: dict[str, np.ndarray] = {}
        self.switched: Any = None

    def observe(self, reward: Any) -> None:
        """Passes the reward of the last action, a number or `[E]`, to the policy; most policies ignore it."""
        self.state = dict(with_reward(self.state, np.reshape(reward, -1)))

    def act(self, observation: Any, deterministic: bool = True) -> Any:
        """Chooses an action.

        Args:
            observation: raw observation of one environment, or with leading dimensions such as `[E, ...]` or
                `[T, E, ...]`; a policy with a state accepts at most one leading dimension. Keys that the policy does
                not read are optional and ignored.
            deterministic: return the mode of the policy instead of a sample.

        Returns:
            Action for the environment: `[A]` within its bounds, the number of a discrete action, or a dict or tuple of
            several actions; with the leading dimensions of the observation. With a team of P members there is one
            action for each: `[P, A]` or `[P]`.

        Raises:
            ValueError: an observation that does not fit or is not finite, a mask without any valid action, or, for a
                policy with a state, a different number of environments than in the previous call.
            NonFiniteError: the policy's numbers overflow.
        """
        arrays, leading = batched(observation, self.reads)
        if self.acting.state and len(leading) > 1:
            raise ValueError(ONE_SEQUENCE.format(leading))
        mode: Mode = "greedy" if deterministic else "sample"
        result = self.acting.act(self.filters.observation(arrays), self._state_before(), mode=mode)
        refuse_non_finite_action(result.action)
        self.state = dict(result.state)
        if SWITCH in result.extras:
            switched = result.extras[SWITCH] > 0
            self.switched = switched if leading else bool(switched[0])
        return unflattened(self.to_environment(result.action), leading)

    def _state_before(self) -> dict[str, np.ndarray]:
        if np.isnan(self.state.get(PREVIOUS_REWARD, 0.0)).any():
            raise TfsacError(NO_REWARD)
        return self.state

    def distribution(self, observation: Any) -> Any:
        """Returns the TensorFlow Probability distribution of actions, in the environment's units.

        For ACER it is the Gaussian before its samples are clipped to the bounds; for policies with temporal abstraction
        it is the action of a new trajectory. A policy with a state uses the state after its last action.

        Args:
            observation: as in `act`.

        Returns:
            A `tfp.distributions.Distribution` with the leading dimensions of the observation as batch shape, or
            `[..., P]` for a team of P members. It has `sample`, `log_prob`, `entropy`, `kl_divergence`, and for
            continuous actions the `quantile` of each dimension.
        """
        from tfsac.policies.tfp_distributions import tfp_distribution  # TensorFlow Probability takes seconds to import

        use_tensorflow()
        arrays, leading = batched(observation, self.reads)
        spec, agents = self.acting.spec, self.acting.spec.num_agents
        policy = self.acting.distribution_at(self.filters.observation(arrays), self._state_before())
        return tfp_distribution(policy, spec.action, (*leading, *(() if agents is None else (agents,))))

    def values(self, observation: Any, action: Any) -> dict[str, np.ndarray]:
        """Returns the critics' values of actions, like the exported signature "values".

        A policy with a state uses the state after its last action, so call this before `act`.

        Args:
            observation: as in `act`, with the observations that the critics read.
            action: as returned by `act`, in the environment's bounds. Its leading dimensions and those of the
                observation are broadcast, so one observation can be combined with many actions.

        Returns:
            "q", the minimum over the critics (for an ensemble, its `policy_reduction`), and "v" if the agent has it, in
            units of the filtered reward: each a number, or an array with the leading dimensions; `[..., P]` for a team
            of P members. Policies with temporal abstraction return "switch_q" and "keep_q" instead.
        """
        if self.critics is None:
            raise TfsacError(NO_CRITICS)
        use_tensorflow()
        spec = self.acting.spec
        arrays, leading = batched(observation, read_by(self.critics.values_through, self.critics.networks, spec))
        rows = len(next(iter(arrays.values())))
        stored = self.to_environment.inverse(checked_action("values takes", action, spec.action, leading=None))
        first, rank = arrays_of(stored)[0], len(next(iter(spec.action_fields.values())).shape)
        shape = np.broadcast_shapes(leading, np.shape(first)[: np.ndim(first) - rank])
        stored = map_action(lambda x: _flat(x, rank, shape), stored)
        row = np.broadcast_to(np.arange(rows).reshape(leading), shape).ravel()  # observation index of each action
        state = dict(state_before(self.state, None, self.acting.initial_state(rows)))
        filtered, state = tf.nest.map_structure(lambda array: array[row], (self.filters.observation(arrays), state))
        arguments = filtered, stored, state
        values = self.critics.value_tensors(*tf.nest.map_structure(tf.constant, arguments))
        return {name: unflattened(value.numpy(), shape) for name, value in values.items()}


def _flat(values: np.ndarray, rank: int, shape: tuple[int, ...]) -> np.ndarray:
    """Returns values of rank `rank` as `[N, ...]`, with their leading dimensions broadcast to `shape`."""
    last = np.shape(values)[np.ndim(values) - rank :]
    return np.broadcast_to(values, (*shape, *last)).reshape(-1, *last)
