"""What the commands share: the register they stand in, and how their flags are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def command(help: str, define: Define, words: str = "") -> Callable[[Function], Function]:
    """Registers a function as the command of its name; see `Command`."""

    def register(function: Function) -> Function:
        COMMANDS[function.__name__] = Command(help, define, function, words)
        return function

    return register


def parse(name: str, arguments: Sequence[str]) -> tuple[flags.FlagValues, list[str]]:
    """Reads the arguments of a command with absl; returns its flags, and the words that belong to no flag."""
    COMMANDS[name].define(f := flags.FlagValues())
    f.set_gnu_getopt(True)
    try:
        words = f([name, *arguments])[1:]
    except flags.UnrecognizedFlagError as error:
        error.add_note(f"`tfsac {name} --help` lists the flags.")
        if "set" in f:
            error.add_note("Parameters, which `tfsac show` lists, are changed by --set=PATH=VALUE.")
        raise
    if words and not COMMANDS[name].words:
        raise TfsacError(f"tfsac {name} takes flags alone, written --name=value, got {words[0]!r}")
    return f, words


def text(f: flags.FlagValues, name: str, help: str, default: str | None = None) -> None:
    """Defines a flag with a text."""
    flags.DEFINE_string(name, default, help, flag_values=f)


def texts(f: flags.FlagValues, name: str, help: str) -> None:
    """Defines a flag that may be repeated, each time with a text."""
    flags.DEFINE_multi_string(name, [], help, flag_values=f)


def whole(f: flags.FlagValues, name: str, default: int | None, help: str, least: int = 1) -> None:
    """Defines a flag with a whole number."""
    flags.DEFINE_integer(name, default, help, lower_bound=least, flag_values=f)


def switch(f: flags.FlagValues, name: str, help: str) -> None:
    """Defines a switch, which is off by default."""
    flags.DEFINE_bool(name, False, help, flag_values=f)


def choice(f: flags.FlagValues, name: str, values: Sequence[str], help: str) -> None:
    """Defines a flag with one of some texts, by default the first."""
    flags.DEFINE_enum(name, values[0], values, help, flag_values=f)


def help_of(flag: flags.Flag[Any]) -> str:
    """Returns what a flag is for, in one line."""
    return flag.help.partition(";\n")[0].removesuffix("; may be repeated") + (
        "; may be repeated" if isinstance(flag, flags.MultiFlag) else ""
    )


def counted(number: int, noun: str) -> str:
    """Returns "1 episode", "2 episodes"."""
    return f"{number} {noun}{'s' * (number != 1)}"


def required(f: flags.FlagValues, name: str) -> Any:
    """Returns the value of a flag that must be given."""
    if not f[name].value:
        raise TfsacError(f"--{name} is required")
    return f[name].value
