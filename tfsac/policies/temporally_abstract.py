"""The temporally abstract policy: it proposes a trajectory of actions and chooses between it and the one before
(arXiv 2104.06521).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfsac.errors import TfsacError
from tfsac.networks import Network, forward_of
from tfsac.parameters import AgentParameters
from tfsac.policies.base_policy import (
    BasePolicy,
    Mode,
    check_keys,
    check_single,
    fresh_normal,
    fresh_uniform,
    state_before,
)
from tfsac.policies.distributions import ROUNDING, SquashedGaussian, constant, functions_of, of_type, sigmoid, softplus
from tfsac.types import NEXT_STATE, STATE, SWITCH, ActResult, ArraySpec, Spec

REPEATS = "repeats"
MIN_ALPHA = 1e-10

A, V, U = "tau_a", "tau_v", "tau_u"
Tau = dict[str, Any]


def _clip(x: Any) -> Any:
    return functions_of(x).clip(x, -1.0, 1.0)


class Trajectory(ABC):
    """A kind of trajectory of actions, which a temporally abstract policy keeps or replaces (arXiv 2104.06521, section
    4).

    Trajectories are dicts of arrays or tensors `[..., A]` in [-1, 1] by field: the action `tau_a`, its change in a step
    `tau_v` in units of the range 2, and the change of that `tau_u`.

    Attributes:
        fields: names of its fields; the first is the action.
    """

    fields: tuple[str, ...]

    @abstractmethod
    def step(self, tau: Tau) -> Tau:
        """Returns where a trajectory is one step later."""

    @abstractmethod
    def plan(self, action: Any, previous: Tau) -> Tau:
        """Returns the new trajectory for the policy's proposal `[..., A]` and the trajectory before."""

    def concatenated(self, tau: Tau) -> Any:
        """Returns the fields side by side, as critics read them."""
        return functions_of(tau[A]).concatenate([tau[field] for field in self.fields], axis=-1)


class ConstantTrajectory(Trajectory):
    """TAAC: the action is repeated."""

    fields = (A,)

    def step(self, tau: Tau) -> Tau:
        """Leaves the action as it is."""
        return tau

    def plan(self, action: Any, previous: Tau) -> Tau:
        """Takes the proposed action."""
        return {A: action}


class LinearTrajectory(Trajectory):
    """TaacL: the action changes by the same amount in each step, until it is at a bound.

    Args:
        inverse: the proposal is the new action, otherwise its change.
    """

    fields = (A, V)

    def __init__(self, inverse: bool):
        self.inverse = inverse

    def step(self, tau: Tau) -> Tau:
        """Moves the action by `2 v`."""
        return {A: _clip(tau[A] + 2.0 * tau[V]), V: tau[V]}

    def plan(self, action: Any, previous: Tau) -> Tau:
        """Takes the proposed action and infers the change, or takes the proposed change and makes a step."""
        if self.inverse:
            return {A: action, V: (action - previous[A]) / 2.0}
        return self.step({A: previous[A], V: action})


class QuadraticTrajectory(Trajectory):
    """TaacQ: the change of the action changes by the same amount in each step.

    Args:
        inverse: the proposal is the new action, otherwise the change of its change.
    """

    fields = (A, V, U)

    def __init__(self, inverse: bool):
        self.inverse = inverse

    def step(self, tau: Tau) -> Tau:
        """Moves the change by `2 u`, then the action by twice the new change."""
        v = _clip(tau[V] + 2.0 * tau[U])
        return {A: _clip(tau[A] + 2.0 * v), V: v, U: tau[U]}

    def plan(self, action: Any, previous: Tau) -> Tau:
        """Begins with a change of zero, and infers `v` and `u` from the action or takes the proposal as `u`."""
        if self.inverse:
            v = (action - previous[A]) / 2.0
            return {A: action, V: v, U: v / 2.0}
        return self.step({A: previous[A], V: 0.0 * previous[V], U: action})


def make_trajectory(kind: str, inverse: bool) -> Trajectory:
    """Returns the trajectory "constant", "linear" or "quadratic"."""
    if kind == "constant":
        return ConstantTrajectory()
    return {"linear": LinearTrajectory, "quadratic": QuadraticTrajectory}[kind](inverse)


class Choice(NamedTuple):
    """The distribution over keeping and switching, all `[B]`: two probabilities, their entropy in nats, the
    advantage, its mode.
    """

    keep_B: Any
    switch_B: Any
    entropy_B: Any
    advantage_B: Any
    better_B: Any  # whether switching is the better choice


def choice(
    keep_q_B: Any, switch_q_B: Any, alpha: Any, clipping: tuple[float | None, float | None] | None = None
) -> Choice:
    """Equation 5: `beta = softmax([Q(s, tau0), Q(s, tau1)] / alpha)`, without gradient.

    Args:
        keep_q_B: Q of keeping the trajectory before; an array or a tensor.
        switch_q_B: Q of the proposed one.
        alpha: temperature of the choice, a scalar; at least 1e-10 counts.
        clipping: (low, high) bounds of the advantage `switch_q - keep_q`, or None for no bound.
    """
    advantage_B, functions = constant(switch_q_B - keep_q_B), functions_of(keep_q_B)
    low, high = clipping or (None, None)
    clipped_B = advantage_B if low is None else functions.maximum(advantage_B, of_type(low, keep_q_B))
    clipped_B = clipped_B if high is None else functions.minimum(clipped_B, of_type(high, keep_q_B))
    least = of_type(MIN_ALPHA, keep_q_B)
    logit_B = clipped_B / functions.maximum(constant(of_type(alpha, keep_q_B)), least)
    keep_B, switch_B = sigmoid(-logit_B), sigmoid(logit_B)
    entropy_B = keep_B * softplus(logit_B) + switch_B * softplus(-logit_B)
    return Choice(keep_B, switch_B, entropy_B, advantage_B, clipped_B > 0)


def pessimistic(q_BND: Any, weight_D: np.ndarray) -> Any:
    """Returns the smallest of N critics for each reward, `[B, D]`; the largest where a reward's weight is negative."""
    sign_D = np.where(weight_D < 0, np.float32(-1), np.float32(1))
    return functions_of(q_BND).min(q_BND * sign_D, axis=1) * sign_D


class Proposal(NamedTuple):
    """The first stage at `[B]` rows: the policy, its action and log density, both trajectories to choose from."""

    policy: SquashedGaussian
    action_BA: tf.Tensor
    log_prob_B: tf.Tensor
    kept: Tau
    planned: Tau


class TemporallyAbstractPolicy(BasePolicy):
    """Acts with a network `policy` that proposes trajectories, and critics `q` that choose.

    The policy's state is the trajectory, fields `[E, A]`, and `repeats` `[E]` int32, for how many steps it has lasted;
    zeros at episode starts.

    Args:
        parameters, spec, networks, seed: see `BasePolicy`. Custom Keras models read the trajectory's fields beside the
            observation, or concatenated as the action of "q".

    Attributes:
        trajectory: what the choice is about.
        reward_weights: `[D]`, of each reward in the objective.
        choice_alpha: temperature of the choice, a variable that the agent assigns.
        action_size: A.
    """

    acts_through = ("policy", "q")

    def __init__(self, parameters: AgentParameters, spec: Spec, networks: Mapping[str, Network], seed: int = 0):
        super().__init__(parameters, spec, {name: networks[name] for name in self.acts_through}, seed)
        self.algorithm: Any = parameters.algorithm
        algorithm: Any = self.algorithm
        self.action_size = spec.action.shape[0]
        self.trajectory = make_trajectory(algorithm.trajectory, algorithm.inverse_mode)
        self.reward_weights = np.array(algorithm.reward_weights or [1.0] * (spec.num_rewards or 1), np.float32)
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.choice_alpha = tf.Variable(algorithm.initial_alpha, trainable=False, aggregation=once, name="choice_alpha")
        field = ArraySpec(spec.action.shape, "float32")
        self.state = {**dict.fromkeys(self.trajectory.fields, field), REPEATS: ArraySpec((), "int32")}
        extras = {f"{prefix}{name}": field for prefix in (STATE, NEXT_STATE) for name in self.trajectory.fields}
        self.spec = spec._replace(extras={**extras, SWITCH: ArraySpec((), "float32")})
        specs = {name: self.spec_of_network(name, parameters, spec, networks) for name in self.acts_through}
        self.forwards = {
            "policy": forward_of(networks["policy"], specs["policy"]),
            "q": forward_of(networks["q"], specs["q"], with_actions=True),
        }
        self.refresh()

    @classmethod
    def check(cls, parameters: AgentParameters, spec: Spec, custom_models: bool = False) -> None:
        """Refuses discrete actions, several agents, reserved keys, and weights of another number of rewards."""
        super().check(parameters, spec, custom_models)
        check_single(parameters, spec, rewards=True)
        algorithm: Any = parameters.algorithm
        rewards = spec.num_rewards or 1
        for name in ("reward_weights", "reward_discounts"):
            value = getattr(algorithm, name)
            if value is not None and len(value) != rewards:
                raise TfsacError(
                    f"{name} must have a number for each of the environment's {rewards} rewards, got {value}"
                )
        fields = make_trajectory(algorithm.trajectory, algorithm.inverse_mode).fields
        check_keys(spec, {*fields, REPEATS, "action"})

    @classmethod
    def spec_of_network(
        cls, name: str, parameters: AgentParameters, spec: Spec, networks: Mapping[str, Network]
    ) -> Spec:
        """Returns a spec with the trajectory: the state that the policy reads, and the action that critics judge."""
        algorithm: Any = parameters.algorithm
        fields = make_trajectory(algorithm.trajectory, algorithm.inverse_mode).fields
        width = spec.action.shape[0]
        if name == "policy":
            return spec._replace(state={field: ArraySpec((width,), "float32") for field in fields})
        return spec._replace(action=ArraySpec((width * len(fields),), "float32"), num_rewards=spec.num_rewards or 1)

    # -- acting --------------------------------------------------------------------------------------------------------

    def act(
        self,
        observation: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray] | None = None,
        is_first: np.ndarray | None = None,
        mode: Mode = "sample",
        env_steps: int = 0,
    ) -> ActResult:
        """Chooses actions; see `BasePolicy.act`. The extras are the trajectories before and after, and whether it
        switched.
        """
        rows = len(next(iter(observation.values())))
        initial = self.initial_state(rows)
        starts = not state or (is_first is not None and np.any(is_first))
        if starts and mode in ("random", "explore") and self.algorithm.randomize_first_state_tau:
            for name in self.trajectory.fields:
                initial[name] = self.rng.uniform(-1.0, 1.0, initial[name].shape).astype(np.float32)
        before = state_before(state, is_first, initial)
        previous = {name: before[name] for name in self.trajectory.fields}
        sampled = (
            1.0 if mode != "greedy" else self.algorithm.epsilon_greedy
        )  # probability of a sample instead of the mode
        if mode == "random":
            proposal = self.rng.uniform(-1.0, 1.0, (rows, self.action_size)).astype(np.float32)
        else:
            proposal = self._propose(observation, previous, sampled)
        kept, planned = self.trajectory.step(previous), self.trajectory.plan(proposal, previous)
        switch = self.rng.random(rows) < 0.5 if mode == "random" else self._switch(observation, kept, planned, sampled)
        switch = self._limited(switch, before[REPEATS])
        after = self._follow(switch, kept, planned, before[REPEATS])
        extras = {f"{STATE}{name}": value for name, value in previous.items()}
        extras |= {f"{NEXT_STATE}{name}": after[name] for name in self.trajectory.fields}
        extras[SWITCH] = switch.astype(np.float32)
        return ActResult(after[self.trajectory.fields[0]], after, extras)

    def distribution_at(
        self, observation: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]
    ) -> SquashedGaussian:
        """Returns the distribution of proposals; see `BasePolicy.distribution_at`."""
        if not self.algorithm.inverse_mode:
            raise TfsacError(
                "the policy proposes actions, and has a distribution of them, with inverse_mode=True alone"
            )
        before = state_before(state, None, self.initial_state(len(next(iter(observation.values())))))
        return self._proposals(observation, before)

    def _proposals(self, observation: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]) -> SquashedGaussian:
        previous = {name: state[name] for name in self.trajectory.fields}
        return SquashedGaussian(*self.forwards["policy"]({**observation, **previous}))

    def _propose(self, observation: Mapping[str, np.ndarray], previous: Tau, sampled: float) -> np.ndarray:
        """Returns the policy's mode, or with probability `sampled` a sample."""
        policy = self._proposals(observation, previous)
        if not sampled:
            return policy.mode()
        sample = policy.sample(self.rng.standard_normal(policy.loc.shape, np.float32))
        return np.where(self.rng.random(len(sample))[:, None] < sampled, sample, policy.mode())

    def _switch(self, observation: Mapping[str, np.ndarray], kept: Tau, planned: Tau, sampled: float) -> np.ndarray:
        """Returns where switching is better, or with probability `sampled` a sample of the choice; a tie keeps."""
        of_both = self._choice(self._forward_q(observation, kept), self._forward_q(observation, planned), self.alpha)
        if not sampled:
            return of_both.better_B
        sample = self.rng.random(len(of_both.better_B)) < of_both.switch_B
        return np.where(self.rng.random(len(sample)) < sampled, sample, of_both.better_B)

    def _choice(self, keep_q_B: Any, switch_q_B: Any, alpha: Any) -> Choice:
        return choice(keep_q_B, switch_q_B, alpha, self.algorithm.b1_advantage_clipping)

    def _limited(self, switch: Any, repeats: Any) -> Any:
        """Returns where to switch, which includes where the trajectory has lasted for the most steps."""
        most = self.algorithm.max_repeat_steps
        return switch if most is None else switch | (repeats >= most)

    def _follow(self, switch: Any, kept: Tau, planned: Tau, repeats: Any) -> dict[str, Any]:
        """Returns the next state, of arrays or tensors; its first field is the action."""
        where, ones = functions_of(repeats).where, functions_of(repeats).ones_like(repeats)
        after = {name: where(switch[:, None], planned[name], kept[name]) for name in self.trajectory.fields}
        return {**after, REPEATS: where(switch, ones, repeats + 1)}

    def _forward_q(self, observation: Mapping[str, np.ndarray], tau: Tau) -> np.ndarray:
        (q_END,) = self.forwards["q"](dict(observation), self.trajectory.concatenated(tau))
        return self.objective(pessimistic(q_END, self.reward_weights))

    def is_tie(self, observation: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]) -> bool:
        """Returns whether keeping and switching are worth the same but for rounding, in any of the rows."""
        before = state_before(state, None, self.initial_state(len(next(iter(observation.values())))))
        previous = {name: before[name] for name in self.trajectory.fields}
        planned = self.trajectory.plan(self._propose(observation, previous, 0.0), previous)
        keep_q, switch_q = (self._forward_q(observation, tau) for tau in (self.trajectory.step(previous), planned))
        return bool((np.abs(switch_q - keep_q) <= ROUNDING * (1.0 + np.abs(keep_q))).any())

    # -- as tensors ----------------------------------------------------------------------------------------------------

    def propose(self, observation: Mapping[str, tf.Tensor], previous: Tau, noise_BA: tf.Tensor) -> Proposal:
        """Returns the first stage, sampled with standard normal noise."""
        policy = SquashedGaussian(*self.networks["policy"]({**observation, **previous}))
        action_BA, log_prob_B = policy.sample_and_log_prob(noise_BA)
        return Proposal(
            policy, action_BA, log_prob_B, self.trajectory.step(previous), self.trajectory.plan(action_BA, previous)
        )

    def q(self, critics: Network, observation: Mapping[str, tf.Tensor], tau: Tau) -> tf.Tensor:
        """Returns all critics (online or target) of trajectories, `[B, N, D]`."""
        return critics(observation, self.trajectory.concatenated(tau))

    def value(self, critics: Network, observation: Mapping[str, tf.Tensor], tau: Tau) -> tf.Tensor:
        """Returns the pessimistic Q of trajectories, a weighted sum over rewards, `[B]`."""
        return self.objective(pessimistic(self.q(critics, observation, tau), self.reward_weights))

    def objective(self, q_BD: Any) -> Any:
        """Returns the weighted sum over rewards, `[B]`."""
        return (
            q_BD @ self.reward_weights if isinstance(q_BD, np.ndarray) else tf.linalg.matvec(q_BD, self.reward_weights)
        )

    def act_tensors(
        self,
        observation: Mapping[str, tf.Tensor],
        noise: tf.Tensor | None = None,
        state: Mapping[str, tf.Tensor] | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns actions and the next state as tensors; see `BasePolicy.act_tensors`."""
        assert state is not None
        previous = {name: state[name] for name in self.trajectory.fields}
        policy = SquashedGaussian(*self.networks["policy"]({**observation, **previous}))
        proposal_EA = policy.mode() if noise is None else policy.sample(noise[:, :-1])
        kept, planned = self.trajectory.step(previous), self.trajectory.plan(proposal_EA, previous)
        keep_q_E, switch_q_E = (self.value(self.networks["q"], observation, tau) for tau in (kept, planned))
        of_both = self._choice(keep_q_E, switch_q_E, tf.convert_to_tensor(self.choice_alpha))
        switch_E = of_both.better_B if noise is None else noise[:, -1] < of_both.switch_B
        after = self._follow(self._limited(switch_E, state[REPEATS]), kept, planned, state[REPEATS])
        return after[self.trajectory.fields[0]], after

    def sample_noise(self, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Draws `[E, A + 1]`: standard normal for the proposal, and in the last column uniform in [0, 1) for the
        choice.
        """
        rows = tf.shape(next(iter(observation.values())))[0]
        return tf.concat([fresh_normal([rows, self.action_size]), fresh_uniform([rows, 1])], axis=-1)

    # -- weights -------------------------------------------------------------------------------------------------------

    @property
    def variables(self) -> dict[str, Any]:
        """The variables that acting needs, by name."""
        return {**super().variables, "choice_alpha": self.choice_alpha}

    def acting_weights(self) -> list[tf.Tensor]:
        """Returns the temperature of the choice and the weights that acting has copies of."""
        return [tf.identity(self.choice_alpha), *super().acting_weights()]

    def refresh(self, weights: list[np.ndarray] | None = None) -> None:
        """Brings acting's copies of temperature and weights up to date; see `BasePolicy.refresh`."""
        alpha, *arrays = [w.numpy() for w in self.acting_weights()] if weights is None else weights
        self.alpha = np.float32(alpha)
        super().refresh(arrays)
