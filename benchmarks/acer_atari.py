"""Measures frames per second of `acer_atari`, its entropy, and whether its losses stay finite.

    python benchmarks/acer_atari.py --game=ALE/Pong-v5 --frames=100000
    python benchmarks/acer_atari.py --frames=100000 --lstm

A step is one action, repeated for four frames. Writes results/acer_atari.csv, or acer_atari_lstm.csv.
"""

import argparse
import csv
import pathlib
import tempfile

import numpy as np

from tfsac.parameters import RunParameters, for_level, override
from tfsac.preset_lookup import load_preset
from tfsac.training import Trainer
from tfsac.training.devices import configure

RESULTS = pathlib.Path(__file__).parent / "results"
ROWS = 10
COLUMNS = [
    "env_steps",
    "updates",
    "steps_per_second",
    "loss/policy",
    "loss/q",
    "policy/entropy",
    "policy/kl",
    "importance/truncated",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="ALE/Pong-v5")
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--lstm", action="store_true", help="add an LSTM of 256 cells after the trunk's layers")
    args = parser.parse_args()
    configure()
    preset = for_level(load_preset("acer_atari"), args.game)
    frame_skip = preset.environment.atari.frame_skip
    steps = args.frames // frame_skip
    changes = {
        "schedule.improve_steps": steps,
        "schedule.steps_between_evaluation_periods": steps // ROWS,
        "schedule.evaluation_steps": "EnvironmentSteps(1)",
        "environment.max_episode_steps": 500,  # so that episodes end and replay starts early
        "agent.memory.replay_start_size": steps // ROWS,
    }
    if args.lstm:
        changes["agent.networks.trunk.middleware_parameters"] = {
            "kind": "lstm",
            "number_of_lstm_cells": 256,
            "scheme": [256],
        }
    preset = override(preset, changes)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(preset, pathlib.Path(folder) / "run", RunParameters(seed=1, checkpoint_save_steps=10**9)).run()
        with (pathlib.Path(folder) / "run" / "metrics.csv").open(newline="") as file:
            rows = [[row[name] for name in COLUMNS] for row in csv.DictReader(file)]
    with (RESULTS / f"acer_atari{'_lstm' * args.lstm}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    values = np.array(rows, float)
    speed, entropy = np.median(values[2:, 2]), values[:, COLUMNS.index("policy/entropy")]
    print(
        f"{args.game}: {frame_skip * values[-1, 0]:.0f} frames, {values[-1, 1]:.0f} updates, {frame_skip * speed:.0f} "
        f"frames/s"
    )
    print(f"all numbers finite: {np.isfinite(values).all()}; entropy from {entropy[0]:.3f} to {entropy[-1]:.3f}")


if __name__ == "__main__":
    main()
