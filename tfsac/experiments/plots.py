"""Plots of learning curves and of an episode's actions; curves are read, and combined over seeds with an interval."""

from __future__ import annotations

import csv
import difflib
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tfsac.experiments.figures import (
    GREY,
    PALETTE,
    Curve,
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
from tfsac.files import UNREADABLE, read_object

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEPS, EVALUATION, TRAINING = "env_steps", "evaluation/return_", "training/return_mean"
RECENT = "training/recent_return_mean"  # of runs without evaluations
Y_LABELS = {
    EVALUATION + "mean": "mean return of an evaluation",
    TRAINING: "mean return of training episodes",
}


class Picture(NamedTuple):
    """A PNG file, which a notebook shows where it is the value of a cell.

    Attributes:
        path: of the file.
    """

    path: pathlib.Path

    def _repr_png_(self) -> bytes:
        return self.path.read_bytes()


def read_curve(path: Path, column: str = EVALUATION + "mean") -> Curve:
    """Reads one column of a run's metrics against environment steps.

    Rows in which the column is empty are left out; of several rows with the same step, as a resumed run may have, the
    last one counts.

    Args:
        path: a run directory, or a CSV file with the column `env_steps`.
        column: name of the column; the returns of evaluations are, of a run without them, its recent training returns.

    Returns:
        steps `[T]` int64, increasing, and values `[T]` float64.

    Raises:
        ValueError: no such file or column, nothing in it, or something that is no number.
    """
    file, table = _table(path)
    if column == EVALUATION + "mean" and column not in table and RECENT in table:
        column = RECENT
    steps, values = _numbers(file, table, [column])
    return steps, values[:, 0]


def interval(
    curves: Sequence[Curve], confidence: float = 0.95
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Combines the curves of several seeds.

    The interval is the percentile bootstrap of the mean over seeds, drawn with a fixed seed. One curve has no interval:
    low and high are its mean then.

    Args:
        curves: (steps, values) of each seed, interpolated at the steps of all of them where they overlap.
        confidence: coverage of the interval, between 0 and 1.

    Returns:
        steps, mean, low and high, each `[T]`.

    Raises:
        ValueError: no curves, no common step, or a confidence out of range.
    """
    if not curves:
        raise ValueError("An interval needs at least one curve. Received: []")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence lies between 0 and 1. Received: {confidence}")
    ends = [(int(steps[0]), int(steps[-1])) for steps, _ in curves]
    start, end = max(first for first, _ in ends), min(last for _, last in ends)
    if start > end:
        raise ValueError(f"The curves have no step in common. Received: curves over the steps {ends}")
    common = np.unique(np.concatenate([steps for steps, _ in curves]))
    common = common[(common >= start) & (common <= end)]
    values = np.stack([np.interp(common, steps, values) for steps, values in curves])
    mean = values.mean(axis=0)
    if len(curves) == 1:
        return common, mean, mean, mean
    from scipy.stats import bootstrap

    result = bootstrap(
        (values,),
        np.mean,
        axis=0,
        confidence_level=confidence,
        n_resamples=2000,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return common, mean, result.low, result.high


def plot_curves(
    groups: Mapping[str, Sequence[Path]],
    out: Path,
    title: str = "",
    column: str = EVALUATION + "mean",
    smooth: int = 1,
    threshold: float | None = None,
) -> pathlib.Path:
    """Plots learning curves: for each label the mean of its runs, a 95 % interval, and every run as a thin line.

    Args:
        groups: run directories or CSV files by label.
        out: the PNG to write.
        title: above the picture.
        column: what to plot against environment steps.
        smooth: each value becomes the mean of the last so many.
        threshold: a value to mark with a horizontal line.

    Returns:
        The path of the picture.

    Raises:
        ValueError: no runs for a label or one twice, `smooth` below 1, or from `read_curve` and `interval`.
    """
    if not groups or not all(groups.values()):
        raise ValueError(f"A plot needs at least one label, and each label at least one run. Received: {dict(groups)}")
    refuse_repeated(groups)
    if smooth < 1:
        raise ValueError(f"smooth is at least 1. Received: {smooth}")
    figure, (axes,) = _axes(title, Y_LABELS.get(column, column))
    several, drawn = False, []
    for i, (label, paths) in enumerate(groups.items()):
        color, style = color_and_style(i)
        read = [read_curve(path, column) for path in paths]
        curves = [(steps, _trailing_mean(values, smooth)) for steps, values in read]
        steps, mean, low, high = interval(curves)
        if len(curves) > 1:
            several = True
            label = f"{label} ({len(curves)} seeds)"
            for curve in curves:
                axes.plot(*curve, color=color, linewidth=0.6, alpha=0.45)
            drawn += curves
            axes.fill_between(steps, low, high, color=color, alpha=0.18, linewidth=0)
        marker = "o" if len(steps) == 1 else None
        axes.plot(steps, mean, style, color=color, linewidth=2, label=literal(label), marker=marker)
        drawn.append((steps, mean))
    if threshold is not None:
        axes.axhline(threshold, color=GREY, linewidth=1, linestyle="--", label=f"threshold {threshold:g}")
    notes = ["band: 95 % bootstrap interval of the mean; thin: single seeds"] if several else []
    notes += [f"each value: mean of the last {smooth}"] if smooth > 1 else []
    notes += focus(axes, drawn, () if threshold is None else (threshold,))
    return _save(figure, axes, out, "; ".join(notes))


def refuse_repeated(groups: Mapping[str, Sequence[Path]]) -> None:
    """Raises ValueError where a group has a run twice, which would narrow its interval."""
    for label, paths in groups.items():
        folders = [pathlib.Path(path).resolve() for path in paths]
        if len(set(folders)) < len(folders):
            raise ValueError(f"A group has each run once. Received: {label!r} with {[str(path) for path in paths]}")


def plot_run(run_dir: Path, out: Path | None = None, title: str = "") -> pathlib.Path:
    """Plots one run: mean return of its evaluations with the band from worst to best episode, and training return.

    Args:
        run_dir: a run directory, or its CSV file.
        out: the PNG to write; by default `learning_curve.png` beside the run's metrics.
        title: above the picture; by default the run's level, agent and folder.

    Returns:
        The path of the picture.

    Raises:
        ValueError: from `read_curve`, or a run with neither evaluations nor training returns.
    """
    file, table = _table(run_dir)
    figure, (axes,) = _axes(title or _title_of(file), "return")
    drawn = []
    has_training, has_evaluation = (any(table.get(column, ())) for column in (TRAINING, EVALUATION + "mean"))
    if has_training:
        steps, values = _numbers(file, table, [TRAINING])
        axes.plot(steps, values[:, 0], color=GREY, linewidth=1, alpha=0.7, label="training episodes")
        drawn.append((steps, values[:, 0]))
    # A run with neither gets the error that names what is missing of the evaluations.
    if has_evaluation or not has_training:
        steps, values = _numbers(file, table, [EVALUATION + name for name in ("mean", "min", "max")])
        axes.fill_between(steps, values[:, 1], values[:, 2], color=PALETTE[0], alpha=0.18, linewidth=0)
        marker = "o" if len(steps) < 30 else ""
        label = "evaluation"
        axes.plot(steps, values[:, 0], color=PALETTE[0], linewidth=2, marker=marker, markersize=4, label=label)
        drawn += [(steps, value) for value in values.T]
    notes = ["band: from the worst to the best episode of an evaluation", *focus(axes, drawn)]
    return _save(figure, axes, out or file.parent / "learning_curve.png", "; ".join(notes))


def plot_actions(actions: np.ndarray, out: Path, switched: np.ndarray | None = None, title: str = "") -> pathlib.Path:
    """Plots the actions of an episode, one row for each entry; a dot marks where a new trajectory starts.

    Args:
        actions: `[K, ...]`, of K steps.
        out: the PNG to write.
        switched: booleans `[K]`, or None for a policy without temporal abstraction. What follows a step that
            repeats the trajectory is shaded.
        title: above the picture.

    Returns:
        The path of the picture.

    Raises:
        ValueError: no steps, or another number of switches than of steps.
    """
    if not len(actions) or (switched is not None and len(switched) != len(actions)):
        counts = len(actions), None if switched is None else len(switched)
        raise ValueError(f"An episode has at least one step, and each tells whether it switched. Received: {counts}")
    rows = np.asarray(actions, np.float64).reshape(len(actions), -1).T
    figure, axes = _axes(title, "", "step of the episode", len(rows))
    step = np.arange(len(actions))
    for i, (axis, row) in enumerate(zip(axes, rows, strict=True)):
        axis.plot(step, row, color=PALETTE[0], linewidth=1.2, drawstyle="steps-post", label="action")
        axis.set_ylabel(f"action {i}", fontsize=9.5)
        if switched is not None:
            low, high = axis.get_ylim()
            edges = np.repeat(np.arange(len(step) + 1), 2)[1:-1]  # of each step: itself and the next
            axis.fill_between(edges, low, high, where=np.repeat(~switched, 2), color=GREY, alpha=0.15, linewidth=0)
            axis.plot(step[switched], row[switched], ".", color=PALETTE[1], markersize=5, label="new trajectory")
            axis.set_ylim(low, high)
    note = ""
    if switched is not None:
        note = f"{switched.sum()} new trajectories in {len(switched)} steps; shaded: the one before is repeated"
    return _save(figure, axes[0], out, note)


def _table(path: Path) -> tuple[pathlib.Path, dict[str, list[str]]]:
    """Returns the CSV file of a run and its columns as text."""
    file = pathlib.Path(path)
    file = file / "metrics.csv" if file.is_dir() else file
    if not file.is_file():
        raise ValueError(
            "A learning curve is a run directory with metrics.csv, or a CSV file. "
            f"Received: {str(path)!r}, and there is no {str(file)!r}"
        )
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            rows = csv.DictReader(stream)
            names = rows.fieldnames or ()
            found = list(rows)
            if wide := next((row for row in found if None in row), None):
                cells = len(wide) - 1 + len(wide[None])
                raise ValueError(f"{file} has {len(names)} columns, and a row of more. Received: {cells} cells")
            # A run that was killed may end in half a row.
            full = [row for row in found if all(value is not None for value in row.values())]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file} is no CSV file ({error}). Received: {file.stat().st_size} bytes") from error
    return file, {name: [row[name] for row in full] for name in names}


def _numbers(file: pathlib.Path, table: dict[str, list[str]], columns: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns steps `[T]` and values `[T, C]` of the rows in which none of the columns is empty."""
    for column in [STEPS, *columns]:
        if column not in table:
            group = [name for name in table if name.startswith(column.partition("/")[0] + "/")]
            close = difflib.get_close_matches(column, table, n=1, cutoff=0.8 if group else 0.4)
            hint = f" Did you mean {close[0]!r}?" if close else f" It has {', '.join(group)}." if group else ""
            raise ValueError(f"{file} has no column of this name.{hint} Received: column={column!r}")
    by_step: dict[int, list[float]] = {}
    for step, *cells in zip(table[STEPS], *(table[column] for column in columns), strict=True):
        if all(cells):
            try:
                count, values = int(float(step)), [float(cell) for cell in cells]
                if count < 0 or not np.isfinite(values).all():
                    raise ValueError(values)
            except (ValueError, OverflowError):
                message = f"{file} must hold finite numbers in {columns}, and numbers from 0 in {STEPS}"
                raise ValueError(f"{message}. Received: {[step, *cells]}") from None
            by_step[count] = values
    if not by_step:
        raise ValueError(f"{file} has no values yet in this column. Received: column={columns[0]!r}")
    steps = np.array(sorted(by_step), np.int64)
    return steps, np.array([by_step[step] for step in steps.tolist()])


def _title_of(file: pathlib.Path) -> str:
    """Returns level and agent of a run, where its folder says them, and its folder."""
    folder = file.resolve().parent
    try:
        preset = read_object(folder / "config.json")["preset"]
        return f"{preset['environment']['level']}, {preset['agent']['kind']}, {folder.name}"
    except UNREADABLE:
        return folder.name


def _trailing_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Returns the mean of the last `window` values at each point, of fewer at the beginning."""
    return np.array([values[max(0, i + 1 - window) : i + 1].mean() for i in range(len(values))])


def _axes(title: str, y_label: str, x_label: str = "environment steps", rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Returns a figure with so many rows."""
    from matplotlib.ticker import EngFormatter

    figure = new_figure(7.2, 3.1 + 1.3 * rows)
    axes = [figure.add_subplot(rows, 1, i + 1) for i in range(rows)]
    axes[0].set_title(literal(title), loc="left", fontsize=12)
    for axis in axes:
        dress(axis, x_label if axis is axes[-1] else "", y_label)
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    return figure, axes


def _save(figure: Figure, axes: Axes, out: Path, note: str) -> pathlib.Path:
    handles, labels = axes.get_legend_handles_labels()
    columns = columns_for(labels, figure.get_figwidth(), 9.5)
    grow_for_legend(figure, len(labels), columns, 9.5)
    figure.legend(
        handles,
        labels,
        loc="outside lower left",
        ncols=columns,
        frameon=False,
        labelcolor="linecolor",
        fontsize=9.5,
        title=note,  # here the two cannot overlap
        title_fontproperties={"size": 7.5},
        alignment="left",
    )
    return save_figure(figure, out, "")
