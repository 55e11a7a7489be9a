"""Learning benchmark: trains the tasks below, resumes what was interrupted, and collects curves and a table.

    python benchmarks/learning.py --task=half_cheetah --seeds=1,2,3     # trains; may be stopped and started again
    python benchmarks/learning.py --collect                             # CSV, pictures and learning.md from all runs

Each run is one `tfsac train` command, which is printed. Stable-Baselines3's curves come from learning_sb3.py.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import sys

import numpy as np

from tfsac.analysis import plot_curves, read_curve

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / "results" / "learning"
COLUMNS = ["env_steps", "wall_seconds"] + [f"evaluation/return_{name}" for name in ("mean", "std", "min", "max")]
# name: preset, level, total steps, bar on the final mean, flags
TASKS = {
    "pendulum": ("pendulum_sac", "Pendulum-v1", 10_000, -180.0, []),
    "inverted_pendulum": ("mujoco_sac", "InvertedPendulum-v5", 30_000, 1000.0, ["--stop_at_threshold"]),
    "half_cheetah": ("mujoco_sac", "HalfCheetah-v5", 100_000, None, ["--set=schedule.improve_steps=90000"]),
    "hopper": ("mujoco_sac", "Hopper-v5", 100_000, None, ["--set=schedule.improve_steps=90000"]),
}


def train(task: str, seed: int, runs: pathlib.Path) -> None:
    preset, level, _, _, flags = TASKS[task]
    run_dir = runs / f"{level}_seed{seed}"
    if (run_dir / "policy").exists():  # the last thing that a run writes
        return
    command = ["train", f"--run_dir={run_dir}"]
    if any((run_dir / "checkpoints").glob("0*")):
        command += ["--resume"]
    else:
        command += [f"--preset={preset}", f"--level={level}", f"--seed={seed}", *flags]
    print("tfsac", *command, flush=True)
    subprocess.run([sys.executable, "-m", "tfsac", *command], check=True)


def collect(runs: pathlib.Path) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    for _, level, *_ in TASKS.values():
        for run_dir in sorted(runs.glob(f"{level}_seed*")):
            with (run_dir / "metrics.csv").open(newline="") as file:
                rows = [[row[column] for column in COLUMNS] for row in csv.DictReader(file)]
            with (RESULTS / f"tfsac_{run_dir.name}.csv").open("w", newline="") as file:
                csv.writer(file).writerows([COLUMNS, *rows])
    lines = [
        "| level | library | last evaluation of each seed (at step) | mean | bar |",
        "|---|---|---|---|---|",
    ]
    for _, level, steps_allowed, bar, _ in TASKS.values():
        groups = {}
        for library, label in (("tfsac", "tfsac, SAC with V"), ("sb3", "Stable-Baselines3 SAC, automatic temperature")):
            paths = sorted(RESULTS.glob(f"{library}_{level}_seed*.csv"))
            if not paths:
                continue
            groups[label] = paths
            ends = [(int(steps[-1]), float(values[-1])) for steps, values in map(read_curve, paths)]
            shown = ", ".join(f"{value:.1f} ({step})" for step, value in ends)
            mean = np.mean([value for _, value in ends])
            goal = "" if bar is None or library == "sb3" else f"{bar:g} by {steps_allowed}"
            lines.append(f"| {level} | {label} | {shown} | {mean:.1f} | {goal} |")
        if groups:
            plot_curves(groups, RESULTS / f"{level}.png", title=level, threshold=bar)
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
            train(args.task, seed, args.runs)
    if args.collect:
        collect(args.runs)


if __name__ == "__main__":
    main()
