"""Matrix products in bfloat16, of all layers but the critics' last; they pay on CPUs with AMX."""

from __future__ import annotations

import pathlib
from typing import Any

import keras
import tensorflow as tf

CPUINFO = pathlib.Path("/proc/cpuinfo")
OPTION = "auto_mixed_precision_onednn_bfloat16"  # of TensorFlow's graph optimizer


def use_bfloat16(narrow: bool) -> None:
    """Lets functions that are called from now on multiply matrices in bfloat16, or not."""
    # Weights, optimizers and sums stay float32; graphs that are exported have no trace of it.
    tf.config.optimizer.set_experimental_options({OPTION: narrow})


def uses_bfloat16() -> bool:
    """Returns whether functions that are called now multiply matrices in bfloat16."""
    return bool(tf.config.optimizer.get_experimental_options().get(OPTION, False))


def float32_product(x: Any, kernel: Any) -> Any:
    """Returns `x W` in float32 whatever other products are in; arrays or tensors.

    Critics' last layers need it: bfloat16 has 8 bits, so a Q between 512 and 1024 would be a multiple of 4.
    """
    if not tf.is_tensor(x) or not uses_bfloat16():
        return x @ kernel
    # The graph optimizer narrows operations by their type, and does not know this one.
    return tf.raw_ops.BatchMatMulV3(x=x, y=kernel, Tout=tf.float32)


@keras.saving.register_keras_serializable("tfsac")
class ValueLayer(keras.layers.Dense):
    """The last layer of V, without activation, in float32 whatever the others compute in."""

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Returns `x W + b`."""
        if not uses_bfloat16():
            return super().call(inputs, training)
        return float32_product(inputs, tf.convert_to_tensor(self.kernel)) + tf.convert_to_tensor(self.bias)


def warning_about_bfloat16() -> str | None:
    """Returns a line that says that bfloat16 is slow on this CPU, or None where it pays."""
    if CPUINFO.is_file() and "amx_bf16" in CPUINFO.read_text().split():
        return None
    return "This CPU has no AMX, without which training is mostly slower in bfloat16 than without mixed_precision."
