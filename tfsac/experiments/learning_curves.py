"""Read learning curves of runs, in groups to compare, from their folders or CSV files. Without TensorFlow."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfsac.errors import TfsacError
from tfsac.experiments.plots import Path, read_curve
from tfsac.parameters import to_json
from tfsac.preset_lookup import read_config
from tfsac.utils.files import leaves, read_object


class RunEvaluations(NamedTuple):
    """The evaluations of a run.

    Attributes:
        level: level of the run.
        steps, seconds, returns: environment steps, wall-clock seconds and mean returns, each `[T]`.
        last_evaluations: number of last evaluations averaged in the score `last`, at most T.
    """

    level: str
    steps: np.ndarray
    seconds: np.ndarray
    returns: np.ndarray
    last_evaluations: int = 1

    @property
    def last(self) -> float:
        """The mean of the last evaluations."""
        return float(self.returns[-self.last_evaluations :].mean())

    def area(self, start: int, end: int) -> float:
        """Returns the mean over the environment steps from start to end: the area under the curve over its width."""
        if start == end:
            return float(np.interp(start, self.steps, self.returns))
        inside = self.steps[(self.steps > start) & (self.steps < end)]
        steps = np.concatenate([[start], inside, [end]])
        return float(np.trapezoid(np.interp(steps, self.steps, self.returns), steps) / (end - start))


Groups = Mapping[str, Sequence[RunEvaluations]]  # by label


def read_run(path: Path, last_evaluations: int = 1) -> RunEvaluations:
    """Reads the evaluations of a run directory, with the level from its config; see `read_evaluations`."""
    preset = read_object(pathlib.Path(path) / "config.json")["preset"]
    return read_evaluations(path, preset["environment"]["level"], last_evaluations)


def read_evaluations(path: Path, level: str, last_evaluations: int = 1) -> RunEvaluations:
    """Reads the evaluations of a run, possibly of another library, from its folder or from a CSV file with the columns
    `env_steps`, `wall_seconds` and `evaluation/return_mean`.
    """
    steps, returns = read_curve(path)
    if not 1 <= last_evaluations <= len(steps):
        raise TfsacError(f"last_evaluations must be from 1 to the {len(steps)} of {path}, got {last_evaluations}")
    timed, seconds = read_curve(path, "wall_seconds")
    return RunEvaluations(level, steps, np.interp(steps, timed, seconds), returns, last_evaluations)


def read_groups(groups: Mapping[str, Sequence[Path]], last_evaluations: int = 1) -> Groups:
    """Reads the run directories of every group by label, each once, and normalises them; see `read_run`."""
    groups_of_runs = {}
    for label, paths in groups.items():
        runs = {pathlib.Path(path).resolve(): path for path in paths}  # duplicates would narrow the interval
        groups_of_runs[label] = [read_run(path, last_evaluations) for path in runs.values()]
    return normalised(groups_of_runs)


def normalised(groups: Groups) -> Groups:
    """Normalises returns if the runs cover several levels, which must be the same in all groups: on each level, 0 is
    the lowest and 1 the highest evaluation of all runs.
    """
    levels = {label: {run.level for run in runs} for label, runs in groups.items()}
    everywhere = set.union(*levels.values())
    if any(of_group != everywhere for of_group in levels.values()):
        raise TfsacError(
            "all groups must cover the same levels (an environment from env_fn differs from a registered "
            f"level), got {levels}"
        )
    if len(everywhere) == 1:
        return groups
    returns = {
        level: np.concatenate([run.returns for runs in groups.values() for run in runs if run.level == level])
        for level in everywhere
    }

    def normalise(run: RunEvaluations) -> RunEvaluations:
        lowest, span = returns[run.level].min(), np.ptp(returns[run.level]) or 1.0
        return run._replace(returns=(run.returns - lowest) / span)

    return {label: list(map(normalise, runs)) for label, runs in groups.items()}


def learning_parameters(run_dir: pathlib.Path) -> dict[str, Any]:
    """Returns all settings of a run that affect learning, except the seed, by dotted path."""
    config = run_dir / "config.json"
    (preset, run), content = read_config(config), read_object(config)
    sources = {name: content.get(name) or "none" for name in ("models", "initial_weights")}
    if preset.environment.by_env_fn:  # other runs may record env_fn without using it
        sources["env_fn"] = str(content.get("env_fn"))
    sources = {name: text.removeprefix("__main__.") for name, text in sources.items()}
    return {"agent": preset.agent.kind, **sources, **dict(leaves(to_json(preset))), **run.affects_results}
