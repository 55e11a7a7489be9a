"""Sweeps: `tfsac train` for every combination of a grid with several seeds, a process each. No TensorFlow.

sweep.json                                       what is swept, so that the folder is resumed for nothing else
discount=0.98,learning_rate=0.001/seed1          a run directory
discount=0.98,learning_rate=0.001/seed1.log      what the run printed
comparison.csv, comparison.png                   the combinations against each other

The folders of the runs are all that a sweep must remember, so it needs no study of Optuna.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from tfsac.errors import TfsacError
from tfsac.experiments.comparison import compare
from tfsac.experiments.grid import LEVELS, Combination, named_combinations
from tfsac.experiments.run_processes import PlannedRun, Series, say
from tfsac.parameters.overrides import text_of
from tfsac.utils.files import read_object

PLAN = "sweep.json"


class Sweep(Series):
    """Runs of every combination with every seed, in one folder.

    Args:
        folder: new or empty, or of the same sweep.
        combinations: from `plan`.
        seeds: of each combination.
        flags: of `train`, for all runs.

    Attributes:
        runs: all of them.
        failed: runs that ended with another exit status than 0.
    """

    def __init__(
        self, folder: pathlib.Path, combinations: Sequence[Combination], seeds: Sequence[int], flags: Sequence[str]
    ):
        first = combinations[0]
        # With the same grid and the same first combination all others are the same too, but for those of other presets.
        grid = {path: list(dict.fromkeys(text_of(c.values[path]) for c in combinations)) for path in first.values}
        content = {"format": 1, "grid": list(grid.items()), "first": first.experiment}
        if "preset" in grid:
            content["first_of"] = {text_of(c.values["preset"]): c.experiment for c in reversed(combinations)}
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
        """Compares the combinations over their finished runs, and returns whether they could be compared."""
        try:
            groups = {label or self._only_label: runs for label, runs in runs_of(self.folder).items()}
            say(compare(groups, self.folder))
        except (TfsacError, OSError) as error:
            say(f"not compared: {error}")
            return False
        return True


def runs_of(path: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Returns the run at a path, or by combination the finished runs in the folder of a sweep or of several seeds.

    Combinations that differ in the level alone are one. The name of the only one is empty, as is that of a run and of a
    folder with seeds. A line names every run that has begun and not finished. Where none has finished, a TfsacError is
    raised.
    """
    if not holds_several_runs(path):
        return {"": [path]}
    axes = dict(read_object(path / PLAN)["grid"]) if (path / PLAN).is_file() else {}
    groups: dict[str, list[pathlib.Path]] = {}
    for (name, _), (label, _) in zip(named_combinations(axes), named_combinations(axes, LEVELS), strict=True):
        for run in sorted(config.parent for config in (path / name).glob("seed*/config.json")):
            if PlannedRun(run, []).finished:
                groups.setdefault(label, []).append(run)
            else:
                say(f"left out, not finished: {run}")
    if not groups:
        raise TfsacError(f"no run in {path} has finished")
    return groups


def holds_several_runs(path: pathlib.Path) -> bool:
    """Returns whether a folder is that of a sweep, or holds seeds of one experiment, such as a sweep's combination."""
    return (path / PLAN).is_file() or (not (path / "config.json").is_file() and any(path.glob("seed*/config.json")))
