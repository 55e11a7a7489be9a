"""What all pictures have in common: colours, axes, legends, the file. No TensorFlow."""

from __future__ import annotations

import pathlib
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfsac.files import new_file, written_aside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Path = str | pathlib.Path
Curve = tuple[np.ndarray, np.ndarray]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito, for all colour visions
STYLES = ("-", "--", ":")
GREY = "#777777"
NOTE_SIZE = 7.5  # points


def literal(text: str) -> str:
    """Returns a text of the user's for a picture, in which dollars are no formulas. Legends leave out what begins with
    an underscore, so that gets a space.
    """
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def columns_for(labels: Sequence[str], width: float, size: float) -> int:
    """Returns how many columns, 1 to 3, of a legend's labels fit side by side.

    Args:
        labels: of the legend.
        width: for all columns, in inches.
        size: of the font, in points.
    """
    column = 0.6 + max(map(len, labels), default=0) * 0.6 * size / 72
    return int(np.clip(width // column, 1, 3))


def grow_for_legend(figure: Figure, labels: int, columns: int, size: float) -> None:
    """Makes a figure higher by the rows of its legend after the first, so that they take nothing from its axes."""
    figure.set_figheight(figure.get_figheight() + (-(-labels // columns) - 1) * 1.6 * size / 72)


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure, in inches, that belongs to no window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def dress(axes: Axes, x_label: str, y_label: str) -> None:
    """Gives axes their labels and a light grid."""
    axes.set_xlabel(literal(x_label))
    axes.set_ylabel(literal(y_label), fontsize=9.5)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.02)


def focus(axes: Axes, curves: Sequence[Curve], also: Sequence[float] = (), unit: str = "step") -> list[str]:
    """Leaves the first tenth of the steps out of the y axis where its values would flatten the rest.

    Args:
        axes: shows the curves.
        curves: (steps, values) of everything drawn.
        also: values that must be seen.
        unit: of the x axis.

    Returns:
        what a reader must know, if anything was left out.
    """
    finite = [(steps[np.isfinite(values)], values[np.isfinite(values)]) for steps, values in curves]
    seen = [curve for curve in finite if len(curve[0])]  # a single run has no interval
    if not seen:
        return []
    steps, values = (np.concatenate(entries) for entries in zip(*seen, strict=True))
    begin = steps.min() + 0.1 * np.ptp(steps)
    if any(steps[-1] <= begin for steps, _ in seen):  # nothing of that curve would be left
        return []
    early, later = values[steps <= begin], np.append(values[steps > begin], also)
    if len(later) < 4 or np.ptp(values) < 4 * np.ptp(later) or not np.ptp(later):
        return []
    margin = 0.05 * np.ptp(later)
    axes.set_ylim(later.min() - margin, later.max() + margin)
    return [f"outside: values from {early.min():.4g} to {early.max():.4g}, up to {unit} {begin:.0f}"]


def color_and_style(i: int) -> tuple[str, str]:
    """Returns how the line of the label with this number is drawn."""
    return PALETTE[i % len(PALETTE)], STYLES[i // len(PALETTE) % len(STYLES)]


def save_figure(figure: Figure, out: Path, note: str) -> pathlib.Path:
    """Writes a PNG with a note below it, over one that is there already, and returns its path."""
    if note:
        columns = int(figure.get_figwidth() * 72 / (0.52 * NOTE_SIZE))
        lines = [wrapped for line in note.splitlines() for wrapped in textwrap.wrap(line, columns)]
        figure.supxlabel(literal("\n".join(lines)), fontsize=NOTE_SIZE, color=GREY, x=0.99, ha="right")
    out = new_file(out, ".png", replace=True)
    with written_aside(out) as file:
        figure.savefig(file, dpi=100, format="png")
    return out
