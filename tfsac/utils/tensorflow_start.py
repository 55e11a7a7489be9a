"""Hides TensorFlow's messages at import."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any


class QuietImport(importlib.abc.MetaPathFinder):
    """Hides what TensorFlow's libraries print at import, from any caller; TF_CPP_MIN_LOG_LEVEL=0 shows it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Returns TensorFlow's module spec, with a quiet loader."""
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader and os.environ["TF_CPP_MIN_LOG_LEVEL"] != "0":
            load = spec.loader.exec_module
            spec.loader.exec_module = lambda module: _load_quietly(load, module)  # type: ignore[method-assign]
        return spec


def _load_quietly(load: Callable[[Any], None], module: Any) -> None:
    sys.stderr.flush()
    stderr_copy = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        load(module)
        module.config.list_physical_devices()  # looks for GPUs, and prints messages
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
