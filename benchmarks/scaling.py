"""Measures the cost of an update and an action against batch size, network width and number of environments.

    python benchmarks/scaling.py --rounds=3
    python benchmarks/scaling.py --rounds=3 --mixed_precision=bfloat16

The agent is soft actor-critic with twin critics and automatic temperature, with 17 observation entries and 6 action
dimensions as in HalfCheetah-v5. Rounds are interleaved; `results/scaling.csv` has medians and the GFLOP of the matrix
products. Also prints the number of operations in the graph of one update, at 2 x 256 and batch 256.
"""

import argparse
import csv
import dataclasses
import pathlib
import statistics
import sys
import time

import numpy as np

from tfsac.memories import TransitionMemory
from tfsac.parameters import (
    ExperienceReplayParameters,
    RunParameters,
    ScheduleParameters,
    TwinSoftActorCriticAgentParameters,
    twin_soft_actor_critic_networks,
)
from tfsac.training.build import build_agent
from tfsac.training.devices import configure, set_numerics

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
from toys import tiny_preset, vector_spec

RESULTS = pathlib.Path(__file__).parent / "results" / "scaling.csv"
OBSERVATION, ACTION, UPDATES = 17, 6, 20
BATCHES = [(256, batch) for batch in (32, 64, 128, 256, 512, 1024, 4096)]
WIDTHS = [(width, 256) for width in (32, 64, 128, 512, 1024)]
CHEAP = {
    "Const", "Placeholder", "NoOp", "Identity", "ReadVariableOp", "Shape", "Reshape", "Squeeze", "ExpandDims", "Pack", "StridedSlice"
}  # fmt: skip
ENVIRONMENTS = (1, 2, 4, 8, 16, 64, 256)


def agent_and_batches(width, batch, spec):
    networks = twin_soft_actor_critic_networks((width, width), batch_size=batch)
    agent = TwinSoftActorCriticAgentParameters(memory=ExperienceReplayParameters(max_size=10_000), networks=networks)
    preset = dataclasses.replace(tiny_preset(), agent=agent, schedule=ScheduleParameters())
    memory = TransitionMemory(spec, 10_000)
    rng = np.random.default_rng(0)
    for name in memory.ring.dtype.names:
        if memory.ring[name].dtype == np.float32:
            memory.ring[name][:] = rng.uniform(-0.9, 0.9, memory.ring[name].shape)
    memory.total_rows = 10_000
    return build_agent(preset, RunParameters(), spec), memory.sample(UPDATES, batch, rng)


def operations(spec):
    """Returns the number of operations in the graph of one update, without constants, shapes and variable reads."""
    agent, _ = agent_and_batches(256, 256, spec)
    agent.trace(single=True)
    return sum(operation.type not in CHEAP for operation in agent.compiled._graph("all").graph.get_operations())


def gflop(width, batch):
    """Returns the floating point operations of one update's matrix products.

    The policy's step goes through policy and both critics; the critics' step through policy, targets and critics. A
    forward pass costs one product, and the gradients of weights and inputs one each.
    """
    policy = OBSERVATION * width + width * width + width * 2 * ACTION
    critic = (OBSERVATION + ACTION) * width + width * width + width
    products = 3 * policy + 2 * 2 * critic  # the policy's step: forward and back, through critics that are not trained
    products += policy + 2 * critic + 2 * 3 * critic  # targets, and the critics' own step
    return 2 * batch * products / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mixed_precision", choices=["none", "bfloat16"], default="none")
    args = parser.parse_args()
    rounds, out = args.rounds, RESULTS if args.mixed_precision == "none" else RESULTS.with_stem("scaling_bfloat16")
    configure()
    set_numerics(RunParameters(mixed_precision=args.mixed_precision))
    spec = vector_spec(OBSERVATION, ACTION)
    cases = {(width, batch): agent_and_batches(width, batch, spec) for width, batch in dict.fromkeys(BATCHES + WIDTHS)}
    seconds = {case: [] for case in cases}
    acting = {envs: [] for envs in ENVIRONMENTS}
    for agent, batches in cases.values():
        agent.update(batches)  # compiles
    actor = cases[256, 256][0]
    for _ in range(rounds):
        for case, (agent, batches) in cases.items():
            start = time.perf_counter()
            agent.update(batches)
            seconds[case].append((time.perf_counter() - start) / UPDATES)
        for envs in ENVIRONMENTS:
            observation = {"observation": np.zeros((envs, OBSERVATION), np.float32)}
            start = time.perf_counter()
            for _ in range(300):
                actor.act(observation, mode="explore")
            acting[envs].append((time.perf_counter() - start) / 300)
    with out.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(
            ["what", "width", "batch_or_environments", "milliseconds", "least", "most", "gflop", "gflop_per_second"]
        )
        for (width, batch), times in seconds.items():
            median, work = statistics.median(times), gflop(width, batch)
            numbers = [1e3 * median, 1e3 * min(times), 1e3 * max(times), work, work / median]
            table.writerow(["update", width, batch, *(f"{number:.4g}" for number in numbers)])
        for envs, times in acting.items():
            numbers = [1e3 * statistics.median(times), 1e3 * min(times), 1e3 * max(times)]
            table.writerow(["act", 256, envs, *(f"{number:.4g}" for number in numbers), "", ""])
    print(out.read_text())
    print(f"{operations(spec)} operations an update")


if __name__ == "__main__":
    main()
