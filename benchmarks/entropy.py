"""Checks whether a policy's entropy follows its target: plots return, entropy and alpha, and examines the second half.

    python benchmarks/entropy.py --run_dir=runs/learning/lunar_lander_discrete_sac_LunarLander-v3_seed1

Writes results/entropy/<name of the run>.csv and .png.
"""

import argparse
import csv
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

RESULTS = pathlib.Path(__file__).parent / "results" / "entropy"
COLUMNS = ["env_steps", "evaluation/return_mean", "policy/entropy", "policy/target_entropy", "temperature/alpha"]
BAND = 0.2  # fraction of the target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run_dir", type=pathlib.Path, required=True)
    run = parser.parse_args().run_dir
    with (run / "metrics.csv").open(newline="") as file:
        rows = [[row[column] for column in COLUMNS] for row in csv.DictReader(file) if row["policy/entropy"]]
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / f"{run.name}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    steps, returns, entropy, target, alpha = np.array(rows, float).T

    figure, axes = plt.subplots(3, 1, sharex=True, figsize=(7, 7), layout="constrained")
    axes[0].plot(steps, returns)
    axes[0].set_ylabel("evaluation return")
    axes[1].plot(steps, entropy, label="entropy of the policy")
    axes[1].plot(steps, target, "k--", linewidth=1, label="target")
    axes[1].fill_between(steps, (1 - BAND) * target, (1 + BAND) * target, alpha=0.15, color="k", label="within 20 %")
    axes[1].set_ylabel("entropy, nats")
    axes[1].legend()
    axes[2].plot(steps, alpha)
    axes[2].set_ylabel("temperature alpha")
    axes[2].set_xlabel("environment steps")
    figure.suptitle(run.name)
    figure.savefig(RESULTS / f"{run.name}.png", dpi=100)

    late = steps > steps[-1] / 2
    off = np.abs(entropy - target)[late] / target[late]
    print(
        f"second half: entropy off its target by {off.mean():.1%} on average, {off.max():.1%} at most ({late.sum()} "
        f"rows)"
    )
    print(f"alpha between {alpha.min():.3g} and {alpha.max():.3g}, all finite: {np.isfinite(alpha).all()}")


if __name__ == "__main__":
    main()
