"""Computes the return of imitation as a fraction of the expert's return.

    python benchmarks/imitation.py --run_dir=RUN --run_dir=RUN

Compares the last evaluation of runs of the SQIL presets with the mean return of their demonstrations; for negative
returns also on a scale where the run's first evaluation, of an untrained policy, is 0. Writes results/imitation.csv.
"""

import argparse
import csv
import pathlib

import numpy as np

from tfsac.preset_lookup import read_config

RESULTS = pathlib.Path(__file__).parent / "results" / "imitation.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run_dir", type=pathlib.Path, action="append", required=True)
    rows = []
    for run in parser.parse_args().run_dir:
        memory = read_config(run / "config.json")[0].agent.memory
        with np.load(memory.demonstrations) as file:
            returns = file["returns"][: memory.num_episodes]
        expert, episodes = float(returns.mean()), len(returns)
        with (run / "metrics.csv").open(newline="") as file:
            evaluations = list(csv.DictReader(file))
        first, last = (float(evaluations[i]["evaluation/return_mean"]) for i in (0, -1))
        scaled = (last - first) / (expert - first)
        rows.append([run.name, episodes, *(round(x, 3) for x in (expert, first, last, scaled))])
        print(
            f"{run.name:<50} {episodes} demonstrations of {expert:.1f}; untrained {first:.1f}, last {last:.1f}: "
            f"{scaled:.1%} of the way"
        )
    with RESULTS.open("w", newline="") as file:
        columns = ["run", "demonstrations", "expert", "untrained", "last evaluation", "part of the way"]
        csv.writer(file).writerows([columns, *rows])


if __name__ == "__main__":
    main()
