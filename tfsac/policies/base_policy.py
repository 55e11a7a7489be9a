"""The base class of policies: the interface, the networks they act through, and the transfer of weights to other
processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

import numpy as np
import tensorflow as tf

from tfsac.errors import TfsacError
from tfsac.networks import GraphForward, ModelMaker, NumpyForward, make_networks
from tfsac.networks.heads import action_size
from tfsac.networks.network import Networks
from tfsac.parameters import AgentParameters
from tfsac.random_streams import Stream
from tfsac.types import (
    ACTION_MASK,
    PREVIOUS_REWARD,
    ActResult,
    Arrays,
    ArraySpec,
    DiscreteSpec,
    HybridSpec,
    Spec,
    Tensors,
    input_name,
)

Mode = Literal["random", "explore", "sample", "greedy"]


class BasePolicy(ABC):
    """Chooses actions with networks, in [-1, 1] or numbered from 0. It has no losses or optimizers.

    Collectors, Ray actors, evaluation and exports use a policy; an agent trains its networks. Networks of dense layers
    and LSTMs are evaluated in NumPy, on copies of their weights; others in a compiled graph.

    Args:
        parameters, spec: the agent's parameters, and the environment's spec.
        networks: networks by name, at least those of `network_names`; `build` makes them.
        seed: seed of the random numbers for acting.

    Attributes:
        spec: the environment's spec, with the extras that are stored with each step.
        networks, forwards: the networks it acts through, and their evaluation outside updates, by name.
        num_actions, action_size: A, number of discrete actions, or of dimensions of a continuous action (or part).
        state: specs of the fields of its state, for one environment; empty for policies without a state.
        recurrent_state: specs of the states of all LSTMs by field, which segments of experience start with.
        acts_through: names of the networks that choose actions.
    """

    acts_through: tuple[str, ...] = ("policy",)
    forwards: Mapping[str, NumpyForward | GraphForward]

    def __init__(self, parameters: AgentParameters, spec: Spec, networks: Networks, seed: int = 0):
        self.parameters, self.spec = parameters, spec
        self.networks = dict(networks)
        self.num_actions = self.action_size = action_size(spec.single_agent())
        self.state: dict[str, ArraySpec] = {}
        self.recurrent_state: dict[str, ArraySpec] = {}
        self.rng = np.random.default_rng([seed, Stream.ACTING])

    @classmethod
    def build(
        cls,
        parameters: AgentParameters,
        spec: Spec,
        seed: int = 0,
        models: ModelMaker | None = None,
        collecting: bool = False,
    ) -> Self:
        """Makes only the policy, with new weights and without critics (except those that it acts through).

        Args:
            parameters, spec: the agent's parameters, and the environment's spec.
            seed: seed of weights and acting.
            models: returns custom Keras models, used instead of the parameters' layers.
            collecting: see `network_names`.
        """
        cls.check(parameters, spec, models is not None)

        def spec_of(name: str, networks: Networks) -> Spec:
            return cls.spec_of_network(name, parameters, spec, networks)

        networks = make_networks(parameters, spec_of, seed, models, cls.network_names(parameters, collecting))
        return cls(parameters, spec, networks, seed)

    # -- before networks are made --------------------------------------------------------------------------------------

    @classmethod
    def check(cls, parameters: AgentParameters, spec: Spec, custom_models: bool = False) -> None:
        """Raises TfsacError, before networks are made, if the policy cannot use the spec or custom Keras models."""
        if isinstance(spec.action, HybridSpec) and parameters.discrete_actions is not None:
            several = "MultiDiscrete, Dict or Tuple actions; use that of the preset 'hybrid_sac'"
            raise TfsacError(f"The agent {parameters.kind!r} cannot choose {several}")
        discrete = isinstance(spec.action, DiscreteSpec)
        if parameters.discrete_actions not in (None, discrete):
            actions = "discrete" if discrete else "continuous"
            preset = actions
            if parameters.recurrent:
                preset = "recurrent_discrete_sac" if discrete else "recurrent_sac_mujoco"
            instead = f"use that of the preset {preset!r}"
            raise TfsacError(f"The agent {parameters.kind!r} cannot choose {actions} actions; {instead}")

    @classmethod
    def network_names(cls, parameters: AgentParameters, collecting: bool = True) -> tuple[str, ...]:
        """Returns the names of the networks that acting needs; collecting may need the states of more networks."""
        return cls.acts_through

    @classmethod
    def spec_of_network(cls, name: str, parameters: AgentParameters, spec: Spec, networks: Networks) -> Spec:
        """Returns the spec of one of the agent's networks, for one agent; `networks` were made before it."""
        return spec.single_agent()

    # -- acting --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def act(
        self,
        observation: Arrays,
        state: Arrays | None = None,
        is_first: np.ndarray | None = None,
        mode: Mode = "sample",
        env_steps: int = 0,
    ) -> ActResult:
        """Chooses actions for the observations of E environments.

        Args:
            observation: arrays `[E, ...]` by key, normalised as in training.
            state: the state returned with the previous action; None or empty at first, and for policies without one. In
                mode "explore" it also holds the exploration's state.
            is_first: `[E]`, episode starts, where the state is reset.
            mode: "random" is uniform, "sample" samples from the policy, "explore" adds the exploration to that,
                "greedy" is the policy's mode.
            env_steps: environment steps so far, for exploration that depends on them.

        Returns:
            actions `[E, A]` in [-1, 1], or discrete actions `[E]` from 0, or hybrid ones.
        """

    @abstractmethod
    def uniform(self, observation: Arrays, rows: int) -> np.ndarray:
        """Draws uniform (valid) actions `[rows, ...]`."""

    @abstractmethod
    def noise(self, rows: int) -> np.ndarray:
        """Draws the noise of a sample, `[rows, A]`."""

    def initial_state(self, rows: int) -> dict[str, np.ndarray]:
        """Returns the policy's state at episode starts, zeros `[rows, ...]` by field; empty for policies without
        one.
        """
        return {name: np.zeros((rows, *array.shape), array.dtype) for name, array in self.state.items()}

    def outputs(self, name: str, inputs: Mapping[str, Any], *action: Any) -> list[Any]:
        """Returns the outputs of a network: arrays for arrays, tensors for tensors."""
        if isinstance(next(iter(inputs.values())), np.ndarray):
            return self.forwards[name](inputs, *action)
        return tf.nest.flatten(self.networks[name](inputs, *action))

    @abstractmethod
    def distribution_at(self, observation: Arrays, state: Arrays) -> Any:
        """Returns the distribution of actions (for a temporally abstract policy, of new trajectories' actions) in E
        environments, in the units of `act`; those of a team are folded, `[E * P, ...]`.
        """

    def is_tie(self, observation: Arrays, state: Arrays) -> bool:
        """Returns whether rounding decides between two equally good actions."""
        return False

    # -- as tensors, to be exported -----------------------------------------------------------------------------------

    @abstractmethod
    def act_tensors(
        self, observation: Tensors, noise: tf.Tensor | None = None, state: Tensors | None = None
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Like `act`, with tensors: returns actions, and the policy's next state.

        Args:
            observation: normalised, `[E, ...]` by key.
            noise: for a sample, as `sample_noise` draws it; None for the mode.
            state: the policy's state, as in `initial_state`; None for policies without one.
        """

    def sample_noise(self, observation: Tensors) -> tf.Tensor:
        """Draws the noise of samples for these observations (see `act_tensors`) with TensorFlow's random numbers."""
        return self.noise_tensor(tf.shape(next(iter(observation.values())))[0])

    @abstractmethod
    def noise_tensor(self, rows: int | tf.Tensor) -> tf.Tensor:
        """Draws the noise of a sample, `[rows, A]`, with TensorFlow's random numbers, different in every process."""

    # -- weights -------------------------------------------------------------------------------------------------------

    @property
    def variables(self) -> dict[str, Any]:
        """The variables that acting needs, by name."""
        return {f"{name}/{i}": v for name, network in self.networks.items() for i, v in enumerate(network.variables)}

    @property
    def reads_variables(self) -> bool:
        """Whether acting reads variables in addition to the result of `acting_weights`."""
        return not all(forward.variables for forward in self.forwards.values())

    def acting_weights(self) -> list[tf.Tensor]:
        """Returns the weights that acting copies; compiled updates return them together with the metrics."""
        return [tf.identity(v.value) for forward in self.forwards.values() for v in forward.variables]

    def refresh(self, weights: list[np.ndarray] | None = None) -> None:
        """Updates the copies of weights for acting from a result of `acting_weights`, or from the variables."""
        arrays = iter([w.numpy() for w in self.acting_weights()] if weights is None else weights)
        for forward in self.forwards.values():
            forward.load([next(arrays) for _ in forward.variables])

    def actor_weights(self, weights: list[np.ndarray] | None = None) -> list[np.ndarray]:
        """Returns the weights that another policy of the same kind needs to act like this one; see
        `load_acting_weights`.

        `weights` may be the last result of `acting_weights`.
        """
        if self.reads_variables:
            return [variable.numpy() for variable in self.variables.values()]
        return [w.numpy() for w in self.acting_weights()] if weights is None else weights

    def load_acting_weights(self, weights: list[np.ndarray]) -> None:
        """Loads another policy's `actor_weights`, to act like that policy from now on."""
        if not self.reads_variables:
            self.refresh(weights)
            return
        for variable, value in zip(self.variables.values(), weights, strict=True):
            variable.assign(value)
        self.refresh()


def read_by(names: Iterable[str], networks: Networks, spec: Spec) -> Spec:
    """Returns the spec with only the observations that the named networks read, and a policy's action mask."""
    keys = {key for name in names for key in networks[name].embedders} | ({ACTION_MASK} if "policy" in names else set())
    return spec._replace(observation={key: array for key, array in spec.observation.items() if key in keys})


def check_single(parameters: AgentParameters, spec: Spec, rewards: bool = False) -> None:
    """Rejects teams, and several rewards per step except for agents that learn from them."""
    if spec.num_agents is not None or (spec.num_rewards is not None and not rewards):
        raise TfsacError(
            f"an agent of kind {parameters.kind!r} acts alone{'' if rewards else ' and has one reward per step'}, got "
            f"{spec.num_agents or 1} agents and {spec.num_rewards or 1} rewards"
        )


def check_keys(spec: Spec, reserved: Iterable[str]) -> None:
    """Rejects observations with the keys of the policy's state or action, whose names exports use."""
    if reserved_keys := sorted(key for key in spec.observation if input_name(key).lower() in reserved):
        raise TfsacError(
            f"observations cannot have keys of the policy's state or action, got {', '.join(reserved_keys)}"
        )


def with_reward(state: Arrays, reward: Any) -> Arrays:
    """Returns a policy's state after a step with these rewards `[E]`, which only some policies read."""
    return {**state, PREVIOUS_REWARD: np.asarray(reward, np.float32)} if PREVIOUS_REWARD in state else state


def state_before(state: Arrays | None, is_first: np.ndarray | None, initial: Arrays) -> Arrays:
    """Returns the state at the start of a step: the previous one, or the initial one at episode starts, `[E]`.

    Raises:
        TfsacError: a state with other fields or shapes.
    """
    expected, received = ({name: np.shape(x) for name, x in arrays.items()} for arrays in (initial, state or initial))
    if received != expected:
        advice = "call reset before acting in another number of environments"
        raise TfsacError(f"the policy's state must have the shapes {expected}, got {received}: {advice}")
    if not state or is_first is None or not np.any(is_first):
        return state or initial
    first = np.asarray(is_first, bool)
    return {
        name: np.where(first.reshape(-1, *[1] * (value.ndim - 1)), initial[name], value)
        for name, value in state.items()
    }
