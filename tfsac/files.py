"""Names of `tfsac.utils.files` for code that has not moved yet."""

import contextlib
import pathlib
import struct
import zipfile
import zlib

from tfsac.utils.files import *  # noqa: F403
from tfsac.utils.files import atomic_write, glob_safe

NO_CHECKPOINT = (
    "There is no checkpoint to continue from: the run ended before its first one, or it was deleted. Train into "
    "another folder without resume; initial_weights (--checkpoint_restore_dir) takes the best weights of this one."
)
UNREADABLE = (
    ValueError, LookupError, TypeError, AttributeError, EOFError, OSError, ArithmeticError, MemoryError,
    RecursionError, SyntaxError, NotImplementedError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
writing = contextlib.nullcontext
written_aside, neutral = atomic_write, glob_safe


def absolute(path: pathlib.Path, named: pathlib.Path | None = None) -> pathlib.Path:
    """Returns an absolute path."""
    return path.absolute()


def being_trained(folder: pathlib.Path, who: str) -> BlockingIOError:
    """Returns the error for a run that another process trains, which wrote `who` into its lock."""
    return BlockingIOError(f"{folder} is being trained already{f' ({who})' if who else ''}: wait for its end")
