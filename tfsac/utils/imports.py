"""Finds the user's modules, and names what is in them."""

from __future__ import annotations

import functools
import hashlib
import importlib
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

from tfsac.errors import TfsacError

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the name of an object
IMPORT_FOLDERS: list[str] = []  # what `make_importable` added; the config of a run keeps them for later commands


def make_importable(folder: str | pathlib.Path, first: bool = True) -> None:
    """Lets Python import the modules in a folder, as those beside a script.

    Args:
        folder: is left alone where it is not there.
        first: they come before installed packages of the same name; else after them.
    """
    path = str(pathlib.Path(folder).absolute())
    if not pathlib.Path(path).is_dir():
        return
    if path not in IMPORT_FOLDERS:
        IMPORT_FOLDERS.append(path)
    if path not in sys.path:
        sys.path.insert(0 if first else len(sys.path), path)


def load(name: str) -> Any:
    """Returns what "MODULE:NAME" names, such as the class of "my_agents:MyAgent"; imports the module.

    Raises:
        TfsacError: there is no such module, or nothing of this name in it.
        Exception: the module raises.
    """
    module, _, inner = name.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in inner.split("."):
            value = getattr(value, part)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # one that the user's module needs
            raise
        raise TfsacError(f"no module {error.name!r} for {name!r} in {IMPORT_FOLDERS} or where Python looks") from error
    except (AttributeError, ValueError) as error:
        raise TfsacError(f"{name!r} must be MODULE:NAME of something in a module: {error}") from error
    return value


def name_of(function: Callable[..., Any]) -> str:
    """Returns module and name of a function, such as "experiments.make_arm"; of a functools.partial with the arguments,
    of another object that of its class. No name has an address, which differs from process to process.
    """
    if isinstance(function, functools.partial):
        arguments = [*map(_short, function.args), *(f"{name}={_short(x)}" for name, x in function.keywords.items())]
        return f"{name_of(function.func)}({', '.join(arguments)})"
    callable_ = function if hasattr(function, "__qualname__") else type(function)
    return f"{callable_.__module__}.{callable_.__qualname__}"


def _short(value: Any) -> str:
    """Returns the repr of an argument without addresses; of a long one the beginning and a hash."""
    text = ADDRESS.sub("", repr(value))
    return text if len(text) < 100 else f"{text[:60]}... {hashlib.sha256(text.encode()).hexdigest()[:12]}"
