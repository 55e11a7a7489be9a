"""Exports a policy as a SavedModel or a LiteRT file that acts exactly like the trained one, without tfsac."""

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
    """Exports a policy from raw observations to the environment's own actions, and returns its folder or file.

    Its signatures are "serving_default" (deterministic actions), "sample", "initial_state" for a policy with a state,
    and optionally "values"; docs/exports.md describes their inputs and outputs.

    Args:
        policy: from `tfsac.load_policy`.
        out: a folder that does not exist or is empty; a LiteRT file is `out/policy.tflite`.
        format: "saved_model" or "tflite".
        values: also export the values; needs a policy that was loaded with `critics=True`.
        replace: replace an earlier export at `out` once the new one is complete.
        quantize: "float16" rounds the weights of a LiteRT file; inputs and outputs keep their types.

    Raises:
        OSError: the export cannot be written, or `out` is a file or not empty (with `replace`: and not an export).
        TfsacError: values of a policy without critics, or a policy that LiteRT's converter cannot convert.

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
            except Exception as error:  # of any type, for an operation that LiteRT lacks
                raise TfsacError(f"LiteRT cannot convert this policy; export a SavedModel instead: {error}") from error
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
    """Returns whether a folder holds only an exported policy, with no other files, such as those of a model card."""
    names = {part.name for part in path.iterdir()} if path.is_dir() else set()
    return names == {TFLITE_FILE} or {SAVED_MODEL_FILE} <= names <= SAVED_MODEL_FILES


def verify(policy: Policy, path: str | pathlib.Path, observations: Sequence[Any]) -> float:
    """Compares an export's deterministic actions and states with those of the live policy, which is reset.

    Args:
        policy: the exported policy.
        path: return value of `export`.
        observations: raw observations of one episode, in order.

    Returns:
        the largest absolute difference of any entry of an action, divided by half the range between its bounds, or of a
        state; infinite if an entry is not finite. Every step starts from the live policy's state. Ties, in which both
        choose differently between two actions that are equal up to rounding, are ignored.

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
            policy.observe(np.ones(len(next(iter(policy.state.values())))))  # for policies that read rewards
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
    """Returns the divisor of action differences; see `verify`."""
    if not isinstance(action, ArraySpec):
        return np.ones(1)
    low, high = np.asarray(action.low, float), np.asarray(action.high, float)
    rounding = np.maximum(np.abs(low), np.abs(high)) / 32  # ignores the last float32 bits of 1000.5
    return np.maximum((high - low) / 2, rounding)
