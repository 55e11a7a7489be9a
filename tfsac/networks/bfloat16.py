"""Matrix products in bfloat16, of all layers but the critics' last; they pay on CPUs with AMX."""

from __future__ import annotations

import pathlib

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


def warning_about_bfloat16() -> str | None:
    """Returns a line that says that bfloat16 is slow on this CPU, or None where it pays."""
    if CPUINFO.is_file() and "amx_bf16" in CPUINFO.read_text().split():
        return None
    return "This CPU has no AMX, without which training is mostly slower in bfloat16 than without mixed_precision."
