"""Draws the README's figure from committed records: tfsac beside Stable-Baselines3 on five MuJoCo levels.

    python benchmarks/learning_figure.py

Lines are means over seeds, bands 95 % bootstrap intervals of the mean, as in the suite `mujoco`.
"""

import pathlib

from absl import app, flags

from tfsac.experiments.bootstrap import combined, mean
from tfsac.experiments.plots import PALETTE, new_figure, read_curve

RECORDS = pathlib.Path(__file__).parent / "results" / "learning" / "mujoco"
OUT = flags.DEFINE_string("out", str(RECORDS / "learning.png"), "the picture")
LEVELS = {
    "HalfCheetah-v5": "HalfCheetah-v5",
    "Hopper-v5": "Hopper-v5",
    "Walker2d-v5": "Walker2d-v5",
    "Ant-v5-no-contacts": "Ant-v5, no contact forces",
    "Humanoid-v5": "Humanoid-v5",
}
GROUPS = {
    "mujoco_twin_sac": "tfsac, mujoco_twin_sac (5 seeds)",
    "sb3_1e-3": "Stable-Baselines3, learning rate 1e-3 as tfsac (3 seeds)",
    "sb3": "Stable-Baselines3, its defaults (3 seeds)",
}


def main(argv: list[str]) -> None:
    """Draws one panel a level."""
    figure = new_figure(13, 3.1)
    panels = figure.subplots(1, len(LEVELS))
    for axes, (level, title) in zip(panels, LEVELS.items(), strict=True):
        for (group, label), color in zip(GROUPS.items(), PALETTE, strict=False):
            paths = sorted(RECORDS.glob(f"{group}_{level}_seed*.csv"))
            steps, returns = combined([read_curve(path) for path in paths], mean)
            axes.fill_between(steps / 1000, returns.low, returns.high, color=color, alpha=0.18, linewidth=0)
            axes.plot(steps / 1000, returns.value, color=color, linewidth=1.8, label=label)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("thousand environment steps", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("return of evaluations", fontsize=8)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9, frameon=False
    )
    figure.savefig(OUT.value, dpi=110)


if __name__ == "__main__":
    app.run(main)
