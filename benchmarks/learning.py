"""Learning benchmark: trains the tasks below, resumes what was interrupted, and collects curves and a table.

    python benchmarks/learning.py --task=twin_half_cheetah --seeds=1,2,3     # trains; may be stopped and started again
    python benchmarks/learning.py --collect                                  # CSV, pictures and learning.md from all
    runs

Each run is one `tfsac train` command, which is printed. Stable-Baselines3's curves come from learning_sb3.py.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import sys
from typing import NamedTuple

import numpy as np

from tfsac.experiments.plots import plot_curves, read_curve

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / "results" / "learning"
COLUMNS = ["env_steps", "wall_seconds"] + [f"evaluation/return_{name}" for name in ("mean", "std", "min", "max")]
LABELS = {
    "pendulum_sac": "tfsac, SAC with V",
    "mujoco_sac": "tfsac, SAC with V",
    "pendulum_twin_sac": "tfsac, twin-target SAC",
    "mujoco_twin_sac": "tfsac, twin-target SAC",
    "mujoco_twin_sac_like_sb3": "tfsac, twin-target SAC, SB3's learning rate",
    "lunar_lander_continuous_twin_sac": "tfsac, twin-target SAC",
    "spinningup_sac": "tfsac, as Spinning Up",
    "di_engine_mujoco_sac": "tfsac, as DI-engine",
    "di_engine_pendulum_sac": "tfsac, as DI-engine, 10 environments",
    "di_engine_lunar_lander_continuous_sac": "tfsac, as DI-engine",
    "di_engine_bipedal_walker_sac": "tfsac, as DI-engine, 8 environments",
    "cart_pole_discrete_sac": "tfsac, discrete SAC",
    "lunar_lander_discrete_sac": "tfsac, discrete SAC",
    "cart_pole_sqil": "tfsac, SQIL, 10 demonstrations, no rewards",
    "pendulum_sqil": "tfsac, SQIL, 10 demonstrations, no rewards",
    "hopper_sqil": "tfsac, SQIL, 4 demonstrations, no rewards",
    "simple_spread_discrete_sac": "tfsac, discrete SAC, 3 agents",
    "simple_spread_twin_sac": "tfsac, twin-target SAC, 3 agents",
    "taac_simple_control": "tfsac, TAAC",
    "taac_simple_control_linear": "tfsac, TaacL",
    "taac_simple_control_quadratic": "tfsac, TaacQ",
    "taac_locomotion": "tfsac, TAAC",
    "acer_cartpole": "tfsac, ACER, 8 environments",
    "acer_lunar_lander": "tfsac, ACER, 8 environments",
    "acer_pendulum": "tfsac, ACER, 8 environments",
    "acer_mujoco": "tfsac, ACER, 8 environments",
    "acer_partially_observable": "tfsac, ACER with an LSTM, velocities hidden",
    "acer_partially_observable_feed_forward": "tfsac, ACER without an LSTM, velocities hidden",
    "sb3": "Stable-Baselines3 SAC",
}


class Task(NamedTuple):
    """One level that one preset is trained on; `bar` is the mean of the last evaluations that is wanted after `steps`.

    `variant` distinguishes runs of a preset with other flags.
    """

    preset: str
    level: str
    steps: int
    bar: float | None = None
    flags: tuple[str, ...] = ()
    variant: str = ""

    @property
    def name(self) -> str:
        return self.preset + self.variant

    @property
    def place(self) -> str:
        """The level as part of a file's name."""
        return self.level.replace("/", "-").replace(":", "-")


TO_100_000 = ("--set=schedule.improve_steps=90000",)
LIKE_SB3 = ("--set=agent.networks.*.learning_rate=3e-4", "--set=agent.algorithm.temperature.initial_alpha=1.0")
LINEAR, QUADRATIC = (("--set=agent.algorithm.trajectory=" + kind,) for kind in ("linear", "quadratic"))
# The published numbers belong to runs of 3 million steps; these are mujoco_twin_sac's random steps and learning rate.
SHORT_TAAC = (
    "--set=schedule.heatup_steps=10000",
    "--set=agent.networks.*.learning_rate=1e-3",
    "--set=agent.algorithm.alpha_learning_rate=1e-3",
)
SPREAD = "pettingzoo:mpe2.simple_spread_v3"
FORGETFUL = ('--set=agent.networks.trunk.middleware_parameters={"scheme": [64, 64]}',)
OF_100 = ("--set=schedule.evaluation_steps=EnvironmentEpisodes(100)",)
TASKS = {
    "pendulum": Task("pendulum_sac", "Pendulum-v1", 10_000, -180.0),
    "inverted_pendulum": Task("mujoco_sac", "InvertedPendulum-v5", 30_000, 1000.0, ("--stop_at_threshold",)),
    "half_cheetah": Task("mujoco_sac", "HalfCheetah-v5", 100_000, flags=TO_100_000),
    "hopper": Task("mujoco_sac", "Hopper-v5", 100_000, flags=TO_100_000),
    "twin_pendulum": Task("pendulum_twin_sac", "Pendulum-v1", 10_000, -160.0),
    "twin_half_cheetah": Task("mujoco_twin_sac", "HalfCheetah-v5", 100_000, flags=TO_100_000),
    "twin_hopper": Task("mujoco_twin_sac", "Hopper-v5", 100_000, flags=TO_100_000),
    "twin_inverted_pendulum": Task("mujoco_twin_sac", "InvertedPendulum-v5", 30_000, 1000.0),
    "twin_inverted_double_pendulum": Task(
        "mujoco_twin_sac", "InvertedDoublePendulum-v5", 100_000, 8000.0, ("--stop_at_threshold",)
    ),
    "twin_walker2d": Task("mujoco_twin_sac", "Walker2d-v5", 100_000, flags=TO_100_000),
    "twin_ant": Task("mujoco_twin_sac", "Ant-v5", 100_000, flags=TO_100_000),
    "sb3_like_half_cheetah": Task(
        "mujoco_twin_sac", "HalfCheetah-v5", 100_000, None, (*TO_100_000, *LIKE_SB3), "_like_sb3"
    ),
    "spinningup_half_cheetah": Task(
        "spinningup_sac", "HalfCheetah-v5", 100_000, None, ("--set=schedule.improve_steps=99000",)
    ),
    "di_engine_hopper": Task("di_engine_mujoco_sac", "Hopper-v5", 100_000, flags=TO_100_000),
    "di_engine_pendulum": Task("di_engine_pendulum_sac", "Pendulum-v1", 100_000),
    "di_engine_bipedal_walker": Task("di_engine_bipedal_walker_sac", "BipedalWalker-v3", 5_000_000),
    "di_engine_lunar_lander": Task("di_engine_lunar_lander_continuous_sac", "LunarLanderContinuous-v3", 150_000),
    "cart_pole": Task("cart_pole_discrete_sac", "CartPole-v1", 30_000, 475.0),
    "lunar_lander": Task("lunar_lander_discrete_sac", "LunarLander-v3", 200_000, 150.0),
    "cart_pole_sqil": Task("cart_pole_sqil", "CartPole-v1", 20_000, 450.0),
    "pendulum_sqil": Task("pendulum_sqil", "Pendulum-v1", 20_000, None, OF_100),
    "hopper_sqil": Task("hopper_sqil", "Hopper-v5", 100_000),
    "simple_spread": Task("simple_spread_discrete_sac", SPREAD, 100_000),
    "twin_simple_spread": Task("simple_spread_twin_sac", SPREAD, 100_000),
    "taac_pendulum": Task("taac_simple_control", "Pendulum-v1", 30_000, -200.0),
    "taac_linear_pendulum": Task("taac_simple_control", "Pendulum-v1", 30_000, -200.0, LINEAR, "_linear"),
    "taac_quadratic_pendulum": Task("taac_simple_control", "Pendulum-v1", 30_000, -200.0, QUADRATIC, "_quadratic"),
    "taac_mountain_car": Task("taac_simple_control", "MountainCarContinuous-v0", 100_000, 90.0),
    "twin_mountain_car": Task("mujoco_twin_sac", "MountainCarContinuous-v0", 100_000, flags=TO_100_000),
    "taac_inverted_double_pendulum": Task("taac_simple_control", "InvertedDoublePendulum-v5", 50_000, 8000.0),
    "taac_half_cheetah": Task("taac_locomotion", "HalfCheetah-v5", 100_000, flags=(*SHORT_TAAC, *TO_100_000)),
    "acer_cart_pole": Task("acer_cartpole", "CartPole-v1", 100_000, 475.0),
    "acer_lunar_lander": Task("acer_lunar_lander", "LunarLander-v3", 500_000, 150.0),
    "acer_pendulum": Task("acer_pendulum", "Pendulum-v1", 300_000, -600.0),
    "acer_half_cheetah": Task("acer_mujoco", "HalfCheetah-v5", 500_000, 1000.0),
    "acer_hopper": Task("acer_mujoco", "Hopper-v5", 500_000, 1000.0),
    "acer_walker2d": Task("acer_mujoco", "Walker2d-v5", 500_000, 500.0),
    "acer_inverted_pendulum": Task("acer_mujoco", "InvertedPendulum-v5", 200_000, 900.0),
    "acer_remembering": Task("acer_partially_observable", "CartPole-v1", 300_000, 400.0),
    "acer_forgetful": Task("acer_partially_observable", "CartPole-v1", 300_000, None, FORGETFUL, "_feed_forward"),
    "twin_lunar_lander": Task("lunar_lander_continuous_twin_sac", "LunarLanderContinuous-v3", 150_000, 200.0),
}


def train(task: Task, seed: int, runs: pathlib.Path) -> None:
    run_dir = runs / f"{task.name}_{task.place}_seed{seed}"
    if (run_dir / "policy").exists():  # the last thing that a run writes
        return
    command = ["train", f"--run_dir={run_dir}"]
    if any((run_dir / "checkpoints").glob("0*")):
        command += ["--resume"]
    else:
        command += [f"--preset={task.preset}", f"--level={task.level}", f"--seed={seed}", *task.flags]
    print("tfsac", *command, flush=True)
    subprocess.run([sys.executable, "-m", "tfsac", *command], check=True)


def collect(runs: pathlib.Path) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    for task in TASKS.values():
        for metrics in sorted(runs.glob(f"{task.name}_{task.place}_seed*/metrics.csv")):
            with metrics.open(newline="") as file:
                rows = [[row[column] for column in COLUMNS] for row in csv.DictReader(file)]
            with (RESULTS / f"{metrics.parent.name}.csv").open("w", newline="") as file:
                csv.writer(file).writerows([COLUMNS, *rows])
    lines = [
        "| level | library | last evaluation of each seed (at step) | mean | bar |",
        "|---|---|---|---|---|",
    ]
    for level in dict.fromkeys(task.level for task in TASKS.values()):
        tasks = {task.name: task for task in TASKS.values() if task.level == level}
        pictures = {}  # runs of one length together
        place = next(iter(tasks.values())).place
        for name in (*tasks, "sb3"):
            paths = sorted(RESULTS.glob(f"{name}_{place}_seed*.csv"))
            if not paths:
                continue
            steps = tasks.get(name, next(iter(tasks.values()))).steps
            pictures.setdefault(steps, {})[LABELS[name]] = paths
            ends = [(int(at[-1]), float(values[-1])) for at, values in map(read_curve, paths)]
            shown = ", ".join(f"{value:.1f} ({step})" for step, value in ends)
            mean = np.mean([value for _, value in ends])
            task = tasks.get(name)
            goal = f"{task.bar:g} by {task.steps}" if task and task.bar is not None else ""
            lines.append(f"| {level} | {LABELS[name]} | {shown} | {mean:.1f} | {goal} |")
        for i, (steps, groups) in enumerate(pictures.items()):
            bars = [task.bar for task in tasks.values() if task.bar is not None and task.steps == steps]
            out = RESULTS / (f"{place}.png" if i == 0 else f"{place}_{steps}.png")
            plot_curves(groups, out, title=level, threshold=max(bars, default=None))
    (RESULTS / "learning.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=list(TASKS))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/learning"))
    parser.add_argument("--collect", action="store_true")
    args = parser.parse_args()
    if args.task:
        for seed in json.loads(f"[{args.seeds}]"):
            train(TASKS[args.task], seed, args.runs)
    if args.collect:
        collect(args.runs)


if __name__ == "__main__":
    main()
