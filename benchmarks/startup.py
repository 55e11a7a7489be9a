"""Measures the start-up time of commands, compared with `import tensorflow`.

    python benchmarks/startup.py --rounds=7
    python benchmarks/startup.py --rounds=7 --against=FOLDER    # compared with a checkout of another version

Every measurement is a fresh process with a warm file cache; rounds are interleaved, so that other load affects all of
them equally. Measured from the start of the process to its end:

    tensorflow           python -c "import tensorflow"
    help, presets        tfsac --help, tfsac presets
    train                tfsac train on Pendulum-v1, until the first environment step ends the process
    train HalfCheetah    the same with twin critics on HalfCheetah-v5, if MuJoCo is installed
    evaluate             tfsac evaluate --episodes=1, an episode of 20 steps of Pendulum-v1
    export, export lite  tfsac export as SavedModel and for LiteRT
    plot                 tfsac plot of that run

`ratio` is (seconds - 2) / (seconds of `import tensorflow`), of medians, or 0 below 2 s; it should be at most 1.5. CPU
seconds (of user code in all threads) depend less on other load. Writes startup.csv.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import itertools
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import gymnasium as gym
from gymnasium.envs.classic_control import PendulumEnv

ROOT = pathlib.Path(__file__).resolve().parent.parent
BAR = 1.5
FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")  # CPU flags that affect the speed
# A run with one evaluation, to evaluate, export and plot.
SHORT = {
    "schedule.heatup_steps": 200,
    "schedule.improve_steps": 100,
    "schedule.steps_between_evaluation_periods": 100,
    "schedule.evaluation_steps": "EnvironmentEpisodes(1)",
    "environment.max_episode_steps": 20,
}


class EndsAtFirstStep(gym.Wrapper):
    """Ends the process at the first environment step."""

    def step(self, action):
        os._exit(0)


# `tfsac train` finds these levels in this module, as startup:PendulumStart-v0.
gym.register("PendulumStart-v0", lambda **kwargs: EndsAtFirstStep(PendulumEnv(**kwargs)), max_episode_steps=200)
gym.register("HalfCheetahStart-v0", lambda **kwargs: EndsAtFirstStep(gym.make("HalfCheetah-v5", **kwargs)))


def commands(run: pathlib.Path, folder: pathlib.Path) -> dict[str, list[str]]:
    """Returns the measured commands by name; each may be started once in an empty folder."""
    tfsac, train = ["-m", "tfsac"], ["train", f"--run_dir={folder / 'run'}", "--seed=1"]
    found = {
        "tensorflow": ["-c", "import tensorflow"],
        "help": [*tfsac, "--help"],
        "presets": [*tfsac, "presets"],
        "train": [*tfsac, *train, "--level=startup:PendulumStart-v0"],
        "evaluate": [*tfsac, "evaluate", f"--run_dir={run}", "--episodes=1"],
        "export": [*tfsac, "export", f"--run_dir={run}", f"--out={folder / 'exported'}"],
        "export lite": [*tfsac, "export", f"--run_dir={run}", f"--out={folder / 'lite'}", "--format=tflite"],
        "plot": [*tfsac, "plot", f"--run_dir={run}"],
    }
    if importlib.util.find_spec("mujoco"):
        twin = [*train, "--preset=mujoco_twin_sac", "--level=startup:HalfCheetahStart-v0"]
        found["train HalfCheetah"] = [*tfsac, *twin]
    return found


def measure(arguments: list[str], environ: dict[str, str]) -> tuple[float, float]:
    """Returns wall-clock seconds and CPU seconds of user code of one process."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        # The levels can be imported because the folder of this file is the working directory.
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT / "benchmarks", env=environ, stdout=output, stderr=output
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        if process.returncode:
            output.seek(0)
            raise SystemExit(f"{arguments} failed:\n{output.read()[-3000:]}")
    return seconds, used.ru_utime


def cpu() -> tuple[str, str]:
    """Returns the CPU's name and which of FEATURES it has."""
    text = pathlib.Path("/proc/cpuinfo").read_text() if pathlib.Path("/proc/cpuinfo").is_file() else ""
    lines = dict(line.split("\t", 1) for line in text.splitlines() if "\t" in line)
    values = {name.strip(): value.strip("\t: ") for name, value in lines.items()}
    flags = values.get("flags", "").split()
    return values.get("model name", "unknown"), " ".join(name for name in FEATURES if name in flags)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--against", help="a checkout of another version, measured in turn")
    parser.add_argument("--out", default=str(ROOT / "benchmarks" / "results" / "startup.csv"))
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds must be at least 1. Received: {args.rounds}")
    if args.against and not (pathlib.Path(args.against) / "tfsac").is_dir():
        parser.error(f"--against must be the folder of a checkout, with tfsac/ in it. Received: {args.against}")
    versions = {"this": ROOT, **({"before": pathlib.Path(args.against).absolute()} if args.against else {})}
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        run = pathlib.Path(scratch) / "trained"
        changes = [f"--set={path}={value}" for path, value in SHORT.items()]
        environs = {name: {**os.environ, "PYTHONPATH": str(folder)} for name, folder in versions.items()}
        measure(["-m", "tfsac", "train", f"--run_dir={run}", *changes], environs["this"])
        cases = [case for case in itertools.product(commands(run, run), versions) if case != ("tensorflow", "before")]
        for number in range(args.rounds + 1):  # the first warms the file cache
            for name, version in cases:
                with tempfile.TemporaryDirectory() as folder:
                    seconds = measure(commands(run, pathlib.Path(folder))[name], environs[version])
                if number:
                    found.setdefault((name, version), []).append(seconds)
            print(f"round {number} of {args.rounds}", file=sys.stderr)
    report(found, args, load)


def report(found: dict[tuple[str, str], list[tuple[float, float]]], args: argparse.Namespace, load: float) -> None:
    """Writes the CSV and prints it as a table."""
    name_of_cpu, features = cpu()
    tensorflow = statistics.median(wall for wall, _ in found["tensorflow", "this"])
    header = ["command", "version", "median_s", "min_s", "max_s", "user_median_s", "ratio"]
    rows = []
    for (name, version), seconds in found.items():
        wall, user = zip(*seconds, strict=True)
        median = statistics.median(wall)
        figures = [median, min(wall), max(wall), statistics.median(user), max(0.0, (median - 2) / tensorflow)]
        rows.append([name, version, *(f"{figure:.2f}" for figure in figures)])
    machine = [args.rounds, os.cpu_count(), name_of_cpu, features, f"{load:.1f}", f"{os.getloadavg()[0]:.1f}"]
    with open(args.out, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*header, "rounds", "cores", "cpu", "flags", "load_before", "load_after"])
        writer.writerows([*row, *machine] for row in rows)
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(f"{name_of_cpu} ({features}), {os.cpu_count()} cores; load {load:.1f} to {os.getloadavg()[0]:.1f}")
    missed = [f"{row[0]} {row[-1]}" for row in rows if row[1] == "this" and float(row[-1]) > BAR]
    print(f"The bar, a ratio of {BAR}: " + ("reached" if not missed else f"missed by {', '.join(missed)}"))


if __name__ == "__main__":
    main()
