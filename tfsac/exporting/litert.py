"""LiteRT: float16 weights, and its interpreter."""

from __future__ import annotations

import copy
import pathlib
from typing import Any

import numpy as np

from tfsac.errors import TfsacError

INITIAL_STATE = "initial_state"  # name of the signature


def with_half_weights(content: bytes) -> bytes:
    """Returns a float32 file with the weights of its matrix products and convolutions in float16.

    TensorFlow's converter would round all constants, including means, scales and bounds.
    """
    from tensorflow.lite.python import schema_py_generated as schema
    from tensorflow.lite.tools import flatbuffer_utils

    kinds = schema.BuiltinOperator
    products = (kinds.FULLY_CONNECTED, kinds.CONV_2D, kinds.DEPTHWISE_CONV_2D, kinds.BATCH_MATMUL)
    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    codes = [code.builtinCode for code in model.operatorCodes]
    dequantize = schema.OperatorCodeT()
    dequantize.builtinCode = dequantize.deprecatedBuiltinCode = kinds.DEQUANTIZE
    dequantize.version = 3  # this version takes float16
    model.operatorCodes.append(dequantize)
    weights = {  # the numbers of their buffers; products of two activations have an empty buffer
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
                tensor.buffer = 0  # the empty buffer
                operator = schema.OperatorT()
                operator.opcodeIndex, operator.inputs, operator.outputs = len(codes), [len(graph.tensors)], [i]
                graph.tensors.append(stored)
                graph.operators.insert(0, operator)
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def litert_interpreter(path: pathlib.Path) -> Any:
    """Returns LiteRT's interpreter of a file; its `get_signature_runner` returns a callable for one signature."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise TfsacError("a LiteRT file needs the package that runs it: pip install 'tfsac[litert]'") from error
    return Interpreter(str(path))
