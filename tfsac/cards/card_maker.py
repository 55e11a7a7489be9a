"""Making a model card of a run, or of runs of one experiment with several seeds."""

from __future__ import annotations

import importlib.util
import math
import os
import pathlib
import platform
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tfsac import argument_checks
from tfsac.api import AFTER_TRAINING
from tfsac.cards.card_files import (
    CHECKSUMS,
    CONFIG,
    CURVE,
    FILM,
    FORMAT,
    LITE,
    PAGE,
    POLICY,
    RESULTS,
    checksums,
    write_json,
)
from tfsac.cards.card_folder import Card
from tfsac.cards.card_page import page_of
from tfsac.environments import EnvironmentFailure, episode_seed
from tfsac.environments.vectorize import EVALUATION
from tfsac.environments.video import write_video
from tfsac.experiments.estimates import estimate, mean
from tfsac.experiments.plots import plot_curves, plot_run, read_curve
from tfsac.experiments.sweep import runs_of
from tfsac.exported import load_exported
from tfsac.exporting import TOLERANCE, export, verify
from tfsac.files import check_new_folder, differences, new_file, read_object, writing
from tfsac.loading import load_policy
from tfsac.networks import ModelMaker
from tfsac.parameters import ParameterError, to_json
from tfsac.training import Evaluation, Policy, RunDirectory
from tfsac.training.recorded_functions import spaces_of
from tfsac.training.run_directory import provenance
from tfsac.user_code import described

LEFT_AT_HOME = ("import_folders", "sha256", "git")  # of a run's config: paths of its machine, and what no longer fits
MOST_VERIFIED = 200  # steps of the first episode with which exported and trained policy are compared


class MadeCard(NamedTuple):
    """What `write_card` made.

    Attributes:
        path: of the folder.
        results: content of its results.json.
        left_out: reasons, by name of the optional file that could not be made.
    """

    path: pathlib.Path
    results: dict[str, Any]
    left_out: dict[str, str]


class _FirstEpisode(NamedTuple):
    """What is kept of an evaluation: observations and actions of its first episode."""

    observations: list[Any]
    actions: list[Any]
    ended: list[bool]

    def add(self, observation: Any, action: Any, reward: float, terminated: bool, truncated: bool, after: Any) -> None:
        """Keeps a step."""
        if not self.ended:
            self.observations.append(observation)
            self.actions.append(action)
            if terminated or truncated:
                self.ended.append(True)


class _Run(NamedTuple):
    """One run of the experiment.

    Attributes:
        path, seed: of the run.
        card: with its exported policy.
        policy: the trained one.
        done: the episodes of the card.
        first: of these episodes.
        score: mean return in other episodes, which choose among several runs.
    """

    path: pathlib.Path
    seed: int
    card: Card
    policy: Policy
    done: Evaluation
    first: _FirstEpisode
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
    """Writes a model card: the exported best policy with its returns, picture, film and a page for strangers.

    Args:
        run_dirs: of a run, of several runs of one experiment with other seeds, or of a sweep or its combination. Of
            several, the policy with the highest mean return is exported, and evaluated again in other episodes.
        out: a new or empty folder.
        episodes: whose returns the card tells, of every run.
        seed: of the episodes.
        license: identifier for the metadata, such as "apache-2.0"; None leaves the line out.
        env_fn, models: the functions that the runs were trained with, if they were.

    Returns:
        the folder, the results, and what was left out.

    Raises:
        FileExistsError, OSError: there is something at `out`, or it cannot be written; nothing is left there then.
        FileNotFoundError: no run there, or one without an evaluation yet.
        ParameterError, ValueError: runs of different experiments, or of the same seed; as `tfsac.load_policy`.

    Example:
        >>> tfsac.write_card(["runs/seed1", "runs/seed2"], "card", license="apache-2.0")
    """
    episodes, seed = argument_checks.whole("episodes", episodes, 1), argument_checks.whole("seed", seed, 0)
    out = argument_checks.path("out", out)
    if license is not None and (not isinstance(license, str) or not license.strip() or "\n" in license):
        raise ValueError(f"license is one line, such as 'apache-2.0', or None. Received: {license!r}")
    check_new_folder(out)
    runs = check_runs(run_dirs)
    new_file(out, replace=True)
    with writing(out):
        aside = pathlib.Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        with writing(out):
            results, left_out = _fill(aside, runs, episodes, seed, license, env_fn, models)
            if out.exists():
                out.rmdir()
            (aside / "card").rename(out)
        return MadeCard(out, results, left_out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_runs(run_dirs: str | pathlib.Path | Sequence[str | pathlib.Path]) -> dict[int, pathlib.Path]:
    """Returns the folders of runs of one experiment by seed; a folder of several stands for its finished runs.

    Raises:
        FileNotFoundError: a folder that is no run.
        ValueError: no run, runs of different experiments, such as of a sweep with several combinations, or two of the
            same seed.
    """
    given = [run_dirs] if isinstance(run_dirs, str | os.PathLike) else list(run_dirs)
    paths: list[pathlib.Path] = []
    for path in (argument_checks.path("run_dir", value) for value in given):
        paths += (found := runs_of(path))
        if len(combinations := dict.fromkeys(str(run.parent) for run in found)) > 1:
            raise ValueError(
                "A card is of one experiment, and this sweep has several combinations. Give the folder of one: "
                f"{', '.join(combinations)}. Received: {path}"
            )
    runs: dict[int, pathlib.Path] = {}
    first: dict[str, Any] | None = None
    for path in paths:
        preset, parameters = RunDirectory(path).read()
        config = read_object(path / CONFIG)
        begun = {name: config.get(name) for name in ("models", "initial_weights")}
        begun |= {"env_fn": config.get("env_fn")} if preset.environment.by_env_fn else {}
        experiment = {**to_json(preset), **begun, **parameters.of_learning}
        first = first or experiment
        for name, theirs, ours in differences(first, experiment):
            raise ValueError(
                "A card is of one experiment, whose runs differ in their seeds alone; make a card of each experiment. "
                f"In {paths[0]} {name} is {theirs!r}. Received: {name}={ours!r} in {path}"
            )
        if parameters.seed in runs:
            raise ValueError(
                "The runs of a card have a seed each, because a seed that counts twice narrows the interval. Received: "
                f"seed={parameters.seed} in {runs[parameters.seed]} and {path}"
            )
        runs[parameters.seed] = path
    if not runs:
        raise ValueError("A card needs a run. Received: none")
    return dict(sorted(runs.items()))


def _fill(
    aside: pathlib.Path,
    paths: dict[int, pathlib.Path],
    episodes: int,
    seed: int,
    license: str | None,
    env_fn: Callable[[], gym.Env] | None,
    models: ModelMaker | None,
) -> tuple[dict[str, Any], dict[str, str]]:
    folder = aside / "card"
    folder.mkdir()
    runs = []
    for own, path in paths.items():
        policy = load_policy(path, env_fn, models)
        exported = load_exported(export(policy, aside / f"seed{own}"))
        card = Card(aside, exported, RunDirectory(path).read()[0].environment, policy.acting.spec, {})
        first = _FirstEpisode([], [], [])
        done = card.evaluate(episodes, seed=seed, env_fn=env_fn, each_step=first.add)
        # In other episodes than those of the card, so that the choice does not flatter its returns.
        score = float(card.evaluate(episodes, seed=seed + 1, env_fn=env_fn).returns.mean()) if len(paths) > 1 else 0.0
        runs.append(_Run(path, own, card, policy, done, first, score))
    best = max(runs, key=lambda run: run.score)
    seen, left_out = best.first.observations[:MOST_VERIFIED], dict[str, str]()
    (aside / f"seed{best.seed}").rename(folder / POLICY)
    unlike = {POLICY: _difference(best.policy, folder / POLICY, seen)}
    if reason := _lite(best.policy, aside, folder, seen, unlike):
        left_out[LITE] = reason
    level = best.card.environment.name
    if len(runs) == 1:
        plot_run(best.path, folder / CURVE, f"{level}, seed {best.seed}")
    else:
        plot_curves({level: [run.path for run in runs]}, folder / CURVE, f"{level}, {len(runs)} seeds")
    if reason := _film(best, seed, folder / FILM, env_fn):
        left_out[FILM] = reason
    results = _results(best.done, seed) | {
        "level": level,
        "exported_seed": best.seed,
        "runs": [_told(run) | ({} if len(runs) == 1 else {"choice_mean": run.score}) for run in runs],
        "largest_action_difference": unlike,
        "versions": provenance()["versions"],
        "machine": {"platform": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count()},
    }
    if len(runs) > 1:
        means = np.array([run.done.returns.mean() for run in runs])
        results["seeds"] = {"mean": float(means.mean()), "std": float(means.std()), "interval_95": _interval(means)}
    config = {name: value for name, value in read_object(best.path / CONFIG).items() if name not in LEFT_AT_HOME}
    if "resumed" in config:
        resumed = ({name: value for name, value in each.items() if name != "git"} for each in config["resumed"])
        config["resumed"] = list(resumed)
    if source := config.get("initial_weights"):
        config["initial_weights"] = pathlib.Path(source).name  # not where it lies on this machine
    config |= {FORMAT: 1, "spaces": spaces_of(best.policy.acting.spec), CHECKSUMS: checksums(folder)}
    write_json(folder / CONFIG, config)
    write_json(folder / RESULTS, results)
    preset = RunDirectory(best.path).read()[0]
    page = page_of(preset, config, results, license, {path.name for path in folder.iterdir()}, best.card.policy)
    (folder / PAGE).write_text(page, encoding="utf-8")
    return results, left_out


def _interval(values: np.ndarray) -> list[float] | None:
    """Returns the 95 % bootstrap interval of a mean; None for a single value."""
    found = estimate(mean, [values])
    return None if math.isnan(found.low) else [float(found.low), float(found.high)]


def _results(done: Evaluation, seed: int) -> dict[str, Any]:
    """Returns the returns of episodes with their seeds, mean, deviation and interval."""
    return {
        "seed": seed,
        "episode_seeds": [episode_seed(seed, EVALUATION, AFTER_TRAINING, i) for i in range(len(done.returns))],
        "returns": done.returns.tolist(),
        "lengths": done.lengths.tolist(),
        "mean": float(done.returns.mean()),
        "std": float(done.returns.std()),
        "interval_95": _interval(done.returns),
    }


def _told(run: _Run) -> dict[str, Any]:
    """Returns what the card tells of one run: how long it trained, its best evaluation, and its returns."""
    steps, returns = read_curve(run.path)
    told = {name: float(read_curve(run.path, name)[1][-1]) for name in ("updates", "wall_seconds")}
    return {
        "seed": run.seed,
        "env_steps": int(steps[-1]),
        "best_at": int(steps[returns.argmax()]),
        "updates": int(told["updates"]),
        "wall_seconds": told["wall_seconds"],
        "returns": run.done.returns.tolist(),
        "mean": float(run.done.returns.mean()),
        "std": float(run.done.returns.std()),
        "interval_95": _interval(run.done.returns),
    }


def _difference(policy: Policy, path: pathlib.Path, observations: list[Any]) -> float | None:
    """Returns the largest difference of an action from the trained policy's; None where that one draws."""
    draws = getattr(policy.acting.parameters.algorithm, "epsilon_greedy", 0.0)
    return None if draws else verify(policy, path, observations)


def _lite(
    policy: Policy, aside: pathlib.Path, folder: pathlib.Path, observations: list[Any], unlike: dict[str, float | None]
) -> str:
    """Writes the LiteRT file, or returns why not."""
    if importlib.util.find_spec("ai_edge_litert") is None:
        return "it needs: pip install 'tfsac[litert]'"
    try:
        path = export(policy, aside / "lite", "tflite")
        difference = _difference(policy, path, observations)
    except OSError:
        raise
    except Exception as error:  # of the converter or the interpreter, which know fewer operations than TensorFlow
        return f"this policy cannot be converted ({described(error)})"
    if difference is not None and difference > TOLERANCE:
        return f"its actions differ by {difference:.2e} from the trained policy's"
    path.rename(folder / LITE)
    unlike[LITE] = difference
    return ""


def _film(run: _Run, seed: int, path: pathlib.Path, env_fn: Callable[[], gym.Env] | None) -> str:
    """Films the first episode, or returns why not."""
    if missing := [name for name in ("imageio", "imageio_ffmpeg") if importlib.util.find_spec(name) is None]:
        return f"it needs: pip install 'tfsac[video]' (no {missing[0]})"
    try:
        first = episode_seed(seed, EVALUATION, AFTER_TRAINING, 0)
        write_video(run.card.environment, [first], [np.array(run.first.actions)], path, env_fn)
    except (EnvironmentFailure, ImportError, ParameterError) as error:
        return str(error)
    return ""
