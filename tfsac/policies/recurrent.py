"""Policies with an LSTM: those of actor-critic with experience replay, optionally after a trunk or without an LSTM, and
those of recurrent soft actor-critic, which also read the previous action and reward.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.errors import TfsacError
from tfsac.networks import forward_of
from tfsac.networks.heads import action_size
from tfsac.networks.layers import functions_of
from tfsac.networks.lstm import CELL, HIDDEN
from tfsac.networks.network import Networks
from tfsac.parameters import FEATURES, AgentParameters, GaussianPolicyHeadParameters
from tfsac.policies.actions import ContinuousActions, DiscreteActions
from tfsac.policies.base_policy import BasePolicy, Mode, check_keys, check_single, state_before
from tfsac.policies.distributions import DiagonalGaussian, MaskedCategorical, SquashedGaussian
from tfsac.types import (
    BEHAVIOUR,
    PREVIOUS_ACTION,
    PREVIOUS_REWARD,
    STATE,
    TARGET,
    ActResult,
    Arrays,
    ArraySpec,
    DiscreteSpec,
    Segments,
    Spec,
    Tensors,
)

POLICY, TRUNK = "policy", "trunk"
LOGITS, MEAN, VARIANCE = BEHAVIOUR + "logits", BEHAVIOUR + "mean", BEHAVIOUR + "variance"


class RecurrentPolicy(BasePolicy):
    """Acts with a network `policy`, after an optional network `trunk`; its state is that of their LSTMs.

    While it collects experience, it also advances all other networks with an LSTM, so that learning can start in the
    middle of an episode.

    State fields are named "<network>_<field>"; `state` has those of the networks that choose actions, `recurrent_state`
    all.

    Attributes:
        stored_state: fields that are stored with each step, with their values before it.
    """

    def __init__(self, parameters: AgentParameters, spec: Spec, networks: Networks, seed: int = 0):
        names = self.network_names(parameters, collecting=True)
        super().__init__(parameters, spec, {name: network for name, network in networks.items() if name in names}, seed)
        self.acts_through = (TRUNK, POLICY) if TRUNK in self.networks else (POLICY,)
        self.recurrent_state = self._fields(self.networks)
        self.state = self._fields(self.acts_through)
        self.stored_state = tuple(self.recurrent_state)
        check_keys(spec, self.recurrent_state)
        self.forwards = {
            name: forward_of(
                network, self.spec_of_network(name, parameters, spec, self.networks), with_head=name == POLICY
            )
            for name, network in self.networks.items()
        }

    @classmethod
    def check(cls, parameters: AgentParameters, spec: Spec, custom_models: bool = False) -> None:
        """Rejects teams, several rewards, custom Keras models and actions of another kind; see `BasePolicy.check`."""
        if custom_models:
            raise TfsacError(f"agents of kind {parameters.kind!r} take no custom Keras models")
        super().check(parameters, spec, custom_models)
        check_single(parameters, spec)

    @classmethod
    def network_names(cls, parameters: AgentParameters, collecting: bool = True) -> tuple[str, ...]:
        """Returns the names of the networks that acting needs; see `BasePolicy.network_names`."""
        names = {TRUNK, POLICY} & parameters.networks.keys()
        if not collecting:
            return tuple(names)
        for name, network in parameters.networks.items():
            if network.middleware_parameters.kind == "lstm":
                names |= {name, *([name + TARGET] if network.create_target_network else [])}
        if TRUNK in parameters.networks and any(name.endswith(TARGET) for name in names):
            names |= {TRUNK + TARGET}
        return tuple(names)

    @classmethod
    def spec_of_network(cls, name: str, parameters: AgentParameters, spec: Spec, networks: Networks) -> Spec:
        """Returns a spec with the observation, or with the trunk's features for the networks after it."""
        if TRUNK not in parameters.networks or name.startswith(TRUNK):
            return spec
        width = networks[TRUNK].model.outputs[0].shape[-1]
        return spec._replace(observation={FEATURES: ArraySpec((width,), "float32")})

    def _fields(self, names: Iterable[str]) -> dict[str, ArraySpec]:
        return {
            self.field_name(name, field): array
            for name in names
            for field, array in self.networks[name].lstm_state.items()
        }

    def field_name(self, network: str, field: str) -> str:
        """Returns the name of a field of a network's LSTM in the policy's state."""
        return f"{network}_{field}"

    def initial_state(self, rows: int, networks: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Returns the state at episode starts of these networks, or of those that choose actions."""
        fields = self._fields(self.acts_through if networks is None else networks)
        return {field: np.zeros((rows, *array.shape), array.dtype) for field, array in fields.items()}

    def state_after(self, action: Any) -> dict[str, Any]:
        """Returns the fields of the next state that follow from the action, an array or a tensor; none by default."""
        return {}

    def network_inputs(self, observation: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the networks' inputs from observation and state, without the state of their LSTMs."""
        return dict(observation)

    @abstractmethod
    def distribution(self, outputs: list[Any], observation: Mapping[str, Any]) -> Any:
        """Returns the distribution for the head's outputs, arrays or tensors `[R, ...]`."""

    def behaviour(self, outputs: list[np.ndarray], policy: Any) -> dict[str, np.ndarray]:
        """Returns parameters of the distribution to store with its sampled action; none by default."""
        return {}

    def act(
        self,
        observation: Arrays,
        state: Arrays | None = None,
        is_first: np.ndarray | None = None,
        mode: Mode = "sample",
        env_steps: int = 0,
    ) -> ActResult:
        """Chooses actions; see `BasePolicy.act`. The extras are the parameters of their distribution and, in "explore"
        and "random", the stored state before the step.
        """
        rows, collecting = len(next(iter(observation.values()))), mode in ("explore", "random")
        names = [*self.networks] if collecting else [*self.acts_through]
        before = state_before(state, is_first, self.initial_state(rows, names))
        outputs, after, _ = self._advance(names, observation, before)
        extras: dict[str, np.ndarray] = {}
        if mode == "random":
            action = self.uniform(observation, rows)
        else:
            policy = self.distribution(outputs, observation)
            action = policy.mode() if mode == "greedy" else policy.sample(self.noise(rows))
            extras |= self.behaviour(outputs, policy)
        if collecting:
            extras |= {STATE + field: before[field] for field in self.stored_state}
        return ActResult(action, {**after, **self.state_after(action)}, extras)

    def distribution_at(self, observation: Arrays, state: Arrays) -> Any:
        """Returns the policy's distribution; see `BasePolicy.distribution_at`."""
        before = state_before(state, None, self.initial_state(len(next(iter(observation.values())))))
        outputs, _, _ = self._advance(self.acts_through, observation, before)
        return self.distribution(outputs, observation)

    def act_tensors(
        self, observation: Tensors, noise: tf.Tensor | None = None, state: Tensors | None = None
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns actions and the next state as tensors; see `BasePolicy.act_tensors`."""
        outputs, after, _ = self.advance_tensors(observation, state)
        policy = self.distribution(outputs, observation)
        action = policy.mode() if noise is None else policy.sample(noise)
        return action, {**after, **self.state_after(action)}

    def advance_tensors(
        self, observation: Tensors, state: Tensors | None
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Returns the policy's outputs in one step, its next state, and the inputs of the networks after a trunk."""
        outputs, after, features = self._advance(self.acts_through, observation, state or {})
        return outputs, after, {**observation, **({FEATURES: features[TRUNK]} if TRUNK in features else {})}

    def _advance(
        self, names: Iterable[str], observation: Mapping[str, Any], before: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
        """Returns the policy's outputs, the states after the step by field, and the first output of each network."""
        outputs, after, features = list[Any](), dict[str, Any](), dict[str, Any]()
        read = self.network_inputs(observation, before)
        for name in names:
            inputs = dict(read)
            if TRUNK in self.networks and not name.startswith(TRUNK):
                inputs[FEATURES] = features[average_of(TRUNK, self.networks) if name.endswith(TARGET) else TRUNK]
            fields = self.networks[name].lstm_state
            of_lstm = {field: before[self.field_name(name, field)] for field in fields}
            computed = self.outputs(name, {**inputs, **of_lstm})
            after |= {self.field_name(name, field): computed.pop() for field in reversed([*fields])}
            features[name] = computed[0]
            outputs = computed if name == POLICY else outputs
        return outputs, {field: after[field] for field in self._fields(names)}, features


class RecurrentCategoricalPolicy(DiscreteActions, RecurrentPolicy):
    """Discrete actions `[E]`, numbered from 0, with a logit each; those outside the mask are never chosen."""

    def __init__(self, parameters: AgentParameters, spec: Spec, networks: Networks, seed: int = 0):
        super().__init__(parameters, spec, networks, seed)
        self.spec = spec._replace(extras={LOGITS: ArraySpec((self.num_actions,), "float32")})

    def behaviour(self, outputs: list[np.ndarray], policy: MaskedCategorical) -> dict[str, np.ndarray]:
        """Returns the logits, as they are before the mask."""
        return {LOGITS: outputs[0]}


class RecurrentGaussianPolicy(ContinuousActions, RecurrentPolicy):
    """Actions `[E, A]` of a Gaussian over all of R^A; the environment clips samples outside [-1, 1].

    Attributes:
        min_variance: added to the variances.
    """

    def __init__(self, parameters: AgentParameters, spec: Spec, networks: Networks, seed: int = 0):
        super().__init__(parameters, spec, networks, seed)
        head = parameters.networks[POLICY].head_parameters
        assert isinstance(head, GaussianPolicyHeadParameters)
        self.min_variance = np.float32(head.min_variance)
        self.spec = spec._replace(extras={name: ArraySpec((self.action_size,), "float32") for name in (MEAN, VARIANCE)})

    def distribution(self, outputs: list[Any], observation: Mapping[str, Any]) -> DiagonalGaussian:
        """Returns the distribution of means `[R, A]` and raw variances `[R, A]` or `[R, 1]`."""
        mean, raw = outputs
        functions = functions_of(mean)
        return DiagonalGaussian(mean, functions.ones_like(mean) * (functions.softplus(raw) + self.min_variance))

    def behaviour(self, outputs: list[np.ndarray], policy: DiagonalGaussian) -> dict[str, np.ndarray]:
        """Returns mean and variance."""
        return {MEAN: policy.mean, VARIANCE: policy.variance}


class RecurrentSACPolicy(RecurrentPolicy):
    """Acts with a network `policy` that also reads the previous action and reward, which are zeros at episode starts.

    Its state has the fields "hidden" and "cell" of the LSTM, "previous_action" as the policy chose it, and
    "previous_reward", raw. `act` does not know the reward of its action, so it is NaN in the next state until the
    caller sets it; see `with_reward`. If learning starts from stored states, the critics' LSTM is also advanced while
    experience is collected.
    """

    def __init__(self, parameters: AgentParameters, spec: Spec, networks: Networks, seed: int = 0):
        super().__init__(parameters, spec, networks, seed)
        discrete = isinstance(spec.action, DiscreteSpec)
        action = ArraySpec((), "int32") if discrete else ArraySpec((self.action_size,), "float32")
        previous = {PREVIOUS_ACTION: action, PREVIOUS_REWARD: ArraySpec((), "float32")}
        self.state = {**self.state, **previous}
        self.spec = spec._replace(extras={STATE + name: array for name, array in previous.items()})
        if not self._stores_states(parameters):
            self.recurrent_state = {}
        self.stored_state = (*self.recurrent_state, *previous)

    @classmethod
    def check(cls, parameters: AgentParameters, spec: Spec, custom_models: bool = False) -> None:
        """Also rejects observations with the keys of the policy's state; see `RecurrentPolicy.check`."""
        super().check(parameters, spec, custom_models)
        check_keys(spec, {HIDDEN, CELL, PREVIOUS_ACTION, PREVIOUS_REWARD})

    @classmethod
    def network_names(cls, parameters: AgentParameters, collecting: bool = True) -> tuple[str, ...]:
        """Returns "policy", and "q" if its states are stored; see `BasePolicy.network_names`."""
        return (POLICY, "q") if collecting and cls._stores_states(parameters) else (POLICY,)

    @staticmethod
    def _stores_states(parameters: Any) -> bool:
        return parameters.algorithm.initial_state == "stored"

    @classmethod
    def spec_of_network(cls, name: str, parameters: AgentParameters, spec: Spec, networks: Networks) -> Spec:
        """Returns a spec with the previous action, one-hot if it is discrete, and the previous reward as state."""
        sizes = {PREVIOUS_ACTION: action_size(spec), PREVIOUS_REWARD: 1}
        return spec._replace(state={name: ArraySpec((size,), "float32") for name, size in sizes.items()})

    def field_name(self, network: str, field: str) -> str:
        """Returns "hidden" and "cell" for the policy, "q_hidden" and "q_cell" for the critics."""
        return field if network == POLICY else super().field_name(network, field)

    def initial_state(self, rows: int, networks: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Returns zeros, and -1 as the previous discrete action; see `RecurrentPolicy.initial_state`."""
        state = super().initial_state(rows, networks)
        previous = {name: self.state[name] for name in (PREVIOUS_ACTION, PREVIOUS_REWARD)}
        state |= {name: np.zeros((rows, *array.shape), array.dtype) for name, array in previous.items()}
        if isinstance(self.spec.action, DiscreteSpec):
            state[PREVIOUS_ACTION] -= 1
        return state

    def state_after(self, action: Any) -> dict[str, Any]:
        """Returns the action as the previous one and, for arrays, NaN for the reward that is not known yet."""
        if not isinstance(action, np.ndarray):
            return {PREVIOUS_ACTION: action}
        return {PREVIOUS_ACTION: action, PREVIOUS_REWARD: np.full(len(action), np.nan, np.float32)}

    def network_inputs(self, observation: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the observation, the previous action, one-hot if it is discrete, and the previous reward."""
        action, reward = state[PREVIOUS_ACTION], state[PREVIOUS_REWARD]
        if isinstance(self.spec.action, DiscreteSpec):
            is_chosen = action[..., None] == np.arange(self.num_actions, dtype=np.int32)
            action = functions_of(action).where(is_chosen, np.float32(1.0), np.float32(0.0))
        return {**observation, PREVIOUS_ACTION: action, PREVIOUS_REWARD: reward[..., None]}


class RecurrentSACGaussianPolicy(ContinuousActions, RecurrentSACPolicy):
    """Actions `[E, A]` in (-1, 1), tanh of a Gaussian whose location and log scale the network computes."""

    def distribution(self, outputs: list[Any], observation: Mapping[str, Any]) -> SquashedGaussian:
        """Returns the policy's distribution."""
        return SquashedGaussian(*outputs)


class RecurrentSACCategoricalPolicy(DiscreteActions, RecurrentSACPolicy):
    """Discrete actions `[E]`, numbered from 0, with a logit each; those outside the mask are never chosen."""


def average_of(name: str, networks: Networks) -> str:
    """Returns the name of a network's average (its target network), or its own name if it has none."""
    return name + TARGET if name + TARGET in networks else name


def features_of_segments(networks: Networks, batch: Segments) -> dict[str, tf.Tensor]:
    """Returns the inputs of the heads of an agent's networks, `[T + 1, B, F]` by network; the last row is after the
    segments.
    """
    ones_1B = tf.ones_like(batch.is_first[:1])
    is_first, valid = tf.concat([batch.is_first, 0.0 * ones_1B], 0), tf.concat([batch.length, ones_1B], 0) > 0
    features: dict[str, tf.Tensor] = {}
    for name, network in networks.items():
        inputs: Tensors = batch.observation
        if TRUNK in networks and not name.startswith(TRUNK):
            inputs = {FEATURES: features[average_of(TRUNK, networks) if name.endswith(TARGET) else TRUNK]}
        state = {field: batch.initial_state[f"{name}_{field}"] for field in network.lstm_state}
        features[name] = network.features(inputs, state, is_first, valid)
    return features
