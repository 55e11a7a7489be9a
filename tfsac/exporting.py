"""Exporting a policy as a SavedModel or a LiteRT file that acts exactly as the trained one, without tfsac."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tfsac.environments import ActionNumbering, action_map, as_arrays
from tfsac.files import new_file
from tfsac.training.policy import Policy
from tfsac.types import ACTION_MASK

Format = Literal["saved_model", "tflite"]
TOLERANCE = 1e-5
TFLITE_FILE = "policy.tflite"


class PolicyGraph:
    """A policy in TensorFlow alone: filters, network, distribution and the environment's own actions.

    Args:
        policy: to be exported.

    Attributes:
        weights: the variables that the functions use. Saving these alone keeps Keras and tfsac out of the SavedModel.
    """

    def __init__(self, policy: Policy):
        self.agent, self.filters = policy.agent, policy.filters
        self.map = action_map(self.agent.spec.of_one_agent())  # the same for each of a team
        self.weights = [
            variable.value for network in self.agent.networks.values() for variable in network.trainable_variables
        ]

    def to_environment(self, action: tf.Tensor) -> tf.Tensor:
        """Returns the environment's actions for the agent's."""
        if isinstance(self.map, ActionNumbering):
            return action + self.map.start
        low, high = self.map
        return tf.clip_by_value(low + (action + 1.0) * (0.5 * (high - low)), low, high)

    def to_agent(self, action: tf.Tensor) -> tf.Tensor:
        """Returns the agent's actions for the environment's."""
        if isinstance(self.map, ActionNumbering):
            return action - self.map.start
        low, high = self.map
        return (action - low) / (0.5 * (high - low)) - 1.0

    def filtered(self, observation: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns observations as the agent sees them."""
        if not self.filters.count:
            return dict(observation)
        bound = self.filters.parameters.observation_clipping
        scale = self.filters.scale()
        return {
            key: tf.clip_by_value((x - scale[key][0]) * scale[key][1], -bound, bound) if key in scale else x
            for key, x in observation.items()
        }

    def act(self, observation: Mapping[str, tf.Tensor], noise: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Returns {"action": `[E, ...]`} as the environment wants it, the mode or a sample made with the noise."""
        return {"action": self.to_environment(self.agent.action_tensor(self.filtered(observation), noise))}

    def sample(self, observation: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns sampled actions, with randomness of TensorFlow's own."""
        return self.act(observation, self.agent.acting_noise(observation))

    def values(self, observation: Mapping[str, tf.Tensor], action: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the agent's values of observations and the environment's actions."""
        return self.agent.value_tensors(self.filtered(observation), self.to_agent(action))

    def inputs(self, *names: str) -> dict[str, tf.TensorSpec]:
        """Returns the observations `[E, ...]` by key that the named networks read, with the mask where actions are chosen."""
        read = {key for name in names for key in self.agent.networks[name].embedders}
        read |= {ACTION_MASK} if "policy" in names else set()
        found = {key: array for key, array in self.agent.spec.observation.items() if key in read}
        return {key: tf.TensorSpec(self.any_number(array.shape), array.dtype, name=key) for key, array in found.items()}

    def any_number(self, shape: tuple[int, ...]) -> list[int | None]:
        """Returns the shape of one environment's array for any number of them, and of agents where several share the policy."""
        return [None, *shape] if self.agent.spec.num_agents is None else [None, None, *shape[1:]]

    def signatures(self, noise_as_input: bool, values: bool) -> dict[str, Any]:
        """Returns the concrete functions by signature name; inputs are named after the observation's keys."""
        seen, action = self.inputs("policy"), self.agent.spec.action
        made = {"serving_default": tf.function(lambda observation: self.act(observation)).get_concrete_function(seen)}
        if noise_as_input:
            one = {key: tf.zeros([1, *array.shape], array.dtype) for key, array in self.agent.spec.observation.items()}
            shape = self.any_number(tuple(self.agent.acting_noise(one).shape[1:]))
            noise = tf.TensorSpec(shape, tf.float32, name="noise")
            made["sample"] = tf.function(self.act).get_concrete_function(seen, noise)
        else:
            made["sample"] = tf.function(self.sample).get_concrete_function(seen)
        if values:
            critics = [name for name in self.agent.networks if name != "policy" and not name.endswith("_target")]
            taken = tf.TensorSpec(self.any_number(action.shape), action.dtype, name="action")
            made["values"] = tf.function(self.values).get_concrete_function(self.inputs(*critics), taken)
        return made


def export(policy: Policy, out: str | pathlib.Path, format: Format = "saved_model", values: bool = False) -> pathlib.Path:
    """Writes a policy that raw observations go into and the environment's own actions come out of.

    Signatures, whose inputs are named after the observation's keys, as far as the networks read them ("observation" for a
    plain box; "action_mask", booleans, where there is one):
        serving_default: observations `[E, ...]` to "action", the deterministic policy: numbers `[E, A]`, or choices `[E]`
            int32; with any number N of agents that share the policy `[E, N, A]` or `[E, N]`.
        sample: the same, drawn from the policy. The LiteRT file takes its "noise" as an input: standard normal of the
            action's shape, or for choices uniform in [0, 1) with a last axis over all of them.
        values: on request, observations and "action" to the agent's values, `[E]` each (with N agents `[E, N]`).

    Args:
        policy: see `tfsac.load_policy`.
        out: a folder that does not exist or is empty; a LiteRT file is `out/policy.tflite`.
        format: "saved_model" or "tflite".
        values: also export the values.

    Returns:
        the folder, or the LiteRT file.

    Raises:
        FileExistsError: there is something at `out`.
        ValueError: an unknown format.
    """
    out = pathlib.Path(out)
    if format not in ("saved_model", "tflite"):
        raise ValueError(f"format is 'saved_model' or 'tflite'. Received: {format!r}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"Exports go to a new or empty folder. Received: {out}")
    new_file(out, replace=True)
    aside = pathlib.Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        graph, module = PolicyGraph(policy), tf.Module()
        module.weights = graph.weights
        signatures = graph.signatures(noise_as_input=format == "tflite", values=values)
        _save_quietly(module, aside / "model", signatures)
        if format == "saved_model":
            shutil.rmtree(out, ignore_errors=True)
            (aside / "model").rename(out)
            return out
        converter = tf.lite.TFLiteConverter.from_saved_model(str(aside / "model"), signature_keys=list(signatures))
        content = converter.convert()
        out.mkdir(exist_ok=True)
        (out / TFLITE_FILE).write_bytes(content)
        return out / TFLITE_FILE
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


def load_exported(path: str | pathlib.Path) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    """Returns the deterministic action function of an exported policy, with nothing but TensorFlow or LiteRT behind it.

    Args:
        path: what `export` returned (or its folder, for a LiteRT file).

    Returns:
        a function of observations `[E, ...]` by key to actions `[E, ...]`; keys that the policy does not read are left out.

    Raises:
        FileNotFoundError: no exported policy there.
        ImportError: a LiteRT file without the package that runs it.
    """
    path = pathlib.Path(path)
    if (path / TFLITE_FILE).is_file():
        path = path / TFLITE_FILE
    if path.suffix == ".tflite" and path.is_file():
        runner = litert_signature(path, "serving_default")
        wanted = runner.get_input_details().keys()
        return lambda observation: runner(**{key: observation[key] for key in wanted})["action"]
    if not (path / "saved_model.pb").is_file():
        raise FileNotFoundError(f"An exported policy is a SavedModel folder or a .tflite file. Received: {path}")
    loaded = tf.saved_model.load(str(path))
    serve = loaded.signatures["serving_default"]
    wanted = serve.structured_input_signature[1].keys()

    def act(observation: dict[str, np.ndarray]) -> np.ndarray:
        return serve(**{key: tf.constant(observation[key]) for key in wanted})["action"].numpy()

    act.loaded = loaded  # type: ignore[attr-defined]  # the variables live as long as the function
    return act


def litert_signature(path: pathlib.Path, name: str) -> Any:
    """Returns a callable for one signature of a LiteRT file.

    Raises:
        ImportError: ai-edge-litert is not installed.
    """
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise ImportError("Running a LiteRT file needs: pip install 'tfsac[litert]'. Received: no ai_edge_litert") from error
    return Interpreter(str(path)).get_signature_runner(name)


def verify(policy: Policy, path: str | pathlib.Path, observations: list[Any]) -> float:
    """Compares the exported with the live policy.

    Args:
        policy: the live one.
        path: what `export` returned.
        observations: raw ones of single environments.

    Returns:
        the largest absolute difference of an action's entry, in the environment's units.

    Raises:
        ValueError: no observations.
    """
    if not observations:
        raise ValueError(f"Verifying needs observations. Received: {observations}")
    exported = load_exported(path)
    largest = 0.0
    for observation in observations:
        arrays = {key: value[None] for key, value in as_arrays(observation, policy.agent.spec).items()}
        largest = max(largest, float(np.abs(exported(arrays)[0] - policy.act(observation)).max()))
    return largest
