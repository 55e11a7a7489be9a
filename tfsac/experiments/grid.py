"""The grid of a sweep: every combination of values, and the name of each. No TensorFlow."""

from __future__ import annotations

import itertools
import urllib.parse
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from tfsac.errors import TfsacError
from tfsac.parameters import parse_assignment
from tfsac.parameters.overrides import text_of

LEVELS = ("level", "environment.level")  # what a grid calls the level
LONGEST_VALUE = 40  # characters in the name of a folder


class Combination(NamedTuple):
    """One combination of values of a grid.

    Attributes:
        name: of its folder; empty for an empty grid.
        texts: the values by path or flag, as one types them.
        flags: of `train`.
        experiment: what these ask for, as JSON values.
    """

    name: str
    texts: dict[str, str]
    flags: list[str]
    experiment: dict[str, Any]


def plan(
    grid: Sequence[str], flags: Collection[str], describe: Callable[[list[str]], dict[str, Any]]
) -> list[Combination]:
    """Returns every combination of a grid, checked.

    Args:
        grid: ``path=value,value,...`` for each parameter, or ``flag=value,value,...``.
        flags: the flags of `train` that may be varied.
        describe: returns what flags of `train` ask for, or raises.
    """
    axes: dict[str, list[str]] = {}
    for text in grid:
        path, _, values = text.partition("=")
        if not values or ("." not in path and path not in flags):
            raise TfsacError(
                f"--grid must be PATH=VALUE,VALUE,... with a parameter's whole path or one of {', '.join(flags)}, "
                f"got {text!r}"
            )
        parsed = [parse_assignment(f"{path}={value}")[1] for value in split_values(values)]
        axes.setdefault(path, []).extend(map(text_of, parsed))
    combinations: dict[str, Combination] = {}
    for name, chosen in zip(combination_names(axes), itertools.product(*axes.values()), strict=True):
        texts = dict(zip(axes, chosen, strict=True))
        arguments = [f"--set={path}={text}" if "." in path else f"--{path}={text}" for path, text in texts.items()]
        if name in combinations:
            raise TfsacError(f"a grid's combinations must differ, got {combinations[name].flags} and {arguments}")
        combinations[name] = Combination(name, texts, arguments, describe(arguments))
    return list(combinations.values())


def combination_names(axes: Mapping[str, Sequence[str]], without: Collection[str] = ()) -> list[str]:
    """Returns the name of every combination of texts by path, some paths left out of it."""
    names = short_names(list(axes))
    parts = []
    for path, texts in axes.items():
        # TensorFlow takes brackets in the path of a checkpoint for a pattern.
        quoted = [urllib.parse.quote(text.translate(str.maketrans("[]", "()")), safe="(),:+") for text in texts]
        short = [word if len(word) <= LONGEST_VALUE else f"value{i + 1}" for i, word in enumerate(quoted)]
        parts.append([f"{names[path]}={word}" if path not in without else "" for word in short])
    return [",".join(filter(None, chosen)) for chosen in itertools.product(*parts)]


def split_values(text: str) -> list[str]:
    """Splits at the commas that are outside of brackets and quotes."""
    parts, depth, quoted, escaped = [""], 0, False, False
    for character in text:
        if character == "," and not quoted and depth == 0:
            parts.append("")
            continue
        parts[-1] += character
        quoted ^= character == '"' and not escaped
        escaped = character == "\\" and not escaped
        depth += 0 if quoted else (character in "[{(") - (character in ")}]")
    return [part.strip() for part in parts]


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Returns the last part of each path, or as many parts as tell it from the others; ``*`` is called all."""
    parts = {path: path.replace("*", "all").split(".") for path in paths}

    def short(path: str) -> str:
        segments = parts[path]
        for n in range(1, len(segments)):
            if all(other[-n:] != segments[-n:] for name, other in parts.items() if name != path):
                return ".".join(segments[-n:])
        return ".".join(segments)

    return {path: short(path) for path in paths}
