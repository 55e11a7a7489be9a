"""Compare groups of runs: statistics for few seeds, bootstrap intervals, tables, a figure. Without TensorFlow."""

from __future__ import annotations

import csv
import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tfsac.experiments.bootstrap import Estimate, combined, estimate, improvement, iqm, mean, profile
from tfsac.experiments.learning_curves import Groups, RunEvaluations, read_groups
from tfsac.experiments.plots import Path, color_and_style, draw_estimates, dress, literal, new_figure, save_figure
from tfsac.utils.files import new_file


class Row(NamedTuple):
    """A row of comparison.csv: a statistic of a group; for `improvement`, over another group."""

    statistic: str
    group: str
    other: str
    runs: int
    estimate: Estimate


def compare(groups: Mapping[str, Sequence[Path]], folder: Path, title: str = "", last_evaluations: int = 1) -> str:
    """Compares groups of run directories by label; see `read_groups` and `compare_evaluations`."""
    return compare_evaluations(read_groups(groups, last_evaluations), folder, title)


def compare_evaluations(groups: Groups, folder: Path, title: str = "", wall_clock: bool = True) -> str:
    """Compares groups of runs, and writes `comparison.csv` and `comparison.png` to a folder.

    Args:
        groups: runs by label, from `read_groups` or `normalised`.
        folder: created if necessary; an earlier comparison in it is replaced.
        title: title of the figure; by default the levels.
        wall_clock: also draw curves against seconds, which are not meaningful for runs that shared a machine.

    Returns:
        The text to print: tables, remarks and the files.
    """
    rows, notes = statistics(groups), remarks(groups)
    table = new_file(pathlib.Path(folder) / "comparison.csv", replace=True)
    with table.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(("statistic", "group", "other", "runs", "value", "low", "high"))
        writer.writerows((*row[:4], *("" if np.isnan(x) else f"{x:.6g}" for x in row.estimate)) for row in rows)
    title = title or ", ".join(dict.fromkeys(run.level for runs in groups.values() for run in runs))
    figure = draw(groups, rows, table.with_suffix(".png"), title, notes, wall_clock)
    return "\n".join([*printed(groups, rows), *notes, f"table   {table}", f"figure  {figure}"])


def statistics(groups: Groups) -> list[Row]:
    """Returns the statistics of each group, and its probability of improvement over every other group."""
    spans: dict[str, tuple[int, int]] = {}  # first and last step that all runs of a level cover
    for run in itertools.chain(*groups.values()):
        first, last = spans.get(run.level, (run.steps[0], run.steps[-1]))
        spans[run.level] = max(first, run.steps[0]), min(last, run.steps[-1])

    def area(run: RunEvaluations) -> float:
        start, end = spans[run.level]
        return run.area(start, end) if start <= end else run.area(run.steps[0], run.steps[-1])

    lasts = {label: strata_of(runs, lambda run: run.last) for label, runs in groups.items()}
    areas = {label: strata_of(runs, area) for label, runs in groups.items()}
    rows = []
    for name, statistic, strata in (("last_mean", mean, lasts), ("last_iqm", iqm, lasts), ("area_iqm", iqm, areas)):
        rows += [Row(name, label, "", len(runs), estimate(statistic, strata[label])) for label, runs in groups.items()]
    for label, other in itertools.permutations(groups, 2):
        over = estimate(improvement, [*lasts[label], *lasts[other]])
        if not np.isnan(over.low):  # not meaningful for a single run
            rows.append(Row("improvement", label, other, len(groups[label]), over))
    return rows


def strata_of(runs: Sequence[RunEvaluations], score: Callable[[RunEvaluations], float]) -> list[np.ndarray]:
    """Returns the scores of a group's runs by level."""
    by_level: dict[str, list[float]] = {}
    for run in sorted(runs, key=lambda run: run.level):
        by_level.setdefault(run.level, []).append(score(run))
    return [np.array(scores) for scores in by_level.values()]


def remarks(groups: Groups) -> list[str]:
    """Returns remarks that are needed to interpret the numbers."""
    runs = [run for of_group in groups.values() for run in of_group]
    levels, ends = {run.level for run in runs}, {(run.level, int(run.steps[-1])) for run in runs}
    notes = []
    if len(levels) > 1:
        notes.append("Returns are normalised: on each level, 0 is the lowest and 1 the highest evaluation of all runs.")
    if means := {run.last_evaluations for run in runs} - {1}:
        notes.append(f"Last: the mean of the last {', '.join(map(str, sorted(means)))} evaluations of a run.")
    if 1 < (fewest := min(map(len, groups.values()))) < 5:
        notes.append(f"Intervals of {fewest} runs are little more than their range; use five seeds or more.")
    if len(ends) > len(levels):
        steps = [step for _, step in ends]
        notes.append(f"Runs on the same level end at different steps, from {min(steps)} to {max(steps)}.")
    return notes


def printed(groups: Groups, rows: Sequence[Row]) -> list[str]:
    """Returns the lines of two tables: each group's statistics, and its probabilities of improvement over others."""
    of = {(row.statistic, row.group, row.other): str(row.estimate) for row in rows}
    names = ("last_mean", "last_iqm", "area_iqm")
    first = [["", "runs", "mean of last", "IQM of last", "IQM over steps"]]
    first += [[label, str(len(runs)), *(of[name, label, ""] for name in names)] for label, runs in groups.items()]
    if not any(row.statistic == "improvement" for row in rows):
        return aligned(first)
    second = [["better than", *(f"({i + 1})" for i in range(len(groups)))]]
    second += [
        [f"({i + 1}) {label}", *(of.get(("improvement", label, other), "-") for other in groups)]
        for i, label in enumerate(groups)
    ]
    return aligned(first) + aligned(second)


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Returns the rows of a table as lines, the first column flush left."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in table
    ]


def draw(
    groups: Groups, rows: Sequence[Row], out: Path, title: str, notes: Sequence[str], wall_clock: bool = True
) -> pathlib.Path:
    """Draws curves against steps and wall clock, performance profiles, and probabilities of improvement over the best
    group, to a PNG with a title above and notes below. Groups are numbered as in the table, with one colour each.
    """
    iqms = {row.group: row.estimate.value for row in rows if row.statistic == "last_iqm"}
    best = max(iqms, key=lambda label: iqms[label])
    over_best = {row.group: row.estimate for row in rows if row.statistic == "improvement" and row.other == best}
    score = "return" if len({run.level for runs in groups.values() for run in runs}) == 1 else "normalised return"
    figure = new_figure(11.0, 6.0)
    axes = figure.subplot_mosaic([["steps", "seconds"] if wall_clock else ["steps"] * 2, ["profile", "improvement"]])
    figure.suptitle(literal(title), x=0.01, ha="left", fontsize=12)
    dress(axes["steps"], "environment steps", f"IQM of {score}")
    dress(axes["profile"], f"tau, last {score}", "fraction of runs above tau", thousands=False)
    best_label = f"({list(groups).index(best) + 1}) {best}"
    dress(axes["improvement"], f"probability of being better than {best_label}", "", thousands=False)
    if wall_clock:
        dress(axes["seconds"], "wall clock, seconds", f"IQM of {score}")
    lasts = np.array([run.last for runs in groups.values() for run in runs])
    margin = 0.05 * (np.ptp(lasts) or abs(lasts[0]) or 1.0)
    taus = np.linspace(lasts.min() - margin, lasts.max() + margin, 500)
    for i, (label, runs) in enumerate(groups.items()):
        color, style = color_and_style(i)
        for against in ("steps", "seconds") if wall_clock else ("steps",):
            curves = combined([(getattr(run, against), run.returns) for run in runs], iqm, [run.level for run in runs])
            draw_estimates(axes[against], i, f"({i + 1}) {label} ({len(runs)})", *curves)
        above = profile(strata_of(runs, lambda run: run.last), taus)
        axes["profile"].plot(taus, above, style, color=color, linewidth=1.6)
        if label in over_best:
            value, low, high = over_best[label]
            bounds = [[value - low], [high - value]]
            axes["improvement"].errorbar([value], [f"({i + 1})"], xerr=bounds, color=color, marker="o", linewidth=2)
    if over_best:
        axes["improvement"].axvline(0.5, color="black", linewidth=0.8, linestyle=":")
        axes["improvement"].set_xlim(-0.02, 1.02)
        axes["improvement"].margins(y=0.4)
        axes["improvement"].invert_yaxis()
    else:
        axes["improvement"].remove()
    note = "IQM: interquartile mean; bands and bars: 95 % stratified bootstrap intervals; in brackets: number of runs"
    return save_figure(figure, axes["steps"], out, [note, *notes])
