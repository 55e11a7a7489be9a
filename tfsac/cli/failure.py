"""What is printed when a command fails: one line about what the user can mend, or a bug's traceback and how to
report it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import sys
import traceback
import warnings

from absl import flags

from tfsac.errors import TfsacError
from tfsac.machine import SIGNALLED
from tfsac.user_code import described, has_users, is_library, message_of

REFUSED, BUG = 2, 1  # exit statuses
SIGINT, SIGPIPE = 2, 13
ADVICE = {
    errno.ENOSPC: "Free some space, or choose another disk",
    errno.EDQUOT: "Free some space, or choose another disk",
    errno.EROFS: "Choose a place that can be written",
    errno.EACCES: "Choose a place that you may read and write",
    errno.EPERM: "Choose a place that you may read and write",
    errno.EISDIR: "Name a file",
    errno.ENOTDIR: "Name a folder",
    errno.ENOENT: "Name one that is there",
    errno.ENAMETOOLONG: "Choose a shorter name",
    errno.EMFILE: "Allow more open files (ulimit -n), or use fewer environments",
    errno.ENOMEM: "Use fewer environments or a smaller memory",
}
BUG_NOTE = (
    "tfsac: this is an error in tfsac itself. "
    "Please report it with the lines above, the command and what `tfsac info` prints."
)

PACKAGE = pathlib.Path(__file__).parents[1]
FORMAT = warnings.formatwarning


def in_one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Returns a warning as `warnings.formatwarning` does, and one of tfsac's own without its place in the code."""
    if pathlib.Path(filename).is_relative_to(PACKAGE):
        return f"tfsac: {message}\n"
    return FORMAT(message, category, filename, lineno, line)


def status_of(error: BaseException) -> int:
    """Prints what an error means and returns the exit status for it; TFSAC_TRACEBACK=1 shows where it was raised.

    Args:
        error: as it was caught around a command.
    """
    restored = _restored()
    _drop_undelivered()
    if (
        isinstance(error, BrokenPipeError) and error.filename is None
    ):  # who read the output has seen enough, as in `| head`
        return SIGNALLED + SIGPIPE
    interrupted, line = _interrupted(error), reason(error) or restored
    if os.environ.get("TFSAC_TRACEBACK") or not (interrupted or line):
        traceback.print_exception(error)
    if interrupted:
        print("tfsac: interrupted", file=sys.stderr)
        return SIGNALLED + SIGINT
    print(BUG_NOTE if line is None else f"tfsac: {line}", file=sys.stderr)
    return BUG if line is None else REFUSED


def reason(error: BaseException) -> str | None:
    """Returns an error that the user can mend as one line, which ends with what was received; None for a bug."""
    text = message_of(error)
    if isinstance(error, TfsacError | flags.Error) or "Received: " in text:
        return text
    if not isinstance(error, Exception):
        return f"Your own code, or a package that it uses, ended the program. Received: {described(error)}"
    if isinstance(error, MemoryError) or _is_exhausted(error):
        return (
            "There is not enough memory. Smaller networks or batches, fewer environments "
            "and a smaller agent.memory.max_size need less; --memory_on_disk keeps the replay memory on the disk. "
            f"Received: {_shortened(text) or type(error).__name__}"
        )
    if isinstance(error, OSError):
        named = error.filename if error.filename is not None else text
        advice = ADVICE.get(error.errno or 0, "Check that the place can be read and written")
        return f"{error.strerror or text or type(error).__name__}. {advice}. Received: {named}"
    if isinstance(error, UnicodeError):
        return f"A name or a file is not written in UTF-8. Received: {described(error)}"
    if isinstance(error, RecursionError):
        return f"Something is nested too deeply. Received: {described(error)}"
    if file := _hiding(error):
        return f"A file of yours has the name of a package that tfsac needs, and hides it; rename it. Received: {file}"
    if has_users(error):
        return f"Your own code raised. Received: {described(error)}"
    if isinstance(error, ImportError) and not (error.name or "tfsac").startswith("tfsac"):
        return (
            "A package that tfsac needs cannot be imported; install tfsac again: pip install . in its clone. "
            f"Received: {text}"
        )
    return None


def _restored() -> str | None:
    """Opens what the user's code has closed or replaced by something that cannot be written; returns a line about
    it, if it has.
    """
    line = None
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        try:
            stream.flush()
        except (ValueError, AttributeError):
            received = "a closed file" if getattr(stream, "closed", False) else repr(stream)
            line = (
                f"Your own code closed or replaced sys.{name}, which tfsac prints to; leave it open. "
                f"Received: {received}"
            )
            try:
                setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115
            except OSError:
                setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        except OSError:
            continue
    return line


def _hiding(error: BaseException) -> str | None:
    """Returns the user's file that was imported instead of a package, if an error says that something is missing in
    it.
    """
    if isinstance(error, ImportError):
        package = sys.modules.get((error.name or "").partition(".")[0])
        file = error.path or getattr(package, "__file__", None)
    else:
        file = getattr(getattr(error, "obj", None), "__file__", None)
    return file if file and not is_library(file) else None


def _drop_undelivered() -> None:
    """Throws away what was printed and cannot be delivered, which Python would report at its end."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _interrupted(error: BaseException | None) -> bool:
    """Returns whether Ctrl-C is behind an error: imports that it hits may turn it into errors of their own."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _is_exhausted(error: BaseException) -> bool:
    # By its name, because this module answers without TensorFlow.
    return any(cls.__name__ == "ResourceExhaustedError" for cls in type(error).__mro__)


def _shortened(text: str, longest: int = 200) -> str:
    return text if len(text) <= longest else f"{text[:longest]}..."
