"""Measures how fast environments are stepped, alone and in training: in this process, in other processes, in parallel
with updates, and by Ray actors.

    python benchmarks/collection.py --rounds=3

Every round of a comparison is a separate process, in which the methods take turns for `--seconds` each, so that other
load affects all of them equally. A round starts when other processes use less than `--others` of the cores, and is
repeated if they used more during it (except for Ray, whose processes count as others). Parts:

    stepping     random actions without an agent: 1 and 8 environments in this process, 8 in separate processes
    overlap      training, sequential and with `asynchronous_collection`, and the share of time spent stepping
    ray          8 environments in separate processes, and in two actors of a Ray cluster on this machine: acting only,
                 and training with an update for every 8 steps

Writes results/collection.csv: environment steps per second of every round; keeps the rows of unmeasured parts.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

OUT = pathlib.Path(__file__).resolve().parent / "results" / "collection.csv"
HEATUP, TURNS, NEVER = 1_000, 3, 10**9
STEPPED = ("HalfCheetah-v5", "Ant-v5", "Humanoid-v5")
LEARNED = {"Pendulum-v1": "pendulum_twin_sac", "HalfCheetah-v5": "mujoco_twin_sac", "Humanoid-v5": "mujoco_twin_sac"}
# (environments, steps, updates after these steps)
CASES = {
    "1 update a step": (1, 1, 1),
    "10 updates after 50 steps": (1, 50, 10),
    "8 environments, 8 updates after 8 steps": (8, 8, 8),
    "8 environments, 1 update after 8 steps": (8, 8, 1),
    "8 environments, 1 update after 32 steps": (8, 32, 1),
}
ACTED = ("HalfCheetah-v5", "Humanoid-v5")
ACTORS = 2
FIELDS = ["part", "level", "case", "round", "others", "method", "value"]

Turn = Callable[[], int]  # runs for a moment and returns the number of environment steps


def taking_turns(turns: dict[str, Turn], seconds: float, finish: Callable[[], None] = lambda: None) -> dict[str, float]:
    """Returns steps per second by name; times each in `TURNS` parts, alternating between them.

    Args:
        turns: turns by name.
        seconds: total time for each.
        finish: waits for work that a turn left running, so that it is timed and does not disturb the next turn.
    """
    steps, took = dict.fromkeys(turns, 0), dict.fromkeys(turns, 0.0)
    for _ in range(TURNS):
        for name, turn in turns.items():
            began = time.perf_counter()
            while time.perf_counter() - began < seconds / TURNS:
                steps[name] += turn()
            finish()
            took[name] += time.perf_counter() - began
    return {name: steps[name] / took[name] for name in turns}


def stepping(level: str, seconds: float) -> dict[str, float]:
    """Measures random actions without an agent."""
    import numpy as np

    from tfsac.environments import Environments
    from tfsac.parameters import EnvironmentParameters

    def turn(num_envs: int, vectorization: str) -> Turn:
        environments = Environments(EnvironmentParameters(level, num_envs, vectorization), seed=1)
        actions = (
            np.random.default_rng(1).uniform(-1, 1, (997, num_envs, *environments.spec.action.shape)).astype(np.float32)
        )

        def step() -> int:
            environments.step(actions[environments.steps // num_envs % len(actions)])
            return num_envs

        for _ in range(100):
            step()
        return step

    turns = {
        f"{num_envs} {how}": turn(num_envs, how) for num_envs, how in ((1, "sync"), (8, "sync"), (8, "subprocess"))
    }
    return taking_turns(turns, seconds)


def trainer_of(level: str, folder: pathlib.Path, changes: dict, **settings):
    """Returns a run after its first updates, which trains without evaluations and checkpoints."""
    import tfsac
    from tfsac.parameters import for_level

    usual = {
        "agent.memory.max_size": 100_000,
        "schedule.heatup_steps": HEATUP,
        "schedule.steps_between_evaluation_periods": f"EnvironmentSteps({NEVER})",
    }
    preset = tfsac.override(for_level(tfsac.load_preset(LEARNED[level]), level), {**usual, **changes})
    run = tfsac.RunParameters(seed=1, checkpoint_save_steps=NEVER, **settings)
    trainer = tfsac.Trainer(preset, folder, run, quiet=True)
    while trainer.counters.env_steps < HEATUP + 200:
        trainer.collect()
        trainer.update()
    return trainer


def turn_of(trainer, together: int) -> Turn:
    """Returns a turn of `together` steps of the loop, with the pending updates."""

    def turn() -> int:
        before = trainer.counters.env_steps
        for _ in range(together):
            trainer.collect()
            trainer.update()
        return trainer.counters.env_steps - before

    return turn


def overlap(level: str, case: str, seconds: float) -> dict[str, float]:
    """Measures training with and without `asynchronous_collection`."""
    num_envs, playing, training = CASES[case]
    changes = {"environment.num_envs": num_envs, "agent.algorithm.num_consecutive_playing_steps": playing}
    changes["agent.algorithm.num_consecutive_training_steps"] = training
    changes["agent.algorithm.num_steps_between_copying_online_weights_to_target"] = "TrainingSteps(1)"
    with tempfile.TemporaryDirectory() as folder:
        trainers = {
            name: trainer_of(level, pathlib.Path(folder, name), changes, asynchronous_collection=name == "overlapped")
            for name in ("sequential", "overlapped")
        }
        sequential, stepped = trainers["sequential"], 0.0
        step = sequential.environments.step

        def timed(action):
            nonlocal stepped
            began = time.perf_counter()
            result = step(action)
            stepped += time.perf_counter() - began
            return result

        sequential.environments.step = timed
        before = sequential.counters.env_steps
        turns = {name: turn_of(trainer, max(playing, 20)) for name, trainer in trainers.items()}
        speeds = taking_turns(turns, seconds, trainers["overlapped"]._updates.finish)
        return {**speeds, "stepping's share": stepped * speeds["sequential"] / (sequential.counters.env_steps - before)}


def ray(level: str, case: str, seconds: float) -> dict[str, float]:
    """Measures environments in processes and in actors."""
    changes = {"environment.num_envs": 8, "agent.algorithm.num_consecutive_playing_steps": 8}
    changes |= {"agent.algorithm.num_steps_between_copying_online_weights_to_target": "TrainingSteps(1)"}
    if case == "acting":
        changes |= {"schedule.heatup_steps": NEVER, "schedule.random_action_steps": 0}
    with tempfile.TemporaryDirectory() as folder:
        processes = {**changes, "environment.vectorization": "subprocess"}
        trainers = {
            "8 subprocess": trainer_of(level, pathlib.Path(folder, "processes"), processes),
            f"{ACTORS} actors": trainer_of(
                level, pathlib.Path(folder, "actors"), changes, ray_address="local", num_actors=ACTORS
            ),
        }
        speeds = taking_turns({name: turn_of(trainer, 32) for name, trainer in trainers.items()}, seconds)
        for trainer in trainers.values():
            trainer.environments.close()
        return speeds


def busy() -> tuple[float, float]:
    """Returns the busy CPU seconds of all processes, and of this process's finished children."""
    user, nice, system = (int(word) for word in pathlib.Path("/proc/stat").read_text().split()[1:4])
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (user + nice + system) / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime


def measured(comparison: list[str], seconds: float) -> tuple[dict[str, float], float]:
    """Runs a comparison in a separate process; returns its result, and the share of the cores that other processes used
    during it.
    """
    command = [sys.executable, __file__, f"--seconds={seconds}", "--one", json.dumps(comparison)]
    before, began = busy(), time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    (everyone, own), gone = (
        (after - first for after, first in zip(busy(), before, strict=True)),
        time.perf_counter() - began,
    )
    return json.loads(done.stdout.splitlines()[-1]), max(everyone - own, 0.0) / (gone * (os.cpu_count() or 1))


def wait_for(quiet: float) -> None:
    """Waits until other processes use less than a share of the cores."""
    taken = 1.0
    while taken > quiet:
        before = busy()[0]
        time.sleep(3)
        taken = (busy()[0] - before) / (3 * (os.cpu_count() or 1))


def summary(rows: list[dict]) -> None:
    """Prints medians, and the median of the rounds' ratios to the first method."""
    for part, level, case in dict.fromkeys((row["part"], row["level"], row["case"]) for row in rows):
        values: dict[str, list[float]] = {}
        for row in rows:
            if (row["part"], row["level"], row["case"]) == (part, level, case):
                values.setdefault(row["method"], []).append(float(row["value"]))
        first = next(iter(values.values()))
        parts = []
        for method, found in values.items():
            ratio = statistics.median(value / one for value, one in zip(found, first, strict=True))
            parts.append(
                f"{method} {statistics.median(found):.3g}"
                + (f" (x {ratio:.2f})" if statistics.median(found) > 1 else "")
            )
        print(f"{part} {level} {case}: {', '.join(parts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12.0, help="seconds for each method")
    parser.add_argument("--parts", default="stepping,overlap,ray")
    parser.add_argument("--others", type=float, default=0.2, help="maximum share of the cores for other processes")
    parser.add_argument("--one", help="one comparison in this process, as JSON: the part and its arguments")
    args = parser.parse_args()
    if args.one:
        part, *arguments = json.loads(args.one)
        from tfsac.training.devices import configure

        configure()
        print(json.dumps({"stepping": stepping, "overlap": overlap, "ray": ray}[part](*arguments, args.seconds)))
        return
    parts = args.parts.split(",")
    comparisons = [["stepping", level] for level in STEPPED]
    comparisons += [["overlap", level, case] for level in LEARNED for case in CASES]
    comparisons += [["ray", level, case] for level in ACTED for case in ("acting", "learning")]
    rows = []
    if OUT.exists():
        with OUT.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["part"] not in parts]
    for turn in range(args.rounds):
        for comparison in comparisons:
            if comparison[0] not in parts:
                continue
            noisy = True
            while noisy:
                wait_for(args.others)
                found, others = measured(comparison, args.seconds)
                noisy = (
                    others > args.others and comparison[0] != "ray"
                )  # Ray's processes are not children of the one that starts it
                if noisy:
                    print(f"{comparison}: others took {others:.0%}, {found} does not count", flush=True)
            part, level, case = [*comparison, ""][:3]
            rows += [
                dict(zip(FIELDS, (part, level, case, turn + 1, round(others, 2), method, round(value, 3)), strict=True))
                for method, value in found.items()
            ]
            print(turn + 1, *comparison, f"others {others:.0%}", found, flush=True)
            with OUT.open("w", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                writer.writeheader()
                writer.writerows(rows)
    summary(rows)


if __name__ == "__main__":
    main()
