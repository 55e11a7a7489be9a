"""Making a model card of a run, or of runs of one experiment with several seeds."""

from __future__ import annotations

import json
import math
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tfsac.api import AFTER_TRAINING
from tfsac.cards.card import FORMAT, Card
from tfsac.cards.page import page_of
from tfsac.environments import episode_seed
from tfsac.environments.vectorize import EVALUATION
from tfsac.errors import TfsacError
from tfsac.experiments.estimates import estimate, mean
from tfsac.experiments.plots import plot_curves, plot_run, read_curve
from tfsac.experiments.sweep import runs_of
from tfsac.exporting.exported import load_exported
from tfsac.exporting.loading import load_policy
from tfsac.exporting.saving import export
from tfsac.networks import ModelMaker
from tfsac.parameters import to_json
from tfsac.training import Evaluation, RunDirectory
from tfsac.utils.files import check_new_folder, differences, new_file, read_object

# Of a run's config, what a stranger needs: no paths of its machine, and no state of its author's code.
CONFIG_ENTRIES = ("preset", "run", "env_fn", "models", "spaces", "command", "versions")


class MadeCard(NamedTuple):
    """What `write_card` made: the folder, its results.json, and why optional files could not be made, by name."""

    path: pathlib.Path
    results: dict[str, Any]
    left_out: dict[str, str]


class _Run(NamedTuple):
    """One run, its exported policy as a card, the card's episodes, and the mean return of those that choose."""

    path: pathlib.Path
    seed: int
    card: Card
    done: Evaluation
    score: float


def write_card(
    run_dirs: str | pathlib.Path | Sequence[str | pathlib.Path],
    out: str | pathlib.Path,
    episodes: int = 20,
    seed: int = 0,
    license: str | None = None,
    env_fn: Callable[[], gym.Env] | None = None,
    models: ModelMaker | None = None,
) -> MadeCard:
    """Writes a model card: the exported best policy with its returns, learning curve, video and a page for strangers.

    Args:
        run_dirs: of a run, of several runs of one experiment with other seeds, or of a sweep or its combination. Of
            several, the policy with the highest mean return is exported, and evaluated again in other episodes.
        out: a new or empty folder.
        episodes: whose returns are on the card, of every run.
        seed: of the episodes.
        license: identifier for the metadata, such as "apache-2.0"; None leaves the line out.
        env_fn, models: the functions that the runs were trained with, if they were.

    Raises:
        OSError: there is something at `out`, or it cannot be written, or there is no run; nothing is left there then.
        TfsacError: runs of different experiments, or of the same seed.

    Example:
        >>> tfsac.write_card(["runs/seed1", "runs/seed2"], "card", license="apache-2.0")
    """
    out = pathlib.Path(out)
    check_new_folder(out)
    paths = check_runs([run_dirs] if isinstance(run_dirs, str | os.PathLike) else run_dirs)
    new_file(out, replace=True)
    temporary = pathlib.Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        runs = []
        for own, path in paths.items():
            exported = load_exported(export(load_policy(path, env_fn, models), temporary / f"seed{own}"))
            card = Card(path, exported, RunDirectory(path).read()[0].environment, {})
            done = card.evaluate(episodes, seed=seed, env_fn=env_fn)
            # In other episodes than those of the card, so that the choice does not flatter its returns.
            score = float(card.evaluate(episodes, seed=seed + 1, env_fn=env_fn).returns.mean())
            runs.append(_Run(path, own, card, done, score))
        results, left_out = _fill(temporary / "card", runs, seed, license, env_fn)
        if out.exists():
            out.rmdir()
        (temporary / "card").rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return MadeCard(out, results, left_out)


def check_runs(run_dirs: Sequence[str | pathlib.Path]) -> dict[int, pathlib.Path]:
    """Returns the folders of runs of one experiment by seed; a folder of several stands for its finished runs."""
    runs: dict[int, pathlib.Path] = {}
    first: dict[str, Any] = {}
    for path in [path for run_dir in run_dirs for path in runs_of(pathlib.Path(run_dir))]:
        preset, parameters = RunDirectory(path).read()
        config = read_object(path / "config.json")
        names = ["models", "initial_weights", *(["env_fn"] if preset.environment.by_env_fn else [])]
        experiment = {**to_json(preset), **{name: config.get(name) for name in names}, **parameters.affects_results}
        first = first or experiment
        for name, expected, value in differences(first, experiment):
            found = f"got {name}={value!r} in {path}, {expected!r} in the first"
            raise TfsacError(f"runs of a card must differ in their seed alone, {found}")
        if parameters.seed in runs:
            twice = f"{runs[parameters.seed]} and {path}"
            raise TfsacError(f"a seed must not count twice, got {parameters.seed} in {twice}")
        runs[parameters.seed] = path
    if not runs:
        raise TfsacError("a card needs a run, got none")
    return dict(sorted(runs.items()))


def _fill(
    folder: pathlib.Path, runs: list[_Run], seed: int, license: str | None, env_fn: Callable[[], gym.Env] | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Writes the files of a card; returns its results, and the reasons of what is left out by name."""
    best = max(runs, key=lambda run: run.score)
    level, left_out = best.card.environment.name, {}
    folder.mkdir()
    best.card.policy.path.rename(folder / "policy")
    if len(runs) == 1:
        plot_run(best.path, folder / "curve.png", f"{level}, seed {best.seed}")
    else:
        plot_curves({level: [run.path for run in runs]}, folder / "curve.png", f"{level}, {len(runs)} seeds")
    try:
        best.card.evaluate(1, seed=seed, dump_mp4=folder / "replay.mp4", env_fn=env_fn)
    except (OSError, RuntimeError, ValueError) as error:  # it cannot be drawn
        left_out["replay.mp4"] = str(error)
    results = {
        "level": level,
        "seed": seed,
        "episode_seeds": [episode_seed(seed, EVALUATION, AFTER_TRAINING, i) for i in range(len(best.done.returns))],
        "lengths": best.done.lengths.tolist(),
        **_statistics(best.done.returns),
        "exported_seed": best.seed,
        "runs": [_results(run) for run in runs],
    }
    if len(runs) > 1:
        means = _statistics(np.array([run.done.returns.mean() for run in runs]))
        results["seeds"] = {name: means[name] for name in ("mean", "std", "interval_95")}
    config = read_object(best.path / "config.json")
    config_entries = {FORMAT: 1, **{name: config[name] for name in CONFIG_ENTRIES if name in config}}
    (folder / "config.json").write_text(json.dumps(config_entries, indent=2) + "\n", encoding="utf-8")
    (folder / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    page = page_of(config, results, license, best.card, (folder / "replay.mp4").is_file())
    (folder / "README.md").write_text(page, encoding="utf-8")
    return results, left_out


def _results(run: _Run) -> dict[str, Any]:
    """Returns how long a run trained, its best evaluation, and its returns in the card's episodes."""
    steps, returns = read_curve(run.path)
    return {
        "seed": run.seed,
        "env_steps": int(steps[-1]),
        "best_at": int(steps[returns.argmax()]),
        "updates": int(read_curve(run.path, "updates")[1][-1]),
        "wall_seconds": float(read_curve(run.path, "wall_seconds")[1][-1]),
        "choice_mean": run.score,
        **_statistics(run.done.returns),
    }


def _statistics(returns: np.ndarray) -> dict[str, Any]:
    """Returns mean, deviation and the 95 % bootstrap interval of the mean, which a single return does not have."""
    interval = estimate(mean, [returns])
    return {
        "returns": returns.tolist(),
        "mean": float(returns.mean()),
        "std": float(returns.std()),
        "interval_95": None if math.isnan(interval.low) else [float(interval.low), float(interval.high)],
    }
