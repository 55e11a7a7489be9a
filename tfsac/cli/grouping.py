"""Which of the runs on a command line belong together."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
from collections.abc import Sequence
from typing import Any

from tfsac.cli.command import UsageError

OF_THE_TASK = ("environment.level", "validation.", "levels.")  # parameters that differ with the level


def is_group(word: str) -> bool:
    """Returns whether a word of the command line stands for several runs: a folder of them, or LABEL=RUN,RUN."""
    from tfsac.experiments.sweep import stands_for_runs

    path = pathlib.Path(word)
    return stands_for_runs(path) or ("=" in word and not path.exists())


def check_words(words: Sequence[str]) -> None:
    """Refuses words that name no run: empty ones, and groups without a label or a run."""
    for word in words:
        label, _, listed = word.partition("=")
        if not word or ("=" in word and not pathlib.Path(word).exists() and not (label and all(listed.split(",")))):
            raise UsageError(f"A word is the folder of a run or a sweep, or LABEL=RUN,RUN. Received: {word!r}")


def groups_of(words: Sequence[str]) -> dict[str, list[pathlib.Path]]:
    """Returns run directories by label.

    Args:
        words: run directories, which are grouped by what differs in them, and folders with seeds of one experiment,
            which stand for their finished runs; folders of sweeps, which stand for theirs by combination; and
            LABEL=RUN,RUN.

    Raises:
        UsageError: a word that names no run, or two groups of the same label.
        FileNotFoundError, ValueError: a folder that is no run, or a sweep without finished ones.
    """
    from tfsac.experiments.sweep import finished_runs, runs_of

    check_words(words)
    groups: dict[str, list[pathlib.Path]] = {}
    unnamed: list[list[pathlib.Path]] = []

    def add(label: str, runs: list[pathlib.Path]) -> None:
        if label in groups:
            raise UsageError(
                "Each group has a label of its own. LABEL=RUN,RUN names a group, of runs and sweeps, "
                f"all listed in one word. Received: the label {label!r} twice, for {groups[label][0]} and {runs[0]}"
            )
        groups[label] = runs

    for word in words:
        path = pathlib.Path(word)
        if "=" in word and not path.exists():
            label, _, listed = word.partition("=")
            paths = _listed(listed)
            if "/" in label and not any(one.exists() for one in paths):
                unnamed.append([path])  # a combination of a sweep that is not there, which an error will say
            else:
                add(label, [run for one in paths for run in runs_of(one)])
        elif (path / "sweep.json").is_file():
            for label, runs in finished_runs(path).items():
                named = f"{path.name} {label}" if len(words) > 1 else label
                if label:
                    add(named, runs)
                else:
                    unnamed.append(runs)  # of one experiment on levels that may have numbers of their own
        else:
            unnamed.extend([run] for run in runs_of(path))
    for label, runs in by_difference(unnamed).items():
        add(label, runs)
    return groups


def left_out(words: Sequence[str]) -> list[pathlib.Path]:
    """Returns the runs of the words' folders that have begun and not finished, for which `groups_of` has no place."""
    from tfsac.experiments.sweep import unfinished_of

    paths = [one for word in words for one in (_listed(word.partition("=")[2]) if "=" in word else [])]
    return [run for path in (*map(pathlib.Path, words), *paths) for run in unfinished_of(path)]


def _listed(text: str) -> list[pathlib.Path]:
    """Splits RUN,RUN at its commas but for those in the names of folders, such as a sweep's combinations."""
    pieces, paths = text.split(","), list[pathlib.Path]()
    while pieces:
        longest = (n for n in range(len(pieces), 0, -1) if pathlib.Path(",".join(pieces[:n])).exists())
        n = next(longest, 1)
        paths.append(pathlib.Path(",".join(pieces[:n])))
        pieces = pieces[n:]
    return paths


def by_level(groups: dict[str, list[pathlib.Path]]) -> dict[str, list[pathlib.Path]]:
    """Splits groups whose runs have several levels, for returns of different tasks have no mean. CSV files do not
    say theirs.
    """
    from tfsac.catalog import read_config

    split: dict[str, list[pathlib.Path]] = {}
    for label, runs in groups.items():
        configs = [run / "config.json" for run in runs]
        of = [read_config(config)[0].environment.level if config.is_file() else "" for config in configs]
        for run, level in zip(runs, of, strict=True):
            split.setdefault(f"{label}, {level}" if len(set(of)) > 1 else label, []).append(run)
    return split


def refuse_unfinished(groups: dict[str, list[pathlib.Path]]) -> None:
    """Raises ValueError for a run that has not ended, whose last evaluation is no result yet."""
    for run in (run for runs in groups.values() for run in runs):
        if (run / "config.json").is_file() and not (run / "policy").is_dir():
            raise ValueError(
                "A comparison is of runs that have ended; "
                f"first type tfsac train {shlex.quote(f'--run_dir={run}')} --resume. Received: {run}"
            )


def by_difference(experiments: Sequence[Sequence[pathlib.Path]]) -> dict[str, list[pathlib.Path]]:
    """Groups runs by their presets and by what else changes what is learned, whatever their levels and seeds, in the
    order in which they come.

    Runs that are given together stay together: the preset of the first one is theirs.

    A label names the agent where the agents differ, the functions that made custom models and environments, the run
    whose weights a run began with, and of the other parameters the first that tell the groups apart; of one agent, also
    how many more differ.

    Raises:
        FileNotFoundError, ParameterError: a folder that is no run.
    """
    from tfsac.catalog import read_config
    from tfsac.experiments.grid import short_names
    from tfsac.files import leaves, read_object
    from tfsac.parameters import BY_ENV_FN, to_json

    groups: dict[str, tuple[dict[str, Any], list[pathlib.Path]]] = {}
    for runs in experiments:
        config = runs[0] / "config.json"
        (read, run), said = read_config(config), read_object(config)
        preset = to_json(read)
        models, weights = (said.get(name) or "none" for name in ("models", "initial_weights"))
        parameters = {path: value for path, value in leaves(preset) if not path.startswith(OF_THE_TASK)}
        begun = {"models": models.removeprefix("__main__."), "initial_weights": weights}
        if preset["environment"]["level"].startswith(BY_ENV_FN):  # others may have it for their records alone
            begun["env_fn"] = str(said.get("env_fn")).removeprefix("__main__.")
        parameters = {"agent": preset["agent"]["kind"], **begun, **parameters, **run.affects_results}
        groups.setdefault(json.dumps(parameters, sort_keys=True), (parameters, []))[1].extend(runs)
    told: list[str] = ["agent"]

    def apart(paths: Sequence[str]) -> int:
        return len({json.dumps([_text(parameters, path) for path in paths]) for parameters, _ in groups.values()})

    paths = dict.fromkeys(path for parameters, _ in groups.values() for path in parameters)
    for path in paths:
        if apart([*told, path]) > apart(told):
            told.append(path)
    if len(told) > 1 and apart(told[:1]) == 1:
        told = told[1:]
    names = short_names(told)
    untold = sum(apart([path]) > 1 for path in paths if path not in told) if apart(["agent"]) == 1 else 0

    def label(parameters: dict[str, Any]) -> str:
        texts = {path: _text(parameters, path) for path in told}
        said = ",".join(text if path == "agent" else f"{names[path]}={text}" for path, text in texts.items())
        return f"{said} and {untold} more" if untold else said

    folders = [_folder_of(paths) for _, paths in groups.values()]
    if untold > 2 and all(folders) and len(set(folders)) == len(folders):  # they say more than "and 7 more"
        return {folder: paths for folder, (_, paths) in zip(folders, groups.values(), strict=True)}
    return {label(parameters): paths for parameters, paths in groups.values()}


def _folder_of(runs: Sequence[pathlib.Path]) -> str:
    """Returns the name of the folder of some runs, without seeds and times; "" where they have several."""
    paths = [run.absolute() for run in runs]
    names = {re.sub(r"((^|[-_])(seed|run)?[-_]?\d+)+$", "", path.name) or path.parent.name for path in paths}
    return names.pop() if len(names) == 1 else ""


def _text(parameters: dict[str, Any], path: str) -> str:
    """Returns a parameter as one types it, another text for each value; nothing for one that is not there."""
    from tfsac.parameters.overrides import text_of

    return text_of(parameters[path]) if path in parameters else ""
