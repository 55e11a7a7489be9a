"""Measures updates of twin-target soft actor-critic on one device, with XLA, on two and four logical devices, and on
two workers.

    python benchmarks/devices.py --rounds=5

All use the same global batch: HalfCheetah's sizes, a batch of 256, two hidden layers of 256; a call makes 1 or 50
updates. The variants in one process take turns; the two workers are separate processes on loopback, restarted in every
round. "First" sums gradients on the first device, "ring" is TensorFlow's default. CPU time is also recorded, because it
is more reliable when other programs run. Writes results/devices.csv, one row per measurement.
"""

import argparse
import csv
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

for name, value in (
    ("TF_NUM_INTRAOP_THREADS", "1"),
    ("TF_NUM_INTEROP_THREADS", str(os.cpu_count())),
    ("TF_CPP_MIN_LOG_LEVEL", "3"),
):
    os.environ.setdefault(name, value)

import tensorflow as tf  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))

OUT = pathlib.Path(__file__).parent / "results" / "devices.csv"
OBSERVATION, ACTION, CALLS, DEVICES, ONE = 17, 6, (1, 50), 4, "1 device"


def make(strategy: tf.distribute.Strategy, **more):
    """Returns an agent on a strategy's devices."""
    from toys import vector_spec

    from tfsac.agents import TwinSoftActorCriticAgent
    from tfsac.parameters import TwinSoftActorCriticAgentParameters

    with strategy.scope():
        return TwinSoftActorCriticAgent(TwinSoftActorCriticAgentParameters(), vector_spec(OBSERVATION, ACTION), **more)


def measure(agent, updates: int, calls: int) -> list[float]:
    """Returns wall-clock and CPU milliseconds per update, in calls of `updates` updates."""
    from toys import random_batches

    stacked = random_batches(agent.spec, updates, agent.local_batch_size)
    for _ in range(3):
        agent.update(stacked)
    clock, processor = time.perf_counter(), time.process_time()
    for _ in range(calls):
        agent.update(stacked)
    made = calls * updates
    return [1e3 * (time.perf_counter() - clock) / made, 1e3 * (time.process_time() - processor) / made]


def of_workers(options: argparse.Namespace) -> list[list[float]]:
    """Returns the measurements of the first of two workers, for each number of updates per call."""
    sockets = [socket.socket() for _ in range(2)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    running = []
    for index in range(2):
        config = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})
        command = [sys.executable, __file__, "--worker", f"--updates={options.updates}"]
        running.append(
            subprocess.Popen(command, env={**os.environ, "TF_CONFIG": config}, stdout=subprocess.PIPE, text=True)
        )
    printed = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError("A worker failed")
    return json.loads(printed[0].splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=300, help="updates of each measurement")
    parser.add_argument(
        "--worker", action="store_true", help="measure as a worker of the cluster that TF_CONFIG describes"
    )
    options = parser.parse_args()
    if options.worker:
        agent = make(tf.distribute.MultiWorkerMirroredStrategy())
        print(json.dumps([measure(agent, updates, options.updates // updates) for updates in CALLS]))
        return
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * DEVICES)

    def mirrored(devices: int, **more) -> tf.distribute.Strategy:
        return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)], **more)

    first = tf.distribute.ReductionToOneDevice()
    agents = {
        ONE: make(tf.distribute.get_strategy()),
        "1 device, XLA": make(tf.distribute.get_strategy(), jit_compile=True),
        "2 devices, ring": make(mirrored(2)),
        "2 devices, first": make(mirrored(2, cross_device_ops=first)),
        "4 devices, first": make(mirrored(4, cross_device_ops=first)),
    }
    rows = []
    for turn in range(options.rounds):
        measured = {
            (name, updates): measure(agent, updates, options.updates // updates)
            for updates in CALLS
            for name, agent in agents.items()
        }
        measured |= {("2 workers", updates): times for updates, times in zip(CALLS, of_workers(options), strict=True)}
        for (name, updates), times in measured.items():
            rows.append([turn + 1, updates, name, *(round(ms, 3) for ms in times)])
            print(*rows[-1], flush=True)
        with OUT.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["round", "updates_a_call", "devices", "ms_an_update", "processor_ms_an_update"])
            writer.writerows(rows)
    for updates in CALLS:
        for name in dict.fromkeys(row[2] for row in rows):
            ours, one = ([row[3:] for row in rows if row[1:3] == [updates, kind]] for kind in (name, ONE))
            clock, processor = ([mine[i] / theirs[i] for mine, theirs in zip(ours, one, strict=True)] for i in (0, 1))
            print(
                f"{updates:2} updates a call, {name}: {1e3 / statistics.median(ms for ms, _ in ours):.0f} updates/s; "
                f"to one device {statistics.median(clock):.2f} [{min(clock):.2f}-{max(clock):.2f}], processor "
                f"{statistics.median(processor):.2f}"
            )


if __name__ == "__main__":
    main()
