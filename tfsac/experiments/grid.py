"""The grid of a sweep: every combination of values, and the name of each. No TensorFlow."""

from __future__ import annotations

import itertools
import urllib.parse
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tfsac.errors import TfsacError
from tfsac.parameters import parse_assignment
from tfsac.parameters.overrides import text_of

LEVELS = ("level", "environment.level")  # what a grid calls the level
LONGEST_VALUE, LONGEST_NAME = 40, 200  # of a folder; file systems allow 255 characters


class Combination(NamedTuple):
    """One combination of values of a grid.

    Attributes:
        name: of its folder; empty for an empty grid.
        values: by path or flag.
        flags: of `train`.
        experiment: what these ask for, as JSON values.
    """

    name: str
    values: dict[str, Any]
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
        axes.setdefault(path, []).extend(split_values(values))
    combinations: dict[str, Combination] = {}
    for (name, values_of), texts in zip(named_combinations(axes), itertools.product(*axes.values()), strict=True):
        pairs = zip(axes, texts, strict=True)
        arguments = [f"--set={path}={text}" if "." in path else f"--{path}={text}" for path, text in pairs]
        if name in combinations:
            raise TfsacError(f"a grid's combinations must differ, got {combinations[name].flags} and {arguments}")
        combinations[name] = Combination(name, values_of, arguments, describe(arguments))
    return list(combinations.values())


def named_combinations(
    axes: Mapping[str, Sequence[str]], without: Collection[str] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the name of every combination of values by path, some paths left out of it, and its values."""
    names = short_names(list(axes))
    for chosen in itertools.product(*(enumerate(texts) for texts in axes.values())):
        labels, values = [], {}
        for path, (number, text) in zip(axes, chosen, strict=True):
            values[path] = parse_assignment(f"{path}={text}")[1]
            # TensorFlow takes brackets in the path of a checkpoint for a pattern.
            short = urllib.parse.quote(text_of(values[path]).translate(str.maketrans("[]", "()")), safe="(),:+")
            if path not in without:
                labels.append(f"{names[path]}={short if len(short) <= LONGEST_VALUE else f'value{number + 1}'}")
        name = ",".join(labels)
        if len(name) > LONGEST_NAME:
            name = f"{name[:LONGEST_NAME]}-{zlib.crc32(name.encode()):08x}"
        yield name, values


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
