"""Plot learning curves and an episode's actions, and read a run's CSV file. Without TensorFlow."""

from __future__ import annotations

import contextlib
import csv
import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfsac.errors import TfsacError
from tfsac.experiments.bootstrap import Estimate, combined, mean
from tfsac.utils.files import atomic_write, new_file, read_object

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Path = str | pathlib.Path
STEPS, RETURN, TRAINING = "env_steps", "evaluation/return_mean", "training/return_mean"
RECENT = "training/recent_return_mean"  # for runs without evaluations
Y_LABELS = {RETURN: "mean return of an evaluation", TRAINING: "mean return of training episodes"}
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito, colour-blind safe
GREY = "#777777"


class Picture(NamedTuple):
    """A PNG file that a notebook displays as a cell's value."""

    path: pathlib.Path

    def _repr_png_(self) -> bytes:
        return self.path.read_bytes()


def read_curve(path: Path, column: str = RETURN) -> tuple[np.ndarray, np.ndarray]:
    """Reads one column of a run's metrics against environment steps.

    Skips rows in which the column is empty; of several rows with the same step, the last one counts.

    Args:
        path: a run directory, or a CSV file with the column `env_steps`.
        column: name of the column; for a run without evaluations, recent training returns replace evaluation returns.

    Returns:
        Steps `[T]` int64, increasing, and values `[T]` float64.
    """
    file = pathlib.Path(path)
    file = file / "metrics.csv" if file.is_dir() else file
    with file.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        names = list(reader.fieldnames or ())
        if column == RETURN and column not in names and RECENT in names:
            column = RECENT
        for name in {STEPS, column} - set(names) if names else ():
            raise TfsacError(f"{file} has no column {name!r}; its columns are {', '.join(names)}")
        # The file of a killed run may end with half a line.
        rows = [row for row in reader if None not in row.values() and row[STEPS] and row[column]]
    try:
        by_step = {int(float(row[STEPS])): float(row[column]) for row in rows}
    except ValueError as error:
        raise TfsacError(f"{file} must contain numbers in {STEPS} and {column}: {error}") from error
    if not by_step:
        raise TfsacError(f"{file} has no values in the column {column!r} yet")
    steps = np.array(sorted(by_step), np.int64)
    return steps, np.array([by_step[step] for step in steps.tolist()])


def trained_evaluations(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Returns the steps and returns of a run's evaluations since its first update, the candidates for its best.

    Raises:
        TfsacError: no such evaluation.
    """
    (steps, returns), (update_steps, updates) = read_curve(path), read_curve(path, "updates")
    first = np.searchsorted(steps, update_steps[updates == 0].max(initial=-1), "right")
    if first == len(steps):
        raise TfsacError(f"{path} has no evaluation after an update")
    return steps[first:], returns[first:]


def plot_curves(groups: Mapping[str, Sequence[Path]], out: Path, title: str = "", column: str = RETURN) -> pathlib.Path:
    """Plots a column of runs or CSV files, by label, against environment steps, and returns the path of the PNG. It has
    the mean of each group with a 95 % interval, and every run as a thin line.
    """
    figure, (axes,) = _axes(title, Y_LABELS.get(column, column))
    for i, (label, paths) in enumerate(groups.items()):
        curves = [read_curve(path, column) for path in dict.fromkeys(map(pathlib.Path, paths))]
        if len(curves) > 1:
            label = f"{label} ({len(curves)} seeds)"
            for curve in curves:
                axes.plot(*curve, color=color_and_style(i)[0], linewidth=0.6, alpha=0.45)
        draw_estimates(axes, i, label, *combined(curves, mean))
    several = any(len(paths) > 1 for paths in groups.values())
    notes = ["band: 95 % bootstrap interval of the mean; thin: single seeds"] if several else []
    return save_figure(figure, axes, out, notes)


def plot_run(run_dir: Path, out: Path | None = None, title: str = "") -> pathlib.Path:
    """Plots one run: mean evaluation return with a band from the worst to the best episode, and training return.

    Args:
        run_dir: a run directory, or its CSV file.
        out: the PNG to write, by default `learning_curve.png` next to the run's metrics; its path is returned.
        title: title of the plot; by default the run's level, agent and folder.
    """
    folder = pathlib.Path(run_dir) if pathlib.Path(run_dir).is_dir() else pathlib.Path(run_dir).parent
    if not title and (folder / "config.json").is_file():
        preset = read_object(folder / "config.json")["preset"]
        title = f"{preset['environment']['level']}, {preset['agent']['kind']}, {folder.resolve().name}"
    figure, (axes,) = _axes(title or folder.resolve().name, "return")
    with contextlib.suppress(TfsacError):  # no episode has ended
        axes.plot(*read_curve(run_dir, TRAINING), color=GREY, linewidth=1, alpha=0.7, label="training episodes")
    with contextlib.suppress(TfsacError) if axes.lines else contextlib.nullcontext():  # no evaluations
        steps, values = read_curve(run_dir)
        worst, best = (read_curve(run_dir, f"evaluation/return_{name}")[1] for name in ("min", "max"))
        axes.fill_between(steps, worst, best, color=PALETTE[0], alpha=0.18, linewidth=0)
        marker = "o" if len(steps) < 30 else ""
        axes.plot(steps, values, color=PALETTE[0], linewidth=2, marker=marker, markersize=4, label="evaluation")
    note = "band: from the worst to the best episode of an evaluation"
    return save_figure(figure, axes, out or folder / "learning_curve.png", [note])


def plot_actions(actions: np.ndarray, out: Path, switched: np.ndarray | None = None, title: str = "") -> pathlib.Path:
    """Plots the actions of an episode, one subplot per action entry; a dot marks the start of a new trajectory.

    Args:
        actions: `[K, ...]` for K steps.
        out: the PNG to write; its path is returned.
        switched: booleans `[K]`, or None for a policy without temporal abstraction. Steps that keep the previous
            trajectory are shaded.
        title: title of the plot.
    """
    entries = np.asarray(actions, np.float64).reshape(len(actions), -1).T
    figure, axes = _axes(title, "", "step of the episode", len(entries))
    step, notes = np.arange(len(actions)), []
    for i, (axis, entry) in enumerate(zip(axes, entries, strict=True)):
        axis.plot(step, entry, color=PALETTE[0], linewidth=1.2, drawstyle="steps-post", label="action")
        axis.set_ylabel(f"action {i}", fontsize=9.5)
        if switched is not None:
            low, high = axis.get_ylim()
            edges = np.repeat(np.arange(len(step) + 1), 2)[1:-1]  # left and right edge of each step
            axis.fill_between(edges, low, high, where=np.repeat(~switched, 2), color=GREY, alpha=0.15, linewidth=0)
            axis.plot(step[switched], entry[switched], ".", color=PALETTE[1], markersize=5, label="new trajectory")
            axis.set_ylim(low, high)
    if switched is not None:
        notes = [f"{switched.sum()} new trajectories in {len(switched)} steps; shaded: the previous one is kept"]
    return save_figure(figure, axes[0], out, notes)


# -- what all figures have in common -----------------------------------------------------------------------------------


def literal(text: str) -> str:
    """Escapes a label for Matplotlib: no formulas, and a space before a leading underscore, which would hide it."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def color_and_style(i: int) -> tuple[str, str]:
    """Returns colour and line style of the i-th label."""
    return PALETTE[i % len(PALETTE)], ("-", "--", ":")[i // len(PALETTE) % 3]


def draw_estimates(axes: Axes, i: int, label: str, points: np.ndarray, estimates: Estimate) -> None:
    """Draws a curve with its interval, in the style of the i-th label."""
    color, style = color_and_style(i)
    axes.fill_between(points, estimates.low, estimates.high, color=color, alpha=0.18, linewidth=0)
    marker = "o" if len(points) == 1 else None
    axes.plot(points, estimates.value, style, color=color, linewidth=2, marker=marker, label=literal(label))


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure with a size in inches, without a window."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def dress(axes: Axes, x_label: str, y_label: str, thousands: bool = True) -> None:
    """Adds labels and a light grid to axes; `thousands` formats 10000 as 10k."""
    from matplotlib.ticker import EngFormatter

    if thousands:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel(literal(x_label))
    axes.set_ylabel(literal(y_label), fontsize=9.5)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.02)


def save_figure(figure: Figure, axes: Axes, out: Path, notes: Sequence[str]) -> pathlib.Path:
    """Writes or replaces a PNG, with the legend of `axes` and notes below, and returns its path."""
    columns = int(figure.get_figwidth() * 18)  # characters per line of a note
    lines = [line for note in notes for line in textwrap.wrap(note, columns)]
    handles, labels = axes.get_legend_handles_labels()
    # Grow the figure by the height of legend and notes, so that the axes do not shrink.
    figure.set_figheight(figure.get_figheight() + 0.2 * len(labels) + 0.14 * len(lines))
    looks: dict[str, Any] = {
        "loc": "outside lower left",
        "frameon": False,
        "labelcolor": "linecolor",
        "alignment": "left",
    }
    figure.legend(handles, labels, title=literal("\n".join(lines)), title_fontsize=7.5, fontsize=9.0, **looks)
    out = new_file(out, ".png", replace=True)
    with atomic_write(out) as file:
        figure.savefig(file, dpi=100, format="png")
    return out


def _axes(title: str, y_label: str, x_label: str = "environment steps", rows: int = 1) -> tuple[Figure, list[Axes]]:
    figure = new_figure(7.2, 2.9 + 1.3 * rows)
    axes = [figure.add_subplot(rows, 1, i + 1) for i in range(rows)]
    axes[0].set_title(literal(title), loc="left", fontsize=12)
    for axis in axes:
        dress(axis, x_label if axis is axes[-1] else "", y_label)
    return figure, axes
