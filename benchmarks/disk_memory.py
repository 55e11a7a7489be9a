"""Compares a replay memory on disk with one in RAM: adding, sampling, training, disk reads, and the cost of a
checkpoint.

    python benchmarks/disk_memory.py --folder=.

Random transitions with HalfCheetah's shapes. RAM and disk take turns in one process, call by call. To measure reads
beyond the page cache, pages of the file are dropped from the cache before each sample. Writes results/disk_memory.csv,
one row per place and round, and prints medians. Needs 6 GB of RAM and 6 GB of disk.
"""

import argparse
import contextlib
import csv
import functools
import mmap
import os
import pathlib
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
    os.environ.setdefault(name, {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2"}[name])

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfsac.agents import TwinSoftActorCriticAgent  # noqa: E402
from tfsac.memories import PrioritizedMemory, TransitionMemory, on_disk  # noqa: E402
from tfsac.parameters import TwinSoftActorCriticAgentParameters  # noqa: E402
from tfsac.training.checkpoints import CheckpointManager  # noqa: E402
from tfsac.types import ArraySpec, Spec  # noqa: E402

OUT = pathlib.Path(__file__).parent / "results" / "disk_memory.csv"
OBSERVATION, ACTION, BATCH, CALL, ROWS = 17, 6, 256, 50, 1000
ONE = np.ones(ACTION, np.float32)
SPEC = Spec({"observation": ArraySpec((OBSERVATION,), "float32")}, ArraySpec((ACTION,), "float32", -ONE, ONE))
PATTERN = 100_000  # transitions that are written repeatedly
STRETCH = 4 * 2**20  # bytes of the file that are dropped or kept together
PAGEOUT = 21  # madvise's MADV_PAGEOUT, which Python does not define
Row = tuple[int, str, str, int, float]  # transitions, measure, where, round, value


def filled(memory: TransitionMemory) -> TransitionMemory:
    """Fills a memory and returns it."""
    rng = np.random.default_rng(0)
    part = TransitionMemory(SPEC, PATTERN).ring
    for field in ("observation/observation", "action", "reward", "next_observation/observation"):
        part[field] = np.tanh(rng.standard_normal(part[field].shape))
    for start in range(0, memory.rows, PATTERN):
        memory.ring[start : start + PATTERN] = part[: memory.rows - start]
    memory.total_rows = memory.rows
    return memory


def small_pages(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns zeros in RAM in pages of 4 KB, like those of a file; NumPy requests 2 MB pages."""
    content = mmap.mmap(-1, int(np.prod(shape)) * dtype.itemsize)
    content.madvise(mmap.MADV_NOHUGEPAGE)
    return np.ndarray(shape, dtype, content)


def add(memory: TransitionMemory) -> None:
    zero, state = np.zeros(1, bool), {"observation": np.ones((1, OBSERVATION), np.float32)}
    action, reward = np.ones((1, ACTION), np.float32), np.ones(1, np.float32)
    for _ in range(ROWS):
        memory.add(state, action, reward, zero, zero, state)


def rates(works: dict[str, Callable[[], object]], amount: int, seconds: float) -> dict[str, float]:
    """Returns the amount per second of CPU time of each function, which does `amount` per call, from its median call;
    the functions take turns.

    CPU time includes page faults, but not the load of other processes; nothing is read from the disk here.
    """
    taken: dict[str, list[float]] = {where: [] for where in works}
    while min(map(sum, taken.values())) < seconds:
        for where, work in works.items():
            began = time.process_time()
            work()
            taken[where].append(time.process_time() - began)
    return {where: amount / statistics.median(some) for where, some in taken.items()}


def milliseconds(work: Callable[[], object]) -> float:
    """Returns the duration of a call."""
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)


def drop(memory: TransitionMemory, every: int) -> None:
    """Drops every `every`-th stretch of a memory's file from the page cache."""
    content = memory.ring.base
    assert isinstance(content, mmap.mmap)
    content.flush()
    for start in range(0, len(content) - STRETCH, every * STRETCH):
        content.madvise(PAGEOUT, start, STRETCH)


@contextlib.contextmanager
def growth(into: list[float]) -> Iterator[None]:
    """Appends the maximum growth of the process's RAM in MB, without file pages."""

    def anonymous() -> float:
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1e3

    before, most, done = anonymous(), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            most[0] = max(most[0], anonymous() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        into.append(most[0])


def warm(size: int, folder: pathlib.Path, rounds: int, seconds: float) -> Iterator[Row]:
    """Yields measurements that fit into RAM: adding, sampling, training."""
    rng, agent = np.random.default_rng(0), TwinSoftActorCriticAgent(TwinSoftActorCriticAgentParameters(), SPEC)
    places = {"RAM": np.zeros, "disk": on_disk(folder), "RAM in small pages": small_pages}
    memories = {where: filled(TransitionMemory(SPEC, size, allocate=make)) for where, make in places.items()}
    measures: dict[str, tuple[int, Callable[[TransitionMemory], object]]] = {
        "rows added a CPU second": (ROWS, add),
        "samples of 50 x 256 a CPU second": (1, lambda memory: memory.sample(CALL, BATCH, rng)),
        "updates a CPU second": (CALL, lambda memory: agent.update(memory.sample(CALL, BATCH, rng))),
    }
    for _, work in measures.values():
        work(memories["RAM"])
    for i in range(rounds):
        for measure, (amount, work) in measures.items():
            works = {where: functools.partial(work, memory) for where, memory in memories.items()}
            for where, rate in rates(works, amount, seconds).items():
                yield size, measure, where, i, rate


def cold(size: int, folder: pathlib.Path, rounds: int) -> Iterator[Row]:
    """Yields the duration of samples that read from the disk, with the advice of `on_disk` and with the kernel's
    read-ahead.
    """
    rng, memory = np.random.default_rng(0), filled(TransitionMemory(SPEC, size, allocate=on_disk(folder)))
    for every, cached in ((2, "half in the cache"), (1, "nothing in the cache")):
        for i in range(rounds):
            for advice, where in ((mmap.MADV_RANDOM, "disk"), (mmap.MADV_NORMAL, "disk, reading ahead")):
                memory.ring.base.madvise(advice)  # type: ignore[union-attr]
                for batches in (1, CALL):
                    drop(memory, every)
                    taken = milliseconds(functools.partial(memory.sample, batches, BATCH, rng))
                    yield size, f"ms of {batches} x 256, {cached}", where, i, taken


def checkpoints(size: int, folder: pathlib.Path) -> Iterator[Row]:
    """Yields the time and RAM of a checkpoint of a memory on disk."""
    weights, allocate = tf.Module(), on_disk(folder)
    weights.one = tf.Variable(0.0)
    for kind in (TransitionMemory, PrioritizedMemory):
        old, new = filled(kind(SPEC, size, allocate=allocate)), kind(SPEC, size, allocate=allocate)
        old.state()  # a prioritised memory adds new rows to its tree
        with tempfile.TemporaryDirectory(dir=folder) as place:
            saving, restoring = (CheckpointManager(pathlib.Path(place), weights, memory, {}) for memory in (old, new))
            for what, work in (("saving", lambda m=saving: m.save(0, {})), ("restoring", restoring.restore)):
                grown: list[float] = []
                with growth(grown):
                    seconds = milliseconds(work) / 1e3
                yield size, f"MB of RAM for {what} {kind.__name__}", "disk", 0, grown[0]
                yield size, f"s of {what} {kind.__name__}", "disk", 0, seconds
        assert np.array_equal(new.ring[::1000], old.ring[::1000])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU seconds of each measurement in a round")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(), help="a folder on the disk to measure")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 10_000_000])
    options = parser.parse_args()
    largest, folder, rounds = max(options.sizes), options.folder, options.rounds
    rows = [row for size in options.sizes for row in warm(size, folder, rounds, options.seconds)]
    rows += [*cold(largest, folder, rounds), *checkpoints(largest, folder)]
    with OUT.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("transitions", "measure", "where", "round", "value"))
        writer.writerows((*row[:-1], round(row[-1], 2)) for row in rows)
    groups: dict[tuple[int, str], dict[str, list[float]]] = {}
    for size, measure, where, _, value in rows:
        groups.setdefault((size, measure), {}).setdefault(where, []).append(value)
    for (size, measure), values in groups.items():
        medians = {where: statistics.median(some) for where, some in values.items()}
        share = ""
        if "RAM" in values:
            shares = [disk / ram for disk, ram in zip(values["disk"], values["RAM"], strict=True)]
            share = f"; disk / RAM {statistics.median(shares):.2f} [{min(shares):.2f}-{max(shares):.2f}]"
        print(f"{size:>9} {measure}: {', '.join(f'{where} {value:.1f}' for where, value in medians.items())}{share}")


if __name__ == "__main__":
    main()
