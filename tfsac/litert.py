"""LiteRT: its converter, float16 weights, the calibration for int8 weights and activations, its interpreter."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.environments import as_arrays
from tfsac.training.policy import Policy
from tfsac.types import input_name

INITIAL_STATE = "initial_state"  # the signature
MOST_STEPS = 1000  # of the given ones, evenly spaced; each runs every signature once


def round_weights(converter: tf.lite.TFLiteConverter) -> None:
    """Sets a converter up for weights in float16; what is computed with them stays float32."""
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_types = [tf.float16]


def calibrate(
    converter: tf.lite.TFLiteConverter, functions: Mapping[str, Any], policy: Policy, episodes: Sequence[Sequence[Any]]
) -> None:
    """Sets a converter up for int8: it runs the signatures on real inputs and takes the ranges of their tensors.

    Inputs and outputs stay as they are, so the file takes and returns what the one in float32 does.

    Args:
        converter: of the SavedModel with these signatures.
        functions: concrete functions by signature name.
        policy: that is exported; its deterministic actions and states complete the inputs.
        episodes: the raw observations of each, from its start.
    """
    rows = [row for observations in episodes for row in _inputs(policy, observations)]
    rows = [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, MOST_STEPS).astype(int))]

    def representative() -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        for signature, function in functions.items():
            names = [spec.name for spec in tf.nest.flatten(function.structured_input_signature)]
            for row in rows if signature != INITIAL_STATE else [{"rows": np.array(1, np.int32)}]:
                yield signature, {name: row[name] for name in names}

    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = representative


def converted(converter: tf.lite.TFLiteConverter) -> bytes:
    """Returns the LiteRT file, without a warning that is about TensorFlow's own calibration.

    Raises:
        ValueError: the converter cannot make this policy int8.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*tf.lite.Interpreter is deprecated")
        try:
            return converter.convert()
        except RuntimeError as error:
            if not converter.representative_dataset:
                raise
            raise ValueError(
                "TensorFlow's converter cannot make this policy int8 (above, it says why); export it in "
                f"float16. Received: {error or type(error).__name__}"
            ) from error


def litert_interpreter(path: pathlib.Path) -> Any:
    """Returns LiteRT's interpreter of a file; its `get_signature_runner` returns a callable for one signature.

    Raises:
        ImportError: ai-edge-litert is not installed.
    """
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise ImportError(
            "Running a LiteRT file needs: pip install 'tfsac[litert]'. Received: no ai_edge_litert"
        ) from error
    return Interpreter(str(path))


def _inputs(policy: Policy, observations: Sequence[Any]) -> Iterator[dict[str, np.ndarray]]:
    """Yields what each step of an episode may be an input of: observation, state before it, action and noise."""
    policy.reset()
    for observation in observations:
        arrays = {key: value[None] for key, value in as_arrays(observation, policy.acting.spec).items()}
        state = dict(policy.state) or policy.acting.initial_state(1)
        action = policy.act(observation)[None].astype(policy.acting.spec.action.dtype)
        drawn = policy.acting.sample_noise({key: tf.constant(value) for key, value in arrays.items()})
        yield {
            **{input_name(key): value for key, value in arrays.items()},
            **state,
            "action": action,
            "noise": np.asarray(drawn),
        }
    policy.reset()
