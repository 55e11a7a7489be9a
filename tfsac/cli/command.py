"""What the commands share: the register they stand in, their errors, and a quiet start of TensorFlow."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

from absl import flags

COMMANDS: dict[str, tuple[str, Callable[[flags.FlagValues], None], Callable[[flags.FlagValues, list[str]], int]]] = {}


class UsageError(ValueError):
    """A command line that cannot be carried out."""


def command(
    help: str, define: Callable[[flags.FlagValues], None]
) -> Callable[[Callable[[flags.FlagValues, list[str]], int]], Callable[[flags.FlagValues, list[str]], int]]:
    """Registers a function as the command of its name, with its flags."""

    def register(function: Callable[[flags.FlagValues, list[str]], int]) -> Callable[[flags.FlagValues, list[str]], int]:
        COMMANDS[function.__name__] = (help, define, function)
        return function

    return register


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Hides what TensorFlow's libraries print while they load; TF_CPP_MIN_LOG_LEVEL=0 shows it."""
    import tfsac  # noqa: F401  (sets the default of the variable)

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


def required(f: flags.FlagValues, name: str) -> str:
    """Returns the value of a flag that must be given."""
    if not f[name].value:
        raise UsageError(f"--{name} is required. Received: no --{name}")
    return str(f[name].value)


def no_more(rest: list[str]) -> None:
    """Refuses words that belong to no flag."""
    if rest:
        raise UsageError(f"Flags are written --name=value. Received: {rest[0]!r}")
