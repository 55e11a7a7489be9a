"""The command line, see docs/command_line.md; the modules of this package define its commands."""

from __future__ import annotations

import io
import os
import pathlib
import re
import sys
import warnings

from absl import flags

import tfsac
from tfsac.cli.command_registry import COMMANDS, flag_values, help_of, parse
from tfsac.errors import TfsacError
from tfsac.utils.imports import make_importable
from tfsac.utils.machine import SIGNALLED

# Each module registers its commands in COMMANDS, which lists them in this order.
# isort: off
from tfsac.cli import train  # noqa: F401
from tfsac.cli import sweep_and_tune  # noqa: F401
from tfsac.cli import evaluate_and_export  # noqa: F401
from tfsac.cli import show  # noqa: F401
# isort: on

HIDDEN_DEFAULTS = (None, "", "''", "'false'", "false", "'[]'")  # defaults that the help omits
HELP = ("--help", "-h", "help")
REFUSED, SIGINT, SIGPIPE = 2, 2, 13
PACKAGE = pathlib.Path(__file__).parents[1]


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
    f = flag_values(command.defines)
    words = ["tfsac", name, command.words, "[--flag=value ...]" if list(f) else ""]
    lines = [f"tfsac {name}: {command.help}", "", f"usage: {' '.join(word for word in words if word)}"]
    lines += ["", "Flags:"] if list(f) else []
    for flag in (f[flag] for flag in f):
        default_text = "" if flag.default_as_str in HIDDEN_DEFAULTS else f"  (default: {flag.default_as_str})"
        lines.append(f"  --{flag.name:<24} {help_of(flag)}{default_text}")
    return "\n".join(lines)


def run(arguments: list[str]) -> int:
    """Runs a command line (without the program's name) and returns the exit status."""
    if arguments == ["--version"]:
        print(f"tfsac {tfsac.__version__}")
        return 0
    words = [argument for argument in arguments if argument not in HELP]
    if not words:
        print(usage())
        return 0
    name = words[0]
    if name not in COMMANDS:
        from tfsac.parameters.base import nearest

        raise TfsacError(f"no command {name!r}.{nearest(name, COMMANDS)} Commands: {', '.join(COMMANDS)}")
    if len(words) < len(arguments):
        print(command_usage(name))
        return 0
    # Shells do not expand ~ after an equals sign.
    home = os.path.expanduser("~")
    f, rest = parse(name, [re.sub(r"^(--\w+=)~(?=/)", rf"\1{home}", argument) for argument in arguments[1:]])
    make_importable(os.getcwd())
    return COMMANDS[name].function(f, rest)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: runs a command line and exits with its status, see docs/command_line.md.

    Errors that the user can fix are printed in one line, with status 2. Other errors keep their traceback;
    TFSAC_TRACEBACK=1 shows the traceback of every error.
    """
    warnings.formatwarning = _format_warning
    if isinstance(sys.stdout, io.TextIOWrapper):  # replace characters that the terminal cannot show
        sys.stdout.reconfigure(errors="replace")
    try:
        status = run(sys.argv[1:] if arguments is None else arguments)
        print(end="", flush=True)
    except BrokenPipeError:  # the reader of the output has ended, as in `tfsac presets | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes stdout on exit
        status = SIGNALLED + SIGPIPE
    except KeyboardInterrupt:
        print("tfsac: interrupted", file=sys.stderr)
        status = SIGNALLED + SIGINT
    except Exception as error:
        from pydantic import ValidationError

        if not isinstance(error, TfsacError | ValidationError | flags.Error | OSError):
            raise
        if os.environ.get("TFSAC_TRACEBACK"):
            raise
        print("tfsac:", *" ".join([str(error), *getattr(error, "__notes__", ())]).split(), file=sys.stderr)
        status = REFUSED
    sys.exit(status)


def run_preset(path: str) -> None:
    """Implements `python presets/NAME.py`: trains that preset, with the flags of `tfsac train`."""
    main(["train", f"--preset={path}", *sys.argv[1:]])


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Formats a warning in one line, without file and line for warnings from tfsac."""
    from_tfsac = pathlib.Path(filename).is_relative_to(PACKAGE)
    return f"tfsac: {message}\n" if from_tfsac else f"{filename}:{lineno}: {category.__name__}: {message}\n"
