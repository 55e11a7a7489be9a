"""Weights that are projected to unit norm after every optimizer step (XQC; FlashSAC)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfsac.networks.batch_normalization import BatchNormalization
from tfsac.networks.layers import LayerNormalization, RMSNormalization
from tfsac.networks.network import Network, layers_of
from tfsac.networks.optimizers import assign

MIN_NORM, MIN_SQUARE = 1e-8, 1e-8


def project(network: Network, kind: str) -> None:
    """Scales each unit's column of every kernel to norm 1. With the kind "all" instead of "kernels", also scales the
    scales and biases of each normalisation, jointly, to a norm of the root of the number of units.
    """
    pairs = [
        (variable.value, variable.value / tf.maximum(_fan_in_norm(variable.value), MIN_NORM))
        for variable in network.trainable_variables
        if variable.name == "kernel"
    ]
    for layer in normalizations(network) if kind == "all" else ():
        parts = [layer.scale] if isinstance(layer, RMSNormalization) else [layer.scale, layer.bias]
        squares = tf.add_n([tf.reduce_sum(tf.square(part.value), axis=-1, keepdims=True) for part in parts])
        factor = (float(layer.scale.shape[-1]) / (squares + MIN_SQUARE)) ** 0.5
        pairs += [(part.value, factor * part.value) for part in parts]
    assign(pairs)


def _fan_in_norm(kernel: tf.Tensor) -> tf.Tensor:
    """Returns the norm of each unit's incoming weights, for a dense kernel, a stack of them, or a convolution's."""
    axes = (0, 1, 2) if kernel.shape.rank == 4 else -2
    return tf.sqrt(tf.reduce_sum(tf.square(kernel), axis=axes, keepdims=True))


def normalizations(network: Network) -> list[Any]:
    """Returns the normalisations of a network."""
    kinds = (BatchNormalization, LayerNormalization, RMSNormalization)
    return [layer for layer in layers_of([network.middleware, network.head]) if isinstance(layer, kinds)]


def weight_norm(network: Network) -> tf.Tensor:
    """Returns the global norm of all trainable weights, a scalar."""
    return tf.linalg.global_norm([variable.value for variable in network.trainable_variables])
