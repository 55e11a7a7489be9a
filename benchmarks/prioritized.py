"""Measures the time per step of prioritised replay: sampling 256 of 1 000 000 and updating their priorities.

    python benchmarks/prioritized.py

HalfCheetah's shapes, a full memory with random priorities, one new transition per step, as in training. Prints medians
and 10 % to 90 % quantiles; sampling should take at most 1 ms.
"""

import time

import numpy as np

from tfsac.memories import PrioritizedMemory, TransitionMemory
from tfsac.types import ArraySpec, Spec

SPEC = Spec({"observation": ArraySpec((17,), "float32")}, ArraySpec((6,), "float32"))
CAPACITY, BATCH, STEPS = 1_000_000, 256, 2000


def full(memory: TransitionMemory) -> TransitionMemory:
    memory.ring["reward"] = np.arange(CAPACITY)[:, None]  # touches every page
    memory.total_rows = CAPACITY
    return memory


def report(name: str, seconds: list[float]) -> None:
    low, middle, high = np.quantile(seconds, [0.1, 0.5, 0.9]) * 1e3
    print(f"{name}: {middle:.3f} ms ({low:.3f} to {high:.3f})")


def main() -> None:
    rng = np.random.default_rng(0)
    plain, memory = full(TransitionMemory(SPEC, CAPACITY)), full(PrioritizedMemory(SPEC, CAPACITY))
    start = time.perf_counter()
    memory.restore({"leaves": rng.exponential(size=CAPACITY) ** 0.6, "largest": np.array(9.0), "batches": np.array(0)})
    print(f"restoring {CAPACITY} priorities: {time.perf_counter() - start:.2f} s")
    observation, action, zeros = {"observation": np.zeros((1, 17))}, np.zeros((1, 6)), np.zeros(1, bool)
    uniform, sampling, updating, adding = [], [], [], []
    for _ in range(STEPS):
        priority = rng.exponential(size=(1, BATCH))
        times = [time.perf_counter()]
        for work in (
            lambda: memory.add(observation, action, np.zeros(1), zeros, zeros, observation),
            lambda: memory.sample(1, BATCH, rng),
            lambda priority=priority: memory.update_priorities(priority),
            lambda: plain.sample(1, BATCH, rng),
        ):
            work()
            times.append(time.perf_counter())
        for seconds, taken in zip((adding, sampling, updating, uniform), np.diff(times), strict=True):
            seconds.append(taken)
    report("adding one transition", adding)
    report(f"sampling {BATCH} of {CAPACITY} by priority", sampling)
    report(f"updating {BATCH} priorities", updating)
    report(f"sampling {BATCH} of {CAPACITY} uniformly", uniform)


if __name__ == "__main__":
    main()
