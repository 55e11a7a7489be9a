"""Plots tfsac and Stable-Baselines3 from committed records: five MuJoCo levels by steps for the README, and two by
minutes.

    python benchmarks/learning_figure.py

Lines are means over seeds, bands 95 % bootstrap intervals of the mean, as in the suite `mujoco`. Minutes are steps
times the median time of a step with its update on two cores of a quiet machine, from budgets.csv and cost.csv; they
exclude evaluations and the time of random steps.
"""

import pathlib
import statistics

from absl import app
from speed import read

from tfsac.experiments.bootstrap import combined, mean
from tfsac.experiments.plots import PALETTE, new_figure, read_curve

RESULTS = pathlib.Path(__file__).parent / "results"
RECORDS = RESULTS / "learning" / "mujoco"
LEVELS = {
    "HalfCheetah-v5": "HalfCheetah-v5",
    "Hopper-v5": "Hopper-v5",
    "Walker2d-v5": "Walker2d-v5",
    "Ant-v5-no-contacts": "Ant-v5, no contact forces",
    "Humanoid-v5": "Humanoid-v5",
}
GROUPS = {
    "continuous": "tfsac, continuous",
    "mujoco_twin_sac": "tfsac, mujoco_twin_sac",
    "sb3_1e-3": "Stable-Baselines3, learning rate 1e-3",
    "sb3": "Stable-Baselines3, its defaults",
}
RANDOM = {"continuous": 5_000}  # steps without updates; 10 000 elsewhere


def minutes_a_step(level: str, group: str) -> float:
    """Returns the median time of a step with its update."""
    if group.startswith("sb3"):
        rows = [row for row in read(RESULTS / "cost.csv") if (row["level"], row["library"]) == (level, "sb3")]
    else:
        rows = [row for row in read(RESULTS / "budgets.csv") if (row["level"], row["group"]) == (level, group)]
    return 1 / 60 / statistics.median(float(row["steps_per_second"]) for row in rows)


def seeds_of(group: str, levels: list[str]) -> str:
    """Returns the number of finished seeds of a group, as a range over the levels."""
    numbers = [len([*RECORDS.glob(f"{group}_{level}_seed*.csv")]) for level in levels]
    low, high = min(numbers), max(numbers)
    return f"{high} seed{'s' if high > 1 else ''}" if low == high else f"{low} to {high} seeds"


def draw(file: pathlib.Path, levels: list[str], by_minutes: bool) -> None:
    """Draws one panel per level."""
    figure = new_figure(2.6 * len(levels) if len(levels) > 2 else 8, 3.2)
    panels = figure.subplots(1, len(levels))
    for axes, level in zip(panels, levels, strict=True):
        for (group, label), color in zip(GROUPS.items(), PALETTE, strict=False):
            paths = sorted(RECORDS.glob(f"{group}_{level}_seed*.csv"))
            steps, returns = combined([read_curve(path) for path in paths], mean)
            x = steps / 1000
            if by_minutes:
                x = (steps - RANDOM.get(group, 10_000)).clip(0) * minutes_a_step(level, group)
            axes.fill_between(x, returns.low, returns.high, color=color, alpha=0.18, linewidth=0)
            axes.plot(x, returns.value, color=color, linewidth=2.0, label=f"{label} ({seeds_of(group, levels)})")
        axes.set_title(LEVELS[level], fontsize=11)
        axes.set_xlabel("minutes on two cores" if by_minutes else "thousand environment steps", fontsize=9)
        axes.tick_params(labelsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("return of evaluations", fontsize=9)
    columns = 2 if len(levels) == 2 else len(GROUPS)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=columns, fontsize=10, frameon=False)
    figure.savefig(file, dpi=110)


def main(argv: list[str]) -> None:
    """Draws both figures."""
    draw(RECORDS / "learning.png", [*LEVELS], by_minutes=False)
    draw(RECORDS / "minutes.png", ["HalfCheetah-v5", "Hopper-v5"], by_minutes=True)


if __name__ == "__main__":
    app.run(main)
