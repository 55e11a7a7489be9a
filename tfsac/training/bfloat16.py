"""Whether matrix products in bfloat16 pay on this CPU: with AMX they do, elsewhere a short trial tells."""

from __future__ import annotations

import pathlib
import time

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
