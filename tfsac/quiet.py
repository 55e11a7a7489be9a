"""A quiet start of TensorFlow."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Hides what TensorFlow's libraries print while they load; TF_CPP_MIN_LOG_LEVEL=0 shows it."""
    if os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0":
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        import tensorflow as tf

        tf.config.list_physical_devices()
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
