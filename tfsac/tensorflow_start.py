"""A quiet start of TensorFlow, which Ctrl-C does not break in two."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any


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


@contextlib.contextmanager
def interrupts_wait() -> Iterator[None]:
    """Lets a first Ctrl-C wait until what is inside is over: some modules swallow it while they load, and the program
    would continue.

    Raises:
        KeyboardInterrupt: at the end, where Ctrl-C came inside.
    """
    if threading.current_thread() is not threading.main_thread():  # Python handles signals nowhere else
        yield
        return
    received = []
    previous = signal.getsignal(signal.SIGINT)

    def remember(number: int, frame: Any) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if received:
        raise KeyboardInterrupt
