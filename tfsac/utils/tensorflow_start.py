"""A quiet start of TensorFlow."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Hides what TensorFlow's libraries print while they load; TF_CPP_MIN_LOG_LEVEL=0 shows it."""
    if os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0":
        yield
        return
    sys.stderr.flush()
    stderr_copy = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
        os.close(nowhere)


class QuietImport(importlib.abc.MetaPathFinder):
    """Lets TensorFlow load in a `quiet_start` whoever imports it, such as Keras in `import tfsac, keras`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Returns how TensorFlow is loaded, once."""
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_quietly(module: Any) -> None:
                with quiet_start():
                    load(module)
                    module.config.list_physical_devices()  # which looks for GPUs, and prints

            spec.loader.exec_module = load_quietly  # type: ignore[method-assign]
        return spec
