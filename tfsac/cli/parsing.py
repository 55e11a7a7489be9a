"""Reads a command line into flags; every error names what was typed."""

from __future__ import annotations

import os
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

from absl import flags

from tfsac.cli.command import COMMANDS, UsageError

DASHES = (
    "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"  # what word processors and web pages make of hyphens
)
BOOLEANS = ("true", "t", "1", "yes", "y", "false", "f", "0", "no", "n")


def refuse_other_encodings(arguments: Sequence[str]) -> None:
    """Refuses arguments that are not UTF-8, which Python reads as surrogates and no file can hold."""
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            raise UsageError(f"Arguments are written in UTF-8; see the shell's LANG. Received: {argument!r}")


def parse(name: str, arguments: Sequence[str]) -> tuple[flags.FlagValues, list[str]]:
    """Reads the arguments of a command.

    Args:
        name: of the command.
        arguments: what stands after it: `--flag=value`, `--flag value`, `--switch`, `--noswitch` and words.
            What follows `--` is words.

    Returns:
        the flags, and the words that belong to no flag.

    Raises:
        UsageError: an unknown flag (naming the nearest), one that is given twice, a wrong or missing value.
    """
    COMMANDS[name].define(values := flags.FlagValues())
    rest: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word == "--":
            rest += words
            break
        if (word[:1] and word[0] in DASHES) or (word[:1] == "-" and word[1:2] and word[1] in DASHES):
            raise UsageError(
                "A flag begins with two plain hyphens, as in --seed=1; this dash is another character. "
                f"Received: {word!r}"
            )
        if not word.strip("-") or not word.startswith("-"):
            rest.append(word)
            continue
        flag, value = _flag_and_value(name, values, word, words)
        if flag.present and not isinstance(flag, flags.MultiFlag):
            raise UsageError(f"--{flag.name} is given once. Received: {word!r} after {flag.value!r}")
        if value == "":
            raise UsageError(
                f"--{flag.name} needs a value, {_kind(flag)}; leave the flag out for its default. Received: {word!r}"
            )
        if value.startswith("~/"):  # shells leave it alone after an equals sign
            value = os.path.expanduser(value)
        try:
            flag.parse(value)
        except flags.IllegalFlagValueError:
            hint = ""
            if isinstance(flag, flags.EnumFlag):
                from tfsac.parameters.base import nearest

                hint = nearest(value, flag.parser.enum_values)
            raise UsageError(f"--{flag.name} is {_kind(flag)}.{hint} Received: --{flag.name}={value}") from None
        flag.using_default_value = False
    values.mark_as_parsed()
    if rest and not COMMANDS[name].words:
        raise UsageError(f"{_about_word(rest[0], values)} Received: {rest[0]!r}")
    return values, rest


def _flag_and_value(command: str, values: flags.FlagValues, word: str, words: list[str]) -> tuple[flags.Flag[Any], str]:
    """Returns the flag that a word names and the value after its equals sign, or the next word, which is taken."""
    name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
    if name in values:
        flag = values[name]
        if equals:
            return flag, value
        if flag.boolean:
            if words and words[0].lower() in BOOLEANS:
                raise UsageError(
                    f"--{name} takes its value after an equals sign, as in --{name}={words[0]}. "
                    f"Received: '{word} {words[0]}'"
                )
            return flag, "true"
        if not words or words[0].startswith("--"):
            raise UsageError(f"--{name} needs a value, {_kind(flag)}. Received: {word!r}")
        return flag, words.pop(0)
    opposite = name.removeprefix("no")
    if opposite != name and opposite in values and values[opposite].boolean:
        if equals:
            raise UsageError(f"--{name} stands without a value, or write --{opposite}={value}. Received: {word!r}")
        return values[opposite], "false"
    about = _about_flag(command, name, value or "VALUE", values, words)
    more = ""
    for other, _, given in (word[2:].partition("=") for word in words if word.startswith("--")):
        if other not in values and other.removeprefix("no") not in values:
            more += f" Nor has it --{other}.{_about_flag(command, other, given or 'VALUE', values, words)}"
    raise UsageError(f"tfsac {command} has no flag --{name}.{about}{more} Received: {word!r}")


def _about_flag(command: str, name: str, value: str, values: flags.FlagValues, words: list[str]) -> str:
    """Returns what may have been meant by an unknown flag."""
    from tfsac.parameters.base import nearest
    from tfsac.parameters.other_names import PATHS, find_path, normalized

    known = PATHS.get(normalized(name), "")
    if (flag := known.rpartition(".")[2]) in values and known.startswith(("run.", "schedule.", "environment.")):
        return f" Did you mean '--{flag}'?"
    if name == "run_dir" and "card" in values:
        return f" It plays a model card: {shlex.quote(f'--card={value}')}. tfsac card makes one of a run."
    preset = _preset(values, words) if "preset" in values else {}  # others set the environment's parameters alone
    path = find_path(name, preset)
    if path and not path.startswith("run."):
        flag = path.rpartition(".")[2]
        return f" Did you mean {f'--{flag}' if flag in values else f'--set={_assigned(path, value, preset)}'}?"
    found = nearest(name, values)
    owners = [other for other, entry in COMMANDS.items() if name in _names(entry.define)]
    if owners:
        return f" It is a flag of tfsac {', '.join(owners)}."
    return found.replace("'", "'--", 1) or f" tfsac {command} --help lists its flags."


def _preset(values: flags.FlagValues, words: list[str]) -> dict[str, Any]:
    """Returns the preset of a command line that is being read, or of its run, as plain dicts; where it names none, a
    usual one.
    """
    from tfsac.catalog import load_preset
    from tfsac.parameters import ParameterError
    from tfsac.parameters.base import to_json

    later = dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word)
    name, run_dir = (values[flag].value if flag in values else None for flag in ("preset", "run_dir"))
    config = pathlib.Path(run_dir or later.get("run_dir", "")) / "config.json"
    name = name or later.get("preset") or (config if config.is_file() else "pendulum_twin_sac")
    try:
        return dict(to_json(load_preset(name)))
    except (OSError, ParameterError):
        return dict(to_json(load_preset("pendulum_twin_sac")))


def _assigned(path: str, value: str, preset: Any) -> str:
    """Returns what --set takes for a value that was given to a flag."""
    if "=" in path:
        return shlex.quote(path)
    for key in path.split("."):
        preset = next(iter(preset.values())) if key == "*" else preset[key]
    listed = isinstance(preset, list) and not value.startswith("[")
    return shlex.quote(f"{path}=[{value}]" if listed else f"{path}={value}")


def _about_word(word: str, values: flags.FlagValues) -> str:
    """Returns what may have been meant by a word that belongs to no flag."""
    meant = ""
    if word.partition("=")[0] in values:
        meant = word
    elif "run_dir" in values and pathlib.Path(word).is_dir():
        meant = f"run_dir={word}"
    elif "preset" in values:
        from tfsac.catalog import preset_names

        meant = f"preset={word}" if word in preset_names() else ""
    return "Flags are written --name=value." + (f" Did you mean {shlex.quote(f'--{meant}')}?" if meant else "")


def _names(define: object) -> list[str]:
    define(values := flags.FlagValues())  # type: ignore[operator]
    return list(values)


def _kind(flag: flags.Flag[Any]) -> str:
    """Returns what the values of a flag are."""
    if flag.boolean:
        return "true or false"
    if isinstance(flag, flags.EnumFlag):
        return " or ".join(flag.parser.enum_values)
    return flag.parser.syntactic_help or "a text"
