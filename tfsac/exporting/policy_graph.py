"""A policy as a TensorFlow graph, without NumPy, Keras or tfsac: the content of an export."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfsac.environments.actions import ActionMap, HybridActionMap, action_map
from tfsac.errors import TfsacError
from tfsac.exporting.litert import INITIAL_STATE
from tfsac.policies.base_policy import read_by
from tfsac.training.trained_policy import NO_CRITICS, Policy
from tfsac.types import DISCRETE, ArraySpec, HybridSpec, input_name


class PolicyGraph:
    """A policy as one graph: observation normalisation, network, distribution and the map to the environment's actions;
    with `values`, also the agent's values.

    Attributes:
        weights: the variables that the functions use. Saving only these keeps Keras and tfsac out of the SavedModel.
        state: specs `[E, ...]` of the policy state by field.
    """

    def __init__(self, policy: Policy, values: bool = False):
        if values and policy.critics is None:
            raise TfsacError(NO_CRITICS)
        self.policy, self.filters, self.critics = policy.acting, policy.filters, policy.critics if values else None
        self.map = action_map(self.policy.spec.single_agent())  # the same for each team member
        self.maps = self.map.maps if isinstance(self.map, HybridActionMap) else {"action": self.map}
        self.networks = {**self.policy.networks, **(self.critics.networks if self.critics else {})}
        variables = [v.value for network in self.networks.values() for v in network.variables]
        self.weights = [*variables, *(v for v in self.policy.variables.values() if isinstance(v, tf.Variable))]
        self.state = {
            name: tf.TensorSpec([None, *array.shape], array.dtype, name=name)
            for name, array in self.policy.state.items()
        }

    def to_environment(self, action: Any) -> dict[str, tf.Tensor]:
        """Maps the agent's actions to the environment's, by output name: "action", or that of a leaf."""
        of = self.policy.spec.action
        leaves = of.split(action, tf.reshape) if isinstance(of, HybridSpec) else {"action": action}
        return {name: self._to_environment(self.maps[name], x) for name, x in leaves.items()}

    def _to_environment(self, leaf: ActionMap, action: tf.Tensor) -> tf.Tensor:
        if not isinstance(leaf.action, ArraySpec):
            return tf.cast(action + leaf.start, dtype_of(leaf))
        # Do not add in units of [-1, 1]: an int8 export would have few of its 256 values for the sum.
        return tf.clip_by_value(action * leaf.scale + (0.5 * leaf.low + 0.5 * leaf.high), leaf.low, leaf.high)

    def to_agent(self, leaves: Mapping[str, tf.Tensor]) -> Any:
        """Maps the environment's actions, by input name, to the agent's."""
        parts: dict[bool, list[tf.Tensor]] = {False: [], True: []}
        for name, leaf in self.maps.items():
            is_array, action = isinstance(leaf.action, ArraySpec), leaves[name]
            if is_array:
                parts[True].append((action - leaf.low) / leaf.scale - 1.0)
            else:
                parts[False].append(tf.cast(action, tf.int32) - leaf.start)
        of = self.policy.spec.action
        if not isinstance(of, HybridSpec):
            return (parts[True] or parts[False])[0]
        flat = ([tf.reshape(x, [tf.shape(x)[0], -1]) for x in part] for part in parts.values())
        return of.whole(*(tf.concat(part, axis=-1) if part else None for part in flat))

    def normalized(self, observation: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns observations, normalised as in training."""
        if not self.filters.count:
            return dict(observation)
        bound = self.filters.parameters.observation_clipping
        scale = self.filters.scale()
        return {
            key: tf.clip_by_value((x - scale[key][0]) * scale[key][1], -bound, bound) if key in scale else x
            for key, x in observation.items()
        }

    def act(self, inputs: Mapping[str, tf.Tensor], noise: Any = None) -> dict[str, tf.Tensor]:
        """Returns "action" `[E, ...]`, or several actions by name, in the environment's units, and the next state by
        field. Actions are the mode, or samples with noise from `BasePolicy.sample_noise`.
        """
        state = {name: inputs[name] for name in self.state}
        action, next_state = self.policy.act_tensors(self.normalized(inputs), noise, state)
        return {**self.to_environment(action), **next_state}

    def values(self, inputs: Mapping[str, tf.Tensor], action: Any) -> dict[str, tf.Tensor]:
        """Returns the agent's values of observations (and a state) and of the environment's actions; several actions
        come by name.
        """
        assert self.critics is not None
        state = {name: inputs[name] for name in self.state}
        return self.critics.value_tensors(
            self.normalized(inputs), self.to_agent(action if isinstance(action, Mapping) else {"action": action}), state
        )

    def initial_state(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the state of `rows` environments at an episode start, by field."""
        return {name: tf.repeat(x, rows, axis=0) for name, x in self.policy.initial_state(1).items()}

    def inputs(self, *names: str) -> dict[str, tf.TensorSpec]:
        """Returns specs of the observations `[E, ...]` that the named networks read, action masks and the state."""
        observation = read_by(names, self.networks, self.policy.spec).observation
        return {
            key: tf.TensorSpec(self._batched(array.shape), array.dtype, name=input_name(key))
            for key, array in observation.items()
        } | self.state

    def _batched(self, shape: tuple[int, ...]) -> list[int | None]:
        """Returns a shape for any number of environments, and for any team size if a team shares the policy."""
        return [None, *shape] if self.policy.spec.num_agents is None else [None, None, *shape[1:]]

    def signatures(self, noise_as_input: bool) -> dict[str, Any]:
        """Returns the concrete functions by signature name; inputs are named after the observation's keys."""
        inputs = self.inputs(*self.policy.acts_through)
        function = functools.partial(tf.function, autograph=False)  # AutoGraph would take most of the export time
        signatures = {"serving_default": function(lambda tensors: self.act(tensors)).get_concrete_function(inputs)}
        if self.state:
            rows = tf.TensorSpec([], tf.int32, name="rows")
            signatures[INITIAL_STATE] = function(self.initial_state).get_concrete_function(rows)
        if noise_as_input:
            example = {key: tf.zeros([1, *x.shape], x.dtype) for key, x in self.policy.spec.observation.items()}
            noise = tf.nest.map_structure(
                lambda x: tf.TensorSpec(self._batched(tuple(x.shape[1:])), tf.float32, name="noise"),
                self.policy.sample_noise(example),
            )
            if isinstance(noise, dict):
                noise[DISCRETE] = tf.TensorSpec(noise[DISCRETE].shape, tf.float32, name="uniform")
            signatures["sample"] = function(self.act).get_concrete_function(inputs, noise)
        else:
            sample = function(lambda tensors: self.act(tensors, self.policy.sample_noise(tensors)))
            signatures["sample"] = sample.get_concrete_function(inputs)
        if self.critics:
            inputs = self.inputs(*self.critics.values_through)
            agents = () if self.policy.spec.num_agents is None else (self.policy.spec.num_agents,)
            actions = {
                name: tf.TensorSpec(
                    self._batched((*agents, *leaf.action.shape)), dtype_of(leaf), name=action_input(name)
                )
                for name, leaf in self.maps.items()
            }
            signatures["values"] = function(self.values).get_concrete_function(inputs, actions)
        return signatures


def dtype_of(leaf: ActionMap) -> str:
    """Returns the dtype of an action: float32, or an integer space's own if LiteRT supports it, else int32."""
    if isinstance(leaf.action, ArraySpec):
        return "float32"
    native = leaf.action.native_dtype
    return native if native in ("int8", "uint8", "int16", "uint32") else "int32"


def action_input(name: str) -> str:
    """Returns the name of the input of "values" for an action; no observation has this name."""
    return name if name.startswith("action") else f"action_{name}"
