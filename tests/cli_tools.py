"""How the command line is typed, and what it prints and leaves."""

import os
import pathlib
import re
import sys

import pytest

from tfsac import cli

# Of processes that see the packages of this one.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

RETURN = re.compile(
    r"^return  mean (-?[\d.]+)  std ([\d.]+)  min (-?[\d.]+)  max (-?[\d.]+)  "
    r"over (\d+) episodes of (\d+) steps on average$",
    re.MULTILINE,
)


def refusal(words, capsys):
    """Types a command that is refused, and returns the one line that says why."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("tfsac: "))
    assert ended.value.code == 2
    return line


def parts(returns):
    """Returns mean, standard deviation, minimum and maximum as they are printed."""
    return [f"{value:.2f}" for value in (returns.mean(), returns.std(), returns.min(), returns.max())]


def png_size(path):
    """Returns width and height of a picture."""
    content = pathlib.Path(path).read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def tree(folder):
    """Returns every path under a folder with the content of its files."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
