"""The registry of commands, and helpers to define and parse their flags."""

from __future__ import annotations

import dataclasses
import functools
import re
import typing
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from absl import flags

from tfsac.errors import TfsacError
from tfsac.utils.imports import load

Define = Callable[..., Any]  # defines one or more flags in its argument `flag_values`
Function = Callable[[flags.FlagValues, list[str]], int]


class Command(NamedTuple):
    """One of tfsac's commands.

    Attributes:
        help: one-line description.
        function: runs the command with flags and positional arguments, and returns the exit status.
        defines: functions that define its flags.
        words: positional arguments in the usage line, such as "RUN..."; empty if it takes none.
    """

    help: str
    function: Function
    defines: Sequence[Define] = ()
    words: str = ""


COMMANDS: dict[str, Command] = {}


def command(help: str, *defines: Define, words: str = "") -> Callable[[Function], Function]:
    """Registers a function as the command with its name; see `Command`."""

    def register(function: Function) -> Function:
        COMMANDS[function.__name__] = Command(help, function, defines, words)
        return function

    return register


def flag_values(defines: Sequence[Define]) -> flags.FlagValues:
    """Returns unparsed flags."""
    f = flags.FlagValues()
    for define in defines:
        define(flag_values=f)
    return f


def parse(name: str, arguments: Sequence[str]) -> tuple[flags.FlagValues, list[str]]:
    """Parses the arguments of a command with absl; returns its flags and its positional arguments."""
    f = flag_values(COMMANDS[name].defines)
    f.set_gnu_getopt(True)
    try:
        words = f([name, *arguments])[1:]
    except flags.UnrecognizedFlagError as error:
        error.add_note(f"`tfsac {name} --help` lists the flags.")
        if "set" in f:
            error.add_note("Change parameters, which `tfsac show` lists, with --set=PATH=VALUE.")
        raise
    if words and not COMMANDS[name].words:
        raise TfsacError(f"tfsac {name} takes only flags of the form --name=value, got {words[0]!r}")
    return f, words


def string(name: str, help: str, default: str | None = None) -> Define:
    """A flag that takes a string."""
    return functools.partial(flags.DEFINE_string, name, default, help)


def strings(name: str, help: str) -> Define:
    """A flag that may be repeated."""
    return functools.partial(flags.DEFINE_multi_string, name, [], help)


def integer(name: str, default: int | None, help: str, minimum: int = 1) -> Define:
    """A flag that takes an integer."""
    return functools.partial(flags.DEFINE_integer, name, default, help, lower_bound=minimum)


def boolean(name: str, help: str) -> Define:
    """A flag that is off by default."""
    return functools.partial(flags.DEFINE_bool, name, False, help)


def enum(name: str, values: Sequence[str], help: str) -> Define:
    """A flag that takes one of several strings, by default the first."""
    return functools.partial(flags.DEFINE_enum, name, values[0], values, help)


def fields(name: str, without: Collection[str] = (), only: Collection[str] = ()) -> Define:
    """A flag for each field of the parameter class `MODULE:CLASS`, except those in `without`, or only for `only`."""

    def define(flag_values: flags.FlagValues) -> None:
        from tfsac.parameters.base import descriptions

        cls = load(name)
        hints, help_texts = typing.get_type_hints(cls), descriptions(cls)
        for field in dataclasses.fields(cls):
            if field.name in without or (only and field.name not in only):
                continue
            # The help is only the first sentence of a description.
            help = help_texts[field.name].partition(". ")[0].removesuffix(".")
            help = re.sub(r"`(\w+)`", lambda match: f"--{match[1]}" if match[1] in hints else match[0], help)
            hint: Any = hints[field.name]
            arguments: tuple[str, Any] = field.name, field.default
            if type(None) in typing.get_args(hint):
                hint = typing.get_args(hint)[0]
            if typing.get_origin(hint) is typing.Literal:
                flags.DEFINE_enum(*arguments, list(typing.get_args(hint)), help, flag_values=flag_values)
                continue
            kinds: dict[Any, Any] = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float}
            kinds.get(hint, flags.DEFINE_string)(*arguments, help, flag_values=flag_values)

    return define


def help_of(flag: flags.Flag[Any]) -> str:
    """Returns the one-line help of a flag."""
    repeated = "; may be repeated" if isinstance(flag, flags.MultiFlag) else ""
    return flag.help.partition(";\n")[0].removesuffix("; may be repeated") + repeated


def required(f: flags.FlagValues, name: str) -> Any:
    """Returns the value of a required flag."""
    if not f[name].value:
        raise TfsacError(f"--{name} is required")
    return f[name].value
