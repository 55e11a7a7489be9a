"""Group the runs on a command line."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence

from tfsac.errors import TfsacError

TASK_PARAMETERS = ("environment.level", "validation.", "levels.")  # parameters that depend on the level
MAX_SHOWN = 3  # maximum number of parameters in a label


def is_group(word: str) -> bool:
    """Returns whether a command-line argument stands for several runs: a folder of runs, or LABEL=RUN,RUN."""
    from tfsac.experiments.sweep import holds_several_runs

    label, paths = _parsed(word)
    return bool(label) or holds_several_runs(paths[0])


def groups_of(words: Sequence[str]) -> dict[str, list[pathlib.Path]]:
    """Returns run directories by label.

    Args:
        words: run directories, which are grouped by their differences; folders with seeds of one experiment, which
            stand for their finished runs; folders of sweeps, which stand for their finished runs by combination; and
            LABEL=RUN,RUN.
    """
    from tfsac.experiments.sweep import PLAN, runs_of

    groups: dict[str, list[pathlib.Path]] = {}
    unnamed: list[list[pathlib.Path]] = []

    def add(label: str, runs: list[pathlib.Path]) -> None:
        if label in groups:
            raise TfsacError(f"Two groups have the label {label!r}: name them LABEL=RUN,RUN, all runs in one argument")
        groups[label] = runs

    for label, paths in map(_parsed, words):
        combinations = [(path, *entry) for path in paths for entry in runs_of(path).items()]
        if label:
            add(label, [run for _, _, runs in combinations for run in runs])
            continue
        for path, combination, runs in combinations:
            if combination:
                add(f"{path.name} {combination}" if len(words) > 1 else combination, runs)
            elif (path / PLAN).is_file():
                unnamed.append(runs)  # one experiment on several levels, which may have their own parameters
            else:
                unnamed.extend([run] for run in runs)
    for label, runs in by_difference(unnamed).items():
        add(label, runs)
    return groups


def _parsed(word: str) -> tuple[str, list[pathlib.Path]]:
    """Returns label and paths of LABEL=RUN,RUN; "" and the path itself for a path, which may contain an equals sign.
    Folder names may contain commas, like those of a sweep's combinations.
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


def level_of(run: pathlib.Path) -> str:
    """Returns the level of a run, "" for a folder without a config."""
    from tfsac.utils.files import read_object

    config = run / "config.json"
    return str(read_object(config)["preset"]["environment"]["level"]) if config.is_file() else ""


def by_difference(experiments: Sequence[Sequence[pathlib.Path]]) -> dict[str, list[pathlib.Path]]:
    """Groups runs by their presets and other settings that affect learning, regardless of level and seed. Keeps their
    order.

    Runs in the same sequence stay together and are represented by the first run's preset.

    A label is the agent if all groups have different agents, else the parameters that differ. If there are more than
    `MAX_SHOWN`, it is the folder of the group's first run.
    """
    from tfsac.experiments.learning_curves import learning_parameters
    from tfsac.experiments.sweep import short_names
    from tfsac.parameters import for_level, to_json
    from tfsac.parameters.overrides import at_own_level, text_of
    from tfsac.preset_lookup import read_config
    from tfsac.utils.files import leaves

    groups: dict[str, tuple[dict[str, str], list[pathlib.Path]]] = {}
    for runs in experiments:
        parameters = learning_parameters(runs[0])
        preset, _ = read_config(runs[0] / "config.json")
        own = at_own_level(preset)
        if for_level(own, preset.environment.level) == preset:  # unchanged since the level was selected
            parameters |= leaves(to_json(own))
        texts = {path: text_of(value) for path, value in parameters.items() if not path.startswith(TASK_PARAMETERS)}
        groups.setdefault(json.dumps(texts, sort_keys=True), (texts, []))[1].extend(runs)
    if len({texts["agent"] for texts, _ in groups.values()}) == len(groups):
        return {texts["agent"]: runs for texts, runs in groups.values()}
    paths = dict.fromkeys(path for texts, _ in groups.values() for path in texts)
    different = [path for path in paths if len({texts.get(path) for texts, _ in groups.values()}) > 1]
    if len(different) > MAX_SHOWN:
        return {str(runs[0]): runs for _, runs in groups.values()}
    names = short_names(different)
    return {
        ",".join(f"{names[path]}={texts.get(path, '')}" for path in different): runs for texts, runs in groups.values()
    }
