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
from tfsac.exporting.exported import SAVED_MODEL_FILE, TFLITE_FILE, load_exported
from tfsac.exporting.litert import with_half_weights
from tfsac.exporting.policy_graph import PolicyGraph
from tfsac.training.trained_policy import Policy
from tfsac.types import ArraySpec, HybridSpec, arrays_of
from tfsac.utils.files import check_new_folder, glob_safe, new_file, sync
from tfsac.utils.machine import use_tensorflow

Format = Literal["saved_model", "tflite"]
Quantize = Literal["none", "float16"]
FORMATS = [("saved_model", "none"), ("tflite", "none"), ("tflite", "float16")]
SAVED_MODEL_FILES = {SAVED_MODEL_FILE, "fingerprint.pb", "variables", "assets"}
TOLERANCE = 1e-5


def export(
    policy: Policy,
    out: str | pathlib.Path,
    format: Format = "saved_model",
    values: bool = False,
    replace: bool = False,
    quantize: Quantize = "none",
) -> pathlib.Path:
    """Writes a policy from raw observations to the environment's own actions, and returns its folder or file.

    Its signatures are "serving_default" (deterministic actions), "sample", "initial_state" of a policy with a state,
    and on request "values"; docs/exports.md has their inputs and outputs.

    Args:
        policy: see `tfsac.load_policy`.
        out: a folder that does not exist or is empty; a LiteRT file is `out/policy.tflite`.
        format: "saved_model" or "tflite".
        values: also export the values, of a policy that was loaded with `critics=True`.
        replace: an earlier export at `out` is replaced once the new one is complete.
        quantize: "float16" rounds the weights of a LiteRT file; inputs and outputs keep their types.

    Raises:
        OSError: it cannot be written, or there is something at `out`; with `replace`, something else than an export.
        TfsacError: values of a policy without critics, or a policy that LiteRT's converter cannot make.

    Example:
        >>> tfsac.export(tfsac.load_policy("runs/pendulum"), "exported")
    """
    use_tensorflow()
    if (format, quantize) not in FORMATS:
        raise TfsacError(f"format and quantize must be one of {FORMATS}, got {(format, quantize)}")
    graph, module, out = PolicyGraph(policy, values), tf.Module(), pathlib.Path(out)
    module.weights = graph.weights
    if not replace or not _is_export(out):
        check_new_folder(out)
    new_file(out, replace=True)
    with (
        tempfile.TemporaryDirectory(".tmp", f".{out.name}.", out.parent) as temporary,
        glob_safe(pathlib.Path(temporary)) as folder,
    ):
        signatures = graph.signatures(noise_as_input=format == "tflite")
        complete = folder / "model"
        tf.saved_model.save(module, str(complete), signatures=signatures)
        if format == "tflite":
            converter = tf.lite.TFLiteConverter.from_saved_model(str(complete), signature_keys=list(signatures))
            try:
                content = converter.convert()
            except Exception as error:  # of any kind, from an operation that LiteRT does not have
                raise TfsacError(f"LiteRT's converter cannot make this policy, only a SavedModel: {error}") from error
            complete = folder / "lite"
            complete.mkdir()
            (complete / TFLITE_FILE).write_bytes(with_half_weights(content) if quantize == "float16" else content)
        for path in [*complete.rglob("*"), complete]:
            sync(path)
        if out.exists():
            out.rename(folder / "before")
        complete.rename(out)
    return out / TFLITE_FILE if format == "tflite" else out


def _is_export(path: pathlib.Path) -> bool:
    """Returns whether a folder holds an exported policy and nothing else, as a model card or a server's folder may."""
    names = {part.name for part in path.iterdir()} if path.is_dir() else set()
    return names == {TFLITE_FILE} or {SAVED_MODEL_FILE} <= names <= SAVED_MODEL_FILES


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
        TfsacError: a policy with `epsilon_greedy`, whose actions are random.

    Example:
        >>> assert tfsac.verify(policy, "exported", observations) < 1e-5
    """
    if epsilon := getattr(policy.acting.parameters.algorithm, "epsilon_greedy", 0.0):
        raise TfsacError(f"only a deterministic policy can be compared with its export, got epsilon_greedy={epsilon}")
    exported, action = load_exported(path), policy.acting.spec.action
    units = list(map(_unit, action.leaves.values() if isinstance(action, HybridSpec) else [action]))
    names = list(action.leaves) if isinstance(action, HybridSpec) else []
    policy.reset()
    differences = list[float]()
    for observation in observations:
        if policy.state:
            policy.observe(np.ones(len(next(iter(policy.state.values())))))  # of policies that read rewards
        state = dict(policy.state)
        exported.state, live = state, policy.act(observation)
        of_export = exported(observation)
        arrays = [of_export[name] for name in names] if isinstance(of_export, dict) else arrays_of(of_export)
        pairs = [(x / unit, y / unit) for x, y, unit in zip(arrays, arrays_of(live), units, strict=True)]
        pairs += [(exported.state[name], value) for name, value in policy.state.items() if name in exported.state]
        entries = [np.abs(x - expected).max() for x, expected in pairs]
        difference = float(max(entries)) if np.isfinite(entries).all() else np.inf
        if difference > TOLERANCE:
            inputs, _ = batched(observation, policy.reads)
            if policy.acting.is_tie(policy.filters.observation(inputs), state):
                difference = 0.0
        differences.append(difference)
    return max(differences)


def _unit(action: Any) -> np.ndarray:
    """Returns by what differences of actions are divided, see `verify`."""
    if not isinstance(action, ArraySpec):
        return np.ones(1)
    low, high = np.asarray(action.low, float), np.asarray(action.high, float)
    rounding = np.maximum(np.abs(low), np.abs(high)) / 32  # float32's last bits of 1000.5 are no difference
    return np.maximum((high - low) / 2, rounding)
