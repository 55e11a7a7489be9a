"""The command line, see docs/command_line.md; every module of this package has some of its commands."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings

from absl import flags

import tfsac
from tfsac.cli.command import COMMANDS, UsageError, help_of
from tfsac.cli.failure import in_one_line, status_of
from tfsac.cli.parsing import parse, refuse_other_encodings
from tfsac.machine import running_command
from tfsac.user_code import make_importable

# Each enters its commands in COMMANDS, which lists them in this order.
# isort: off
from tfsac.cli import learning  # noqa: F401
from tfsac.cli import searching  # noqa: F401
from tfsac.cli import results  # noqa: F401
from tfsac.cli import sharing  # noqa: F401
from tfsac.cli import checking  # noqa: F401
from tfsac.cli import describing  # noqa: F401
from tfsac.cli import spinup  # noqa: F401
# isort: on

NOT_SHOWN = (None, "", "''", "'false'", "false", "'[]'")  # defaults
HELP = ("--help", "-h", "help", "--helpfull", "--helpshort", "-help", "-?")


def usage() -> str:
    """Returns the overview of all commands."""
    width = max(map(len, COMMANDS))
    lines = [
        "tfsac: the soft actor-critic family in TensorFlow 2 and Keras 3",
        "",
        "Commands (tfsac COMMAND --help lists its flags):",
    ]
    lines += [f"  {name:<{width}} {command.help}" for name, command in COMMANDS.items()]
    lines += ["", "Example:", "  tfsac train --preset=mujoco_sac --level=HalfCheetah-v5 --seed=1"]
    return "\n".join(lines)


def command_usage(name: str) -> str:
    """Returns the usage and the flags of one command."""
    command = COMMANDS[name]
    command.define(f := flags.FlagValues())
    f.mark_as_parsed()
    words = ["tfsac", name, command.words, "[--flag=value ...]" if list(f) else ""]
    lines = [f"tfsac {name}: {command.help}", "", f"usage: {' '.join(word for word in words if word)}"]
    lines += ["", "Flags:"] if list(f) else []
    for flag in f:
        default = f[flag].default_as_str
        shown = f"  (default: {default})" if default not in NOT_SHOWN else ""
        lines.append(f"  --{flag:<24} {help_of(f[flag])}{shown}")
    return "\n".join(lines)


def run(arguments: list[str]) -> int:
    """Carries out a command line (without the program's name) and returns the exit status."""
    if arguments == ["--version"]:
        print(f"tfsac {tfsac.__version__}")
        return 0
    asked = bool(arguments) and arguments[0] in HELP
    if asked:
        arguments = arguments[1:]
    if not arguments:
        print(usage())
        return 0
    refuse_other_encodings(arguments)
    name, *others = arguments
    if name not in COMMANDS:
        from tfsac.parameters.base import nearest

        raise UsageError(
            f"There is no such command.{nearest(name, COMMANDS)} Commands: {', '.join(COMMANDS)}. Received: {name!r}"
        )
    before_words = others[: others.index("--")] if "--" in others else others
    if asked or others == ["help"] or any(argument in HELP and argument != "help" for argument in before_words):
        print(command_usage(name))
        return 0
    values, rest = parse(name, others)
    with contextlib.suppress(OSError):  # a current folder that was removed
        make_importable(os.getcwd())
    with running_command(name):
        return COMMANDS[name].function(values, rest)


def main(arguments: list[str] | None = None) -> None:
    """The program: carries out a command line and ends with its status, see docs/command_line.md.

    What the user can mend is printed as one line without a traceback and ends with status 2.
    """
    # Python has none where the shell closed it, as >&- does.
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    warnings.formatwarning = in_one_line
    try:
        status = run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BaseException as error:  # the user's code may raise any, or sys.exit()
        status = status_of(error)
    sys.exit(status)


def run_preset(path: str) -> None:
    """What `python presets/NAME.py` does: trains that file, with the flags of `tfsac train`."""
    main(["train", f"--preset={path}", *sys.argv[1:]])
