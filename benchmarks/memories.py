"""Time of sampling against the size of the memory: uniform, prioritised, sequences of 4 steps.

    python benchmarks/memories.py

50 batches of 256 a call, HalfCheetah's shapes, full memories of zeros with every page touched. The kinds take turns in
each round. Writes results/memories.csv, a row for each measurement, and prints medians. The largest memories need 3 GB
of RAM.
"""

import csv
import pathlib
import statistics
import time

import numpy as np

from tfsac.memories import PrioritizedMemory, SequenceMemory, TransitionMemory
from tfsac.types import ArraySpec, Spec

OUT = pathlib.Path(__file__).parent / "results" / "memories.csv"
SPEC = Spec({"observation": ArraySpec((17,), "float32")}, ArraySpec((6,), "float32"))
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
CALL, BATCH, ROUNDS, SECONDS = 50, 256, 7, 0.5
KINDS = {
    "uniform": TransitionMemory,
    "prioritised": PrioritizedMemory,
    "sequences": lambda spec, size: SequenceMemory(spec, size, 4),
}


def full(kind: str, size: int) -> TransitionMemory:
    memory = KINDS[kind](SPEC, size)
    memory.ring["reward"] = 1.0  # touches every page
    memory.total_rows = size
    if isinstance(memory, PrioritizedMemory):
        leaves = np.random.default_rng(0).exponential(size=size)
        memory.restore({"leaves": leaves, "largest": np.array(9.0), "batches": np.array(0)})
    return memory


def milliseconds(memory: TransitionMemory, rng: np.random.Generator) -> float:
    """Returns the mean time of a call."""
    began, made = time.perf_counter(), 0
    while (gone := time.perf_counter() - began) < SECONDS:
        memory.sample(CALL, BATCH, rng)
        made += 1
    return 1e3 * gone / made


def main() -> None:
    rng, rows = np.random.default_rng(0), []
    for size in SIZES:
        measured: dict[str, list[float]] = {kind: [] for kind in KINDS}
        memories = {kind: full(kind, size) for kind in KINDS}
        for i in range(ROUNDS):
            for kind, memory in memories.items():
                measured[kind].append(milliseconds(memory, rng))
                rows.append((size, kind, i, round(measured[kind][-1], 3)))
        print(
            f"{size:>9}: " + ", ".join(f"{kind} {statistics.median(ms):.2f} ms" for kind, ms in measured.items()),
            flush=True,
        )
    with OUT.open("w", newline="") as file:
        csv.writer(file).writerows([("transitions", "kind", "round", "ms_a_call"), *rows])


if __name__ == "__main__":
    main()
