"""Measures frames per second of `atari_discrete_sac`, and whether its losses stay finite.

    python benchmarks/atari.py --game=ALE/Pong-v5 --steps=5000

A step is one action, repeated for four frames. Writes results/atari.csv.
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

RESULTS = pathlib.Path(__file__).parent / "results" / "atari.csv"
HEATUP = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="ALE/Pong-v5")
    parser.add_argument("--steps", type=int, default=5_000)
    args = parser.parse_args()
    configure()
    changes = {
        "schedule.heatup_steps": HEATUP,
        "schedule.improve_steps": args.steps - HEATUP,
        "schedule.steps_between_evaluation_periods": HEATUP,
        "schedule.evaluation_steps": "EnvironmentSteps(1)",
    }
    preset = override(for_level(load_preset("atari_discrete_sac"), args.game), changes)
    frames = preset.environment.atari.frame_skip
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(preset, pathlib.Path(folder) / "run", RunParameters(seed=1, checkpoint_save_steps=10**9))
        trainer.run()
        with (pathlib.Path(folder) / "run" / "metrics.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    losses = np.array(
        [[float(row[name]) for name in ("loss/q1", "loss/q2", "loss/policy")] for row in rows if row["loss/q1"]]
    )
    speeds = {
        "heat-up": float(rows[0]["steps_per_second"]),
        "training": np.median([float(row["steps_per_second"]) for row in rows[1:]]),
    }
    with RESULTS.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["game", "phase", "steps_per_second", "frames_per_second"])
        for phase, speed in speeds.items():
            print(f"{args.game} {phase}: {speed:.0f} actions/s, {frames * speed:.0f} frames/s")
            out.writerow([args.game, phase, round(float(speed), 1), round(float(frames * speed), 1)])
    updates = rows[-1]["updates"]
    print(
        f"{frames * args.steps} frames, {updates} updates, all losses finite: {np.isfinite(losses).all()}; last "
        f"{losses[-1]}"
    )


if __name__ == "__main__":
    main()
