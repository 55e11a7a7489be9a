"""What the commands share: the register they stand in, and their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from absl import flags

from tfsac.errors import TfsacError

Define = Callable[[flags.FlagValues], None]
Function = Callable[[flags.FlagValues, list[str]], int]


class Command(NamedTuple):
    """One of tfsac's commands.

    Attributes:
        help: what it does, in one line.
        define: defines its flags.
        function: carries it out, given flags and words, and returns the exit status.
        words: its words in the line of usage, such as "RUN..."; empty for a command without words.
    """

    help: str
    define: Define
    function: Function
    words: str = ""


COMMANDS: dict[str, Command] = {}


class UsageError(TfsacError):
    """A command line that cannot be carried out."""


def command(help: str, define: Define, words: str = "") -> Callable[[Function], Function]:
    """Registers a function as the command of its name; see `Command`."""

    def register(function: Function) -> Function:
        COMMANDS[function.__name__] = Command(help, define, function, words)
        return function

    return register


def help_of(flag: flags.Flag[Any]) -> str:
    """Returns what a flag is for, in one line."""
    return flag.help.partition(";\n")[0].removesuffix("; may be repeated") + (
        "; may be repeated" if isinstance(flag, flags.MultiFlag) else ""
    )


def counted(number: int, thing: str) -> str:
    """Returns "1 episode", "2 episodes"."""
    return f"{number} {thing}{'s' * (number != 1)}"


def required(f: flags.FlagValues, name: str, why: str = "") -> str:
    """Returns the value of a flag that must be given; `why` takes the place of the usual reason."""
    if not f[name].value:
        raise UsageError(f"{why or f'--{name} is required'}. Received: no --{name}")
    return str(f[name].value)
