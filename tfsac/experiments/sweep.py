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
            groups = {label or self._only_label: runs for label, runs in finished_runs(self.folder).items()}
            say(compare(groups, self.folder))
        except (TfsacError, OSError) as error:
            say(f"not compared: {error}")
            return False
        return True


def finished_runs(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Returns the folders of a sweep's finished runs by combination; what differs only in the level is together.

    The name of the only combination of an empty grid, of one over levels alone, or of a folder with seeds is empty.
    Where no run has finished, a TfsacError is raised.
    """
    axes = dict(read_object(folder / PLAN)["grid"]) if (folder / PLAN).is_file() else {}
    groups: dict[str, list[pathlib.Path]] = {}
    for (name, _), (label, _) in zip(named_combinations(axes), named_combinations(axes, LEVELS), strict=True):
        if runs := [path for path in sorted((folder / name).glob("seed*")) if PlannedRun(path, []).finished]:
            groups.setdefault(label, []).extend(runs)
    if not groups:
        raise TfsacError(f"no run in {folder} has finished")
    return groups


def holds_several_runs(path: pathlib.Path) -> bool:
    """Returns whether a folder is that of a sweep, or holds seeds of one experiment, such as a sweep's combination."""
    return (path / PLAN).is_file() or (not (path / "config.json").is_file() and any(path.glob("seed*/config.json")))


def runs_of(path: pathlib.Path) -> list[pathlib.Path]:
    """Returns the finished runs for which a folder stands, or the folder itself where that is a run."""
    return [run for runs in finished_runs(path).values() for run in runs] if holds_several_runs(path) else [path]


def unfinished_of(path: pathlib.Path) -> list[pathlib.Path]:
    """Returns the runs of a sweep, or seeds of one experiment, that `runs_of` leaves out: begun and not finished."""
    patterns = ["seed*/config.json"] * holds_several_runs(path) + ["*/seed*/config.json"] * (path / PLAN).is_file()
    runs = [config.parent for pattern in patterns for config in path.glob(pattern)]
    return sorted(run for run in runs if not PlannedRun(run, []).finished)
