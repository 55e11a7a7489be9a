"""Runs the fenced blocks of a documentation page from top to bottom.

```python blocks share one namespace. In shell blocks (no language, sh, bash or console), lines that start with `tfsac`
or `python`, after an optional `$ `, are commands. A backslash continues a line; other lines are ignored. Blocks of
other languages are skipped. A comment above a block changes this:

<!-- file: my_env.py -->     write the block to this file
<!-- status: 2 -->           expect this exit status of the last command instead of 0
<!-- output -->              the expected output of the previous block; `...` matches anything
<!-- skip -->                do not run the block
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
    """A fenced block: the comment above it as (word, argument), language, text, and line number in the page."""

    note: tuple[str, str]
    language: str
    text: str
    line: int


def blocks(page):
    """Returns the fenced blocks of the text of a page."""
    result = []
    for match in BLOCK.finditer(page):
        word, _, argument = (match["note"] or "").partition(":")
        line = page.count("\n", 0, match.start("text")) + 1
        result.append(Block((word.strip(), argument.strip()), match["language"], match["text"], line))
    return result


def section_of(text, heading):
    """Returns the section under a heading, up to the next heading of the same or a higher level."""
    level, _, rest = next(
        (match[1], match[2], text[match.end() :])
        for match in re.finditer(r"^(#+) (.*)$", text, re.MULTILINE)
        if match[2] == heading
    )
    end = re.search(rf"^#{{1,{len(level)}}} [A-Z]", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def run_page(
    page, folder, shorter: Mapping[str, str] | None = None, train_flags: Sequence[str] = (), section: str | None = None
):
    """Runs a page with a folder as working directory and import path.

    Args:
        page: a Markdown file.
        folder: the folder for the files of the page.
        shorter: replacements in the text, such as smaller budgets; each must occur in the page.
        train_flags: flags added to every `tfsac train`.
        section: heading of the only section to run; None runs the whole page.

    Returns:
        the namespace of the Python blocks.
    """
    text = pathlib.Path(page).read_text(encoding="utf-8")
    text = section_of(text, section) if section else text
    for long, short in (shorter or {}).items():
        assert long in text, f"{page} does not have {long!r}"
        text = text.replace(long, short)
    namespace, printed = {"__name__": "page"}, ""
    with _working_directory(pathlib.Path(folder)):
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
                assert matches_output(block.text, printed), f"{where}: printed was\n{printed}"
            elif block.language == "python":
                printed = _run_python(block, where, namespace)
            elif block.language in SHELL and (commands := commands_of(block.text)):
                printed = _run_commands(commands, where, train_flags, int(argument) if word == "status" else 0)
    return namespace


def commands_of(text):
    """Returns the commands of a shell block, each as a list of arguments."""
    lines = [line.strip().removeprefix("$ ") for line in text.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True) for line in lines if re.match(r"(tfsac|python) ", line)]


def matches_output(expected, printed):
    """Returns whether the parts of a text between `...` occur in the output in order, ignoring whitespace."""
    printed = " ".join(printed.split())
    for part in " ".join(expected.split()).split("..."):
        position = printed.find(part.strip())
        if position < 0:
            return False
        printed = printed[position + len(part.strip()) :]
    return True


def _run_python(block, where, namespace):
    # Padded, so that tracebacks have the line numbers of the page.
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
            status_code = _exit_status(program, [*words, *more])
        printed += out.getvalue()
        assert status_code == expected, (
            f"{where}: {shlex.join(words)} exited with {status_code}, after\n{out.getvalue()}"
        )
    return printed


def _exit_status(program, words):
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
def _working_directory(folder):
    """Makes a folder the working directory and importable, and undoes imports and registrations afterwards."""
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
            paths = getattr(module, "__path__", ())  # may be anything if the module is a stub
            files = [getattr(module, "__file__", None), *(paths if isinstance(paths, Iterable) else ())]
            if any(file and folder in pathlib.Path(file).parents for file in files):
                del sys.modules[name]
