"""Helpers for tests of the command line: errors, printed returns, image sizes and folder contents."""

import os
import pathlib
import re
import sys

import pytest

from tfsac import cli

# Environment variables for subprocesses, which then find the same packages.
SUBPROCESS_ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

RETURN = re.compile(
    r"^return  mean (-?[\d.]+)  std ([\d.]+)  min (-?[\d.]+)  max (-?[\d.]+)  "
    r"over (\d+) episodes of (\d+) steps on average$",
    re.MULTILINE,
)


def error_line(words, capsys):
    """Runs a command that fails with status 2 and returns its one-line error message."""
    with pytest.raises(SystemExit) as exit_info:
        cli.main(words)
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("tfsac: "))
    assert exit_info.value.code == 2
    return line


def format_returns(returns):
    """Formats mean, standard deviation, minimum and maximum as the command line prints them."""
    return [f"{value:.2f}" for value in (returns.mean(), returns.std(), returns.min(), returns.max())]


def png_size(path):
    """Returns width and height of a PNG file."""
    content = pathlib.Path(path).read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def folder_contents(folder):
    """Returns all paths under a folder; values are file contents, or None for folders."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
