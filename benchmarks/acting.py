"""Measures how long a policy takes to act in E environments: in NumPy, and with its network in a compiled graph.

    OPENBLAS_NUM_THREADS=1 TF_NUM_INTEROP_THREADS=1 TF_NUM_INTRAOP_THREADS=1 python benchmarks/acting.py

`policy.act` in mode "explore" with 17 observation entries, and 6 action dimensions or 6 discrete actions. The variants
take turns and draw the same random numbers. results/acting.csv has median milliseconds of wall clock and of CPU time,
which other programs hardly affect. One thread is the fair comparison: in a run, a policy's TensorFlow graph has one
thread, and NumPy has all cores.
"""

import argparse
import csv
import pathlib
import sys
import time

import numpy as np
import tensorflow as tf

import tfsac
from tfsac.networks import GraphForward
from tfsac.parameters import RunParameters, override
from tfsac.policies import stateless
from tfsac.training import devices
from tfsac.training.build import build_policy
from tfsac.types import ArraySpec, DiscreteSpec, Spec

RESULTS = pathlib.Path(__file__).parent / "results" / "acting.csv"
OBSERVATION, BOUND = {"observation": ArraySpec((17,), "float32")}, np.ones(6, np.float32)
CONTINUOUS, DISCRETE = Spec(OBSERVATION, ArraySpec((6,), "float32", -BOUND, BOUND)), Spec(OBSERVATION, DiscreteSpec(6))
POLICIES = {
    "SAC, 2 x 256": ("mujoco_twin_sac", CONTINUOUS, 256),
    "SAC, 2 x 512": ("mujoco_twin_sac", CONTINUOUS, 512),
    "discrete SAC, 2 x 256": ("cart_pole_discrete_sac", DISCRETE, 256),
}
ENVIRONMENTS = 1, 16, 64, 256, 1024, 4096, 16384


def measured(name, num_envs, seconds):
    """Returns wall-clock and CPU milliseconds of calls for each variant: "NumPy", "graph" and "XLA"."""
    preset, spec, width = POLICIES[name]
    preset = override(tfsac.load_preset(preset), {"agent.hidden_layers": (width, width)})
    policy = build_policy(preset, RunParameters(seed=1), spec)
    seen = {"observation": np.random.default_rng(1).normal(size=(num_envs, 17)).astype(np.float32)}
    ways = {"NumPy": None, "graph": GraphForward(policy.networks["policy"], spec)}
    ways["XLA"] = GraphForward(policy.networks["policy"], spec)
    ways["XLA"].compute = tf.function(ways["XLA"].compute.python_function, autograph=False, jit_compile=True)
    stateless.MIN_ROWS_ON_ACCELERATOR = 1
    times, began = {way: [] for way in ways}, time.perf_counter()
    while min(map(len, times.values())) < 7 or time.perf_counter() - began < seconds:
        actions = []
        for way, policy.graph_forward in ways.items():
            policy.rng = np.random.default_rng(2)
            start = np.array([time.perf_counter(), time.process_time()])
            actions.append(policy.act(seen, mode="explore").action)
            times[way].append(1000 * (np.array([time.perf_counter(), time.process_time()]) - start))
        np.testing.assert_allclose(actions[1:], [actions[0]] * 2, rtol=0.01, atol=0.01)  # TF32 rounds
    return {way: values[2:] for way, values in times.items()}  # the first calls compile


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6, help="seconds for each policy and number of environments")
    options = parser.parse_args()
    devices.configure_once()
    with RESULTS.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["policy", "environments", "way", "ms", "cpu_ms", "calls", "where"])
        for name in POLICIES:
            for num_envs in ENVIRONMENTS:
                for way, values in measured(name, num_envs, options.seconds).items():
                    row = [*(f"{ms:.3f}" for ms in np.median(values, axis=0)), len(values), devices.device()]
                    table.writerow([name, num_envs, way, *row])
                    print(name, num_envs, way, *row, sep=", ", flush=True)


if __name__ == "__main__":
    sys.exit(main())
