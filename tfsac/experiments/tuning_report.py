"""What a hyper-parameter search found: a table of the best trials, their preset, a picture. No TensorFlow."""

from __future__ import annotations

import collections
import json
import math
import pathlib
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfsac.experiments.figures import GREY, PALETTE, dress, literal, new_figure, save_figure
from tfsac.experiments.search_space import Dimension, names_of
from tfsac.experiments.tuning import JOURNAL, TuningPlan, import_optuna, open_storage, open_study, read_tuning
from tfsac.experiments.tuning import text_of_value as text_of
from tfsac.files import read_object, written_aside

if TYPE_CHECKING:
    import optuna
    from matplotlib.axes import Axes

SHOWN = 10  # trials in the table
FEW = 10  # complete trials, below which importances are mostly chance
COLUMNS = 3  # of slices in the picture


class Found(NamedTuple):
    """The trials of a tuning.

    Attributes:
        plan: what is searched.
        trials: all, in their order.
        complete: those with a score, the best first.
        importances: of the dimensions by path, the largest first, with the sum 1; empty where they are not known.
    """

    plan: TuningPlan
    trials: list[optuna.trial.FrozenTrial]
    complete: list[optuna.trial.FrozenTrial]
    importances: dict[str, float]


def read_trials(folder: pathlib.Path) -> Found:
    """Reads the trials of a tuning.

    Raises:
        ImportError: Optuna is not installed.
        FileNotFoundError, ValueError: from `read_tuning`.
    """
    content = read_tuning(folder)
    optuna = import_optuna()
    if not (folder / JOURNAL).is_file():
        raise FileNotFoundError(f"This tuning has not begun. Received: {folder}")
    plan = TuningPlan.read(content)
    study = open_study(open_storage(folder), plan)
    trials = study.get_trials(deepcopy=False)
    complete = [trial for trial in trials if trial.state == optuna.trial.TrialState.COMPLETE]
    complete.sort(key=lambda trial: -(trial.value or 0.0))
    importances: dict[str, float] = {}
    if len({trial.value for trial in complete}) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few trials
            importances = optuna.importance.get_param_importances(study)
    known = all(math.isfinite(share) for share in importances.values())
    return Found(plan, trials, complete, importances if known else {})


def report(folder: pathlib.Path) -> str:
    """Writes best.json and tuning.png, and returns what there is to print: the best trials and these files.

    Raises:
        ImportError: Optuna is not installed.
        FileNotFoundError, ValueError: from `read_tuning`; no trial is complete.
        OSError: the folder cannot be written.
    """
    found = read_trials(folder)
    states = collections.Counter(trial.state.name.lower() for trial in found.trials)
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    if not found.complete:
        raise ValueError(f"No trial of this tuning is complete, which a report needs ({counted}). Received: {folder}")
    best = write_best(folder, found)
    picture = draw(folder, found)
    lines = [f"{folder}: {len(found.trials)} trials: {counted}", *_table(found)]
    if found.importances:
        names = names_of(found.plan.space)
        few = " (so few trials say little)" if len(found.complete) < FEW else ""
        shares = ", ".join(f"{names[p]} {share:.2f}" for p, share in found.importances.items())
        lines.append(f"importance: {shares}{few}")
    return "\n".join([*lines, f"preset  {best}", f"picture {picture}"])


def write_best(folder: pathlib.Path, found: Found) -> pathlib.Path:
    """Writes the preset of the best trial, as `--preset` takes it, and returns the file's path."""
    trial = found.complete[0]
    config = read_object(folder / f"trial{trial.number:03d}" / f"seed{found.plan.seeds[0]}" / "config.json")
    kept = {name: config[name] for name in ("preset", "run", "import_folders", "initial_weights") if name in config}
    file = folder / "best.json"
    with written_aside(file) as stream:
        stream.write(json.dumps({**kept, "trial": trial.number, "score": trial.value}, indent=2).encode())
    return file


def _table(found: Found) -> list[str]:
    names = names_of(found.plan.space)
    rows = [["trial", "score", *names.values()]]
    for trial in found.complete[:SHOWN]:
        values = [text_of(dimension.value(trial.params[dimension.path])) for dimension in found.plan.space]
        rows.append([f"trial{trial.number:03d}", f"{trial.value:.2f}", *values])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


# -- the picture -------------------------------------------------------------------------------------------------------


def draw(folder: pathlib.Path, found: Found) -> pathlib.Path:
    """Draws the history of the trials, the importances of the dimensions, and the scores against each dimension.

    Args:
        folder: of the tuning; its tuning.png is replaced.
        found: with a complete trial.

    Returns:
        the path of the picture.
    """
    space = found.plan.space
    names = names_of(space)
    rows = math.ceil(len(space) / COLUMNS)
    top, low = max(2.8, 0.9 + 0.28 * len(space)), 2.3 * rows
    figure = new_figure(11.0, top + low + 0.4)
    level = found.plan.experiment["preset"]["environment"]["level"]
    figure.suptitle(literal(f"{level}: {len(found.trials)} trials"), x=0.01, ha="left", fontsize=12)
    grid = figure.add_gridspec(2, 1, height_ratios=[top, low])
    above, below = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    history, importances = above.subplots(1, 2, width_ratios=[1.6, 1])
    _history(history, found)
    _importances(importances, found, names)
    for i, dimension in enumerate(space):
        _slice(below.add_subplot(rows, COLUMNS, i + 1), found, dimension, names[dimension.path])
    evaluations, seeds = found.plan.last_evaluations, len(found.plan.seeds)
    of = "the last evaluation" if evaluations == 1 else f"the last {evaluations} evaluations"
    over = "" if seeds == 1 else f" over {seeds} seeds"
    note = f"score: mean return of {of}{over}; darker dots: later trials; star: the best; cross: pruned"
    return save_figure(figure, folder / "tuning.png", note)


def _history(axes: Axes, found: Found) -> None:
    from matplotlib.ticker import MaxNLocator

    dress(axes, "trial", "score")
    complete = sorted(found.complete, key=lambda trial: trial.number)
    numbers, scores = [trial.number for trial in complete], [trial.value or 0.0 for trial in complete]
    best = [max(scores[: i + 1]) for i in range(len(scores))]
    axes.plot(numbers, scores, "o", color=PALETTE[0], markersize=5, label="complete")
    axes.plot(numbers, best, color=PALETTE[1], linewidth=1.6, drawstyle="steps-post", label="best so far")
    if pruned := _pruned(found):
        numbers, lasts = [trial.number for trial, _ in pruned], [last for _, last in pruned]
        axes.plot(numbers, lasts, "x", color=GREY, markersize=5, label="pruned, its last evaluation")
    failed = [trial.number for trial in found.trials if trial.state.name == "FAIL"]
    if failed:
        axes.plot(failed, [min(scores)] * len(failed), "|", color=PALETTE[3], markersize=9, label="failed, no score")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8)


def _importances(axes: Axes, found: Found, names: dict[str, str]) -> None:
    dress(axes, "importance", "")
    shares = {path: found.importances.get(path, 0.0) for path in names}
    paths = sorted(shares, key=lambda path: shares[path])
    axes.barh(range(len(paths)), [shares[path] for path in paths], color=PALETTE[0], height=0.6)
    axes.set_yticks(range(len(paths)), [names[path] for path in paths], fontsize=8)
    axes.set_xlim(0, max(shares.values()) * 1.05 or 1)
    if not found.importances:
        axes.text(0.5, 0.5, "needs two scores that differ", ha="center", transform=axes.transAxes, color=GREY)


def _pruned(found: Found) -> list[tuple[optuna.trial.FrozenTrial, float]]:
    """Returns the pruned trials, each with its last evaluation."""
    pruned = [trial for trial in found.trials if trial.state.name == "PRUNED" and trial.intermediate_values]
    return [(trial, trial.intermediate_values[max(trial.intermediate_values)]) for trial in pruned]


def _slice(axes: Axes, found: Found, dimension: Dimension, name: str) -> None:
    """Draws the score against one dimension."""
    dress(axes, name, "score")
    pruned = _pruned(found)
    trials = [*found.complete, *(trial for trial, _ in pruned)]
    sampled: list[Any] = [trial.params[dimension.path] for trial in trials]
    if dimension.is_range:
        _range_axis(axes, dimension)
    else:
        sampled = [dimension.values.index(text) for text in sampled]
        axes.set_xticks(range(len(dimension.values)), [literal(text) for text in dimension.values], fontsize=8)
        axes.set_xlim(-0.5, len(dimension.values) - 0.5)
    axes.margins(y=0.08)
    count = len(found.complete)
    numbers, scores = [trial.number for trial in found.complete], [trial.value or 0.0 for trial in found.complete]
    shades: Any = {"cmap": "Blues", "vmin": -max(numbers) / 2 - 1, "edgecolors": PALETTE[0], "linewidths": 0.5}
    axes.plot(sampled[count:], [last for _, last in pruned], "x", color=GREY, markersize=4)
    axes.scatter(sampled[:count], scores, c=numbers, s=24, zorder=3, **shades)
    axes.plot(sampled[0], scores[0], "*", color=PALETTE[1], markersize=11, zorder=4)


def _range_axis(axes: Axes, dimension: Dimension) -> None:
    """Gives the axis of a range the values of the parameter as labels."""
    from matplotlib.ticker import NullLocator

    low, high = dimension.values
    if dimension.kind in ("log", "1-log"):
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        ticks = np.geomspace(low, high, 3)
        digits = 2 if dimension.kind == "log" else 3
        axes.set_xticks(ticks, [f"{dimension.value(tick):.{digits}g}" for tick in ticks], fontsize=8)
        margin = (high / low) ** 0.05
        low, high = low / margin, high * margin
    else:
        margin = 0.05 * (high - low)
        low, high = low - margin, high + margin
    axes.set_xlim(*((high, low) if dimension.kind == "1-log" else (low, high)))
