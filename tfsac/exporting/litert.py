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
from tfsac.training.trained_policy import Policy
from tfsac.types import ArraySpec, DiscreteSpec, input_name

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
    widen = schema.OperatorCodeT()
    widen.builtinCode = widen.deprecatedBuiltinCode = kinds.DEQUANTIZE
    widen.version = 3  # that takes float16
    model.operatorCodes.append(widen)
    half_buffers: dict[int, int] = {}  # by number of the buffer in float32
    for graph in model.subgraphs:
        weight_inputs = [operator.inputs[1] for operator in graph.operators if codes[operator.opcodeIndex] in products]
        for number in dict.fromkeys(weight_inputs):
            tensor = graph.tensors[number]
            data = model.buffers[tensor.buffer].data
            if tensor.type != schema.TensorType.FLOAT32 or data is None or not len(data):
                continue
            if tensor.buffer not in half_buffers:
                rounded = np.frombuffer(bytes(data), np.float32).astype(np.float16)
                buffer = schema.BufferT()
                buffer.data = np.frombuffer(rounded.tobytes(), np.uint8)
                half_buffers[tensor.buffer] = len(model.buffers)
                model.buffers.append(buffer)
            stored = copy.copy(tensor)
            stored.name += b"/float16"
            stored.type, stored.buffer = schema.TensorType.FLOAT16, half_buffers[tensor.buffer]
            tensor.buffer = 0  # the empty one
            operator = schema.OperatorT()
            operator.opcodeIndex, operator.inputs, operator.outputs = len(codes), [len(graph.tensors)], [number]
            graph.tensors.append(stored)
            graph.operators.insert(0, operator)
    used = {tensor.buffer for graph in model.subgraphs for tensor in graph.tensors}
    for number in half_buffers.keys() - used:
        model.buffers[number].data = None
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def calibrate(
    converter: tf.lite.TFLiteConverter, functions: Mapping[str, Any], policy: Policy, episodes: Sequence[Sequence[Any]]
) -> None:
    """Sets a converter up for int8: it runs the signatures on real inputs and takes the ranges of their tensors.

    Args:
        converter: of the SavedModel with these signatures.
        functions: concrete functions by signature name.
        policy: that is exported; its states complete the inputs, and actions all over the space.
        episodes: the raw observations of each, from its start.
    """
    if not any(map(len, episodes)):
        raise TfsacError("quantize='int8' needs quantize_with, the observations of at least one episode")
    before = dict(policy.state), policy.switched
    rows = [row for episode in episodes for row in _inputs(policy, episode)]
    policy.state, policy.switched = before
    rows = [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, CALIBRATION_STEPS).astype(int))]
    for row, action in zip(rows, _actions(policy.acting.spec.action, len(rows)), strict=True):
        row["action"] = action[None]

    def representative() -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        for signature, function in functions.items():
            names = [spec.name for spec in tf.nest.flatten(function.structured_input_signature)]
            for row in rows if signature != INITIAL_STATE else [{"rows": np.array(1, np.int32)}]:
                yield signature, {name: row[name] for name in names}

    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = representative


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


def _actions(spec: ArraySpec | DiscreteSpec, number: int) -> np.ndarray:
    """Returns so many of the environment's actions: both ends of the space, then anything between them."""
    samples = np.random.default_rng(0).uniform(size=(number, *spec.shape))
    samples[:2] = np.reshape([0.0, np.nextafter(1.0, 0.0)], (2, *[1] * len(spec.shape)))[:number]
    if isinstance(spec, DiscreteSpec):
        return (spec.start + np.floor(samples * spec.num_actions)).astype(spec.export_dtype)
    assert spec.low is not None and spec.high is not None
    return (spec.low + samples * (spec.high - spec.low)).astype(spec.dtype)


def _inputs(policy: Policy, observations: Sequence[Any]) -> Iterator[dict[str, np.ndarray]]:
    """Yields what each step of an episode may be an input of: observation, state before it, and noise."""
    policy.reset()
    for observation in observations:
        arrays = batched(observation, policy.reads)[0]
        state = dict(policy.state) or policy.acting.initial_state(1)
        policy.act(observation)
        noise = policy.acting.sample_noise({key: tf.constant(value) for key, value in arrays.items()})
        named = {input_name(key): value for key, value in arrays.items()}
        yield {**named, **state, "noise": np.asarray(noise)}
    policy.reset()
