"""Acting in two stages: a proposal, and the choice between it and the trajectory before (arXiv 2104.06521, section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import numpy as np
import tensorflow as tf

from tfsac.agents.base import Agent, Mode, ModelMaker
from tfsac.agents.noise import fresh_normal, fresh_uniform
from tfsac.agents.trajectories import Tau, make_trajectory
from tfsac.distributions import LOG_SCALE_MAX, LOG_SCALE_MIN, SquashedGaussian
from tfsac.losses.temporally_abstract_actor_critic import clip_advantage, smallest
from tfsac.networks import Network, forward_of
from tfsac.parameters import TemporallyAbstractActorCriticAgentParameters
from tfsac.types import NEXT_STATE, STATE, SWITCH, ActResult, ArraySpec, DiscreteSpec, Spec

REPEATS = "repeats"
ROUNDING = 1e-5  # relative error of values in float32, computed in different ways


class Proposal(NamedTuple):
    """The first stage at `[B]` rows: the policy, its action and log density (of a sample), both trajectories to choose from."""

    policy: SquashedGaussian
    action_BA: tf.Tensor
    log_prob_B: tf.Tensor | None
    kept: Tau
    planned: Tau


class SwitchingAgent(Agent):
    """Acts with a network `policy` that proposes trajectories and critics `q` that choose.

    The policy's state is the trajectory, fields `[E, A]`, and `repeats` `[E]` int32, for how many steps it has lasted; zeros
    where an episode begins.

    Args:
        parameters, spec, seed, eager, models, jit_compile: see `Agent`; models read the trajectory's fields beside the observation, or
            concatenated as the action of "q".

    Attributes:
        trajectory: what the choice is about.
        reward_weights: `[D]`, of each reward in the objective.

    Raises:
        ValueError: actions that are no numbers, several agents, weights or discounts of another number of rewards,
            observations with keys of the state.
    """

    algorithm: Any
    acts_through = ("policy", "q")
    acts_with = ("choice_temperature",)

    def __init__(
        self,
        parameters: TemporallyAbstractActorCriticAgentParameters,
        spec: Spec,
        seed: int = 0,
        eager: bool = False,
        models: ModelMaker | None = None,
        jit_compile: bool = False,
    ):
        if isinstance(spec.action, DiscreteSpec):
            raise ValueError(
                f"Trajectories are made of real numbers, and the environment wants a choice among {spec.action.num_actions} actions: "
                f"that needs an agent of kind 'discrete_soft_actor_critic', as in the preset cart_pole_discrete_sac. "
                f"Received: {spec.action}"
            )
        if spec.num_agents is not None:
            raise ValueError(f"This agent ({parameters.kind!r}) acts alone. Received: {spec.num_agents} agents that share a policy")
        algorithm, rewards = parameters.algorithm, spec.num_rewards or 1
        for name in ("reward_weights", "reward_discounts"):
            given = getattr(algorithm, name)
            if given is not None and len(given) != rewards:
                raise ValueError(f"The environment gives {rewards} reward(s) a step, and {name} has one number for each. Received: {given}")
        self.trajectory = make_trajectory(algorithm.trajectory, algorithm.inverse_mode)
        if reserved := {*self.trajectory.fields, REPEATS, "action"} & spec.observation.keys():
            raise ValueError(f"These keys belong to the policy's state and action, not to observations. Received: {sorted(reserved)}")
        self.action_size = spec.action.shape[0]
        field = ArraySpec(spec.action.shape, "float32")
        extras = {f"{prefix}{name}": field for prefix in (STATE, NEXT_STATE) for name in self.trajectory.fields}
        extras[SWITCH] = ArraySpec((), "float32")
        super().__init__(parameters, spec._replace(extras=extras), seed, eager, models, jit_compile)
        self.reward_weights = np.array(algorithm.reward_weights or [1.0] * rewards, np.float32)
        self.reward_discounts = np.array(algorithm.reward_discounts or [algorithm.discount] * rewards, np.float32)
        self.forward = forward_of(self.networks["policy"], self.spec_of_network("policy"))
        self.forward_q = forward_of(self.networks["q"], self.spec_of_network("q"), of_actions=True)

    def spec_of_network(self, name: str) -> Spec:
        """Returns a spec with the trajectory: the state that the policy reads, and the action that critics judge."""
        fields = self.trajectory.fields
        if name == "policy":
            return self.spec._replace(state={field: ArraySpec((self.action_size,), "float32") for field in fields})
        return self.spec._replace(action=ArraySpec((self.action_size * len(fields),), "float32"))

    # -- in NumPy ------------------------------------------------------------------------------------------------------

    def initial_state(self, rows: int) -> dict[str, np.ndarray]:
        """Returns trajectories of zeros that have lasted for no step."""
        zeros = {name: np.zeros((rows, self.action_size), np.float32) for name in self.trajectory.fields}
        return {**zeros, REPEATS: np.zeros(rows, np.int32)}

    def act(
        self,
        observation: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray] | None = None,
        is_first: np.ndarray | None = None,
        mode: Mode = "sample",
        env_steps: int = 0,
    ) -> ActResult:
        """Chooses actions; see `Agent.act`. The extras are the trajectories before and after, and whether it switched."""
        if mode not in get_args(Mode):
            raise ValueError(f"mode is 'random', 'explore', 'sample' or 'greedy'. Received: {mode!r}")
        rows, playing = len(next(iter(observation.values()))), mode in ("random", "explore")
        before = self._begin(state, is_first, rows, randomize=playing and self.algorithm.randomize_first_state_tau)
        previous = {name: before[name] for name in self.trajectory.fields}
        drawn = 1.0 if mode != "greedy" else self.algorithm.epsilon_greedy
        if mode == "random":
            proposal = self.rng.uniform(-1.0, 1.0, (rows, self.action_size)).astype(np.float32)
        else:
            proposal = self._propose(dict(observation), previous, drawn)
        kept, planned = self.trajectory.step(previous), self.trajectory.plan(proposal, previous)
        switch: np.ndarray = self.rng.random(rows) < 0.5 if mode == "random" else self._choose(dict(observation), kept, planned, drawn)
        if self.algorithm.max_repeat_steps is not None:
            switch = switch | (before[REPEATS] >= self.algorithm.max_repeat_steps)
        after: dict[str, np.ndarray] = {
            name: np.where(switch[:, None], np.asarray(planned[name]), kept[name]) for name in self.trajectory.fields
        }
        repeats = np.where(switch, 1, before[REPEATS] + 1).astype(np.int32)
        extras = {f"{STATE}{name}": value for name, value in previous.items()}
        extras |= {f"{NEXT_STATE}{name}": value for name, value in after.items()}
        extras[SWITCH] = switch.astype(np.float32)
        return ActResult(after[self.trajectory.fields[0]], {**after, REPEATS: repeats}, extras)

    def _begin(
        self, state: Mapping[str, np.ndarray] | None, is_first: np.ndarray | None, rows: int, randomize: bool
    ) -> Mapping[str, np.ndarray]:
        """Returns the state with new trajectories where episodes begin."""
        initial = self.initial_state(rows)
        wanted, found = ({name: np.shape(value) for name, value in arrays.items()} for arrays in (initial, state or initial))
        if found != wanted:
            raise ValueError(
                f"The state of this policy goes on from {wanted}; where the number of environments changes, begin anew. Received: {found}"
            )
        if state and (is_first is None or not np.any(is_first)):
            return state
        if randomize:
            for name in self.trajectory.fields:
                initial[name] = self.rng.uniform(-1.0, 1.0, initial[name].shape).astype(np.float32)
        if not state:
            return initial
        begins = np.asarray(is_first, bool)
        return {name: np.where(begins.reshape(-1, *[1] * (value.ndim - 1)), initial[name], value) for name, value in state.items()}

    def undecided(self, observation: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]) -> bool:
        """Returns whether keeping and switching are worth the same but for rounding, in any of the rows."""
        before = self._begin(state, None, len(next(iter(observation.values()))), randomize=False)
        previous = {name: before[name] for name in self.trajectory.fields}
        planned = self.trajectory.plan(self._propose(dict(observation), previous, 0.0), previous)
        keep_q, switch_q = (self._q(dict(observation), tau) for tau in (self.trajectory.step(previous), planned))
        return bool((np.abs(switch_q - keep_q) <= ROUNDING * (1.0 + np.abs(keep_q))).any())

    def _propose(self, observation: dict[str, np.ndarray], previous: Tau, drawn: float) -> np.ndarray:
        """Returns the policy's mode, or with probability `drawn` a sample."""
        loc, log_scale = self.forward({**observation, **previous})
        if not drawn:
            return np.tanh(loc)
        sampled = loc + np.exp(np.clip(log_scale, LOG_SCALE_MIN, LOG_SCALE_MAX)) * self.rng.standard_normal(loc.shape, np.float32)
        return np.tanh(np.where(self.rng.random(len(loc))[:, None] < drawn, sampled, loc))

    def _choose(self, observation: dict[str, np.ndarray], kept: Tau, planned: Tau, drawn: float) -> np.ndarray:
        """Returns the better choice, or with probability `drawn` a sample; what is equal is kept."""
        keep_q, switch_q = self._q(observation, kept), self._q(observation, planned)
        low, high = self.algorithm.b1_advantage_clipping or (None, None)
        advantage = np.clip(switch_q - keep_q, low, high) if (low, high) != (None, None) else switch_q - keep_q
        best = advantage > 0
        if not drawn:
            return best
        switch_prob = 0.5 * (1.0 + np.tanh(0.5 * advantage / max(self.choice_alpha, 1e-10)))
        sampled = self.rng.random(len(best)) < switch_prob
        return np.where(self.rng.random(len(best)) < drawn, sampled, best)

    def _q(self, observation: dict[str, np.ndarray], tau: Tau) -> np.ndarray:
        (q,) = self.forward_q(observation, np.concatenate([tau[name] for name in self.trajectory.fields], axis=-1))
        sign = np.where(self.reward_weights < 0, np.float32(-1), np.float32(1))
        return (q * sign).min(axis=1) @ np.abs(self.reward_weights)

    @property
    def acts_in_graph(self) -> bool:
        """Whether acting reads variables."""
        return not (self.forward.variables and self.forward_q.variables)

    def acting_weights(self) -> list[tf.Tensor]:
        """Returns the temperature of the choice, and the weights of policy and critics where acting computes in NumPy."""
        variables = [*self.forward.variables, *self.forward_q.variables]
        return [self.choice_temperature.value(), *(tf.identity(v.value) for v in variables)]

    def refresh(self, outputs: list[np.ndarray] | None = None) -> None:
        """Hands temperature and weights to what acts in NumPy."""
        alpha, *weights = [w.numpy() for w in self.acting_weights()] if outputs is None else outputs
        self.choice_alpha = float(alpha)
        self.forward.load(weights[: len(self.forward.variables)])
        self.forward_q.load(weights[len(self.forward.variables) :])

    # -- in TensorFlow -------------------------------------------------------------------------------------------------

    def propose(self, observation: Mapping[str, tf.Tensor], previous: Tau, noise_BA: tf.Tensor | None) -> Proposal:
        """Returns the first stage: the mode, or a sample made with standard normal noise."""
        policy = SquashedGaussian(*self.networks["policy"]({**observation, **previous}))
        action_BA, log_prob_B = (policy.mode(), None) if noise_BA is None else policy.sample_and_log_prob(noise_BA)
        kept, planned = self.trajectory.step(previous), self.trajectory.plan(action_BA, previous)
        return Proposal(policy, action_BA, log_prob_B, kept, planned)

    def q_of(self, critics: Network, observation: Mapping[str, tf.Tensor], tau: Tau) -> tf.Tensor:
        """Returns all critics, or their slow copies, of trajectories, `[B, N, D]`."""
        return critics(observation, tf.concat([tau[field] for field in self.trajectory.fields], axis=-1))

    def smallest_q(self, critics: Network, observation: Mapping[str, tf.Tensor], tau: Tau) -> tf.Tensor:
        """Returns the pessimistic critic of each reward, `[B, D]`."""
        return smallest(self.q_of(critics, observation, tau), tf.constant(self.reward_weights))

    def objective(self, q_BD: tf.Tensor) -> tf.Tensor:
        """Returns the weighted sum over rewards, `[B]`."""
        return tf.linalg.matvec(q_BD, self.reward_weights)

    def act_tensors(
        self, observation: Mapping[str, tf.Tensor], noise: tf.Tensor | None = None, state: Mapping[str, tf.Tensor] | None = None
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns actions and the next state as tensors; see `Agent.act_tensors`."""
        assert state is not None
        previous = {name: state[name] for name in self.trajectory.fields}
        proposal = self.propose(observation, previous, None if noise is None else noise[:, :-1])
        keep_q_B, switch_q_B = (
            self.objective(self.smallest_q(self.networks["q"], observation, tau)) for tau in (proposal.kept, proposal.planned)
        )
        advantage_B = clip_advantage(switch_q_B - keep_q_B, self.algorithm.b1_advantage_clipping)
        if noise is None:
            switch_B = advantage_B > 0
        else:
            switch_B = noise[:, -1] < tf.sigmoid(advantage_B / tf.maximum(self.choice_temperature.value(), 1e-10))
        if self.algorithm.max_repeat_steps is not None:
            switch_B |= state[REPEATS] >= self.algorithm.max_repeat_steps
        after = {
            name: tf.where(switch_B[:, None], proposal.planned[name], proposal.kept[name]) for name in self.trajectory.fields
        }
        repeats_B = tf.where(switch_B, tf.ones_like(state[REPEATS]), state[REPEATS] + 1)
        return after[self.trajectory.fields[0]], {**after, REPEATS: repeats_B}

    def acting_noise(self, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Draws `[E, A + 1]`: standard normal for the proposal, and in the last column uniform in [0, 1) for the choice."""
        rows = tf.shape(next(iter(observation.values())))[0]
        return tf.concat([fresh_normal([rows, self.action_size]), fresh_uniform([rows, 1])], axis=-1)

    def value_tensors(
        self, observation: Mapping[str, tf.Tensor], action: tf.Tensor, state: Mapping[str, tf.Tensor] | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns "switch_q", the value of a new trajectory with the action as the proposal, and "keep_q", that of going on, `[E]`."""
        assert state is not None
        previous = {name: state[name] for name in self.trajectory.fields}
        taus = {"keep_q": self.trajectory.step(previous), "switch_q": self.trajectory.plan(action, previous)}
        return {name: self.objective(self.smallest_q(self.networks["q"], observation, tau)) for name, tau in taus.items()}
