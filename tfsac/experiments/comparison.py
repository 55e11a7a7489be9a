"""Compares groups of runs: statistics for few seeds, their bootstrap intervals, a table a picture. No TensorFlow."""

from __future__ import annotations

import csv
import io
import itertools
import operator
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfsac.experiments.estimates import Estimate, estimate, improvement, iqm, mean, profile
from tfsac.experiments.evaluations import Groups, RunEvaluations, read_groups
from tfsac.experiments.figures import (
    GREY,
    Path,
    color_and_style,
    columns_for,
    dress,
    focus,
    grow_for_legend,
    literal,
    new_figure,
    save_figure,
)
from tfsac.files import new_file, written_aside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRID = 100  # points at which the curves of several runs are combined
LONGEST_LABEL = 40  # that panels show; longer ones have the numbers of the table

LAST: Callable[[RunEvaluations], float] = operator.attrgetter("last")
AGAINST: dict[str, Callable[[RunEvaluations], np.ndarray]] = {
    name: operator.attrgetter(name) for name in ("steps", "seconds")
}


def strata_of(runs: Sequence[RunEvaluations], score: Callable[[RunEvaluations], float]) -> list[np.ndarray]:
    """Returns the scores of a group's runs by level."""
    by_level: dict[str, list[float]] = {}
    for run in sorted(runs, key=lambda run: run.level):
        by_level.setdefault(run.level, []).append(score(run))
    return [np.array(scores) for scores in by_level.values()]


def _shared_steps(runs: Iterable[RunEvaluations]) -> dict[str, tuple[int, int]]:
    """Returns the first and the last step that all runs of a level cover, by level; where there are none, the first is
    after the last.
    """
    shared: dict[str, tuple[int, int]] = {}
    for run in runs:
        own = start, end = int(run.steps[0]), int(run.steps[-1])
        first, last = shared.get(run.level, own)
        shared[run.level] = max(start, first), min(end, last)
    return shared


def area_of(groups: Groups) -> Callable[[RunEvaluations], float]:
    """Returns the score of a run that is its mean over the steps that all runs of its level cover; over its own where
    there are none.
    """
    shared = _shared_steps(itertools.chain(*groups.values()))

    def score(run: RunEvaluations) -> float:
        start, end = shared[run.level]
        return run.area(start, end) if start <= end else run.area(int(run.steps[0]), int(run.steps[-1]))

    return score


def curve(
    runs: Sequence[RunEvaluations], against: Callable[[RunEvaluations], np.ndarray]
) -> tuple[np.ndarray, Estimate]:
    """Returns the interquartile mean of a group's runs as a curve.

    Each run is interpolated at the same points, evenly spaced from the latest start of all runs to their earliest end.

    Args:
        runs: of the group.
        against: a run's steps or seconds.

    Returns:
        the points `[T]`, none where the runs do not overlap, and the estimate at each, `[T]`.
    """
    start, end = max(against(run)[0] for run in runs), min(against(run)[-1] for run in runs)
    points = np.unique(np.linspace(start, end, GRID)) if start <= end else np.zeros(0)
    if not len(points):
        return points, Estimate(points, points, points)
    by_level: dict[str, list[np.ndarray]] = {}
    for run in runs:
        by_level.setdefault(run.level, []).append(np.interp(points, against(run), run.returns))
    return points, estimate(iqm, [np.stack(values, axis=-1) for values in by_level.values()])


# -- the comparison ----------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A row of comparison.csv: a statistic of a group; `improvement` is over another group."""

    statistic: str
    group: str
    other: str
    runs: int
    estimate: Estimate


def compare(groups: Mapping[str, Sequence[Path]], folder: Path, title: str = "", last_evaluations: int = 1) -> str:
    """Compares groups of run directories, and writes `comparison.csv` and `comparison.png` into a folder.

    Args:
        groups: run directories by label.
        folder, title: as for `compare_evaluations`.
        last_evaluations: a run's score is the mean of so many of its last evaluations.

    Returns:
        what `compare_evaluations` returns.

    Raises:
        FileNotFoundError, ValueError: from `read_groups`.
        OSError: the folder cannot be written.
    """
    return compare_evaluations(read_groups(groups, last_evaluations), folder, title)


def compare_evaluations(read: Groups, folder: Path, title: str = "", wall_clock: bool = True) -> str:
    """Compares groups of runs that were read, and writes `comparison.csv` and `comparison.png` into a folder.

    Args:
        read: runs by label, from `read_groups` or `normalised`.
        folder: made if it is not there; an earlier comparison in it is replaced.
        title: of the picture; by default the levels.
        wall_clock: draw curves against seconds too, which say nothing of runs that shared a machine.

    Returns:
        what there is to print: a table of the groups, the probabilities of improvement, remarks and the files.

    Raises:
        OSError: the folder cannot be written.
    """
    (comparable, short), rows = of_one_length(read), statistics(read)
    notes = [*remarks(read), *short]
    table = new_file(pathlib.Path(folder) / "comparison.csv", replace=True)
    with written_aside(table) as stream:
        csv.writer(text := io.StringIO()).writerows(
            [("statistic", "group", "other", "runs", "value", "low", "high")]
            + [(*row[:4], *("" if np.isnan(x) else f"{x:.6g}" for x in row.estimate)) for row in rows]
        )
        stream.write(text.getvalue().encode())
    levels = dict.fromkeys(run.level for runs in read.values() for run in runs)
    lower = statistics(comparable) if short else rows
    picture = draw(read, comparable, lower, table.with_suffix(".png"), title or ", ".join(levels), notes, wall_clock)
    return "\n".join([*printed(read, rows), *notes, f"table   {table}", f"picture {picture}"])


def statistics(groups: Groups) -> list[Row]:
    """Returns the statistics of each group, and its probability of improvement over every other."""
    last = {label: strata_of(runs, LAST) for label, runs in groups.items()}
    of_steps = area_of(groups)
    area = {label: strata_of(runs, of_steps) for label, runs in groups.items()}
    rows = []
    for name, statistic, strata in (("last_mean", mean, last), ("last_iqm", iqm, last), ("area_iqm", iqm, area)):
        rows += [Row(name, label, "", len(runs), estimate(statistic, strata[label])) for label, runs in groups.items()]
    for label, other in itertools.permutations(groups, 2):
        over = estimate(improvement, [*last[label], *last[other]])
        if not np.isnan(over.low):  # of a single run it says nothing
            rows.append(Row("improvement", label, other, len(groups[label]), over))
    return rows


def of_one_length(groups: Groups) -> tuple[Groups, list[str]]:
    """Returns the runs that end where most on their level do (within 5 %), in groups that then still have all levels,
    and lines about the others.
    """
    ends: dict[str, list[int]] = {}
    for run in itertools.chain(*groups.values()):
        ends.setdefault(run.level, []).append(int(run.steps[-1]))
    usual = {level: np.quantile(steps, 0.5, method="higher") for level, steps in ends.items()}
    kept, notes = dict[str, list[RunEvaluations]](), list[str]()
    for label, runs in groups.items():
        same = [run for run in runs if abs(run.steps[-1] - usual[run.level]) <= 0.05 * usual[run.level]]
        if {run.level for run in same} == {run.level for run in runs}:
            kept[label] = same
        if left := len(runs) - len(kept.get(label, ())):
            notes.append(f"Not in the lower panels, because they end at other steps than most: {left} of {label}.")
    return kept, notes


def remarks(groups: Groups) -> list[str]:
    """Returns what a reader of the numbers must know."""
    everything = [run for runs in groups.values() for run in runs]
    notes, ends = [], {(run.level, int(run.steps[-1])) for run in everything}
    levels = {run.level for run in everything}
    if len(levels) > 1:
        notes.append(
            "Returns are normalised: on each level, 0 is the lowest and 1 the highest evaluation of all these runs."
        )
    means = {run.last_evaluations for run in everything} - {1}
    if means:
        notes.append(f"Last: the mean of the last {', '.join(map(str, sorted(means)))} evaluations of a run.")
    single = [label for label, runs in groups.items() if min(map(len, strata_of(runs, LAST))) < 2]
    if single:
        notes.append(f"No interval for a single run of a level: {'; '.join(single)}.")
    few = min(len(runs) for runs in groups.values())
    if 1 < few < 5:
        notes.append(f"Intervals of {few} runs are little more than their range; five seeds or more say more.")
    for label, runs in groups.items():
        curves = {(run.level, run.steps.tobytes(), run.returns.tobytes()) for run in runs}
        if len(curves) < len(runs):
            notes.append(f"{label} has runs with equal returns in every evaluation: a training that is counted twice?")
    apart = [level for level, (first, last) in _shared_steps(everything).items() if first > last]
    ranges = {(run.level, int(run.steps[0]), int(run.steps[-1])) for run in everything if run.level not in apart}
    if len(ranges) > len(levels) - len(apart):
        notes.append("IQM over steps is over the steps that all runs of a level cover.")
    if apart:
        notes.append(f"All runs of {', '.join(apart)} share no steps: their IQM over steps is over each run's own.")
    if len(ends) > len(levels):
        steps = [step for _, step in ends]
        notes.append(
            f"Last evaluations on the same level are at different steps; all are from {min(steps)} to {max(steps)}."
        )
    return notes


def printed(groups: Groups, rows: Sequence[Row]) -> list[str]:
    """Returns the lines of two tables: each group's statistics, and probabilities of the row's group over the
    column's.
    """
    of = {(row.statistic, row.group, row.other): str(row.estimate) for row in rows}
    names = ("last_mean", "last_iqm", "area_iqm")
    first = [["", "runs", "mean of last", "IQM of last", "IQM over steps"]]
    first += [[label, str(len(runs)), *(of[name, label, ""] for name in names)] for label, runs in groups.items()]
    second = [["better than", *(f"({i + 1})" for i in range(len(groups)))]]
    second += [
        [f"({i + 1}) {label}", *(of.get(("improvement", label, other), "-") for other in groups)]
        for i, label in enumerate(groups)
    ]
    lines = []
    compared = any(row.statistic == "improvement" for row in rows)
    for table in (first, second)[: 1 + compared]:
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for head, *cells in table:
            padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
            lines.append("  ".join([head.ljust(widths[0]), *padded]))
    return lines


# -- the picture -------------------------------------------------------------------------------------------------------


def draw(
    groups: Groups,
    comparable: Groups,
    rows: Sequence[Row],
    out: Path,
    title: str,
    notes: Sequence[str],
    wall_clock: bool = True,
) -> pathlib.Path:
    """Draws curves against steps and wall clock, performance profiles, intervals, and what is better than the best.

    Args:
        groups: runs by label.
        comparable: those of the lower panels.
        rows: from `statistics`, of these.
        out: the PNG to write.
        title: above the picture.
        notes: below it.
        wall_clock: draw the curves against seconds as well.

    Returns:
        The path of the picture.
    """
    from matplotlib.ticker import EngFormatter

    shown = {name: of_run for name, of_run in AGAINST.items() if wall_clock or name == "steps"}
    of_last = {row.group: row.estimate.value for row in rows if row.statistic == "last_iqm"}
    best = max(of_last, key=lambda label: of_last[label])
    over = {row.group: row.estimate for row in rows if row.statistic == "improvement" and row.other == best}
    panels: list[Any] = [["steps", [*shown][-1]], ["profile", "scores"], ["improvement", "improvement"]][
        : 2 + bool(over)
    ]
    bars = 0.9 + 0.24 * len(groups)
    heights = [3.0, max(2.6, bars), bars][: len(panels)]
    figure = new_figure(11.0, sum(heights) + 0.6)
    axes = figure.subplot_mosaic(panels, height_ratios=heights)
    figure.suptitle(literal(title), x=0.01, ha="left", fontsize=12)
    levels = {run.level for runs in groups.values() for run in runs}
    score = "return" if len(levels) == 1 else "normalised return"
    dress(axes["steps"], "environment steps", f"IQM of {score}")
    axes["steps"].xaxis.set_major_formatter(EngFormatter(sep=""))
    if wall_clock:
        dress(axes["seconds"], "wall clock, seconds", f"IQM of {score}")
    dress(axes["profile"], f"tau, last {score}", "fraction of runs above tau")
    names = {label: label for label in groups}
    if max(map(len, groups)) > LONGEST_LABEL:
        names = {label: f"({i + 1})" for i, label in enumerate(groups)}
    lasts = np.array([run.last for runs in comparable.values() for run in runs])
    margin = 0.05 * (np.ptp(lasts) or 1.0)
    taus = np.linspace(lasts.min() - margin, lasts.max() + margin, 500)
    drawn: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in shown}
    for i, (label, runs) in enumerate(groups.items()):
        color, style = color_and_style(i)
        for name, against in shown.items():
            points, estimates = curve(runs, against)
            marker = "o" if len(points) == 1 else None
            counted = literal(f"{'' if names[label] == label else f'{names[label]} '}{label} ({len(runs)})")
            axes[name].plot(points, estimates.value, style, color=color, linewidth=2, marker=marker, label=counted)
            axes[name].fill_between(points, estimates.low, estimates.high, color=color, alpha=0.18, linewidth=0)
            drawn[name] += [(points, entry) for entry in estimates]
        if label in comparable:
            values = profile(strata_of(comparable[label], LAST), taus)
            axes["profile"].plot(taus, values, style, color=color, linewidth=1.6)
    for name in shown:
        if not any(len(points) for points, _ in drawn[name]):
            said, place = f"no {name} that all runs of a group cover", axes[name].transAxes
            axes[name].text(0.5, 0.5, said, ha="center", va="center", color=GREY, transform=place)
    colors = {names[label]: color_and_style(i)[0] for i, label in enumerate(groups)}
    last_iqm = {names[row.group]: row.estimate for row in rows if row.statistic == "last_iqm"}
    last_mean = {names[row.group]: row.estimate for row in rows if row.statistic == "last_mean"}
    _bars(axes["scores"], colors, {"IQM": last_iqm, "mean": last_mean}, f"last {score}")
    if over:
        probabilities = {names[label]: probability for label, probability in over.items()}
        about_best = f"probability of being better than {names[best]}"
        _bars(axes["improvement"], colors, {"probability": probabilities}, about_best)
        axes["improvement"].axvline(0.5, color="black", linewidth=0.8, linestyle=":")
        axes["improvement"].set_xlim(-0.02, 1.02)
    handles, labels = axes["steps"].get_legend_handles_labels()
    columns = columns_for(labels, 0.7 * figure.get_figwidth(), 8)
    grow_for_legend(figure, len(labels), columns, 8)
    figure.legend(handles, labels, loc="outside upper right", ncols=columns, fontsize=8, frameon=False)
    about = "IQM: interquartile mean; bands and bars: 95 % stratified bootstrap intervals; in brackets: number of runs"
    focused = [line for name in shown for line in focus(axes[name], drawn[name], unit=name.removesuffix("s"))]
    return save_figure(figure, out, "\n".join([about, *notes, *focused]))


def _bars(axes: Axes, colors: Mapping[str, str], series: Mapping[str, Mapping[str, Estimate]], x_label: str) -> None:
    """Draws a row for each label: a dot with a bar for its estimate in the first series, a hollow square in the
    second.
    """
    dress(axes, x_label, "")
    labels = list(next(iter(series.values())))
    for j, (name, estimates) in enumerate(series.items()):
        marker: dict[str, Any] = {"marker": "os"[j], "markersize": 5, "linestyle": ""}
        for i, label in enumerate(labels):
            (value, low, high), color, y = estimates[label], colors[label], i + (j - (len(series) - 1) / 2) * 0.3
            axes.plot([low, high], [y, y], color=color, linewidth=2, alpha=0.6)
            axes.plot(value, y, color=color, markerfacecolor=color if j == 0 else "white", **marker)
        axes.plot([], [], color="black", markerfacecolor="black" if j == 0 else "white", label=name, **marker)
    if len(series) > 1:
        axes.legend(frameon=False, fontsize=8)
    axes.set_yticks(range(len(labels)), [literal(label) for label in labels], fontsize=8)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.margins(x=0.05)
