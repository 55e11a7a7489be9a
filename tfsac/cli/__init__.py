"""The command line: tfsac train | sweep | evaluate | export | record | plot | compare | presets | spinup."""

from __future__ import annotations

import os
import sys

from absl import flags

from tfsac.cli import learning, results, spinning_up  # noqa: F401  (each enters its commands in COMMANDS)
from tfsac.cli.command import COMMANDS, UsageError


def usage() -> str:
    """Returns the overview of all commands."""
    lines = ["tfsac: the soft actor-critic family in TensorFlow 2 and Keras 3", "", "Commands (tfsac COMMAND --help lists its flags):"]
    lines += [f"  {name:<9} {help}" for name, (help, _, _) in COMMANDS.items()]
    lines += ["", "Example:", "  tfsac train --preset=mujoco_sac --level=HalfCheetah-v5 --seed=1"]
    return "\n".join(lines)


def command_usage(name: str, f: flags.FlagValues) -> str:
    """Returns the flags of one command."""
    lines = [f"tfsac {name}: {COMMANDS[name][0]}", ""]
    for flag in f:
        default = f[flag].default_as_str
        shown = f"  (default: {default})" if default not in (None, "", "''", "'false'", "false") else ""
        lines.append(f"  --{flag:<24} {f[flag].help}{shown}")
    return "\n".join(lines)


def run(arguments: list[str]) -> int:
    """Carries out a command line (without the program's name) and returns the exit status."""
    if not arguments or arguments[0] in ("--help", "-h", "help", "--helpfull"):
        print(usage())
        return 0
    name, values = arguments[0], flags.FlagValues()
    if name not in COMMANDS:
        from tfsac.parameters.base import nearest

        raise UsageError(f"There is no such command.{nearest(name, COMMANDS)} Commands: {', '.join(COMMANDS)}. Received: {name!r}")
    _, define, function = COMMANDS[name]
    define(values)
    if any(argument in ("--help", "-h") for argument in arguments[1:]):
        values.mark_as_parsed()
        print(command_usage(name, values))
        return 0
    rest = values(arguments)[1:]
    return function(values, rest)


def main(arguments: list[str] | None = None) -> None:
    """The program; errors that a user can mend are printed without a traceback and end it with status 2."""
    try:
        status = run(sys.argv[1:] if arguments is None else arguments)
    except (flags.Error, ValueError, OSError, ImportError, RuntimeError) as error:
        # TensorFlow's own errors and bugs keep their traceback.
        if os.environ.get("TFSAC_TRACEBACK") or not _expected(error):
            raise
        print(f"tfsac: {error}", file=sys.stderr)
        status = 2
    sys.exit(status)


def _expected(error: Exception) -> bool:
    return isinstance(error, flags.Error) or "Received: " in str(error)


def run_preset(path: str) -> None:
    """What `python presets/NAME.py` does: trains that file, with the flags of `tfsac train`."""
    main(["train", f"--preset={path}", *sys.argv[1:]])
