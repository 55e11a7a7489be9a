"""What a hyper-parameter search found: a table of the best trials, their preset, Optuna's figures. No TensorFlow."""

from __future__ import annotations

import collections
import json
import pathlib
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfsac.errors import TfsacError
from tfsac.experiments.comparison import aligned
from tfsac.experiments.search_space import Dimension, names_of, parse_dimension
from tfsac.experiments.tuning import JOURNAL, PLAN, import_optuna, name_of, open_storage, open_study, short_text
from tfsac.utils.files import atomic_write, read_object

if TYPE_CHECKING:
    import optuna
    from matplotlib.figure import Figure

SHOWN = 10  # trials in the table


def report(folder: pathlib.Path) -> str:
    """Writes best.json and tuning.png, and returns what there is to print: the best trials and these files.

    Raises:
        OSError, TfsacError: no tuning has begun there, no trial is complete, or Optuna is not installed.
    """
    content = read_object(folder / PLAN)
    (folder / JOURNAL).stat()  # Optuna would make one
    space = [parse_dimension(f"{path}={text}") for path, text in content["space"].items()]
    trials = open_study(open_storage(folder), content).get_trials(deepcopy=False)
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]  # pruned ones have a value, too
    complete.sort(key=lambda trial: -(trial.value or 0.0))
    states = collections.Counter(trial.state.name.lower() for trial in trials)
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    if not complete:
        raise TfsacError(f"no trial in {folder} is complete ({counted})")
    best = complete[0]
    config = read_object(folder / name_of(best) / f"seed{content['seeds'][0]}" / "config.json")
    saved_config = {
        name: config[name] for name in ("preset", "run", "import_folders", "initial_weights") if name in config
    }
    with atomic_write(folder / "best.json") as stream:  # as --preset takes it
        stream.write(json.dumps({**saved_config, "trial": best.number, "score": best.value}, indent=2).encode())
    table = [["trial", "score", *names_of(space).values()]]
    for trial in complete[:SHOWN]:
        values = [short_text(dimension.value(trial.params[dimension.path])) for dimension in space]
        table.append([name_of(trial), f"{trial.value:.2f}", *values])
    importances = draw(folder / "tuning.png", space, trials)
    shares = ", ".join(f"{name} {importance:.2f}" for name, importance in importances.items())
    lines = [f"{folder}: {len(trials)} trials: {counted}", *aligned(table)]
    lines += [f"importance: {shares}"] if shares else []
    return "\n".join([*lines, f"preset  {folder / 'best.json'}", f"picture {folder / 'tuning.png'}"])


def draw(out: pathlib.Path, space: Sequence[Dimension], trials: Sequence[optuna.trial.FrozenTrial]) -> dict[str, float]:
    """Draws Optuna's history and importances, and below them its slices.

    Args:
        out: the PNG to write.
        space: the dimensions.
        trials: one of which is complete.

    Returns:
        the importances of the dimensions by short name, the largest first; empty where all scores are the same.
    """
    from matplotlib import pyplot
    from matplotlib.image import imsave

    optuna, names = import_optuna(), names_of(space)
    study = optuna.create_study(direction="maximize")  # the same trials with short names
    for trial in trials:
        if trial.state.is_finished():
            params = {names[path]: sampled for path, sampled in trial.params.items()}
            kinds = {names[path]: kind for path, kind in trial.distributions.items()}
            outcome = {"value": trial.value, "intermediate_values": trial.intermediate_values}
            study.add_trial(optuna.trial.create_trial(state=trial.state, params=params, distributions=kinds, **outcome))
    visual, importances = optuna.visualization.matplotlib, {}
    with warnings.catch_warnings(), pyplot.rc_context():
        warnings.simplefilter("ignore")  # of few trials, and that the figures are experimental
        figures = [visual.plot_optimization_history(study, target_name="score")]
        if len({trial.value for trial in study.trials if trial.state.name == "COMPLETE"}) > 1:
            importances = optuna.importance.get_param_importances(study)
            figures.append(visual.plot_param_importances(study, target_name="score"))
        figures.append(np.ravel(visual.plot_slice(study, target_name="score"))[0])
        images = [_pixels(axes.figure) for axes in figures]
        for axes in figures:
            pyplot.close(axes.figure)
    images = [np.concatenate(images[:-1], axis=1), images[-1]]
    width = max(image.shape[1] for image in images)
    padded = [np.pad(x, ((0, 0), (0, width - x.shape[1]), (0, 0)), constant_values=255) for x in images]
    with atomic_write(out) as stream:
        imsave(stream, np.concatenate(padded), format="png")  # type: ignore[arg-type]
    return importances


def _pixels(figure: Figure) -> np.ndarray:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_layout_engine("constrained")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())
