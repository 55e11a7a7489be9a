"""Measures sampling time against memory size: uniform, prioritised, sequences of 4 steps.

    python benchmarks/memories.py
    python benchmarks/memories.py --frames

50 batches of 256 per call, HalfCheetah's shapes, full memories of zeros with every page touched. The kinds take turns
in each round. Writes results/memories.csv, one row per measurement, and prints medians. The largest memories need 3 GB
of RAM. With --frames: one batch of 64 per call, Atari's shapes, each frame stored once compared with whole stacks, and
four batches of ACER's segments, 8 of 5 steps each; writes results/memories_frames.csv and needs 5 GB.
"""

import argparse
import csv
import pathlib
import statistics
import time
from collections.abc import Callable

import numpy as np

from tfsac.memories import EpisodicMemory, PrioritizedMemory, SequenceMemory, TransitionMemory
from tfsac.types import ArraySpec, DiscreteSpec, Spec

RESULTS = pathlib.Path(__file__).parent / "results"
SPEC = Spec({"observation": ArraySpec((17,), "float32")}, ArraySpec((6,), "float32"))
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
CALL, BATCH, ROUNDS, SECONDS = 50, 256, 7, 0.5
KINDS = {
    "uniform": TransitionMemory,
    "prioritised": PrioritizedMemory,
    "sequences": lambda spec, size: SequenceMemory(spec, size, 4),
}
STACKS = Spec({"observation": ArraySpec((84, 84, 4), "uint8", stacked=True)}, DiscreteSpec(6))
FRAMES = {
    "frames": lambda _, size: TransitionMemory(STACKS, size),
    "whole stacks": lambda _, size: TransitionMemory(STACKS.unstacked(), size),
    "segments of frames": lambda _, size: episodes(STACKS, size),
    "segments of whole stacks": lambda _, size: episodes(STACKS.unstacked(), size),
}
SEGMENTS, STEPS, EPISODE = (4, 8), 5, 500  # batches and segments per call, steps of a segment and of an episode


def full(
    make: Callable[[Spec, int], TransitionMemory | EpisodicMemory], size: int
) -> TransitionMemory | EpisodicMemory:
    memory = make(SPEC, size)
    if isinstance(memory, EpisodicMemory):
        return memory
    for name in memory.ring.dtype.names:
        memory.ring[name] = 3 * name.startswith("earlier/") or name == "reward"  # touches every page
    memory.total_rows = size
    if isinstance(memory, PrioritizedMemory):
        leaves = np.random.default_rng(0).exponential(size=size)
        memory.restore({"leaves": leaves, "largest": np.array(9.0), "batches": np.array(0)})
    return memory


def episodes(spec: Spec, size: int) -> EpisodicMemory:
    """Returns a memory of finished episodes."""
    memory = EpisodicMemory(spec, size, STEPS)
    episode = np.ones(EPISODE + 1, memory.dtype)
    for name in memory.frames:
        episode["earlier/" + name] = np.minimum(np.arange(EPISODE + 1), 3)
    for _ in range(size // EPISODE):
        memory.append(episode)
    return memory


def milliseconds(memory: TransitionMemory | EpisodicMemory, rng: np.random.Generator, call: int, batch: int) -> float:
    """Returns the mean time of a call."""
    began, made = time.perf_counter(), 0
    while (gone := time.perf_counter() - began) < SECONDS:
        if isinstance(memory, EpisodicMemory):
            memory.batches(*SEGMENTS, rng)
        else:
            memory.sample(call, batch, rng)
        made += 1
    return 1e3 * gone / made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", action="store_true", help="measure stacks of frames instead of vectors")
    frames = parser.parse_args().frames
    kinds, sizes = (FRAMES, (10_000, 30_000)) if frames else (KINDS, SIZES)
    rng, rows = np.random.default_rng(0), []
    for size in sizes:
        measured: dict[str, list[float]] = {kind: [] for kind in kinds}
        memories = {kind: full(make, size) for kind, make in kinds.items()}
        for i in range(ROUNDS):
            for kind, memory in memories.items():
                measured[kind].append(milliseconds(memory, rng, *((1, 64) if frames else (CALL, BATCH))))
                rows.append((size, kind, i, round(measured[kind][-1], 3)))
        print(
            f"{size:>9}: " + ", ".join(f"{kind} {statistics.median(ms):.2f} ms" for kind, ms in measured.items()),
            flush=True,
        )
    with (RESULTS / f"memories{'_frames' * frames}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("transitions", "kind", "round", "ms_a_call"), *rows])


if __name__ == "__main__":
    main()
