"""Acting with networks that may remember: an LSTM in any of them, a common trunk before them or none."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, get_args

import numpy as np
import tensorflow as tf

from tfsac.agents.base import Agent, Mode, ModelMaker
from tfsac.networks import forward_of
from tfsac.parameters import FEATURES, AgentParameters
from tfsac.types import STATE, ActResult, ArraySpec, Spec

TRUNK, POLICY, AVERAGE = "trunk", "policy", "_target"  # names of networks, and the ending of an average one's


class RecurrentAgent(Agent):
    """Acts with a network `policy`, after a network `trunk` where there is one.

    The policy's state is that of its LSTMs. While it collects experience all networks with an LSTM go along, so that learning can
    begin in the middle of an episode.

    Args:
        parameters, spec, seed, eager, models, jit_compile: see `Agent`; the spec with the extras that the policy's distribution is stored as.

    Attributes:
        recurrent: specs of the states of all LSTMs by field, "<network>_<field>".

    Raises:
        ValueError: several agents, several rewards a step, custom Keras models, observations with keys of the state.
    """

    algorithm: Any

    def __init__(
        self,
        parameters: AgentParameters,
        spec: Spec,
        seed: int = 0,
        eager: bool = False,
        models: ModelMaker | None = None,
        jit_compile: bool = False,
    ):
        if models is not None:
            raise ValueError(
                "Custom Keras models (models) are for agents of the kinds 'soft_actor_critic', 'twin_soft_actor_critic', "
                "'discrete_soft_actor_critic' and 'temporally_abstract_actor_critic'. "
                f"Received: models with an agent of kind {parameters.kind!r}"
            )
        if spec.num_agents is not None:
            raise ValueError(f"This agent ({parameters.kind!r}) acts alone. Received: {spec.num_agents} agents that share a policy")
        if spec.num_rewards is not None:
            raise ValueError(
                f"This agent ({parameters.kind!r}) learns from one reward a step; several are for agents of kind "
                f"'temporally_abstract_actor_critic'. Received: {spec.num_rewards} rewards"
            )
        # What reads the trunk's features is made after it.
        networks = dict(sorted(parameters.networks.items(), key=lambda item: item[0] != TRUNK))
        super().__init__(dataclasses.replace(parameters, networks=networks), spec, seed, eager, models, jit_compile)
        self.acts_through = (TRUNK, POLICY) if TRUNK in self.networks else (POLICY,)
        if reserved := self.recurrent.keys() & spec.observation.keys():
            raise ValueError(f"These keys belong to the policy's state, not to observations. Received: {sorted(reserved)}")
        remembering = {name for name, network in self.networks.items() if network.memory}
        behind = {TRUNK + AVERAGE for name in remembering if name.endswith(AVERAGE) and TRUNK in self.networks}
        self.collecting = [name for name in self.networks if name in {*self.acts_through, *remembering, *behind}]
        self.forwards = {
            name: forward_of(self.networks[name], self.spec_of_network(name), with_head=name == POLICY) for name in self.collecting
        }

    @property
    def recurrent(self) -> dict[str, ArraySpec]:
        """Specs of the states of all LSTMs by field."""
        return self._fields(self.networks)

    @property
    def values_through(self) -> list[str]:
        """Names of the networks that `value_tensors` needs: values are means over the policy.

        Raises:
            ValueError: see `refuse_remembering_critics`.
        """
        self.refuse_remembering_critics()
        return list(self.parameters)

    def refuse_remembering_critics(self) -> None:
        """Checks that values are functions of the policy's state.

        Raises:
            ValueError: a critic with an LSTM of its own, whose state is no part of the policy's.
        """
        for name in self.parameters:
            if name not in self.acts_through and self.networks[name].memory:
                raise ValueError(
                    "Values are functions of the policy's state, so its critics have no LSTM of their own: shared=True makes one trunk. "
                    f"Received: an LSTM in {name!r}"
                )

    def _fields(self, names: Iterable[str]) -> dict[str, ArraySpec]:
        return {f"{name}_{field}": array for name in names for field, array in self.networks[name].memory.items()}

    def average_of(self, name: str) -> str:
        """Returns the name of a network's average, or its own where it has none."""
        return name + AVERAGE if name + AVERAGE in self.networks else name

    def spec_of_network(self, name: str) -> Spec:
        """Returns the observation, or the features of the trunk for what comes after it."""
        if TRUNK not in self.parameters or name.startswith(TRUNK):
            return self.spec
        trunk = self.networks[TRUNK].model.outputs[0]
        return self.spec._replace(observation={FEATURES: ArraySpec((trunk.shape[-1],), "float32")})

    # -- in NumPy ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def draw(
        self, outputs: list[np.ndarray], observation: Mapping[str, np.ndarray], mode: Mode
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Returns actions `[E, ...]` of a policy and its parameters as extras.

        Args:
            outputs: of the policy's head.
            observation: `[E, ...]` by key.
            mode: "greedy" for the policy's mode, else a sample.
        """

    @abstractmethod
    def at_random(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns uniform actions `[E, ...]`."""

    def initial_state(self, rows: int) -> dict[str, np.ndarray]:
        """Returns zeros for the LSTMs that choose actions, `[rows, H]` by field."""
        return self._zeros(self.acts_through, rows)

    def _zeros(self, names: Iterable[str], rows: int) -> dict[str, np.ndarray]:
        return {field: np.zeros((rows, *array.shape), array.dtype) for field, array in self._fields(names).items()}

    def act(
        self,
        observation: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray] | None = None,
        is_first: np.ndarray | None = None,
        mode: Mode = "sample",
        env_steps: int = 0,
    ) -> ActResult:
        """Chooses actions; see `Agent.act`. The extras are the policy's distribution and, in "explore", all states before the step."""
        if mode not in get_args(Mode):
            raise ValueError(f"mode is 'random', 'explore', 'sample' or 'greedy'. Received: {mode!r}")
        names = self.collecting if mode == "explore" else [*self.acts_through]
        before = self._begin(state, is_first, self._zeros(names, len(next(iter(observation.values())))))
        outputs: list[np.ndarray] = []
        features: dict[str, np.ndarray] = {}
        after: dict[str, np.ndarray] = {}
        for name in names:
            given = dict(observation)
            if TRUNK in self.networks and not name.startswith(TRUNK):
                given[FEATURES] = features[self.average_of(TRUNK) if name.endswith(AVERAGE) else TRUNK]
            fields = self.networks[name].memory
            computed = self.forwards[name]({**given, **{field: before[f"{name}_{field}"] for field in fields}})
            after |= {f"{name}_{field}": computed.pop() for field in reversed([*fields])}
            features[name] = computed[0]
            outputs = computed if name == POLICY else outputs
        if mode == "random":
            return ActResult(self.at_random(observation), after)
        action, behaviour = self.draw(outputs, observation, mode)
        states = {STATE + field: value for field, value in before.items()} if mode == "explore" else {}
        return ActResult(action, after, {**behaviour, **states})

    def _begin(
        self, state: Mapping[str, np.ndarray] | None, is_first: np.ndarray | None, initial: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Returns the state, with zeros where episodes begin."""
        wanted, found = ({name: np.shape(value) for name, value in arrays.items()} for arrays in (initial, state or initial))
        if found != wanted:
            raise ValueError(
                f"The state of this policy goes on from {wanted}; where the number of environments changes, begin anew. Received: {found}"
            )
        if not state:
            return initial
        goes_on = 1.0 - np.zeros(1) if is_first is None else 1.0 - np.asarray(is_first)
        return {name: (value * goes_on[:, None]).astype(value.dtype) for name, value in state.items()}

    @property
    def acts_in_graph(self) -> bool:
        """Whether acting reads variables."""
        return not all(forward.variables for forward in self.forwards.values())

    def acting_weights(self) -> list[tf.Tensor]:
        """Returns the weights of all networks that act in NumPy."""
        return [tf.identity(v.value) for forward in self.forwards.values() for v in forward.variables]

    def refresh(self, outputs: list[np.ndarray] | None = None) -> None:
        """Hands the weights to what acts in NumPy."""
        weights = iter([w.numpy() for w in self.acting_weights()] if outputs is None else outputs)
        for forward in self.forwards.values():
            forward.load([next(weights) for _ in forward.variables])

    # -- in TensorFlow -------------------------------------------------------------------------------------------------

    @abstractmethod
    def policy_of(self, outputs: list[tf.Tensor], observation: Mapping[str, tf.Tensor]) -> Any:
        """Returns the policy's distribution in `[R]` rows, from what its head computes there."""

    def chained(
        self, observation: Mapping[str, tf.Tensor], state: Mapping[str, tf.Tensor] | None
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor], Mapping[str, tf.Tensor]]:
        """Returns the policy's outputs in one step, its next state, and what the networks after a trunk read.

        Raises:
            ValueError: no state for a policy that has one.
        """
        given, after = dict(observation), dict[str, tf.Tensor]()
        fields = self._fields(self.acts_through)
        if fields and (state is None or fields.keys() - state.keys()):
            raise ValueError(
                f"A recurrent policy reads its state {', '.join(fields)} beside the observation; `initial_state` begins an episode. "
                f"Received: {sorted(state or {})}"
            )
        outputs: list[tf.Tensor] = []
        for name in self.acts_through:
            memory = self.networks[name].memory
            before = {field: (state or {})[f"{name}_{field}"] for field in memory}
            outputs = tf.nest.flatten(self.networks[name]({**given, **before}))
            after |= {f"{name}_{field}": outputs.pop() for field in reversed([*memory])}
            if name == TRUNK:
                given[FEATURES] = outputs[0]
        return outputs, {field: after[field] for field in fields}, given

    def act_tensors(
        self, observation: Mapping[str, tf.Tensor], noise: tf.Tensor | None = None, state: Mapping[str, tf.Tensor] | None = None
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns actions and the next state as tensors; see `Agent.act_tensors`.

        Raises:
            ValueError: no state for a policy that has one.
        """
        outputs, after, _ = self.chained(observation, state)
        policy = self.policy_of(outputs, observation)
        return policy.mode() if noise is None else policy.sample(noise), after
