"""Errors of the user's own code in one line, for code that does not let them pass yet."""

from __future__ import annotations

import contextlib
import pathlib
import re
import sysconfig
import traceback
from collections.abc import Iterator

from tfsac.errors import TfsacError
from tfsac.utils import imports

FOLDERS, load, make_importable, name_of = imports.IMPORT_FOLDERS, imports.load, imports.make_importable, imports.name_of

LIBRARIES = (
    pathlib.Path(__file__).parent,
    *(pathlib.Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")),
)


COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # in Keras's messages
LONGEST = 2000  # characters of a message that are shown


class UserCodeError(RuntimeError):
    """A function that the user gave raised; the message has its error with file and line."""


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
