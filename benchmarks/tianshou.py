"""Compares our suites with the evaluations that Tianshou publishes for SAC on MuJoCo's v3 levels: 10 seeds each.

    python benchmarks/tianshou.py                    # the table, from results/tianshou.csv and the committed records
    python benchmarks/tianshou.py --source=TIANSHOU  # rewrites that CSV, from a checkout of the commit below

The evaluations are `examples/mujoco/benchmark/LEVEL/sac/test_rew_10seeds.csv` of github.com/thu-ml/tianshou (MIT), commit
39acf2094d96268d92ebb54dcbfc3de76d702567; each is the mean of 10 episodes. Steps there exclude the 10 000 random steps;
here they are included. Both scores are the mean of the last 5 evaluations, which are every 5000 steps in runs of
100 000 steps and every 10 000 in long runs.
"""

import argparse
import csv
import pathlib

import numpy as np
from learning_runs import Records
from learning_suites import SUITES

from tfsac.experiments.bootstrap import estimate, improvement, mean
from tfsac.experiments.learning_curves import read_evaluations

RESULTS = pathlib.Path(__file__).parent / "results"
CURVES = RESULTS / "tianshou.csv"
SEEDS = [f"seed_{seed}" for seed in range(10)]
RANDOM = 10_000
STEPS = {"HalfCheetah-v3": 1_000_000, "Hopper-v3": 1_000_000, "Walker2d-v3": 1_000_000, "Ant-v3": 500_000}  # long runs
SHORT = 100_000


def evaluations(level: str, suite: str) -> range:
    """Returns the steps of the evaluations in a score."""
    last, every = (SHORT, 5000) if suite == "mujoco" else (STEPS[level], 10_000)
    return range(last - 4 * every, last + 1, every)


def write_curves(source: pathlib.Path) -> None:
    """Writes the evaluations in the scores."""
    with CURVES.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["level", "env_steps", *SEEDS])
        for level in (*STEPS, "Humanoid-v3"):
            suites = ("mujoco", "long") if level in STEPS else ("mujoco",)
            wanted = {steps - RANDOM for suite in suites for steps in evaluations(level, suite)}
            path = source / "examples" / "mujoco" / "benchmark" / level / "sac" / "test_rew_10seeds.csv"
            with path.open(newline="") as published:
                rows = csv.reader(published)
                seeds = [column for column, name in enumerate(next(rows)) if name.startswith("rew:seed")]
                for row in rows:
                    if int(row[0]) in wanted:
                        writer.writerow([level, int(row[0]) + RANDOM, *(row[column] for column in seeds)])


def theirs(level: str, suite: str) -> np.ndarray:
    """Returns the scores of a level's seeds."""
    with CURVES.open(newline="") as file:
        rows = {int(row["env_steps"]): row for row in csv.DictReader(file) if row["level"] == level}
    return np.array([[float(rows[steps][seed]) for seed in SEEDS] for steps in evaluations(level, suite)]).mean(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, help="a checkout of Tianshou")
    options = parser.parse_args()
    if options.source is not None:
        write_curves(options.source)
    print("| suite | level | tfsac | Tianshou, v3 | probability that a run of tfsac has the higher score |")
    print("|---|---|---|---|---|")
    for name in ("mujoco", "long"):
        suite = SUITES[name]
        records = Records(RESULTS / "learning" / name, suite.last_evaluations)
        for level in suite.levels:
            published = level.id.replace("v5", "v3")
            runs = [level.run(level.groups[0], seed) for seed in level.groups[0].seeds]
            runs = [run for run in runs if records.has(run)]
            if not runs:
                continue
            ours = np.array(
                [read_evaluations(records.curve(run), level.id, suite.last_evaluations).last for run in runs]
            )
            other = theirs(published, name)
            of_both = [f"{estimate(mean, [scores])} ({len(scores)})" for scores in (ours, other)]
            print("|", " | ".join([name, level.title, *of_both, str(estimate(improvement, [ours, other]))]), "|")


if __name__ == "__main__":
    main()
