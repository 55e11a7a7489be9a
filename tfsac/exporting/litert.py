"""LiteRT: its converter, float16 weights, the calibration for int8 weights and activations, its interpreter."""

from __future__ import annotations

import copy
import pathlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.environments.spaces import batched
from tfsac.errors import TfsacError
from tfsac.training.policy import Policy
from tfsac.types import input_name

INITIAL_STATE = "initial_state"  # the signature
CALIBRATION_STEPS = 1000  # at most, evenly spaced; each runs every signature once


def with_half_weights(content: bytes) -> bytes:
    """Returns a float32 file with the weights of its matrix products and convolutions in float16.

    TensorFlow's converter would round all constants: means, scales and bounds too.
    """
    from tensorflow.lite.python import schema_py_generated as schema
    from tensorflow.lite.tools import flatbuffer_utils

    kinds = schema.BuiltinOperator
    products = (kinds.FULLY_CONNECTED, kinds.CONV_2D, kinds.DEPTHWISE_CONV_2D, kinds.BATCH_MATMUL)
    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    codes = [code.builtinCode for code in model.operatorCodes]
    dequantize = schema.OperatorCodeT()
    dequantize.builtinCode = dequantize.deprecatedBuiltinCode = kinds.DEQUANTIZE
    dequantize.version = 3  # that takes float16
    model.operatorCodes.append(dequantize)
    weights = {  # the numbers of their buffers; products of two activations have an empty one
        graph.tensors[operator.inputs[1]].buffer
        for graph in model.subgraphs
        for operator in graph.operators
        if codes[operator.opcodeIndex] in products
    }
    weights = {number for number in weights if model.buffers[number].data is not None}
    for number in weights:
        half = np.frombuffer(bytes(model.buffers[number].data), np.float32).astype(np.float16)
        model.buffers[number].data = np.frombuffer(half.tobytes(), np.uint8)
    for graph in model.subgraphs:
        for i, tensor in enumerate(list(graph.tensors)):
            if tensor.buffer in weights:
                stored = copy.copy(tensor)
                stored.name, stored.type = tensor.name + b"/float16", schema.TensorType.FLOAT16
                tensor.buffer = 0  # the empty one
                operator = schema.OperatorT()
                operator.opcodeIndex, operator.inputs, operator.outputs = len(codes), [len(graph.tensors)], [i]
                graph.tensors.append(stored)
                graph.operators.insert(0, operator)
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def calibrate(
    converter: tf.lite.TFLiteConverter, functions: Mapping[str, Any], policy: Policy, episodes: Sequence[Sequence[Any]]
) -> None:
    """Sets a converter up for int8: it runs the signatures on real inputs and takes the ranges of their tensors.

    Args:
        converter: of the SavedModel with these signatures.
        functions: concrete functions by signature name.
        policy: that is exported; its states complete the inputs, and actions all over the space. It is reset.
        episodes: the raw observations of each, from its start.
    """
    steps = [step for episode in episodes for step in _inputs(policy, episode)]
    if not steps:
        raise TfsacError("quantize='int8' needs quantize_with, the observations of at least one episode")
    steps = [steps[i] for i in np.unique(np.linspace(0, len(steps) - 1, CALIBRATION_STEPS).astype(int))]

    def representative() -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        for signature, function in functions.items():
            specs = tf.nest.flatten(function.structured_input_signature)
            for step in steps if signature != INITIAL_STATE else [{"rows": np.array(1)}]:
                yield signature, {spec.name: step[spec.name].astype(spec.dtype.as_numpy_dtype) for spec in specs}

    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = representative


def _inputs(policy: Policy, observations: Sequence[Any]) -> Iterator[dict[str, np.ndarray]]:
    """Yields what each step of an episode may be an input of: observation, state before it, noise and any action."""
    policy.reset()
    for observation in observations:
        arrays = batched(observation, policy.reads)[0]
        state = dict(policy.state) or policy.acting.initial_state(1)
        drawn = policy.acting.act(policy.filters.observation(arrays), state, mode="random")
        policy.act(observation)
        noise = policy.acting.sample_noise({key: tf.constant(value) for key, value in arrays.items()})
        named = {input_name(key): value for key, value in arrays.items()}
        yield {**named, **state, "noise": np.asarray(noise), "action": policy.to_environment(drawn.action)}
    policy.reset()


def convert(converter: tf.lite.TFLiteConverter) -> bytes:
    """Returns the content of the LiteRT file; raises TfsacError where the converter cannot make it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*tf.lite.Interpreter is deprecated")
        try:
            return converter.convert()
        except Exception as error:  # of any kind, from an operation that LiteRT does not have
            instead = "quantize='float16'" if converter.representative_dataset else "format='saved_model'"
            raise TfsacError(f"TensorFlow's converter cannot make this policy; take {instead}: {error}") from error


def litert_interpreter(path: pathlib.Path) -> Any:
    """Returns LiteRT's interpreter of a file; its `get_signature_runner` returns a callable for one signature."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise TfsacError("a LiteRT file needs the package that runs it: pip install 'tfsac[litert]'") from error
    return Interpreter(str(path))
