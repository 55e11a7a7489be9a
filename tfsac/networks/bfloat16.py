"""Matrix products in bfloat16, of all layers but the critics' last. With AMX they pay, elsewhere a trial tells."""

from __future__ import annotations

import pathlib
import time

import keras
import tensorflow as tf

SIZE, PRODUCTS, REPEATS = 256, 20, 5  # the layers and batches of the presets; a trial takes a third of a second
CPUINFO = pathlib.Path("/proc/cpuinfo")
OPTION = "auto_mixed_precision_onednn_bfloat16"  # of TensorFlow's graph optimizer


def use_bfloat16(narrow: bool) -> None:
    """Lets functions that are called from now on multiply matrices in bfloat16, or not."""
    # Weights, optimizers and sums stay float32; graphs that are exported have no trace of it.
    tf.config.optimizer.set_experimental_options({OPTION: narrow})


def uses_bfloat16() -> bool:
    """Returns whether functions that are called now multiply matrices in bfloat16."""
    return bool(tf.config.optimizer.get_experimental_options().get(OPTION, False))


def float32_product(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Returns `x W` in float32 whatever other products are in.

    Critics' last layers need it: bfloat16 has 8 bits, so a Q between 512 and 1024 would be a multiple of 4.
    """
    if not uses_bfloat16():
        return x @ kernel
    # The graph optimizer narrows operations by their type, and does not know this one.
    return tf.raw_ops.BatchMatMulV3(x=x, y=kernel, Tout=tf.float32)


@keras.saving.register_keras_serializable("tfsac")
class ValueLayer(keras.layers.Dense):
    """The last layer of V or Q, without activation, in float32 whatever the others compute in."""

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Returns `x W + b`."""
        if not uses_bfloat16():
            return super().call(inputs, training)
        return float32_product(inputs, tf.convert_to_tensor(self.kernel)) + tf.convert_to_tensor(self.bias)


def warning_about_bfloat16() -> str | None:
    """Returns a line that says how much slower bfloat16 is on this CPU, or None where it pays."""
    if CPUINFO.is_file() and "amx_bf16" in CPUINFO.read_text().split():
        return None
    factor = bfloat16_speedup()
    if factor > 1.0:
        return None
    return (
        f"This CPU has no AMX: with bfloat16 its matrix products are {factor:.2f} times as fast as with float32. "
        "Training is faster without mixed_precision."
    )


def bfloat16_speedup() -> float:
    """Returns how many times as fast products of matrices are in bfloat16, measured by turns with float32."""
    x = tf.random.stateless_normal([SIZE, SIZE], [1, 1]) / SIZE**0.5
    products = tf.function(_products, autograph=False)
    seconds = {False: float("inf"), True: float("inf")}
    for _ in range(REPEATS):
        for narrow in seconds:
            use_bfloat16(narrow)  # what a call is optimised for
            products(x).numpy()
            began = time.perf_counter()
            products(x).numpy()
            seconds[narrow] = min(seconds[narrow], time.perf_counter() - began)
    return seconds[False] / seconds[True]


def _products(x: tf.Tensor) -> tf.Tensor:
    y = x
    for _ in range(PRODUCTS):
        y = tf.nn.relu(y @ x)
    return y
