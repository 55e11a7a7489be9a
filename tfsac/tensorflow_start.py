"""A quiet start of TensorFlow, which Ctrl-C does not break in two."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
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
    with _no_stderr():
        import tensorflow as tf

        tf.config.list_physical_devices()
        yield


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class QuietImport(importlib.abc.MetaPathFinder):
    """Lets TensorFlow load quietly whoever imports it, such as Keras in `import tfsac, keras`.

    Example:
        >>> sys.meta_path.insert(0, QuietImport())
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Returns how TensorFlow is loaded, with stderr closed meanwhile, and removes this finder."""
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None or os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0":
            return spec
        load = spec.loader.exec_module

        def load_quietly(module: Any) -> None:
            with _no_stderr():
                load(module)
                module.config.list_physical_devices()

        spec.loader.exec_module = load_quietly  # type: ignore[method-assign]
        return spec


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
