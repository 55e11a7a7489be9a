"""Compares returns of the ensembles and of the twin agent after equal steps, equal arithmetic and equal time.

    python benchmarks/learning.py --suite=ensembles      # the curves
    python benchmarks/learning.py --suite=mujoco --only=mujoco_twin_sac
    python benchmarks/budgets.py                         # times a step of each on a quiet machine, then the table
    python benchmarks/budgets.py --only='twin|small'     # only some
    python benchmarks/budgets.py --only=redq --steps=100 # expensive ones with fewer steps
    python benchmarks/budgets.py --collect               # only the table
    python benchmarks/budgets.py --arithmetic            # GFLOP of a step of every preset with an ensemble, on Hopper

Arithmetic counts the matrix products in the graphs of an update. Seconds are those of steps with their updates, from a
short run with the same flags; both exclude warm-up and evaluations. A return is the mean over seeds of the last 3
evaluations within the budget, from the first update on. "untrained" means that there are none; a dash means that no run
was that long. Writes results/budgets.csv and results/budgets.md.
"""

from __future__ import annotations

import argparse
import csv
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from learning_runs import Records
from learning_suites import SUITES, Group, Level, parameter
from speed import machine, read

from tfsac.experiments.learning_curves import read_evaluations

RESULTS = pathlib.Path(__file__).parent / "results"
COLUMNS = ("machine", "group", "level", "round", "random", "gflop", "steps_per_second")
RANDOM, LARGEST_BATCH = 3, 512  # steps of a timed run before its updates: times the timed ones, at least
BUDGETS = {"steps": (15_000, 25_000, 50_000, 100_000), "GFLOP": (10_000, 40_000, 150_000), "minutes": (2, 5, 15)}
LAST = 3  # evaluations


class Trained(NamedTuple):
    """The runs of one group on one level of a suite."""

    suite: str
    level: Level
    group: Group


def trained() -> Iterator[Trained]:
    """Yields the entries of the table: for each level the twin agent and `continuous`, then the ensembles."""
    for level in SUITES["ensembles"].levels:
        plain = next(other for other in SUITES["mujoco"].levels if other.title == level.title)
        groups = [group for group in plain.groups if group.package == "tfsac" and group.name != "continuous_averaged"]
        yield from (Trained("mujoco", plain, group) for group in groups)
        yield from (Trained("ensembles", level, group) for group in level.groups)


# -- measuring ---------------------------------------------------------------------------------------------------------


def measure(rounds: int, only: str, steps: int, path: pathlib.Path) -> None:
    """Adds steps per second and the arithmetic of a step to the CSV, for groups whose name matches `only`."""
    name = machine()
    kept = [row for row in read(path) if row["machine"] != name or not re.search(only, row["group"])]
    with path.open("w", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS)
        rows.writeheader()
        rows.writerows(kept)
        for number in range(1, rounds + 1):
            for _, level, group in (runs for runs in trained() if re.search(only, runs.group.name)):
                row = dict(zip(COLUMNS, (name, group.name, level.id, number, *timed(level, group, steps)), strict=True))
                rows.writerow(row)
                file.flush()
                print(*row.values(), sep="  ", file=sys.stderr)


def timed(level: Level, group: Group, steps: int) -> tuple[int, str, str]:
    """Returns the random steps of a group's runs, GFLOP per step and steps per second, over `steps` steps."""
    import tfsac

    short = (
        f"--set=schedule.heatup_steps=EnvironmentSteps({max(RANDOM * steps, LARGEST_BATCH)})",
        f"--set=schedule.improve_steps=EnvironmentSteps({2 * steps})",
        f"--set=schedule.steps_between_evaluation_periods=EnvironmentSteps({steps})",
        "--set=schedule.evaluation_steps=EnvironmentEpisodes(1)",
        f"--checkpoint_save_steps={10**9}",
    )
    changed = {parameter(flag) for flag in short}
    flags = [flag for flag in level.run(group, 1).flags if parameter(flag) not in changed]
    preset = next(flag.partition("=")[2] for flag in flags if flag.startswith("--preset="))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tfsac", "train", *flags, *short, f"--run_dir={folder}/run"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with pathlib.Path(folder, "run", "metrics.csv").open(newline="") as file:
            speed = float(list(csv.DictReader(file))[-1]["steps_per_second"])
        gflop = flops_of_a_step(tfsac.load_policy(pathlib.Path(folder, "run"), critics=True).critics) / 1e9
    return tfsac.load_preset(preset).schedule.heatup_steps.num_steps, f"{gflop:.4g}", f"{speed:.4g}"


def flops_of_a_step(agent: Any) -> float:
    """Returns the FLOP of the matrix products in the updates after an environment step."""
    algorithm = agent.algorithm
    share = 1 / algorithm.num_updates_between_policy_updates
    with_policy, without = (
        flops_of_an_update(agent, update) for update in (agent.update_once, agent.update_critics_once)
    )
    return algorithm.num_consecutive_training_steps * (share * with_policy + (1 - share) * without)


def flops_of_an_update(agent: Any, update_once: Callable[[Any], Any]) -> int:
    """Returns the FLOP of the matrix products in the graph of one update that reports only losses."""
    import tensorflow as tf
    from profile_update import needed

    agent.full_metrics = False
    rows = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), agent.batch_spec())
    update = tf.function(update_once, autograph=False)
    return sum(map(products, needed(update.get_concrete_function(rows).graph)))


def arithmetic() -> None:
    """Prints the GFLOP of a step on Hopper-v5 for the twin agent's preset and every preset with an ensemble."""
    import tfsac
    from tfsac.environments import make, spec_of
    from tfsac.parameters import RunParameters, override
    from tfsac.training.build import build_agent

    spec = spec_of(make("Hopper-v5"))
    for name in tfsac.preset_names():
        preset = tfsac.load_preset(name)
        if name == "mujoco_twin_sac" or getattr(preset.agent, "has_ensemble", False):
            preset = override(preset, {"environment.level": "Hopper-v5"})
            print(f"{name:20}{flops_of_a_step(build_agent(preset, RunParameters(), spec)) / 1e9:6.2g}", flush=True)


def products(operation: Any) -> int:
    """Returns the FLOP of a matrix product, 0 for any other operation."""
    if operation.type not in ("MatMul", "BatchMatMulV2"):
        return 0
    transposed = operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
    inner = operation.inputs[0].shape[-2 if transposed else -1]
    return 2 * operation.outputs[0].shape.num_elements() * inner


# -- the table ---------------------------------------------------------------------------------------------------------


def returned(runs: Trained, random: int, steps: float) -> str:
    """Returns a table cell with the mean return after `steps` steps, `random` of them uniform, and the seed count."""
    suite = SUITES[runs.suite]
    records, means, untrained = Records(RESULTS / "learning" / runs.suite, suite.last_evaluations), [], False
    for run in (runs.level.run(runs.group, seed) for seed in runs.group.seeds):
        if records.has(run):
            curve = read_evaluations(records.curve(run), run.level)
            until = [value for at, value in zip(curve.steps, curve.returns, strict=True) if random < at <= steps]
            untrained = untrained or not until
            if until and steps <= 1.05 * curve.steps[-1]:
                means.append(statistics.mean(until[-LAST:]))
    if untrained:
        return "untrained"
    return f"{statistics.mean(means):.0f} ({len(means)})" if means else "-"


def table(path: pathlib.Path) -> str:
    """Returns a table for each level with its timed groups."""
    heads = [f"{amount:,} {kind}".replace(",", " ") for kind, amounts in BUDGETS.items() for amount in amounts]
    tables: dict[str, list[list[str]]] = {}
    for runs in trained():
        times = [row for row in read(path) if (row["group"], row["level"]) == (runs.group.name, runs.level.id)]
        if times:
            gflop, random = float(times[-1]["gflop"]), int(times[-1]["random"])
            seconds = float(np.median([1 / float(row["steps_per_second"]) for row in times]))
            steps = [*BUDGETS["steps"], *(random + amount / gflop for amount in BUDGETS["GFLOP"])]
            steps += [random + 60 * amount / seconds for amount in BUDGETS["minutes"]]
            cells = [runs.group.label.removeprefix("tfsac, "), f"{gflop:.2g}", f"{1e3 * seconds:.3g}"]
            tables.setdefault(runs.level.id, []).append([*cells, *(returned(runs, random, at) for at in steps)])
    under = "|---" * (3 + len(heads)) + "|"
    return "\n".join(
        "\n".join([markdown_row([level, "GFLOP a step", "ms a step", *heads]), under, *map(markdown_row, rows), ""])
        for level, rows in tables.items()
    )


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=250, help="timed steps of a run")
    parser.add_argument("--only", default="", help="regular expression: groups to time")
    parser.add_argument("--collect", action="store_true", help="measure nothing")
    parser.add_argument("--arithmetic", action="store_true", help="only print GFLOP")
    args = parser.parse_args()
    if args.arithmetic:
        arithmetic()
        return
    path = RESULTS / "budgets.csv"
    if not args.collect:
        measure(args.rounds, args.only, args.steps, path)
    text = table(path)
    (RESULTS / "budgets.md").write_text(f"# What a budget buys\n\n{text}")
    print(text)


if __name__ == "__main__":
    main()
