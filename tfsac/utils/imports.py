"""Imports the user's modules, and names their objects."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from tfsac.errors import TfsacError

IMPORT_FOLDERS: list[str] = []  # folders that `make_importable` added; a run's config keeps them for later commands


def make_importable(folder: str | pathlib.Path, first: bool = True) -> None:
    """Adds a folder, if it exists, to Python's import path: before installed packages if `first`, else after them."""
    path = str(pathlib.Path(folder).absolute())
    if not pathlib.Path(path).is_dir():
        return
    if path not in IMPORT_FOLDERS:
        IMPORT_FOLDERS.append(path)
    if path not in sys.path:
        sys.path.insert(0 if first else len(sys.path), path)


def warn_if_shadowed(module: str, folders: Iterable[str]) -> None:
    """Warns if a module that exists in `folders` is imported from elsewhere, such as a copy in the current folder."""
    name = module.partition(".")[0]
    spec = importlib.machinery.PathFinder.find_spec(name)
    there = [path for folder in folders for path in pathlib.Path(folder).glob(f"{name}.py")]
    if there and spec and spec.origin and pathlib.Path(spec.origin) not in there:
        warnings.warn(f"{spec.origin} is imported, not {there[0]}, which the run was trained with", stacklevel=2)


def load(name: str) -> Any:
    """Returns the object that "MODULE:NAME" names, such as the class "my_agents:MyAgent", or raises TfsacError."""
    module, _, inner = name.partition(":")
    try:
        value = functools.reduce(getattr, filter(None, inner.split(".")), importlib.import_module(module))
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # a missing import of the user's module
            raise
        raise TfsacError(f"no module {error.name!r} for {name!r} in {IMPORT_FOLDERS} or on Python's path") from error
    except (AttributeError, ValueError) as error:
        raise TfsacError(f"{name!r} must be MODULE:NAME of something in a module: {error}") from error
    if not inner:
        raise TfsacError(f"{name!r} must be MODULE:NAME, such as my_agents:MyAgent")
    return value


def name_of(function: Callable[..., Any]) -> str:
    """Returns module and name of a function, such as "experiments.make_arm", or of another object's class."""
    while isinstance(function, functools.partial):
        function = function.func
    callable_ = function if hasattr(function, "__qualname__") else type(function)
    return f"{callable_.__module__}.{callable_.__qualname__}"
