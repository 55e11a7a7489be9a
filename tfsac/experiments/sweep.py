"""Sweeps: one process of `tfsac train` for every combination of a grid and every seed. Without TensorFlow.

sweep.json                                       the swept parameters; only the same sweep may resume in the folder
discount=0.98,learning_rate=0.001/seed1          a run directory
discount=0.98,learning_rate=0.001/seed1.log      output of the run
comparison.csv, comparison.png                   comparison of the combinations

The folders of the runs are the only state of a sweep, so it needs no Optuna study.
"""

from __future__ import annotations

import itertools
import pathlib
import urllib.parse
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from tfsac.errors import TfsacError
from tfsac.experiments.comparison import compare
from tfsac.experiments.run_processes import PlannedRun, Series, say
from tfsac.parameters import parse_assignment
from tfsac.parameters.overrides import text_of
from tfsac.utils.files import read_object

PLAN = "sweep.json"
LEVELS = ("level", "environment.level")  # names of the level in a grid
LONGEST_VALUE, LONGEST_NAME = 40, 200  # characters in a folder's name; file systems allow 255


class Combination(NamedTuple):
    """One combination of values of a grid.

    Attributes:
        name: name of its folder; empty for an empty grid.
        texts: the values by path or flag, as typed on the command line.
        flags: flags of `train`.
        experiment: the experiment that the flags define, as JSON values.
    """

    name: str
    texts: dict[str, str]
    flags: list[str]
    experiment: dict[str, Any]


def plan(
    grid: Sequence[str], flags: Collection[str], describe: Callable[[list[str]], dict[str, Any]]
) -> list[Combination]:
    """Returns every combination of a grid of texts `path=value,value,...`, or `flag=value,value,...` with one of
    `flags`; `describe` returns the experiment for flags of `train`, or raises.
    """
    axes: dict[str, list[str]] = {}
    for text in grid:
        path, _, values = text.partition("=")
        if not values or ("." not in path and path not in flags):
            raise TfsacError(
                f"--grid must be PATH=VALUE,VALUE,... with a parameter's full path or one of {', '.join(flags)}, "
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
    """Returns the name of every combination of texts by path; names omit the paths in `without`."""
    names = short_names(list(axes))
    parts = []
    for path, texts in axes.items():
        # TensorFlow treats brackets in a checkpoint's path as a glob pattern.
        quoted = [urllib.parse.quote(text.translate(str.maketrans("[]", "()")), safe="(),:+") for text in texts]
        short = [word if len(word) <= LONGEST_VALUE else f"value{i + 1}" for i, word in enumerate(quoted)]
        parts.append([f"{names[path]}={word}" if path not in without else "" for word in short])
    joined = [",".join(filter(None, chosen)) for chosen in itertools.product(*parts)]
    return [name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]},{i + 1}" for i, name in enumerate(joined)]


def split_values(text: str) -> list[str]:
    """Splits a text at commas outside of brackets and quotes."""
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
    """Returns the shortest unique suffix of each path; ``*`` becomes "all"."""
    parts = {path: path.replace("*", "all").split(".") for path in paths}

    def short(path: str) -> str:
        segments = parts[path]
        for n in range(1, len(segments)):
            if all(other[-n:] != segments[-n:] for name, other in parts.items() if name != path):
                return ".".join(segments[-n:])
        return ".".join(segments)

    return {path: short(path) for path in paths}


class Sweep(Series):
    """Runs of every combination with every seed, in one folder.

    Args:
        folder: a new or empty folder, or the folder of the same sweep.
        combinations: combinations from `plan`.
        seeds: seeds of each combination.
        flags: flags of `train` for all runs.

    Attributes:
        runs: all runs.
        failed: runs that ended with a nonzero exit status.
    """

    def __init__(
        self, folder: pathlib.Path, combinations: Sequence[Combination], seeds: Sequence[int], flags: Sequence[str]
    ):
        first = combinations[0]
        # The grid and its first combination determine the others, except those of other presets.
        grid = {path: list(dict.fromkeys(c.texts[path] for c in combinations)) for path in first.texts}
        content = {"format": 1, "grid": list(grid.items()), "first": first.experiment}
        if "preset" in grid:
            content["first_of"] = {c.texts["preset"]: c.experiment for c in reversed(combinations)}
        super().__init__(folder, PLAN, content)
        self.runs = [
            PlannedRun(folder / c.name / f"seed{seed}", [*flags, *c.flags, f"--seed={seed}"])
            for c in combinations
            for seed in seeds
        ]
        self.failed, self._only_label = list[PlannedRun](), first.experiment["preset"]["agent"]["kind"]

    def jobs(self) -> list[PlannedRun]:
        """Returns the runs that are not finished."""
        waiting = [run for run in self.runs if not run.finished]
        say(f"{self.folder}: {len(self.runs) - len(waiting)} of {len(self.runs)} runs are finished")
        return waiting

    def do(self, job: PlannedRun) -> None:
        """Trains a run."""
        if self.train_run(job) and not self.signals:
            self.failed.append(job)

    def report(self) -> bool:
        """Compares the finished runs of the combinations, and returns whether the comparison succeeded."""
        try:
            groups = {label or self._only_label: runs for label, runs in runs_of(self.folder).items()}
            say(compare(groups, self.folder))
        except (TfsacError, OSError) as error:
            say(f"not compared: {error}")
            return False
        return True


def runs_of(path: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Returns the run at a path, or the finished runs in the folder of a sweep or of several seeds, by combination.

    Combinations that differ only in the level are merged. The name is empty for a single combination, a run, or a
    folder with seeds. Prints a line for every started but unfinished run. Raises TfsacError if no run has finished.
    """
    if not holds_several_runs(path):
        return {"": [path]}
    axes = dict(read_object(path / PLAN)["grid"]) if (path / PLAN).is_file() else {}
    groups: dict[str, list[pathlib.Path]] = {}
    for name, label in zip(combination_names(axes), combination_names(axes, LEVELS), strict=True):
        for run in sorted(config.parent for config in (path / name).glob("seed*/config.json")):
            if PlannedRun(run, []).finished:
                groups.setdefault(label, []).append(run)
            else:
                say(f"left out, not finished: {run}")
    if not groups:
        raise TfsacError(f"no run in {path} has finished")
    return groups


def holds_several_runs(path: pathlib.Path) -> bool:
    """Returns whether a folder contains a sweep, or seeds of one experiment, such as a sweep's combination."""
    return (path / PLAN).is_file() or (not (path / "config.json").is_file() and any(path.glob("seed*/config.json")))
