"""The user's own code (environments, preset files, models, callbacks): imported, called, its errors in one line."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import pathlib
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from tfsac.errors import TfsacError

LIBRARIES = (
    pathlib.Path(__file__).parent,
    *(pathlib.Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")),
)


ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the name of an object
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # in Keras's messages
LONGEST = 2000  # characters of a message that are shown
FOLDERS: list[
    str
] = []  # that `make_importable` added: a run's config keeps them, for the commands that come after training


def make_importable(folder: str | pathlib.Path, first: bool = True) -> None:
    """Lets Python import the modules in a folder, as those beside a script.

    Args:
        folder: is left alone where it is not there.
        first: they come before installed packages of the same name; else after them.
    """
    path = str(pathlib.Path(folder).absolute())
    if not pathlib.Path(path).is_dir():
        return
    if path not in FOLDERS:
        FOLDERS.append(path)
    if path not in sys.path:
        sys.path.insert(0 if first else len(sys.path), path)


class UserCodeError(RuntimeError):
    """A function that the user gave raised; the message has its error with file and line."""


def load(name: str) -> Any:
    """Returns what "MODULE:NAME" names, such as the class of "my_agents:MyAgent"; imports the module.

    Raises:
        ImportError: there is no such module, or nothing of this name in it.
        TfsacError: it is not written so.
        UserCodeError: the module raises.
    """
    module, _, inner = name.partition(":")
    if not all(part.isidentifier() for part in f"{module}.{inner}".replace("<locals>", "_").split(".")):
        raise TfsacError(f"a class is named module:Class, such as my_agents:MyAgent, got {name!r}")
    if module == "__main__":
        raise ImportError(
            f"What a script or a notebook defines cannot be found by another process: put it in a module of its own. "
            f"Received: {name!r}"
        )
    try:
        with calling(f"The module {module}"):
            found: Any = importlib.import_module(module)
    except UserCodeError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{module}.".startswith(f"{cause.name}."):
            folders = f" It was searched for in {', '.join(FOLDERS)} and where Python looks." if FOLDERS else ""
            raise ImportError(f"There is no module {cause.name!r}.{folders} Received: {name!r}") from cause
        raise
    for part in inner.split("."):
        if not hasattr(found, part):
            raise ImportError(
                f"The module {module} ({getattr(sys.modules[module], '__file__', None)}) has no {inner}. "
                f"Received: {name!r}"
            )
        found = getattr(found, part)
    return found


def described(error: BaseException) -> str:
    """Returns an error as "Type: message (file, line, function)", in one line.

    The place is the innermost one outside tfsac, the standard library and installed packages; without one, the
    innermost.

    Args:
        error: as it was caught.
    """
    message = message_of(error)
    message = message if len(message) <= LONGEST else f"{message[:LONGEST]}..."
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:  # the file that cannot be read is in no frame
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not is_library(frame.filename)]
    if not frames:
        return text
    frame = (own or frames)[-1]
    return f"{text} ({frame.filename}, line {frame.lineno}, in {frame.name})"


def message_of(error: BaseException) -> str:
    """Returns an error's message in one line; "" where making it raises.

    Args:
        error: of any type, also of the user's.
    """
    try:
        return " ".join(str(error).split())
    except Exception:
        return ""


def has_users(error: BaseException) -> bool:
    """Returns whether an error came through the user's code, perhaps from a library that this called."""
    return any(not is_library(frame.filename) for frame in traceback.extract_tb(error.__traceback__)) or (
        isinstance(error, SyntaxError) and error.filename is not None and not is_library(error.filename)
    )


def is_users(error: BaseException) -> bool:
    """Returns whether a line of the user's code raised an error, not a library that it called or that called it."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and not is_library(frames[-1].filename)


def is_library(filename: str) -> bool:
    """Returns whether a source file belongs to tfsac, the standard library or an installed package."""
    path = pathlib.Path(filename)
    # By name too: the folder of a virtual environment may be a link.
    named = "site-packages" in path.parts or "dist-packages" in path.parts
    return named or filename.startswith("<frozen ") or any(folder in path.parents for folder in LIBRARIES)


def name_of(function: Callable[..., Any]) -> str:
    """Returns module and name of a function, such as "experiments.make_arm"; of a functools.partial with the arguments,
    of another object that of its class. No name has an address, which differs from process to process.
    """
    if isinstance(function, functools.partial):
        given = [*map(_short, function.args), *(f"{name}={_short(x)}" for name, x in function.keywords.items())]
        return f"{name_of(function.func)}({', '.join(given)})"
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _short(value: Any) -> str:
    """Returns the repr of an argument without addresses; a long one is told by its beginning and its hash."""
    try:
        text = ADDRESS.sub("", repr(value))
    except Exception:
        text = type(value).__name__
    return text if len(text) < 100 else f"{text[:60]}... {hashlib.sha256(text.encode()).hexdigest()[:12]}"


@contextlib.contextmanager
def calling(what: str) -> Iterator[None]:
    """Turns what the user's code raises inside into a `UserCodeError`; errors that already say what was received pass.

    Args:
        what: begins the message, such as "env_fn" or "The callback EarlyStop in on_step".

    Raises:
        UserCodeError: the code inside raised an exception.

    Example:
        >>> with calling("env_fn"):
        ...     env = env_fn()
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() in it would end the program with the user's status
        if "Received: " in message_of(error) or isinstance(error, TfsacError):
            raise
        # contextlib takes an error whose cause is a StopIteration for that one, and lets it pass.
        cause = None if isinstance(error, StopIteration) else error
        raise UserCodeError(f"{what} raised. Received: {described(error)}") from cause
