"""Matrix products in bfloat16, in all layers except the critics' last; they are faster on CPUs with AMX."""

from __future__ import annotations

import pathlib

import tensorflow as tf

CPUINFO = pathlib.Path("/proc/cpuinfo")
OPTION = "auto_mixed_precision_onednn_bfloat16"  # option of TensorFlow's graph optimizer


def use_bfloat16(narrow: bool) -> None:
    """Switches bfloat16 matrix products on or off for functions that are called from now on."""
    # Weights, optimizers and sums stay float32; exported graphs are not affected.
    tf.config.optimizer.set_experimental_options({OPTION: narrow})


def uses_bfloat16() -> bool:
    """Returns whether functions that are called now multiply matrices in bfloat16."""
    return bool(tf.config.optimizer.get_experimental_options().get(OPTION, False))


def warning_about_bfloat16() -> str | None:
    """Returns a warning that bfloat16 is slow on this CPU, or None if it is not."""
    if CPUINFO.is_file() and "amx_bf16" in CPUINFO.read_text().split():
        return None
    return "This CPU has no AMX, so training with mixed_precision (bfloat16) is usually slower than without."
