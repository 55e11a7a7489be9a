"""Commands for the results of runs: evaluate, export, card, load, record, plot, compare."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

from absl import flags

from tfsac.cli.command_registry import boolean, command, enum, integer, required, string, strings
from tfsac.cli.groups_of_runs import groups_of, is_group, level_of
from tfsac.cli.train import SET, assignments
from tfsac.errors import TfsacError

if TYPE_CHECKING:
    from tfsac.training import Evaluation

RUNS = "RUN... | SWEEP... | LABEL=RUN,RUN..."

RUN_DIR = string("run_dir", "the run's folder")
SEED = integer("seed", 0, "seed of the episodes", minimum=0)
STOCHASTIC = boolean("stochastic", "sample actions instead of taking the policy's mode")
EPISODES = (
    RUN_DIR,
    integer("episodes", 10, "number of episodes"),
    STOCHASTIC,
    SEED,
    string("level", "environment id, instead of the training environment's"),
    SET,
)
POLICY = (
    integer("step", None, "step of a checkpoint: use the best policy up to it", minimum=0),
    boolean("last", "use the policy of the newest checkpoint, or of --step's, instead of the best"),
)
DRAWING = (boolean("render", "open a window"), string("dump_mp4", "write a video (.mp4 or .gif) to this file"))


@command(
    "evaluate the policy of a run",
    *EPISODES,
    *DRAWING,
    *POLICY,
    string("plot_actions", "draw the first episode's actions to this .png file"),
)
def evaluate(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints mean, std, min and max of the returns."""
    run_dir = required(f, "run_dir")
    from tfsac import api

    render: Any = "human" if f.render else ""
    drawing = render, f.dump_mp4, f.plot_actions
    of_run: dict[str, Any] = {"step": f.step, "last": f.last, "changes": _environment_changes(f)}
    print_evaluation(api.evaluate(run_dir, f.episodes, not f.stochastic, f.seed, *drawing, **of_run))
    return 0


def _environment_changes(f: flags.FlagValues) -> dict[str, Any]:
    return ({"environment.level": f.level} if f.level else {}) | assignments(f)


def print_evaluation(evaluation: Evaluation) -> None:
    """Prints the returns of an evaluation, and the switch rate of a policy with temporal abstraction."""
    returns, lengths = evaluation.returns, evaluation.lengths
    print(
        f"return  mean {returns.mean():.2f}  std {returns.std():.2f}  min {returns.min():.2f}  "
        f"max {returns.max():.2f}  over {_episodes(len(returns))} of {lengths.mean():.0f} steps on average"
    )
    for key, values in evaluation.info.items():
        print(f"{key}  mean {values[values == values].mean():.2f}")
    if evaluation.switched is not None:
        rate, repeats = evaluation.switching()
        print(f"switch  in {100 * rate:.1f} % of the steps; a trajectory lasts {repeats:.1f} steps on average")


def _episodes(number: int) -> str:
    return f"{number} episode{'s' * (number != 1)}"


@command(
    "export the policy of a run",
    RUN_DIR,
    string("out", "a new folder"),
    enum("format", ["saved_model", "tflite"], "format; tflite is for LiteRT"),
    enum("quantize", ["none", "float16"], "float16 rounds the weights of a LiteRT file"),
    boolean("values", "also export the values of observations and actions"),
    *POLICY,
    boolean("verify", "compare exported and live actions over an episode"),
)
def export(f: flags.FlagValues, rest: list[str]) -> int:
    """Writes a SavedModel or a LiteRT file."""
    run_dir, out = required(f, "run_dir"), required(f, "out")
    from tfsac import api, exporting

    policy = exporting.load_policy(run_dir, critics=f.values, step=f.step, last=f.last)
    path = exporting.export(policy, out, f.format, f.values, quantize=f.quantize)
    print(f"exported to {path}")
    if not f.verify:
        return 0
    observations = api.observations_of(run_dir, policy)
    difference, rounded = exporting.verify(policy, path, observations), f.quantize != "none"
    good = rounded or difference <= exporting.TOLERANCE
    within = f"{'within' if good else 'MORE THAN'} {exporting.TOLERANCE:g}"
    judged = f"of {f.quantize}, without a tolerance" if rounded else within
    print(f"largest difference of an action over {len(observations)} observations: {difference:.2e} ({judged})")
    return 0 if good else 1


@command(
    "write a model card of a run's best policy, to share",
    RUN_DIR,
    string("out", "a new folder"),
    integer("episodes", 20, "number of episodes"),
    SEED,
    string("license", "identifier for the card, such as apache-2.0"),
)
def card(f: flags.FlagValues, rest: list[str]) -> int:
    """Writes a folder in the layout of a Hugging Face model repository."""
    run_dir, out = required(f, "run_dir"), required(f, "out")
    from tfsac.cards.card import write_card

    results = write_card(run_dir, out, f.episodes, f.seed, f.license).results
    print(f"return  mean {results['mean']:.2f}  std {results['std']:.2f}  over {_episodes(f.episodes)}")
    print(f"card    {out}")
    return 0


@command(
    "play the policy of a model card",
    string("card", "the folder of a model card"),
    integer("episodes", None, "number of episodes (default: the card's)"),
    STOCHASTIC,
    integer("seed", None, "seed of the episodes (default: the card's)", minimum=0),
    *DRAWING,
)
def load(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints the returns of the played episodes, and those in the card."""
    folder = required(f, "card")
    from tfsac.cards.card import load_card

    loaded = load_card(folder)
    print_evaluation(loaded.evaluate(f.episodes, not f.stochastic, f.seed, "human" if f.render else "", f.dump_mp4))
    if results := loaded.results:
        number = _episodes(len(results["returns"]))
        print(f"card    mean {results['mean']:.2f}  std {results['std']:.2f}  over {number}")
    return 0


@command("record episodes of the best policy as demonstrations", *EPISODES, string("out", "a new .npz file"))
def record(f: flags.FlagValues, rest: list[str]) -> int:
    """Writes a demonstration file."""
    run_dir, out = required(f, "run_dir"), required(f, "out")
    from tfsac import api

    made = api.record(run_dir, out, f.episodes, not f.stochastic, f.seed, changes=_environment_changes(f))
    mean = made.returns.mean()
    print(f"{len(made.records)} transitions of {_episodes(len(made.returns))}, mean return {mean:.2f}, in {out}")
    return 0


@command(
    "draw learning curves",
    strings("run_dir", "a run's folder, same as a positional RUN; several are drawn together"),
    string("out", "file of the plot (default: learning_curve.png in the run's folder)"),
    string("title", "title of a plot of several runs", ""),
    string("column", "column of metrics.csv to plot instead of returns, such as q/q1"),
    words=RUNS,
)
def plot(f: flags.FlagValues, rest: list[str]) -> int:
    """Draws one run, or several together, grouped as in `compare`."""
    from tfsac.experiments.plots import RETURN, plot_curves, plot_run

    words = [*f.run_dir, *rest]
    if not words:
        raise TfsacError("plot needs runs, for example: tfsac plot RUN, or tfsac plot RUN RUN --out=FILE.png")
    if len(words) == 1 and not is_group(words[0]) and not f.column:
        print(plot_run(pathlib.Path(words[0]), f.out))
        return 0
    curves: dict[str, list[pathlib.Path]] = {}
    for label, runs in groups_of(words).items():
        for run in runs:  # returns on different levels must not be averaged
            curves.setdefault(", ".join(filter(None, (label, level_of(run)))), []).append(run)
    print(plot_curves(curves, required(f, "out"), f.title, f.column or RETURN))
    return 0


@command(
    "compare groups of runs, or the combinations of a sweep",
    string("out", "folder of comparison.csv and comparison.png (default: the sweep's, or runs/comparison/<time>)"),
    string("title", "title of the plot (default: the levels)", ""),
    integer("last_evaluations", 1, "a run's score is the mean of this many last evaluations"),
    words=RUNS,
)
def compare(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints the statistics of every group of runs, and writes a table and a plot."""
    from tfsac.experiments import comparison
    from tfsac.experiments.sweep import PLAN
    from tfsac.utils.files import new_run_dir

    if not rest:
        raise TfsacError("compare needs runs, for example: tfsac compare RUN RUN, or LABEL=RUN,RUN")
    only = pathlib.Path(rest[0])
    out = only if len(rest) == 1 and (only / PLAN).is_file() else new_run_dir("comparison", None)
    groups = groups_of(rest)
    for run in (run for runs in groups.values() for run in runs if not (run / "policy").is_dir()):
        print(f"not finished: {run}")
    print(comparison.compare(groups, f.out or out, f.title, f.last_evaluations))
    return 0
