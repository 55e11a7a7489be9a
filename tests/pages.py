"""Runs the fenced blocks of a page of the documents from top to bottom, as a reader would.

```python blocks share one namespace. In shell blocks (no language, sh, bash or console), lines that begin with `tfsac`
or `python` are commands, a `$ ` before them does not matter, a backslash continues a line, and other lines are not
looked at. Blocks of other languages are skipped. A comment above a block says more:

<!-- file: my_env.py -->     the block is written to this file
<!-- status: 2 -->           the block's last command ends with this exit status; all others end with 0
<!-- output -->              the block shows what the one before printed; `...` stands for anything
<!-- skip -->                the block is not run
"""

import contextlib
import importlib
import io
import pathlib
import re
import runpy
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import gymnasium as gym

from tfsac import cli

ROOT = pathlib.Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"(?:^<!-- (?P<note>.*?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
SHELL = ("", "sh", "bash", "console")


class Block(NamedTuple):
    """A fenced block: the comment above it as (word, argument), its language, its text, and its line in the page."""

    note: tuple[str, str]
    language: str
    text: str
    line: int


def blocks(page):
    """Returns the fenced blocks of a page's text."""
    found = []
    for match in BLOCK.finditer(page):
        word, _, argument = (match["note"] or "").partition(":")
        line = page.count("\n", 0, match.start("text")) + 1
        found.append(Block((word.strip(), argument.strip()), match["language"], match["text"], line))
    return found


def section_of(text, heading):
    """Returns the part of a page below a heading, up to the next heading of its level or above."""
    level, _, rest = next(
        (found[1], found[2], text[found.end() :])
        for found in re.finditer(r"^(#+) (.*)$", text, re.MULTILINE)
        if found[2] == heading
    )
    end = re.search(rf"^#{{1,{len(level)}}} [A-Z]", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def run_page(
    page, folder, shorter: Mapping[str, str] | None = None, train_flags: Sequence[str] = (), section: str | None = None
):
    """Runs a page in an empty folder, which is the current one meanwhile and importable.

    Args:
        page: a Markdown file.
        folder: where its files are written.
        shorter: text of the page to replace, such as long budgets; each must be there.
        train_flags: added to every `tfsac train`.
        section: the heading of the part that is run; None for the whole page.

    Returns:
        the namespace of the Python blocks.
    """
    text = pathlib.Path(page).read_text(encoding="utf-8")
    text = section_of(text, section) if section else text
    for long, short in (shorter or {}).items():
        assert long in text, f"{page} does not have {long!r}"
        text = text.replace(long, short)
    namespace, printed = {"__name__": "page"}, ""
    with _as_in(pathlib.Path(folder)):
        for block in blocks(text):
            where = f"{page}, line {block.line}"
            word, argument = block.note
            if word == "skip":
                continue
            if word == "file":
                path = pathlib.Path(argument)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
                importlib.invalidate_caches()
            elif word == "output":
                assert shows(block.text, printed), f"{where}: printed was\n{printed}"
            elif block.language == "python":
                printed = _run_python(block, where, namespace)
            elif block.language in SHELL and (commands := commands_of(block.text)):
                printed = _run_commands(commands, where, train_flags, int(argument) if word == "status" else 0)
    return namespace


def commands_of(text):
    """Returns the commands of a shell block, each as a list of words."""
    lines = [line.strip().removeprefix("$ ") for line in text.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True) for line in lines if re.match(r"(tfsac|python) ", line)]


def shows(expected, printed):
    """Returns whether the parts of a text between `...` are in what was printed, in this order; spaces do not
    matter.
    """
    printed = " ".join(printed.split())
    for part in " ".join(expected.split()).split("..."):
        place = printed.find(part.strip())
        if place < 0:
            return False
        printed = printed[place + len(part.strip()) :]
    return True


def _run_python(block, where, namespace):
    # Padded, so that tracebacks have the lines of the page.
    code = compile("\n" * (block.line - 1) + block.text, where.split(",")[0], "exec")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, namespace)
    return out.getvalue()


def _run_commands(commands, where, train_flags, status):
    printed = ""
    for i, (program, *words) in enumerate(commands):
        expected = status if i == len(commands) - 1 else 0
        more = train_flags if words[0] == "train" else ()
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            ended = _ended(program, [*words, *more])
        printed += out.getvalue()
        assert ended == expected, f"{where}: {shlex.join(words)} ended with {ended}, after\n{out.getvalue()}"
    return printed


def _ended(program, words):
    arguments = sys.argv
    try:
        if program == "tfsac":
            cli.main(words)
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return end.code or 0
    finally:
        sys.argv = arguments
    return 0


@contextlib.contextmanager
def _as_in(folder):
    """Makes a folder the current one and importable; afterwards nothing that was imported from it or registered is
    left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, levels = list(sys.path), set(gym.registry)
    try:
        with contextlib.chdir(folder):
            sys.path.insert(0, str(folder))
            yield
    finally:
        sys.path[:] = path
        for level in gym.registry.keys() - levels:
            del gym.registry[level]
        for name, module in list(sys.modules.items()):
            paths = getattr(module, "__path__", ())  # what stands in for a module may have anything there
            files = [getattr(module, "__file__", None), *(paths if isinstance(paths, Iterable) else ())]
            if any(file and folder in pathlib.Path(file).parents for file in files):
                del sys.modules[name]
