"""Compares the steps per second that recurrent soft actor-critic and SAC with twin critics learn from, interleaved.

    python benchmarks/recurrent_speed.py --rounds=5

Observations of Hopper without velocities; both agents with their presets. An update without an LSTM learns from 256
steps, a recurrent one from 32 sequences of 64, including burn-in. Writes results/recurrent_speed.csv.
"""

import argparse
import csv
import pathlib
import statistics
import time

import numpy as np
import tensorflow as tf

from tfsac.parameters import RunParameters, override
from tfsac.preset_lookup import load_preset
from tfsac.training.build import build_agent
from tfsac.types import MID, ArraySpec, Spec

OUT = pathlib.Path(__file__).parent / "results" / "recurrent_speed.csv"
OBSERVATION, ACTION = 5, 3
AGENTS = ("mujoco_twin_sac", "recurrent_sac_mujoco")


def batch_of(agent, rng: np.random.Generator):
    """Returns a batch of noise for one update, without episode ends."""

    def draw(spec: tf.TensorSpec) -> np.ndarray:
        shape = (1, *spec.shape)
        return np.tanh(rng.standard_normal(shape, np.float32)).astype(spec.dtype.as_numpy_dtype)

    batch = tf.nest.map_structure(draw, agent.batch_spec())
    return batch._replace(step_type=np.full_like(batch.step_type, MID)) if hasattr(batch, "step_type") else batch


def rate(agent, batch, seconds: float) -> float:
    """Returns updates per second."""
    began, made = time.perf_counter(), 0
    while (gone := time.perf_counter() - began) < seconds:
        agent.update(batch)
        made += 1
    return made / gone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of each measurement")
    options = parser.parse_args()
    rng, one = np.random.default_rng(0), np.ones(ACTION, np.float32)
    spec = Spec({"observation": ArraySpec((OBSERVATION,), "float32")}, ArraySpec((ACTION,), "float32", -one, one))
    work, steps = [], []
    for name in AGENTS:
        preset = override(load_preset(name), {"environment.visible_entries": None})
        agent = build_agent(preset, RunParameters(), spec)
        began = time.perf_counter()
        agent.trace(single=True)
        batch = batch_of(agent, rng)
        rate(agent, batch, 0.1)
        print(f"{name}: {time.perf_counter() - began:.1f} s until the first update", flush=True)
        work.append((agent, batch))
        steps.append(batch.reward.size if name == AGENTS[0] else (batch.reward.shape[1] - 1) * batch.reward.shape[2])
    rows = []
    for i in range(options.rounds):
        measured = [rate(agent, batch, options.seconds) for agent, batch in work]
        rows.append(
            [i + 1, *(round(x, 1) for x in measured), *(round(x * n) for x, n in zip(measured, steps, strict=True))]
        )
        print(f"round {i + 1}: {dict(zip(AGENTS, rows[-1][3:], strict=True))} steps/s", flush=True)
    with OUT.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["round", *(f"{name}_{what}" for what in ("updates", "steps") for name in AGENTS)])
        writer.writerows(rows)
    print(f"median steps/s: {[statistics.median(row[i] for row in rows) for i in (3, 4)]}")


if __name__ == "__main__":
    main()
