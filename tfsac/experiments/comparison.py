"""Compares groups of runs: statistics for few seeds, their bootstrap intervals, tables, a picture. No TensorFlow."""

from __future__ import annotations

import csv
import io
import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfsac.experiments.estimates import Estimate, combined, estimate, improvement, iqm, mean, profile
from tfsac.experiments.evaluations import Groups, RunEvaluations, read_groups
from tfsac.experiments.plots import Path, color_and_style, dress, literal, new_figure, save_figure
from tfsac.utils.files import atomic_write, new_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Row(NamedTuple):
    """A row of comparison.csv: a statistic of a group; `improvement` is over another group."""

    statistic: str
    group: str
    other: str
    runs: int
    estimate: Estimate


def compare(groups: Mapping[str, Sequence[Path]], folder: Path, title: str = "", last_evaluations: int = 1) -> str:
    """Compares groups of run directories by label: `compare_evaluations` of what `read_groups` reads.

    Raises:
        OSError, TfsacError: from `read_groups`, or the folder cannot be written.
    """
    return compare_evaluations(read_groups(groups, last_evaluations), folder, title)


def compare_evaluations(groups: Groups, folder: Path, title: str = "", wall_clock: bool = True) -> str:
    """Compares groups of runs that were read, and writes `comparison.csv` and `comparison.png` into a folder.

    Args:
        groups: runs by label, from `read_groups` or `normalised`.
        folder: made if it is not there; an earlier comparison in it is replaced.
        title: of the picture; by default the levels.
        wall_clock: draw curves against seconds too, which mean nothing for runs that shared a machine.

    Returns:
        what there is to print: a table of the groups, the probabilities of improvement, remarks and the files.

    Raises:
        OSError: the folder cannot be written.
    """
    rows, notes = statistics(groups), remarks(groups)
    table = new_file(pathlib.Path(folder) / "comparison.csv", replace=True)
    with atomic_write(table) as stream:
        csv.writer(text := io.StringIO()).writerows(
            [("statistic", "group", "other", "runs", "value", "low", "high")]
            + [(*row[:4], *("" if np.isnan(x) else f"{x:.6g}" for x in row.estimate)) for row in rows]
        )
        stream.write(text.getvalue().encode())
    title = title or ", ".join(dict.fromkeys(run.level for runs in groups.values() for run in runs))
    picture = draw(groups, rows, table.with_suffix(".png"), title, notes, wall_clock)
    return "\n".join([*printed(groups, rows), *notes, f"table   {table}", f"picture {picture}"])


def statistics(groups: Groups) -> list[Row]:
    """Returns the statistics of each group, and its probability of improvement over every other."""
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
        if not np.isnan(over.low):  # a single run has no meaningful one
            rows.append(Row("improvement", label, other, len(groups[label]), over))
    return rows


def strata_of(runs: Sequence[RunEvaluations], score: Callable[[RunEvaluations], float]) -> list[np.ndarray]:
    """Returns the scores of a group's runs by level."""
    by_level: dict[str, list[float]] = {}
    for run in sorted(runs, key=lambda run: run.level):
        by_level.setdefault(run.level, []).append(score(run))
    return [np.array(scores) for scores in by_level.values()]


def remarks(groups: Groups) -> list[str]:
    """Returns what a reader of the numbers must know."""
    runs = [run for of_group in groups.values() for run in of_group]
    levels, ends = {run.level for run in runs}, {(run.level, int(run.steps[-1])) for run in runs}
    notes = []
    if len(levels) > 1:
        notes.append("Returns are normalised: on each level, 0 is the lowest and 1 the highest evaluation of all runs.")
    if means := {run.last_evaluations for run in runs} - {1}:
        notes.append(f"Last: the mean of the last {', '.join(map(str, sorted(means)))} evaluations of a run.")
    if 1 < (few := min(map(len, groups.values()))) < 5:
        notes.append(f"Intervals of {few} runs are little more than their range; use five seeds or more.")
    if len(ends) > len(levels):
        steps = [step for _, step in ends]
        notes.append(f"Runs on the same level end at different steps, from {min(steps)} to {max(steps)}.")
    return notes


def printed(groups: Groups, rows: Sequence[Row]) -> list[str]:
    """Returns the lines of two tables: each group's statistics, and probabilities of the row's group over the
    column's.
    """
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


# -- the picture -------------------------------------------------------------------------------------------------------


def draw(
    groups: Groups, rows: Sequence[Row], out: Path, title: str, notes: Sequence[str], wall_clock: bool = True
) -> pathlib.Path:
    """Draws curves against steps and wall clock, performance profiles, intervals, and what is better than the best, to
    a PNG with a title above and notes below. Groups have their numbers of the table, and one colour each.
    """
    iqms, means = ({r.group: r.estimate for r in rows if r.statistic == name} for name in ("last_iqm", "last_mean"))
    best = max(iqms, key=lambda label: iqms[label].value)
    over_best = {row.group: row.estimate for row in rows if row.statistic == "improvement" and row.other == best}
    score = "return" if len({run.level for runs in groups.values() for run in runs}) == 1 else "normalised return"
    panels: list[Any] = [["steps", "seconds" if wall_clock else "steps"], ["profile", "scores"], ["improvement"] * 2]
    bars = 0.9 + 0.24 * len(groups)
    heights = [3.0, max(2.6, bars), bars][: 2 + bool(over_best)]
    figure = new_figure(11.0, sum(heights) + 0.4)
    axes = figure.subplot_mosaic(panels[: len(heights)], height_ratios=heights)
    figure.suptitle(literal(title), x=0.01, ha="left", fontsize=12)
    _curves(axes["steps"], groups, "steps", "environment steps", score)
    if wall_clock:
        _curves(axes["seconds"], groups, "seconds", "wall clock, seconds", score)
    lasts = {label: strata_of(runs, lambda run: run.last) for label, runs in groups.items()}
    scores = np.concatenate(list(itertools.chain(*lasts.values())))
    margin = 0.05 * (np.ptp(scores) or 1.0)
    taus = np.linspace(scores.min() - margin, scores.max() + margin, 500)
    dress(axes["profile"], f"tau, last {score}", "fraction of runs above tau")
    for i, strata in enumerate(lasts.values()):
        color, style = color_and_style(i)
        axes["profile"].plot(taus, profile(strata, taus), style, color=color, linewidth=1.6)
    numbers = {label: i for i, label in enumerate(groups)}
    _bars(axes["scores"], numbers, {"IQM": iqms, "mean": means}, f"last {score}")
    if over_best:
        x_label = f"probability of being better than ({numbers[best] + 1}) {best}"
        _bars(axes["improvement"], numbers, {"probability": over_best}, x_label)
        axes["improvement"].axvline(0.5, color="black", linewidth=0.8, linestyle=":")
        axes["improvement"].set_xlim(-0.02, 1.02)
    note = "IQM: interquartile mean; bands and bars: 95 % stratified bootstrap intervals; in brackets: number of runs"
    return save_figure(figure, axes["steps"], out, [note, *notes])


def _curves(axes: Axes, groups: Groups, against: str, x_label: str, score: str) -> None:
    """Draws the IQM of each group against steps or seconds."""
    from matplotlib.ticker import EngFormatter

    dress(axes, x_label, f"IQM of {score}")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    for i, (label, runs) in enumerate(groups.items()):
        color, style = color_and_style(i)
        curves = [(getattr(run, against), run.returns) for run in runs]
        points, estimates = combined(curves, iqm, [run.level for run in runs])
        text, marker = literal(f"({i + 1}) {label} ({len(runs)})"), "o" if len(points) == 1 else None
        axes.plot(points, estimates.value, style, color=color, linewidth=2, marker=marker, label=text)
        axes.fill_between(points, estimates.low, estimates.high, color=color, alpha=0.18, linewidth=0)


def _bars(axes: Axes, numbers: Mapping[str, int], series: Mapping[str, Mapping[str, Estimate]], x_label: str) -> None:
    """Draws a row for each label: a dot with its interval in the first series, a hollow square in the second."""
    dress(axes, x_label, "")
    labels = list(next(iter(series.values())))
    for j, (name, estimates) in enumerate(series.items()):
        marker: dict[str, Any] = {"marker": "os"[j], "markersize": 5, "linestyle": ""}
        for i, label in enumerate(labels):
            (value, low, high), y = estimates[label], i + (j - (len(series) - 1) / 2) * 0.3
            color, _ = color_and_style(numbers[label])
            axes.plot([low, high], [y, y], color=color, linewidth=2, alpha=0.6)
            axes.plot(value, y, color=color, markerfacecolor="white" if j else color, **marker)
        axes.plot([], [], color="black", markerfacecolor="white" if j else "black", label=name, **marker)
    if len(series) > 1:
        axes.legend(frameon=False, fontsize=8)
    axes.set_yticks(range(len(labels)), [f"({numbers[label] + 1})" for label in labels], fontsize=8)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.margins(x=0.05)
