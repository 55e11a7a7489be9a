"""Trains runs and compares evaluations of their newest policy with those of averages of its weights, at several rates.

    python benchmarks/averaged_policy.py --preset=continuous --level=Hopper-v5 --seed=11 --folder=runs/averaging
    python benchmarks/averaged_policy.py --plot

The averages do not change training, so a run compares all of them. Each is `average += rate * (weights - average)` after
every update, from the initial weights on. The first command appends rows to results/averaged_policy.csv: every 5000
steps from 10 000 on, the returns of 5 episodes. The second plots the mean over seeds of `--preset` and prints the means
of its runs.
"""

import argparse
import csv
import pathlib
from collections import defaultdict

import gymnasium as gym
import numpy as np

import tfsac
from tfsac.parameters import EnvironmentEpisodes, RunParameters
from tfsac.training.evaluation import evaluate_policy

RESULTS = pathlib.Path(__file__).parent / "results" / "averaged_policy.csv"
NEWEST, RATES = 1.0, (0.005, 0.001, 0.0002)
HEADER = ["preset", "level", "seed", "steps", "rate", "mean", "min", "max"]
FIRST, PERIOD, EPISODES, LAST = 10_000, 5_000, 5, 5


class Averages(tfsac.Callback):
    """Averages the policy's weights at several rates, and evaluates all averages and the newest weights."""

    def __init__(self, name: str, level: str, seed: int):
        self.row, self.seed, self.env, self.next = [name, level, seed], seed, gym.make(level), FIRST

    def on_training_begin(self, trainer: tfsac.Trainer) -> None:
        self.variables = list(trainer.agent.policy.variables.values())
        self.averages = {rate: [variable.numpy().copy() for variable in self.variables] for rate in RATES}

    def on_updates(self, trainer: tfsac.Trainer, metrics: np.ndarray) -> None:
        newest = [variable.numpy() for variable in self.variables]
        for rate, average in self.averages.items():
            for mean, value in zip(average, newest, strict=True):
                mean += np.float32(rate) * (value - mean)

    def on_step(self, trainer: tfsac.Trainer) -> None:
        steps = trainer.counters.env_steps
        if steps < self.next:
            return
        self.next += PERIOD
        newest = [variable.numpy() for variable in self.variables]
        if not RESULTS.exists():
            RESULTS.write_text(",".join(HEADER) + "\n")
        with RESULTS.open("a", newline="") as file:
            for rate, weights in ((NEWEST, newest), *self.averages.items()):
                self.load(trainer, weights)
                evaluated = evaluate_policy(
                    trainer.policy, self.env, EnvironmentEpisodes(EPISODES), True, self.seed, steps
                )
                scores = evaluated.returns.mean(), evaluated.returns.min(), evaluated.returns.max()
                csv.writer(file).writerow([*self.row, steps, rate, *(f"{score:.2f}" for score in scores)])
        self.load(trainer, newest)

    def load(self, trainer: tfsac.Trainer, weights: list[np.ndarray]) -> None:
        for variable, value in zip(self.variables, weights, strict=True):
            variable.assign(value)
        trainer.agent.policy.refresh()


def plot(preset: str) -> None:
    """Plots a preset's newest policy and its average at 0.001 on each level, and prints the means of runs by rate."""
    import matplotlib.pyplot as plt

    curves: dict = defaultdict(lambda: defaultdict(dict))
    with RESULTS.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["preset"] == preset:
                seeds = curves[row["level"]][float(row["rate"])]
                seeds.setdefault(row["seed"], {})[int(row["steps"])] = float(row["mean"])
    figure, axes = plt.subplots(1, len(curves), figsize=(4 * len(curves), 3.2), constrained_layout=True)
    for ax, (title, rates) in zip(np.atleast_1d(axes), curves.items(), strict=True):
        for rate, seeds in rates.items():
            means = {seed: list(curve.values()) for seed, curve in seeds.items()}
            last = ", ".join(f"{np.mean(curve[-LAST:]):.0f}" for curve in means.values())
            print(f"{title}, rate {rate}: last {LAST} evaluations {last}; all {np.mean(list(means.values())):.0f}")
            if rate in (NEWEST, 0.001):
                label, color = ("newest weights", "tab:gray") if rate == NEWEST else ("average, 0.001", "tab:blue")
                thousands = np.array(list(next(iter(seeds.values())))) / 1000
                for curve in means.values():
                    ax.plot(thousands, curve, color=color, linewidth=0.7, alpha=0.5)
                ax.plot(thousands, np.mean(list(means.values()), axis=0), color=color, linewidth=2.2, label=label)
        ax.set(title=title, xlabel="thousand environment steps")
        ax.spines[["top", "right"]].set_visible(False)
    np.atleast_1d(axes)[0].set(ylabel="evaluation return")
    np.atleast_1d(axes)[0].legend(frameon=False)
    figure.suptitle(preset)
    figure.savefig(RESULTS.with_suffix(".png"), dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="continuous")
    parser.add_argument("--level", default="Hopper-v5")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/averaging"))
    parser.add_argument("--plot", action="store_true")
    args = parser.parse_args()
    if args.plot:
        plot(args.preset)
        return
    changes = {"environment.level": args.level, "schedule.steps_between_evaluation_periods": "EnvironmentSteps(100000)"}
    preset = tfsac.override(tfsac.load_preset(args.preset), changes)
    run = RunParameters(seed=args.seed, mixed_precision="bfloat16")
    callbacks = [Averages(args.preset, args.level, args.seed)]
    tfsac.train(preset, args.folder / f"{args.preset}-{args.level}-{args.seed}", run, callbacks=callbacks, quiet=True)


if __name__ == "__main__":
    main()
