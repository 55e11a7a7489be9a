"""Computes the cost of a return: environment steps, matrix products and seconds until an evaluation first reaches it.

    python benchmarks/learning.py --suite=mujoco --sb3_python=PYTHON --only='(HalfCheetah|Hopper)'
    python benchmarks/learning.py --suite=twin_sac --sb3_python=PYTHON --only=Pendulum
    python benchmarks/cost.py --sb3=PYTHON     # times a step on a quiet machine, then makes the table
    python benchmarks/cost.py --collect        # only the table

Steps are medians over seeds from the suites' records. On MuJoCo levels, seconds are the number of updates until then
times the time of a step with an update, which speed.py measures on the same level with layers and batches of the same
size; they exclude warm-up and evaluations. On Pendulum, they are the wall clocks of runs that had the machine to
themselves, including both. Writes results/cost.csv (steps per second) and results/cost.md.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import pathlib
import statistics
import sys
from typing import NamedTuple

import numpy as np
from learning_runs import Records
from learning_suites import SUITES, Group, Level
from speed import flops, machine, read, start_worker

from tfsac.experiments.learning_curves import read_evaluations

RESULTS = pathlib.Path(__file__).parent / "results"
COLUMNS = ("machine", "level", "library", "round", "steps_per_second")
USUAL = (256, 256), 256


class Target(NamedTuple):
    """Target returns on a level of a suite.

    `sizes` are the sizes of observation and action, `random` the steps of the warm-up, `tfsac` the layers and the batch
    of its preset; `clock` is "speed" or, for short runs, "records".
    """

    suite: str
    level: str
    returns: tuple[float, ...]
    sizes: tuple[int, int]
    random: int
    tfsac: tuple[tuple[int, ...], int] = USUAL
    clock: str = "speed"


TARGETS = (
    Target("mujoco", "HalfCheetah-v5", (4000, 6000), (17, 6), 10_000),
    Target("mujoco", "Hopper-v5", (1000,), (11, 3), 10_000),
    Target("twin_sac", "Pendulum-v1", (-200,), (3, 1), 1_000, ((128, 128), 256), "records"),
)


def measure(args: argparse.Namespace, path: pathlib.Path) -> None:
    """Adds the speeds on this machine to the CSV."""
    name = machine()
    kept = [row for row in read(path) if row["machine"] != name]
    with path.open("w", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS)
        rows.writeheader()
        rows.writerows(kept)
        for number in range(1, args.rounds + 1):
            for target in (target for target in TARGETS if target.clock == "speed"):
                for library in ("tfsac", "sb3"):
                    args.level = target.level
                    speed = start_worker(library, "loop1", args)["value"]
                    rows.writerow(
                        dict(zip(COLUMNS, (name, target.level, library, number, f"{speed:.5g}"), strict=True))
                    )
                    file.flush()
                    print(f"round {number}  {target.level}  {library}  {speed:.4g} steps/s", file=sys.stderr)


def first_reached(target: float, records: Records, level: Level, group: Group) -> list[tuple[float, float]]:
    """Returns environment steps and seconds of each seed at its first evaluation that reaches the target.

    Both are infinite if there is none. The seconds of a run that shared the machine are NaN.
    """
    found = []
    for run in (level.run(group, seed) for seed in group.seeds):
        if records.has(run):
            curve = read_evaluations(records.curve(run), run.level)
            reached = np.flatnonzero(curve.returns >= target)
            alone = records.rows[run.name]["shared_clock"] == "no"
            at = (
                (float(curve.steps[reached[0]]), float(curve.seconds[reached[0]])) if len(reached) else (np.inf, np.inf)
            )
            found.append((at[0], at[1] if alone else np.nan))
    return found


def cost(target: Target, group: Group, found: list[tuple[float, float]], speeds: list[dict[str, str]]) -> list[str]:
    """Returns environment steps, GFLOP and seconds, as medians over seeds, as cells of the table."""
    steps = statistics.median(at for at, _ in found)
    if np.isinf(steps):
        return ["by half of the seeds at most", "", ""]
    updates = steps - target.random
    hidden, batch = target.tfsac if group.package == "tfsac" else USUAL
    gflop = updates * sum(flops(*target.sizes, hidden, batch).values()) / 1e9
    if target.clock == "records":
        seconds = float(np.median([seconds for _, seconds in found]))
    else:
        of_group = [row for row in speeds if (row["level"], row["library"]) == (target.level, group.package)]
        seconds = updates / float(np.median([float(row["steps_per_second"]) for row in of_group] or [np.nan]))
    return [f"{steps:.0f}", f"{gflop:.0f}", "" if np.isnan(seconds) else f"{seconds:.0f}"]


def table(path: pathlib.Path) -> str:
    """Returns the rows of all targets and groups with runs."""
    lines = [
        "| level | return | group | reached by | environment steps | GFLOP | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for target in TARGETS:
        suite = SUITES[target.suite]
        records = Records(RESULTS / "learning" / target.suite, suite.last_evaluations)
        level = next(level for level in suite.levels if level.id == target.level)
        # Only SAC, because this counts its arithmetic; budgets.py has other agents.
        groups = [group for group in level.groups if not group.name.startswith("continuous")]
        for wanted, group in itertools.product(target.returns, groups):
            if found := first_reached(wanted, records, level, group):
                reached = sum(np.isfinite(steps) for steps, _ in found)
                cells = [target.level, f"{wanted:g}", group.label, f"{reached} of {len(found)}"]
                lines.append("| " + " | ".join([*cells, *cost(target, group, found, read(path))]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tfsac", default=sys.executable, help="its Python")
    parser.add_argument("--sb3", help="its Python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000, help="steps of a measurement")
    parser.add_argument("--collect", action="store_true", help="measure nothing")
    args = parser.parse_args()
    path = RESULTS / "cost.csv"
    if not args.collect:
        if args.sb3 is None:
            parser.error("--sb3 must be a Python with Stable-Baselines3")
        measure(args, path)
    text = table(path)
    (RESULTS / "cost.md").write_text(f"# What a return costs\n\n{text}")
    print(text)


if __name__ == "__main__":
    main()
