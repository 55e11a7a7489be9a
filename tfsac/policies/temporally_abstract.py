"""The temporally abstract policy: it proposes a trajectory of actions and chooses between it and the previous one
(arXiv 2104.06521).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfsac.errors import TfsacError
from tfsac.networks import forward_of
from tfsac.networks.heads import action_size
from tfsac.networks.layers import functions_of
from tfsac.networks.network import Networks
from tfsac.parameters import AgentParameters
from tfsac.policies.actions import ContinuousActions, fresh_uniform
from tfsac.policies.base_policy import BasePolicy, Mode, check_keys, check_single, state_before
from tfsac.policies.distributions import ROUNDING, SquashedGaussian
from tfsac.types import NEXT_STATE, STATE, SWITCH, ActResult, Arrays, ArraySpec, Spec, Tensors

REPEATS = "repeats"
MIN_ALPHA = 1e-10

A, V, U = "tau_a", "tau_v", "tau_u"
FIELDS = {"constant": (A,), "linear": (A, V), "quadratic": (A, V, U)}
Tau = dict[str, Any]


def _clip(x: Any) -> Any:
    return functions_of(x).clip(x, -1.0, 1.0)


class Trajectory:
    """A kind of trajectory of actions, which a temporally abstract policy keeps or replaces (arXiv 2104.06521, section
    4).

    Trajectories are dicts of arrays or tensors `[..., A]` in [-1, 1] by field: the action `tau_a`, its change per step
    `tau_v` in units of the range 2, and the change of that, `tau_u`.

    Args:
        kind: "constant" repeats the action (TAAC), "linear" changes it by `tau_v` in each step (TaacL), "quadratic"
            changes that by `tau_u` (TaacQ).
        inverse: whether the proposal is the new action instead of the last field.
    """

    def __init__(self, kind: str, inverse: bool):
        self.fields = FIELDS[kind]
        self.inverse = inverse or kind == "constant"

    def step(self, tau: Tau) -> Tau:
        """Returns the trajectory one step later: first the change moves by `2 u`, then the action by `2 v`."""
        after = {field: tau[field] for field in self.fields}
        if U in after:
            after[V] = _clip(tau[V] + 2.0 * tau[U])
        if V in after:
            after[A] = _clip(tau[A] + 2.0 * after[V])
        return after

    def plan(self, action: Any, previous: Tau) -> Tau:
        """Returns the new trajectory for the policy's proposal `[..., A]` and the trajectory before.

        Its change starts at zero. Changes are inferred from a proposed action; a proposed change is followed by a step.
        """
        if not self.inverse:
            return self.step({**previous, V: 0.0 * previous[V], self.fields[-1]: action})
        new = {A: action}
        if V in self.fields:
            new[V] = (action - previous[A]) / 2.0
        if U in self.fields:
            new[U] = new[V] / 2.0
        return new

    def concatenated(self, tau: Tau) -> Any:
        """Returns the fields side by side, as critics read them."""
        return functions_of(tau[A]).concatenate([tau[field] for field in self.fields], axis=-1)


class Choice(NamedTuple):
    """The distribution over keeping and switching, all `[B]`: two probabilities, their entropy in nats, the advantage,
    and the mode.
    """

    keep_B: Any
    switch_B: Any
    entropy_B: Any
    advantage_B: Any
    better_B: Any  # whether switching is the better choice


def choice(
    keep_q_B: Any, switch_q_B: Any, alpha: Any, clipping: tuple[float | None, float | None] | None = None
) -> Choice:
    """Equation 5: `beta = softmax([Q(s, tau0), Q(s, tau1)] / alpha)`, without gradient; of arrays or tensors.

    The temperature alpha, a scalar, is at least 1e-10. `clipping` has the bounds of the advantage `switch_q - keep_q`;
    None means no bound.
    """
    functions = functions_of(keep_q_B)
    advantage_B = clipped_B = functions.stop_gradient(switch_q_B - keep_q_B)
    if clipping is not None:
        low, high = clipping
        clipped_B = functions.clip(advantage_B, -np.inf if low is None else low, np.inf if high is None else high)
    alpha_B = functions.stop_gradient(alpha * functions.ones_like(keep_q_B))
    logit_B = clipped_B / functions.maximum(alpha_B, MIN_ALPHA)
    keep_B, switch_B = functions.sigmoid(-logit_B), functions.sigmoid(logit_B)
    entropy_B = keep_B * functions.softplus(logit_B) + switch_B * functions.softplus(-logit_B)
    return Choice(keep_B, switch_B, entropy_B, advantage_B, clipped_B > 0)


def pessimistic(q_BND: Any, weight_D: np.ndarray) -> Any:
    """Returns the smallest of N critics for each reward, `[B, D]`; the largest where a reward's weight is negative."""
    sign_D = np.where(weight_D < 0, np.float32(-1), np.float32(1))
    return functions_of(q_BND).min(q_BND * sign_D, axis=1) * sign_D


class Draws(NamedTuple):
    """Random numbers of a step: standard normal for the proposal, `[E, A]`, zeros for its mode; uniform in [0, 1) for
    the choice, `[E]`, 0.5 for its mode.
    """

    noise_EA: Any
    uniform_E: Any


class Decision(NamedTuple):
    """Both trajectories, their values `[E]`, and whether the policy switches, `[E]`."""

    kept: Tau
    planned: Tau
    keep_q_E: Any
    switch_q_E: Any
    switch_E: Any


class TemporallyAbstractPolicy(ContinuousActions, BasePolicy):
    """Acts with a network `policy` that proposes trajectories, and critics `q` that choose.

    The policy's state is the trajectory, fields `[E, A]`, and `repeats` `[E]` int32, the number of steps it has lasted;
    zeros at episode starts.

    Args:
        parameters, spec, networks, seed: see `BasePolicy`. Custom Keras models read the observation and the
            trajectory's fields; "q" reads these fields, concatenated, as its action.

    Attributes:
        trajectory: the kind of trajectory.
        reward_weights: `[D]`, weight of each reward in the objective.
        choice_alpha: temperature of the choice, a variable that the agent assigns.
    """

    acts_through = ("policy", "q")

    def __init__(self, parameters: AgentParameters, spec: Spec, networks: Networks, seed: int = 0):
        super().__init__(parameters, spec, {name: networks[name] for name in self.acts_through}, seed)
        algorithm: Any = parameters.algorithm
        self.algorithm = algorithm
        self.trajectory = _trajectory_of(parameters)
        self.reward_weights = np.array(algorithm.reward_weights or [1.0] * (spec.num_rewards or 1), np.float32)
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.choice_alpha = tf.Variable(algorithm.initial_alpha, trainable=False, aggregation=once, name="choice_alpha")
        field = ArraySpec(spec.action_fields["action"].shape, "float32")
        self.state = {**dict.fromkeys(self.trajectory.fields, field), REPEATS: ArraySpec((), "int32")}
        extras = {f"{prefix}{name}": field for prefix in (STATE, NEXT_STATE) for name in self.trajectory.fields}
        self.spec = spec._replace(extras={**extras, SWITCH: ArraySpec((), "float32")})
        self.forwards = {
            name: forward_of(
                self.networks[name], self.spec_of_network(name, parameters, spec, networks), with_actions=name == "q"
            )
            for name in self.acts_through
        }
        self.refresh()

    @classmethod
    def check(cls, parameters: AgentParameters, spec: Spec, custom_models: bool = False) -> None:
        """Rejects discrete actions, teams, reserved keys, and weights for another number of rewards."""
        super().check(parameters, spec, custom_models)
        check_single(parameters, spec, rewards=True)
        rewards = spec.num_rewards or 1
        for name in ("reward_weights", "reward_discounts"):
            value = getattr(parameters.algorithm, name)
            if value is not None and len(value) != rewards:
                raise TfsacError(
                    f"{name} must have a number for each of the environment's {rewards} rewards, got {value}"
                )
        check_keys(spec, {*_trajectory_of(parameters).fields, REPEATS, "action"})

    @classmethod
    def spec_of_network(cls, name: str, parameters: AgentParameters, spec: Spec, networks: Networks) -> Spec:
        """Returns a spec with the trajectory: as state for the policy, as action for the critics."""
        fields, width = _trajectory_of(parameters).fields, action_size(spec)
        if name == "policy":
            return spec._replace(state={field: ArraySpec((width,), "float32") for field in fields})
        return spec._replace(action=ArraySpec((width * len(fields),), "float32"), num_rewards=spec.num_rewards or 1)

    # -- acting, of arrays or of tensors to be exported ----------------------------------------------------------------

    def act(
        self,
        observation: Arrays,
        state: Arrays | None = None,
        is_first: np.ndarray | None = None,
        mode: Mode = "sample",
        env_steps: int = 0,
    ) -> ActResult:
        """Chooses actions; see `BasePolicy.act`. The extras are the trajectories before and after the step, and whether
        it switched.
        """
        rows = len(next(iter(observation.values())))
        initial = self.initial_state(rows)
        starts = not state or (is_first is not None and np.any(is_first))
        if starts and mode in ("random", "explore") and self.algorithm.randomize_first_state_tau:
            for name in self.trajectory.fields:
                initial[name] = self.rng.uniform(-1.0, 1.0, initial[name].shape).astype(np.float32)
        before = state_before(state, is_first, initial)
        previous = self._tau(before)
        if mode == "random":
            kept, planned = self._trajectories(self.uniform(observation, rows), previous)
            switch = self.rng.random(rows) < 0.5
        else:
            kept, planned, _, _, switch = self._decide(observation, previous, self.alpha, self._draw(rows, mode))
        switch = self._limited(switch, before[REPEATS])
        after = self._follow(switch, kept, planned, before[REPEATS])
        extras = {f"{STATE}{name}": value for name, value in previous.items()}
        extras |= {f"{NEXT_STATE}{name}": after[name] for name in self.trajectory.fields}
        extras[SWITCH] = switch.astype(np.float32)
        return ActResult(after[self.trajectory.fields[0]], after, extras)

    def act_tensors(
        self, observation: Tensors, noise: tf.Tensor | None = None, state: Tensors | None = None
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns actions and the next state as tensors; see `BasePolicy.act_tensors`."""
        assert state is not None
        draws = None if noise is None else Draws(noise[:, :-1], noise[:, -1])
        alpha = tf.convert_to_tensor(self.choice_alpha)
        kept, planned, _, _, switch_E = self._decide(observation, self._tau(state), alpha, draws)
        after = self._follow(self._limited(switch_E, state[REPEATS]), kept, planned, state[REPEATS])
        return after[self.trajectory.fields[0]], after

    def sample_noise(self, observation: Tensors) -> tf.Tensor:
        """Draws `[E, A + 1]`: standard normal for the proposal, and in the last column uniform in [0, 1) for the
        choice.
        """
        rows = tf.shape(next(iter(observation.values())))[0]
        return tf.concat([self.noise_tensor(rows), fresh_uniform([rows, 1])], axis=-1)

    def distribution_at(self, observation: Arrays, state: Arrays) -> SquashedGaussian:
        """Returns the distribution of proposals; see `BasePolicy.distribution_at`."""
        if not self.algorithm.inverse_mode:
            raise TfsacError("the policy proposes actions, and has a distribution of them, only with inverse_mode=True")
        return SquashedGaussian(*self.outputs("policy", {**observation, **self._tau_at(observation, state)}))

    def is_tie(self, observation: Arrays, state: Arrays) -> bool:
        """Returns whether the values of keeping and switching are equal up to rounding, in any of the rows."""
        decision = self._decide(observation, self._tau_at(observation, state), self.alpha)
        difference_E = np.abs(decision.switch_q_E - decision.keep_q_E)
        return bool((difference_E <= ROUNDING * (1.0 + np.abs(decision.keep_q_E))).any())

    def _tau(self, state: Mapping[str, Any]) -> Tau:
        return {name: state[name] for name in self.trajectory.fields}

    def _tau_at(self, observation: Arrays, state: Arrays) -> Tau:
        return self._tau(state_before(state, None, self.initial_state(len(next(iter(observation.values()))))))

    def _trajectories(self, proposal: Any, previous: Tau) -> tuple[Tau, Tau]:
        return self.trajectory.step(previous), self.trajectory.plan(proposal, previous)

    def _draw(self, rows: int, mode: Mode) -> Draws | None:
        """Draws a step's random numbers; none for the mode without epsilon."""
        probability = self.algorithm.epsilon_greedy if mode == "greedy" else 1.0  # of sampling instead of the mode
        if not probability:
            return None
        noise, proposal_sampled = self.noise(rows), self.rng.random(rows) < probability
        uniform, choice_sampled = self.rng.random(rows), self.rng.random(rows) < probability
        return Draws(noise * proposal_sampled[:, None], np.where(choice_sampled, uniform, 0.5))

    def _decide(
        self, observation: Mapping[str, Any], previous: Tau, alpha: Any, draws: Draws | None = None
    ) -> Decision:
        """Returns the policy's proposal and choice: modes, or samples from the draws; a tie keeps."""
        policy = SquashedGaussian(*self.outputs("policy", {**observation, **previous}))
        proposal = policy.mode() if draws is None else policy.sample(draws.noise_EA)
        kept, planned = self._trajectories(proposal, previous)
        keep_q, switch_q = (
            self.objective(self.outputs("q", observation, self.trajectory.concatenated(tau))[0])
            for tau in (kept, planned)
        )
        of_both = choice(keep_q, switch_q, alpha, self.algorithm.b1_advantage_clipping)
        switch = of_both.better_B if draws is None else draws.uniform_E < of_both.switch_B
        return Decision(kept, planned, keep_q, switch_q, switch)

    def _limited(self, switch: Any, repeats: Any) -> Any:
        """Returns where to switch, including where the trajectory has lasted the maximum number of steps."""
        most = self.algorithm.max_repeat_steps
        return switch if most is None else switch | (repeats >= most)

    def _follow(self, switch: Any, kept: Tau, planned: Tau, repeats: Any) -> dict[str, Any]:
        """Returns the next state, of arrays or tensors; its first field is the action."""
        where, ones = functions_of(repeats).where, functions_of(repeats).ones_like(repeats)
        after = {name: where(switch[:, None], planned[name], kept[name]) for name in self.trajectory.fields}
        return {**after, REPEATS: where(switch, ones, repeats + 1)}

    def objective(self, q_BND: Any) -> Any:
        """Returns the weighted sum over rewards of pessimistic critics, `[B]`."""
        return functions_of(q_BND).sum(pessimistic(q_BND, self.reward_weights) * self.reward_weights, axis=-1)

    # -- weights -------------------------------------------------------------------------------------------------------

    @property
    def variables(self) -> dict[str, Any]:
        """The variables that acting needs, by name."""
        return {**super().variables, "choice_alpha": self.choice_alpha}

    def acting_weights(self) -> list[tf.Tensor]:
        """Returns the temperature of the choice and the weights that acting copies."""
        return [tf.identity(self.choice_alpha), *super().acting_weights()]

    def refresh(self, weights: list[np.ndarray] | None = None) -> None:
        """Updates the copies of temperature and weights for acting; see `BasePolicy.refresh`."""
        alpha, *arrays = [w.numpy() for w in self.acting_weights()] if weights is None else weights
        self.alpha = np.float32(alpha)
        super().refresh(arrays)


def _trajectory_of(parameters: AgentParameters) -> Trajectory:
    algorithm: Any = parameters.algorithm
    return Trajectory(algorithm.trajectory, algorithm.inverse_mode)
