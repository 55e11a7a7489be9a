"""Measures how fast tfsac and PFRL train actor-critic with experience replay on CartPole-v1, in environment steps per
second of the whole loop.

    python benchmarks/acer_speed.py --pfrl=PYTHON --rounds=3

PFRL runs in a separate virtual environment (benchmarks/README.md); `--pfrl` is its Python. Every measurement is a
separate process, after 2 000 untimed steps; rounds are interleaved. All use separate policy and Q networks with two
hidden tanh layers of 100, RMSProp, a memory of 5 000 steps and four replay updates per on-policy update. tfsac runs
with one environment and one segment per update, like PFRL, and with eight of both. Writes results/acer_speed.csv, one
row per measurement.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

WARM_UP, REPLAYS = 2_000, 4
LENGTHS = (50, 5)  # t_max
HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "results" / "acer_speed.csv"


def measure(t_max: int, num_envs: int, steps: int) -> float:
    """Returns the environment steps per second of a training run in this process."""
    import tfsac
    from tfsac.parameters import discrete_acer_networks

    networks = discrete_acer_networks(
        (100, 100),
        activation="tanh",
        optimizer_type="RMSProp",
        learning_rate=7e-4,
        rms_prop_optimizer_decay=0.99,
        optimizer_epsilon=1e-2,
        clip_gradients=40.0,
        batch_size=8,
    )
    preset = tfsac.load_preset("acer_cartpole")
    preset = dataclasses.replace(preset, agent=dataclasses.replace(preset.agent, networks=networks))
    changes = {
        "environment.num_envs": num_envs,
        "agent.algorithm.t_max": t_max,
        "agent.algorithm.n_times_replay": REPLAYS,
        "agent.memory.max_size": 5_000,
        "agent.memory.replay_start_size": 1_000,
        "schedule.improve_steps": WARM_UP + steps,
        "schedule.steps_between_evaluation_periods": f"EnvironmentSteps({10 * (WARM_UP + steps)})",
        "agent.networks.*.batch_size": num_envs,
    }
    preset = tfsac.override(preset, changes)

    class Clock(tfsac.Callback):
        began = ended = 0.0

        def on_step(self, trainer: tfsac.Trainer) -> None:
            now = time.perf_counter()
            self.began = self.began or (now if trainer.counters.env_steps >= WARM_UP else 0.0)
            self.ended = self.ended or (now if trainer.counters.env_steps >= WARM_UP + steps else 0.0)

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        settings = tfsac.RunParameters(seed=1, checkpoint_save_steps=10 * (WARM_UP + steps))
        tfsac.Trainer(preset, pathlib.Path(folder) / "run", settings, callbacks=[clock], quiet=True).run()
    return steps / (clock.ended - clock.began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pfrl", help="Python of PFRL's environment; without it only tfsac is measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20_000, help="timed steps of tfsac; PFRL's are a fifth")
    parser.add_argument(
        "--one", nargs=2, type=int, metavar=("T_MAX", "NUM_ENVS"), help="one measurement of tfsac in this process"
    )
    args = parser.parse_args()
    if args.one:
        print(json.dumps({"steps_per_second": measure(*args.one, args.steps)}))
        return
    rows = []
    for turn in range(args.rounds):
        for t_max in LENGTHS:
            ours = [sys.executable, __file__, f"--steps={args.steps}", "--one", str(t_max)]
            runs = {"tfsac, 1 environment": [*ours, "1"], "tfsac, 8 environments": [*ours, "8"]}
            if args.pfrl:
                theirs = [args.pfrl, str(HERE / "acer_pfrl.py"), f"--t_max={t_max}", f"--n_times_replay={REPLAYS}"]
                runs["PFRL"] = [*theirs, f"--steps={args.steps // 5}", "--threads=1"]
            for name, command in runs.items():
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                speed = json.loads(done.stdout.strip().splitlines()[-1])["steps_per_second"]
                rows.append({"round": turn + 1, "t_max": t_max, "library": name, "steps_per_second": round(speed, 1)})
                print(rows[-1], flush=True)
    with OUT.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for t_max in LENGTHS:
        medians = {
            name: statistics.median(
                row["steps_per_second"] for row in rows if (row["t_max"], row["library"]) == (t_max, name)
            )
            for name in dict.fromkeys(row["library"] for row in rows)
        }
        one = medians["tfsac, 1 environment"]
        print(f"t_max {t_max}: {medians}; 8 environments to 1: {medians['tfsac, 8 environments'] / one:.1f}", end="")
        print(f"; to PFRL: {one / medians['PFRL']:.1f}" if args.pfrl else "")


if __name__ == "__main__":
    main()
