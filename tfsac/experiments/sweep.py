"""Sweeps: `tfsac train` for every combination of a grid with several seeds, a process each. No TensorFlow.

sweep.json                                       what is swept, so that the folder is resumed for nothing else
discount=0.98,learning_rate=0.001/seed1          a run directory
discount=0.98,learning_rate=0.001/seed1.log      what the run printed
comparison.csv, comparison.png                   the combinations against each other
"""

from __future__ import annotations

import datetime
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from tfsac.experiments.comparison import compare
from tfsac.experiments.grid import LEVELS, Combination, named
from tfsac.experiments.plots import read_curve
from tfsac.experiments.run_processes import Launch, PlannedRun, say, train_side_by_side
from tfsac.files import differences, new_file, written_aside
from tfsac.parameters.overrides import text_of


class Sweep:
    """Runs of every combination with every seed, in one folder.

    Args:
        folder: new or empty, or of the same sweep.
        combinations: from `plan`.
        seeds: of each combination.
        flags: of `train`, for all runs.

    Attributes:
        runs: by combination, in the order of the seeds.
        failed: runs that ended with another exit status than 0.

    Raises:
        FileExistsError, ValueError: there is something else in the folder, or another sweep.
        OSError: it cannot be written.
    """

    def __init__(
        self, folder: pathlib.Path, combinations: Sequence[Combination], seeds: Sequence[int], flags: Sequence[str]
    ):
        self.folder, self.combinations, self.seeds, self.failed = folder, combinations, seeds, list[PlannedRun]()
        self.runs = {
            combination.name: [
                PlannedRun(folder / combination.name / f"seed{seed}", [*flags, *combination.flags, f"--seed={seed}"])
                for seed in seeds
            ]
            for combination in combinations
        }
        self._claim()

    def _claim(self) -> None:
        file, first = self.folder / "sweep.json", self.combinations[0]
        # With the same grid and the same first combination all others are the same too, but for those of other presets.
        grid = {path: list(dict.fromkeys(text_of(c.values[path]) for c in self.combinations)) for path in first.values}
        content: dict[str, Any] = {"format": 1, "grid": list(grid.items()), "first": first.experiment}
        if "preset" in first.values:
            content["first_of"] = {text_of(c.values["preset"]): c.experiment for c in reversed(self.combinations)}
        if file.is_file():
            before, now = _content(file), json.loads(json.dumps(content))
            # Earlier versions did not write all of it.
            for name, theirs, ours in differences(before, {key: now[key] for key in before.keys() & now}):
                raise ValueError(f"{file} is of another sweep, whose {name} is {theirs!r}. Received: {name}={ours!r}")
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise FileExistsError(f"A sweep has a new or empty folder, or its own. Received: {self.folder}")
        for runs in self.runs.values():
            new_file(runs[0].log, replace=True)
        with written_aside(file) as stream:
            stream.write(json.dumps(content, indent=2).encode())

    def train(
        self,
        jobs: int = 1,
        cores: int | None = None,
        launch: Launch | None = None,
    ) -> int | None:
        """Trains the runs that are not finished; one that fails does not stop the others.

        Args:
            jobs: runs at the same time.
            cores: of each run; by default the usable cores by the number of jobs.
            launch: starts a run that may use so many cores; by default as a process of this machine.

        Returns:
            the number of the signal that stopped it, or None. The signal was passed on to the runs, which saved.

        Raises:
            BlockingIOError: another sweep is training in this folder, or another process one of its runs.
        """
        everything = [run for runs in self.runs.values() for run in runs]
        waiting = [run for run in everything if not run.finished]
        jobs = min(jobs, len(waiting))
        say(f"{self.folder}: {len(everything) - len(waiting)} of {len(everything)} runs are finished")
        stopped_by = train_side_by_side(
            self.folder, lambda: waiting.pop(0) if waiting else None, self._ended, jobs, cores, launch
        )
        return None if all(run.finished for run in everything) else stopped_by

    def _name(self, run: PlannedRun) -> str:
        return str(run.path.relative_to(self.folder))

    def _ended(self, run: PlannedRun, status: int, seconds: float, stopping: bool) -> None:
        if status == 0:
            took, best = datetime.timedelta(seconds=round(seconds)), read_curve(run.path)[1].max()
            say(f"finished  {self._name(run)}  best evaluation {best:.1f}, {took}")
        elif stopping:
            say(f"stopped   {self._name(run)}")
        else:
            self.failed.append(run)
            last = run.log.read_text(errors="replace").splitlines()[-1]
            say(f"failed    {self._name(run)}  status {status}, see {run.log}\n          {last}")

    def report(self) -> bool:
        """Compares the combinations over their finished runs: prints tables, writes comparison.csv and comparison.png.

        Returns:
            whether they could be compared.
        """
        kind = self.combinations[0].experiment["preset"]["agent"]["kind"]
        try:
            say(compare({label or kind: runs for label, runs in finished_runs(self.folder).items()}, self.folder))
        except (ValueError, OSError) as error:
            say(f"not compared: {error}")
            return False
        return True


def finished_runs(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Returns the folders of a sweep's finished runs by combination; what differs only in the level is together.

    The name of the only combination of an empty grid, or of one over levels alone, is empty.

    Raises:
        ValueError: `sweep.json` is damaged, or no run has finished.
    """
    axes = dict(_content(folder / "sweep.json")["grid"])
    known = {name or "." for name, _ in named(axes)}
    for path in (*folder.glob("seed*/policy"), *folder.glob("*/seed*/policy")):
        name = str(path.parent.parent.relative_to(folder))
        if name not in known and not (folder / name / "sweep.json").is_file():  # one of its own is another sweep
            raise ValueError(
                f"The sweep.json in {folder} does not name this combination: it is damaged, or these are runs of "
                f"another experiment, which go elsewhere. Received: {name!r}"
            )
    groups: dict[str, list[pathlib.Path]] = {}
    for (name, _), (label, _) in zip(named(axes), named(axes, LEVELS), strict=True):
        if runs := _finished_seeds(folder / name):
            groups.setdefault(label, []).extend(runs)
    if not groups:
        raise ValueError(f"No run of this sweep has finished. Received: {folder}")
    return groups


def stands_for_runs(path: pathlib.Path) -> bool:
    """Returns whether a folder is that of a sweep, or holds seeds of one experiment, such as a sweep's combination."""
    return (path / "sweep.json").is_file() or (
        not (path / "config.json").is_file() and any(path.glob("seed*/config.json"))
    )


def runs_of(path: pathlib.Path) -> list[pathlib.Path]:
    """Returns the finished runs for which a folder stands, or the folder itself where that is a run.

    Raises:
        ValueError: no run has finished, or from `finished_runs`.
    """
    if not stands_for_runs(path):
        return [path]
    if (path / "sweep.json").is_file():
        return [run for runs in finished_runs(path).values() for run in runs]
    if not (runs := _finished_seeds(path)):
        raise ValueError(f"No run in this folder has finished. Received: {path}")
    return runs


def unfinished_of(path: pathlib.Path) -> list[pathlib.Path]:
    """Returns the runs of a sweep, or seeds of one experiment, that `runs_of` leaves out: begun and not finished."""
    if not stands_for_runs(path):
        return []
    begun = [*path.glob("seed*/config.json")]
    if (path / "sweep.json").is_file():
        begun += path.glob("*/seed*/config.json")
    return sorted(config.parent for config in begun if not PlannedRun(config.parent, []).finished)


def _finished_seeds(folder: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in sorted(folder.glob("seed*")) if PlannedRun(path, []).finished]


def _content(file: pathlib.Path) -> dict[str, Any]:
    wanted = ("format", "grid", "first")
    try:
        content = json.loads(file.read_bytes())
        if not isinstance(content, dict) or content.keys() < set(wanted):
            raise ValueError(f"it has no {', '.join(wanted)}")
        if not all(
            len(axis) == 2 and isinstance(axis[0], str) and all(isinstance(text, str) for text in axis[1])
            for axis in content["grid"]
        ):
            raise ValueError("grid lists paths with their values")
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{file} is damaged ({error}). Received: {file.stat().st_size} bytes") from error
    return {name: content[name] for name in (*wanted, "first_of") if name in content}
