"""Profiles an update: the operations that TensorFlow runs, by type.

    python benchmarks/profile_update.py --preset=mujoco_twin_sac --level=HalfCheetah-v5 --together=50

Traces `--calls` calls of `--together` updates with TensorFlow's profiler, from random batches, and prints each type's
count, microseconds and share of an update, the largest first. Types below 1 % are merged into one row. Microseconds are
summed over all threads: they exceed the time of an update if operations run in parallel. The lines below show the time
of an update without the profiler, and the number of operations in its graph, including constants and reads.

`--updates_between_diagnostics=1` shows updates that report all metrics.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys
import tempfile
import time

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import tfsac
from tfsac.environments import Environments
from tfsac.parameters import RunParameters, override
from tfsac.training.build import build_agent
from tfsac.training.devices import configure

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
from toys import random_batches, random_segments, random_sequences


def made_batches(agent, updates):
    """Returns random batches for an agent, `[U, ...]`."""
    policy, size = agent.policy, agent.batch_size
    if hasattr(policy, "trajectory"):
        return random_sequences(agent.spec, updates, agent.batch_spec().reward.shape[0], size)
    if agent.batch_axis:
        steps = agent.batch_spec().reward.shape[0]
        return random_segments(agent.spec, updates, steps, size, state=policy.recurrent_state)
    return random_batches(agent.spec, updates, size)


def operations(folder):
    """Returns the count and the microseconds of each type of operation."""
    counts, total = collections.Counter(), collections.Counter()
    for path in pathlib.Path(folder).rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
        for plane in space.planes:
            for line in plane.lines:
                for event in line.events:
                    name = plane.event_metadata[event.metadata_id].name
                    node, _, kind = name.rpartition(":")
                    if node and node[-1] != ":" and kind.isidentifier() and kind[0] in "_ABCDEFGHIJKLMNOPQRSTUVWXYZ":
                        counts[kind] += 1
                        total[kind] += event.duration_ps / 1e6
    return counts, total


def needed(graph):
    """Returns the operations that the outputs and variables of a traced update need."""
    waiting, found = [output.op for output in graph.outputs] + list(graph.control_outputs), {}
    while waiting:
        operation = waiting.pop()
        if operation.name not in found:
            found[operation.name] = operation
            waiting += [*(given.op for given in operation.inputs), *operation.control_inputs]
    return list(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="mujoco_twin_sac")
    parser.add_argument("--level", default=None, help="level (default: the preset's own)")
    parser.add_argument("--together", type=int, default=50, help="updates per call")
    parser.add_argument("--calls", type=int, default=4)
    default = RunParameters().updates_between_diagnostics
    parser.add_argument("--updates_between_diagnostics", type=int, default=default)
    args = parser.parse_args()
    configure()
    preset = tfsac.load_preset(args.preset)
    if args.level:
        preset = override(preset, {"environment.level": args.level})
    run = RunParameters(seed=1, updates_between_diagnostics=args.updates_between_diagnostics)
    agent = build_agent(preset, run, Environments(preset.environment, seed=1).spec)
    batches = made_batches(agent, args.together)
    for _ in range(3):
        agent.update(batches)
    began = time.perf_counter()
    for _ in range(args.calls):
        agent.update(batches)
    each = (time.perf_counter() - began) / args.calls / args.together
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        for _ in range(args.calls):
            agent.update(batches)
        tf.profiler.experimental.stop()
        counts, total = operations(folder)
    updates, everything = args.calls * args.together, sum(total.values())
    print("| operation | times an update | us an update | share |\n|---|---|---|---|")
    small = [kind for kind in total if total[kind] < 0.01 * everything]
    rows = [([kind], kind) for kind, _ in total.most_common() if kind not in small] + [(small, f"{len(small)} others")]
    for kinds, name in rows:
        number, spent = (sum(of[kind] for kind in kinds) for of in (counts, total))
        print(f"| {name} | {number / updates:.1f} | {spent / updates:.0f} | {100 * spent / everything:.1f} % |")
    print(f"\nAll operations: {sum(counts.values()) / updates:.0f}, {everything / updates:.0f} us. ", end="")
    print(f"An update takes {1e6 * each:.0f} us ({1 / each:.0f}/s).")
    with_all, losses = (len(needed(agent.compiled._graph(kind).graph)) for kind in ("all", "losses"))
    print(f"Operations in the graph of one update: {with_all} with all metrics, {losses} with losses alone.")


if __name__ == "__main__":
    main()
