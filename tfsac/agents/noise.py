"""Draws of exported policies, anew in every process: a global seed that was set at the export must not make them repeat."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def fresh_normal(shape: Any) -> tf.Tensor:
    """Returns standard normal numbers."""
    return tf.raw_ops.RandomStandardNormal(shape=shape, dtype=tf.float32)  # its seeds of zero are drawn when it runs


def fresh_uniform(shape: Any) -> tf.Tensor:
    """Returns uniform numbers in [0, 1)."""
    return tf.raw_ops.RandomUniform(shape=shape, dtype=tf.float32)
