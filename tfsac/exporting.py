"""Exporting a policy as a SavedModel or a LiteRT file that acts exactly as the trained one, without tfsac."""

from __future__ import annotations

import functools
import pathlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tfsac import argument_checks
from tfsac.environments import ActionNumbering, action_map
from tfsac.environments.spaces import batched
from tfsac.exported import TFLITE_FILE, is_export_alone, load_exported
from tfsac.files import check_new_folder, neutral, new_file, sync, writing
from tfsac.litert import INITIAL_STATE, calibrate, converted, with_half_weights
from tfsac.machine import use_tensorflow
from tfsac.policies.base_policy import read_by
from tfsac.training.policy import NO_CRITICS, Policy
from tfsac.types import DiscreteSpec, input_name
from tfsac.user_code import described

Format = Literal["saved_model", "tflite"]
Quantize = Literal["none", "float16", "int8"]
A_POLICY = "a Policy, as tfsac.load_policy(run_dir) returns it"
TOLERANCE = 1e-5


class PolicyGraph:
    """A policy in TensorFlow alone: filters, network, distribution and the environment's own actions.

    Args:
        policy: to be exported.
        values: whether the agent's values are exported too.

    Attributes:
        weights: the variables that the functions use. Saving these alone keeps Keras and tfsac out of the SavedModel.
    """

    def __init__(self, policy: Policy, values: bool = False):
        self.acting, self.critics, self.filters = policy.acting, policy.critics, policy.filters
        self.map = action_map(self.acting.spec.of_one_agent())  # the same for each of several agents
        action = self.acting.spec.action
        self.action_dtype = action.export_dtype if isinstance(action, DiscreteSpec) else action.dtype
        self.networks = {**self.acting.networks, **(self.critics.networks if self.critics and values else {})}
        variables = [v.value for network in self.networks.values() for v in network.variables]
        self.weights = [*variables, *(v for v in self.acting.variables.values() if isinstance(v, tf.Variable))]
        self.state = {
            name: tf.TensorSpec([None, *array.shape], array.dtype, name=name)
            for name, array in self.acting.state.items()
        }

    def to_environment(self, action: tf.Tensor) -> tf.Tensor:
        """Returns the environment's actions for the agent's."""
        if isinstance(self.map, ActionNumbering):
            return tf.cast(action + self.map.start, self.action_dtype)
        low, high = self.map.low, self.map.high
        # Without a sum in units of [-1, 1], for which an export in int8 would have few of its 256 numbers.
        return tf.clip_by_value(action * self.map.scale + (0.5 * low + 0.5 * high), low, high)

    def to_agent(self, action: tf.Tensor) -> tf.Tensor:
        """Returns the agent's actions for the environment's."""
        if isinstance(self.map, ActionNumbering):
            return tf.cast(action, tf.int32) - self.map.start
        return (action - self.map.low) / self.map.scale - 1.0

    def filtered(self, observation: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns observations as they are normalised in training."""
        if not self.filters.count:
            return dict(observation)
        bound = self.filters.parameters.observation_clipping
        scale = self.filters.scale()
        return {
            key: tf.clip_by_value((x - scale[key][0]) * scale[key][1], -bound, bound) if key in scale else x
            for key, x in observation.items()
        }

    def act(self, given: Mapping[str, tf.Tensor], noise: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Returns "action" `[E, ...]` as the environment wants it and the next state by field: the mode, or a sample.

        Args:
            given: observations and state by name.
            noise: for a sample, as `BasePolicy.sample_noise` draws it.
        """
        state = {name: given[name] for name in self.state}
        action, after = self.acting.act_tensors(self.filtered(given), noise, state)
        return {"action": self.to_environment(action), **after}

    def sample(self, given: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns sampled actions, with randomness of TensorFlow's own."""
        return self.act(given, self.acting.sample_noise(given))

    def values(self, given: Mapping[str, tf.Tensor], action: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the agent's values of observations (and a state) and the environment's actions."""
        assert self.critics is not None
        state = {name: given[name] for name in self.state}
        return self.critics.value_tensors(self.filtered(given), self.to_agent(action), state)

    def initial_state(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the initial state of episodes, `[rows, ...]` by field."""
        return {name: tf.zeros([rows, *spec.shape[1:]], spec.dtype) for name, spec in self.state.items()}

    def inputs(self, *names: str) -> dict[str, tf.TensorSpec]:
        """Returns observations `[E, ...]` by key that the named networks read, masks where actions are chosen, and
        the state.
        """
        found = read_by(names, self.networks, self.acting.spec).observation
        return {
            **{
                key: tf.TensorSpec(self.any_number(array.shape), array.dtype, name=input_name(key))
                for key, array in found.items()
            },
            **self.state,
        }

    def any_number(self, shape: tuple[int, ...]) -> list[int | None]:
        """Returns the shape of one environment's array for any number of them, and of agents where several share
        the policy.
        """
        return [None, *shape] if self.acting.spec.num_agents is None else [None, None, *shape[1:]]

    def signatures(self, noise_as_input: bool, values: bool = False) -> dict[str, Any]:
        """Returns the concrete functions by signature name; inputs are named after the observation's keys."""
        seen, action = self.inputs(*self.acting.acts_through), self.acting.spec.action
        function = functools.partial(tf.function, autograph=False)  # AutoGraph would take most of the time of an export
        made = {"serving_default": function(lambda given: self.act(given)).get_concrete_function(seen)}
        if self.state:
            rows = tf.TensorSpec([], tf.int32, name="rows")
            made[INITIAL_STATE] = function(self.initial_state).get_concrete_function(rows)
        if noise_as_input:
            one = {key: tf.zeros([1, *array.shape], array.dtype) for key, array in self.acting.spec.observation.items()}
            shape = self.any_number(tuple(self.acting.sample_noise(one).shape[1:]))
            noise = tf.TensorSpec(shape, tf.float32, name="noise")
            made["sample"] = function(self.act).get_concrete_function(seen, noise)
        else:
            made["sample"] = function(self.sample).get_concrete_function(seen)
        if values:
            assert self.critics is not None
            taken = tf.TensorSpec(self.any_number(action.shape), self.action_dtype, name="action")
            made["values"] = function(self.values).get_concrete_function(
                self.inputs(*self.critics.values_through), taken
            )
        return made


def export(
    policy: Policy,
    out: str | pathlib.Path,
    format: Format = "saved_model",
    values: bool = False,
    replace: bool = False,
    quantize: Quantize = "none",
    quantize_with: Sequence[Sequence[Any]] | None = None,
) -> pathlib.Path:
    """Writes a policy that raw observations go into and the environment's own actions come out of.

    Signatures, whose inputs are named after the observation's keys, as far as the networks read them ("observation" for
    a plain box; "action_mask", booleans, where there is one; for keys like "arm.angle" and "1", "arm_angle" and
    "arg_1"):
        serving_default: observations `[E, ...]` to "action", the deterministic policy: continuous `[E, A]`, or discrete
            `[E]`, int32 or the space's own dtype if that is int8, uint8, int16 or uint32; with any number P of agents
            that share the policy `[E, P, A]` or `[E, P]`. A policy with a state takes its fields beside the
            observations and returns the next ones beside the action.
        initial_state: of a policy with a state: the number "rows" of environments to the fields of episode starts.
        sample: the same, sampled from the policy. The LiteRT file takes its "noise" as an input: standard normal of the
            action's shape, or for discrete actions uniform in [0, 1) with a last axis over all of them. A policy that
            keeps or switches trajectories takes `[E, A + 1]`, whose last column is uniform in [0, 1).
        values: on request, observations and "action" to the agent's values, `[E]` each (with P agents `[E, P]`).

    Args:
        policy: see `tfsac.load_policy`.
        out: a folder that does not exist or is empty; a LiteRT file is `out/policy.tflite`.
        format: "saved_model" or "tflite".
        values: also export the values, of a policy that was loaded with `critics=True`.
        replace: an earlier export at `out` makes room once the new one is complete.
        quantize: "float16" makes the weights of a LiteRT file float16, "int8" its weights and activations int8. Inputs
            and outputs keep their types.
        quantize_with: what int8 takes its ranges from: the raw observations of episodes, of each from its start.

    Returns:
        the folder, or the LiteRT file.

    Raises:
        FileExistsError: there is something at `out`; with `replace`, something else than an export; or `out` is the
            current folder.
        OSError: it cannot be written; there is nothing at `out` then, or what was there before.
        ValueError: an unknown format or quantisation; a folder named as a LiteRT file; values of a policy without
            critics, or with an LSTM of their own; a SavedModel to be quantised; int8 without observations, or
            observations without int8; a policy that the converter cannot make.
    """
    argument_checks.instance("policy", policy, Policy, A_POLICY)
    use_tensorflow()
    argument_checks.flag("values", values)
    argument_checks.flag("replace", replace)
    out = argument_checks.path("out", out)
    if values and policy.critics is None:
        raise ValueError(NO_CRITICS)
    if format not in ("saved_model", "tflite"):
        raise ValueError(f"format is 'saved_model' or 'tflite'. Received: {format!r}")
    if format == "tflite" and out.suffix == ".tflite":
        raise ValueError(f"out is a folder, which gets {TFLITE_FILE}. Received: {out}")
    if quantize not in ("none", "float16", "int8"):
        raise ValueError(f"quantize is 'none', 'float16' or 'int8'. Received: {quantize!r}")
    if quantize != "none" and format != "tflite":
        raise ValueError(f"Only a LiteRT file is quantised: format='tflite'. Received: {quantize!r}, {format!r}")
    try:
        episodes = [] if quantize_with is None else [list(episode) for episode in quantize_with]
    except TypeError as error:
        raise ValueError(
            "quantize_with is a list of episodes, of each a list of its raw observations. "
            f"Received: {argument_checks.shown(quantize_with)}"
        ) from error
    if any(episodes) != (quantize == "int8"):
        raise ValueError(
            "int8 takes at least one step of an episode, and nothing else takes any: quantize='int8', "
            f"quantize_with=[observations, ...]. Received: {quantize!r}, {len(episodes)} episodes"
        )
    for observation in (seen for episode in episodes for seen in episode):
        if leading := batched(observation, policy.reads)[1]:
            raise ValueError(
                "quantize_with is a list of episodes, of each a list of its raw observations, each of one environment. "
                f"Received: observations of {leading} environments"
            )
    if not replace or not is_export_alone(out):
        check_new_folder(out)
    if out.exists() and (out.samefile(".") or out.is_mount()):
        raise FileExistsError(
            f"An export takes the place of its folder, so out is neither the current one nor a mounted one; name a "
            f"folder in it. Received: {out}"
        )
    new_file(out, replace=True)
    with writing(out):
        aside = pathlib.Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        graph, module = PolicyGraph(policy, values), tf.Module()
        module.weights = graph.weights
        signatures = graph.signatures(noise_as_input=format == "tflite", values=values)
        with writing(out), neutral(aside) as folder:
            _save_quietly(module, folder / "model", signatures)
            if format == "tflite":
                converter = tf.lite.TFLiteConverter.from_saved_model(
                    str(folder / "model"), signature_keys=list(signatures)
                )
                if quantize == "int8":
                    calibrate(converter, signatures, policy, episodes)
                content = converted(converter)
                (aside / "lite").mkdir()
                (aside / "lite" / TFLITE_FILE).write_bytes(
                    with_half_weights(content) if quantize == "float16" else content
                )
            made = aside / ("lite" if format == "tflite" else "model")
            for path in [*made.rglob("*"), made]:
                sync(path)
            before = aside / "before"
            if out.exists():
                out.rename(before)
            try:
                made.rename(out)
            except BaseException:
                if before.exists():
                    before.rename(out)
                raise
        return out / TFLITE_FILE if format == "tflite" else out
    except tf.errors.OpError as error:
        raise OSError(f"The export cannot be written ({error.message.splitlines()[0]}). Received: {out}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _save_quietly(module: tf.Module, path: pathlib.Path, signatures: dict[str, Any]) -> None:
    """Saves without TensorFlow's line about assets, which a policy does not have."""
    logger, level = tf.get_logger(), tf.get_logger().level
    logger.setLevel("ERROR")
    try:
        tf.saved_model.save(module, str(path), signatures=signatures)
    finally:
        logger.setLevel(level)


def verify(policy: Policy, path: str | pathlib.Path, observations: list[Any]) -> float:
    """Compares the exported with the live policy.

    Args:
        policy: the live one.
        path: what `export` returned.
        observations: raw ones of one episode, in order.

    Returns:
        the largest absolute difference of an entry of an action, divided by half the range between its bounds, or of a
        state; infinite where one is no finite number. Every step begins with the live policy's state; a tie, in which
        both choose differently between two actions that are equal within rounding, is left out.

    Raises:
        ValueError: no observations, the export of a policy for another environment, or a policy that draws with
            `epsilon_greedy`, which its export does not.
    """
    argument_checks.instance("policy", policy, Policy, A_POLICY)
    argument_checks.path("path", path)
    if not isinstance(observations, list | tuple) or not observations:
        raise ValueError(f"Verifying needs a list of raw observations. Received: {argument_checks.shown(observations)}")
    epsilon = getattr(policy.acting.parameters.algorithm, "epsilon_greedy", 0.0)
    if epsilon:
        raise ValueError(
            f"Only a deterministic policy can be compared with its export. Received: epsilon_greedy={epsilon}"
        )
    exported = load_exported(path)
    action = policy.acting.spec.action
    unit: Any = 1
    if not isinstance(action, DiscreteSpec):
        low, high = np.asarray(action.low, float), np.asarray(action.high, float)
        rounded = np.maximum(np.abs(low), np.abs(high)) / 32  # float32's last bits of 1000.5 are no difference
        unit = np.maximum(np.maximum((high - low) / 2, rounded), np.finfo(float).tiny)
    policy.reset()
    largest = 0.0
    for observation in observations:
        arrays, leading = batched(observation, policy.reads)
        before = dict(policy.state)
        exported.state, ours = before, policy.act(observation)
        if leading:
            raise ValueError(
                f"Each observation is that of one environment. Received: {argument_checks.shown(observation)}"
            )
        try:
            theirs = exported(arrays)[0]
        except RuntimeError as error:
            raise ValueError(
                f"LiteRT cannot run the export at {path} with this policy's observations. Received: {described(error)}"
            ) from error
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            raise ValueError(
                f"The export at {path} takes other observations than this policy. Received: {described(error)}"
            ) from error
        if exported.fields != policy.state.keys():
            names = sorted(exported.fields)
            raise ValueError(
                f"The export at {path} has another state than this policy, {sorted(policy.state)}. Received: {names}"
            )
        if theirs.shape != ours.shape:
            raise ValueError(
                f"The export at {path} has actions of the shape {theirs.shape}, this policy {ours.shape}. Received: "
                f"{path}"
            )
        pairs = [(theirs / unit, ours / unit)]
        pairs += [(exported.state[name], value) for name, value in policy.state.items()]
        differences = [np.abs(theirs - ours).max() for theirs, ours in pairs]
        difference = float(max(differences)) if np.isfinite(differences).all() else np.inf
        if difference <= TOLERANCE or not policy.acting.is_tie(policy.filters.observation(arrays), before):
            largest = max(largest, difference)
    return largest
