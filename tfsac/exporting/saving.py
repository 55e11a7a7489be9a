"""Exporting a policy as a SavedModel or a LiteRT file that acts exactly as the trained one, without tfsac."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tfsac.environments.spaces import batched
from tfsac.errors import TfsacError
from tfsac.exporting.exported import TFLITE_FILE, holds_only_export, load_exported
from tfsac.exporting.litert import calibrate, convert, with_half_weights
from tfsac.exporting.policy_graph import PolicyGraph
from tfsac.training.trained_policy import Policy
from tfsac.types import DiscreteSpec
from tfsac.utils.files import check_new_folder, glob_safe, new_file, sync
from tfsac.utils.machine import use_tensorflow

Format = Literal["saved_model", "tflite"]
Quantize = Literal["none", "float16", "int8"]
FORMATS = [("saved_model", "none"), ("tflite", "none"), ("tflite", "float16"), ("tflite", "int8")]
TOLERANCE = 1e-5


def export(
    policy: Policy,
    out: str | pathlib.Path,
    format: Format = "saved_model",
    values: bool = False,
    replace: bool = False,
    quantize: Quantize = "none",
    quantize_with: Sequence[Sequence[Any]] | None = None,
) -> pathlib.Path:
    """Writes a policy that takes raw observations and returns the environment's own actions.

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
        replace: an earlier export at `out` is replaced once the new one is complete.
        quantize: "float16" makes the weights of a LiteRT file float16, "int8" its weights and activations int8. Inputs
            and outputs keep their types.
        quantize_with: what int8 takes its ranges from: the raw observations of episodes, of each from its start.

    Returns:
        the folder, or the LiteRT file.

    Raises:
        OSError: it cannot be written, or there is something at `out`; with `replace`, something else than an export.
        TfsacError: another format or quantisation, int8 without observations, values of a policy without critics, or a
            policy that the converter cannot make.
    """
    use_tensorflow()
    if (format, quantize) not in FORMATS:
        raise TfsacError(f"format and quantize must be one of {FORMATS}, got {(format, quantize)}")
    graph, module, out = PolicyGraph(policy, values), tf.Module(), pathlib.Path(out)
    module.weights = graph.weights
    if not replace or not holds_only_export(out):
        check_new_folder(out)
    new_file(out, replace=True)
    try:
        with (
            tempfile.TemporaryDirectory(".tmp", f".{out.name}.", out.parent) as temporary,
            glob_safe(pathlib.Path(temporary)) as folder,
        ):
            signatures = graph.signatures(noise_as_input=format == "tflite")
            complete = folder / "model"
            tf.saved_model.save(module, str(complete), signatures=signatures)
            if format == "tflite":
                converter = tf.lite.TFLiteConverter.from_saved_model(str(complete), signature_keys=list(signatures))
                if quantize == "int8":
                    calibrate(converter, signatures, policy, quantize_with or ())
                content = convert(converter)
                complete = folder / "lite"
                complete.mkdir()
                (complete / TFLITE_FILE).write_bytes(with_half_weights(content) if quantize == "float16" else content)
            for path in [*complete.rglob("*"), complete]:
                sync(path)
            if out.exists():
                out.rename(folder / "before")
            complete.rename(out)
    except tf.errors.OpError as error:  # of TensorFlow's file system
        raise OSError(f"the export cannot be written to {out}: {error.message.splitlines()[0]}") from error
    return out / TFLITE_FILE if format == "tflite" else out


def verify(policy: Policy, path: str | pathlib.Path, observations: Sequence[Any]) -> float:
    """Compares the deterministic actions and states of an export with the live policy's; resets the policy.

    Args:
        policy: that was exported.
        path: what `export` returned.
        observations: raw ones of one episode, in order.

    Returns:
        the largest absolute difference of an entry of an action, divided by half the range between its bounds, or of a
        state; infinite where one is no finite number. Every step begins with the live policy's state; a tie, in which
        both choose differently between two actions that are equal within rounding, is left out.

    Raises:
        TfsacError: no observations, or a policy with `epsilon_greedy`, whose actions are random.
    """
    if epsilon := getattr(policy.acting.parameters.algorithm, "epsilon_greedy", 0.0):
        raise TfsacError(f"only a deterministic policy can be compared with its export, got epsilon_greedy={epsilon}")
    if not len(observations):
        raise TfsacError("verify needs the observations of an episode, got none")
    exported, unit = load_exported(path), _half_ranges(policy)
    policy.reset()
    largest = 0.0
    for observation in observations:
        state = dict(policy.state)
        exported.state, live = state, policy.act(observation)
        pairs = [(exported(observation) / unit, live / unit)]
        pairs += [(exported.state[name], value) for name, value in policy.state.items()]
        differences = [np.abs(exported_action - expected).max() for exported_action, expected in pairs]
        difference = float(max(differences)) if np.isfinite(differences).all() else np.inf
        if difference > TOLERANCE:
            arrays, _ = batched(observation, policy.reads)
            if policy.acting.is_tie(policy.filters.observation(arrays), state):
                continue
        largest = max(largest, difference)
    return largest


def _half_ranges(policy: Policy) -> Any:
    """Returns what a difference of 1 stands for in each entry of an action."""
    action = policy.acting.spec.action
    if isinstance(action, DiscreteSpec):
        return 1
    low, high = np.asarray(action.low, float), np.asarray(action.high, float)
    rounding = np.maximum(np.abs(low), np.abs(high)) / 32  # float32's last bits of 1000.5 are no difference
    return np.maximum(np.maximum((high - low) / 2, rounding), np.finfo(float).tiny)
