"""Which of the runs on a command line belong together."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from tfsac.errors import TfsacError

TASK_PARAMETERS = ("environment.level", "validation.", "levels.")  # parameters that differ with the level
MAX_SHOWN = 3  # parameters in a label


def is_group(word: str) -> bool:
    """Returns whether a word of the command line stands for several runs: a folder of them, or LABEL=RUN,RUN."""
    from tfsac.experiments.sweep import holds_several_runs

    label, paths = _parsed(word)
    return bool(label) or holds_several_runs(paths[0])


def groups_of(words: Sequence[str]) -> dict[str, list[pathlib.Path]]:
    """Returns run directories by label.

    Args:
        words: run directories, which are grouped by what differs in them, and folders with seeds of one experiment,
            which stand for their finished runs; folders of sweeps, which stand for theirs by combination; and
            LABEL=RUN,RUN.
    """
    from tfsac.experiments.sweep import runs_of

    groups: dict[str, list[pathlib.Path]] = {}
    unnamed: list[list[pathlib.Path]] = []

    def add(label: str, runs: list[pathlib.Path]) -> None:
        if label in groups:
            raise TfsacError(f"Two groups have the label {label!r}: name them LABEL=RUN,RUN, with all runs in one word")
        groups[label] = runs

    for label, paths in map(_parsed, words):
        combinations = [entry for path in paths for entry in runs_of(path).items()]
        if label:
            add(label, [run for _, runs in combinations for run in runs])
            continue
        for combination, runs in combinations:
            if combination:
                add(f"{paths[0].name} {combination}" if len(words) > 1 else combination, runs)
            else:
                unnamed.append(runs)  # of one experiment on levels that may have numbers of their own
    for label, runs in by_difference(unnamed).items():
        add(label, runs)
    return groups


def _parsed(word: str) -> tuple[str, list[pathlib.Path]]:
    """Returns label and paths of LABEL=RUN,RUN; "" and the path itself for a path, which may have an equals sign, too.
    Names of folders may have commas, as those of a sweep's combinations.
    """
    label, equals, listed = word.partition("=")
    if not (label and equals) or "/" in label or pathlib.Path(word).exists():
        return "", [pathlib.Path(word)]
    pieces, paths = listed.split(","), list[pathlib.Path]()
    while pieces:
        longest = (n for n in range(len(pieces), 0, -1) if pathlib.Path(",".join(pieces[:n])).exists())
        n = next(longest, 1)
        paths.append(pathlib.Path(",".join(pieces[:n])))
        pieces = pieces[n:]
    return label, paths


def by_level(groups: dict[str, list[pathlib.Path]]) -> dict[str, list[pathlib.Path]]:
    """Splits groups whose runs have several levels, for returns of different tasks have no mean. CSV files do not
    say theirs.
    """
    split: dict[str, list[pathlib.Path]] = {}
    for label, runs in groups.items():
        levels = [level_of(run) for run in runs]
        for run, level in zip(runs, levels, strict=True):
            split.setdefault(f"{label}, {level}" if len(set(levels)) > 1 else label, []).append(run)
    return split


def level_of(run: pathlib.Path) -> str:
    """Returns the level of a run, "" for a folder without a config."""
    from tfsac.catalog import read_config

    config = run / "config.json"
    return read_config(config)[0].environment.level if config.is_file() else ""


def by_difference(experiments: Sequence[Sequence[pathlib.Path]]) -> dict[str, list[pathlib.Path]]:
    """Groups runs by their presets and by what else changes what is learned, whatever their levels and seeds, in the
    order in which they come.

    Runs that are given together stay together: the preset of the first one is theirs.

    A label names the agent where the agents differ, the functions that made custom models and environments, the run
    whose weights a run began with, and all parameters that differ; of more than `MAX_SHOWN`, the first that tell the
    groups apart and, of one agent, how many more differ.
    """
    from tfsac.experiments.grid import short_names
    from tfsac.experiments.learning_curves import learning_parameters
    from tfsac.parameters.overrides import text_of

    groups: dict[str, tuple[dict[str, Any], list[pathlib.Path]]] = {}
    for runs in experiments:
        parameters = {p: x for p, x in learning_parameters(runs[0]).items() if not p.startswith(TASK_PARAMETERS)}
        groups.setdefault(json.dumps(parameters, sort_keys=True), (parameters, []))[1].extend(runs)

    def text(parameters: dict[str, Any], path: str) -> str:
        return text_of(parameters[path]) if path in parameters else ""

    def num_apart(paths: Sequence[str]) -> int:
        return len({json.dumps([text(parameters, path) for path in paths]) for parameters, _ in groups.values()})

    paths = dict.fromkeys(path for parameters, _ in groups.values() for path in parameters)
    different = [path for path in paths if num_apart([path]) > 1]
    shown: list[str] = []
    for path in different:
        if len(different) <= MAX_SHOWN or num_apart([*shown, path]) > num_apart(shown):
            shown.append(path)
    shown = shown or ["agent"]
    names, more = short_names(shown), 0 if "agent" in shown else len(different) - len(shown)

    def label(parameters: dict[str, Any]) -> str:
        texts = {path: text(parameters, path) for path in shown}
        joined = ",".join(value if path == "agent" else f"{names[path]}={value}" for path, value in texts.items())
        return f"{joined} and {more} more" if more else joined

    return {label(parameters): runs for parameters, runs in groups.values()}
