"""The commands for what a run left: evaluate, export, record, plot, compare."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

from absl import flags

from tfsac.cli.command import choice, command, counted, required, switch, text, texts, whole
from tfsac.cli.grouping import by_level, groups_of, is_group, level_of, refuse_unfinished, unused_runs
from tfsac.cli.learning import assignments, set_flag
from tfsac.errors import TfsacError

if TYPE_CHECKING:
    from tfsac.training import Evaluation

CALIBRATION_EPISODES = 10


def _run_flags(f: flags.FlagValues) -> None:
    text(f, "run_dir", "the run's folder")


def _episode_flags(f: flags.FlagValues, episodes: int = 10) -> None:
    _run_flags(f)
    whole(f, "episodes", episodes, "number of episodes")
    switch(f, "stochastic", "sample actions instead of taking the policy's mode")
    whole(f, "seed", 0, "of the episodes", least=0)
    text(f, "level", "environment id, instead of that of training")
    set_flag(f)


def _policy_flags(f: flags.FlagValues) -> None:
    whole(f, "step", None, "of a checkpoint, for the best policy until then", least=0)
    switch(f, "last", "take the policy of the newest checkpoint, or of that of --step, not the best")


def _evaluate_flags(f: flags.FlagValues) -> None:
    _episode_flags(f)
    switch(f, "render", "open a window")
    text(f, "dump_mp4", "write a video (.mp4 or .gif) to this file")
    _policy_flags(f)
    text(f, "plot_actions", "draw the first episode's actions to this .png file")


@command("evaluate the policy of a run", _evaluate_flags)
def evaluate(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints mean, std, min and max of the episodes' returns."""
    run_dir, video, plot_file = required(f, "run_dir"), f.dump_mp4, f.plot_actions
    from tfsac import api

    of_run: dict[str, Any] = {"step": f.step, "last": f.last, "changes": _environment_changes(f)}
    try:
        render: Any = "human" if f.render else ""
        evaluation = api.evaluate(run_dir, f.episodes, not f.stochastic, f.seed, render, video, plot_file, **of_run)
    except api.DrawingError as error:
        print_evaluation(error.evaluation, f.episodes)
        raise
    print_evaluation(evaluation, f.episodes)
    if not f.last:
        warn_untrained(run_dir, f.step)
    if video:
        print(f"video   {video}")
    if plot_file:
        print(f"actions {plot_file}")
    return 0


def warn_untrained(run_dir: str | pathlib.Path, until: int | None = None) -> None:
    """Prints a line where a run was evaluated, until a step, but not after an update."""
    from tfsac.experiments.plots import read_curve

    try:
        steps, updates = read_curve(pathlib.Path(run_dir), "updates")
    except (OSError, ValueError):  # no evaluation yet
        return
    num_updates = updates if until is None else updates[steps <= until]
    if len(num_updates) and not num_updates.any():
        print("  no evaluation was after an update: this policy is untrained, or that of initial_weights; try --last")


def _environment_changes(f: flags.FlagValues) -> dict[str, Any]:
    return ({"environment.level": f.level} if f.level else {}) | assignments(f)


def print_evaluation(evaluation: Evaluation, episodes: int) -> None:
    """Prints the returns of an evaluation, and how often a policy with trajectories switched."""
    returns, lengths = evaluation.returns, evaluation.lengths
    print(
        f"return  mean {returns.mean():.2f}  std {returns.std():.2f}  min {returns.min():.2f}  "
        f"max {returns.max():.2f}  over {counted(episodes, 'episode')} of {lengths.mean():.0f} steps on average"
    )
    if 1 < len(returns) < 10 and returns.std():
        error = returns.std(ddof=1) / len(returns) ** 0.5
        print(f"        the mean's standard error is {error:.2f}; more episodes make it smaller")
    for key, values in evaluation.info.items():
        print(f"{key}  mean {values[values == values].mean():.2f}")
    if evaluation.switched is not None:
        rate, repeats = evaluation.switching()
        print(f"switch  in {100 * rate:.1f} % of the steps; a trajectory lasts {repeats:.1f} steps on average")


def _export_flags(f: flags.FlagValues) -> None:
    _run_flags(f)
    text(f, "out", "a new folder")
    choice(f, "format", ["saved_model", "tflite"], "tflite: for LiteRT")
    choice(
        f,
        "quantize",
        ["none", "float16", "int8"],
        "weights of a LiteRT file; int8: activations too, calibrated in 10 episodes",
    )
    switch(f, "values", "also export the values of observations and actions")
    _policy_flags(f)
    switch(f, "verify", "compare exported and live actions over an episode")


@command("export the policy of a run", _export_flags)
def export(f: flags.FlagValues, rest: list[str]) -> int:
    """Writes a SavedModel or a LiteRT file."""
    run_dir, out = required(f, "run_dir"), required(f, "out")
    from tfsac import api, exporting
    from tfsac.exporting import loading

    policy = loading.load_policy(run_dir, critics=f.values, step=f.step, last=f.last)
    num_calibration = CALIBRATION_EPISODES if f.quantize == "int8" else 0
    episodes = api.observations_of(run_dir, policy, num_calibration + f.verify) if num_calibration or f.verify else []
    calibration = episodes[:num_calibration] or None
    path = exporting.export(policy, out, f.format, f.values, quantize=f.quantize, quantize_with=calibration)
    print(f"exported to {path}")
    if not f.last:
        warn_untrained(run_dir, f.step)
    if not f.verify:
        return 0
    observations = episodes[-1]
    difference = exporting.verify(policy, path, observations)
    rounded = f.quantize != "none"
    good = rounded or difference <= exporting.TOLERANCE
    within = f"{'within' if good else 'MORE THAN'} {exporting.TOLERANCE:g}"
    judged = f"of {f.quantize}, without a tolerance" if rounded else within
    print(f"largest difference of an action over {len(observations)} observations: {difference:.2e} ({judged})")
    return 0 if good else 1


def _record_flags(f: flags.FlagValues) -> None:
    _episode_flags(f)
    text(f, "out", "a new .npz file")


@command("record episodes of the best policy as demonstrations", _record_flags)
def record(f: flags.FlagValues, rest: list[str]) -> int:
    """Writes a demonstration file."""
    run_dir, out = required(f, "run_dir"), required(f, "out")
    from tfsac import api

    demonstrations = api.record(run_dir, out, f.episodes, not f.stochastic, f.seed, changes=_environment_changes(f))
    print(
        f"{len(demonstrations.records)} transitions of {len(demonstrations.returns)} episodes, "
        f"mean return {demonstrations.returns.mean():.2f}, in {out}"
    )
    return 0


def _plot_flags(f: flags.FlagValues) -> None:
    texts(f, "run_dir", "a run's folder, like a word: plot RUN RUN; several are drawn together")
    text(f, "out", "the picture (default: learning_curve.png in the run's folder)")
    text(f, "title", "above the curves of several runs (default: their levels)", "")
    text(f, "column", "of metrics.csv, in the place of returns, such as q/q1")


@command("draw learning curves", _plot_flags, "RUN... | SWEEP... | LABEL=RUN,RUN...")
def plot(f: flags.FlagValues, rest: list[str]) -> int:
    """Draws one run, or several together, grouped as `compare` groups them."""
    from tfsac.experiments.plots import plot_curves, plot_run

    words = [*f.run_dir, *rest]
    if not words:
        raise TfsacError("A plot needs runs, as in: tfsac plot RUN, or tfsac plot RUN RUN --out=FILE.png")
    if len(words) == 1 and not is_group(words[0]) and not f.column:
        print(plot_run(pathlib.Path(words[0]), f.out))
        return 0
    groups = by_level(groups_of(words))
    levels = dict.fromkeys(level_of(run) for runs in groups.values() for run in runs)
    title = f.title or ", ".join(filter(None, levels))
    print(plot_curves(groups, required(f, "out"), title, **({"column": f.column} if f.column else {})))
    return 0


def _compare_flags(f: flags.FlagValues) -> None:
    text(f, "out", "folder of comparison.csv and comparison.png (default: the sweep's, or runs/comparison/<time>)")
    text(f, "title", "above the picture (default: the levels)", "")
    whole(f, "last_evaluations", 1, "a run's score is the mean of so many of its last evaluations")


@command(
    "compare groups of runs, or the combinations of a sweep", _compare_flags, "RUN... | SWEEP... | LABEL=RUN,RUN..."
)
def compare(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints the statistics of every group of runs, and writes them and their picture."""
    from tfsac.experiments import comparison
    from tfsac.utils.files import new_run_dir

    if not rest:
        raise TfsacError("A comparison needs runs, as in: tfsac compare RUN RUN, or LABEL=RUN,RUN")
    only = pathlib.Path(rest[0])
    out = only if len(rest) == 1 and (only / "sweep.json").is_file() else new_run_dir("comparison", None)
    refuse_unfinished(groups := groups_of(rest))
    for run in unused_runs(rest):
        print(f"left out, not finished: {run}")
    print(comparison.compare(groups, f.out or out, f.title, f.last_evaluations))
    return 0
