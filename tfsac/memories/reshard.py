"""Reshards the replay memories of a run's workers when a different number of workers resumes it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from tfsac.memories.episodes import EpisodicMemory
from tfsac.memories.frames import FRAMES, PLACES
from tfsac.memories.transitions import TransitionMemory

Rows = Iterable[tuple[int, np.ndarray]]  # chunks: absolute index of the first row, and rows


def reshard(
    memory: TransitionMemory | EpisodicMemory,
    index: int,
    rows: Sequence[Rows],
    states: Sequence[dict[str, np.ndarray]],
    total_rows: Sequence[int],
    count: int,
) -> None:
    """Fills an empty memory with one shard of the contents of several others.

    Transitions are split by environment: the first shard gets those of the first environments. Finished episodes go to
    the shards in turn. Running episodes are kept as truncated ones.

    Args:
        memory: memory of one of `count` workers.
        index: index of that worker, and of its shard.
        rows, states, total_rows: those of each old memory, from its `between`, `state` and `total_rows`.
        count: number of shards.

    Raises:
        ValueError: the old memories have other fields.
    """
    if isinstance(memory, EpisodicMemory):
        parts = [_episodes(chunks, state, total) for chunks, state, total in zip(rows, states, total_rows, strict=True)]
        # In turns, so that the oldest stay in front.
        episodes = [episode for turn in itertools.zip_longest(*parts) for episode in turn if episode is not None]
        for episode in episodes[index::count]:
            if len(episode) <= memory.capacity + 1:
                memory.append(episode)
        return
    local_envs = slice(index * memory.num_envs, (index + 1) * memory.num_envs)
    for chunks in zip(*rows, strict=True):  # workers step together, so their chunks end together
        begin = max(start for start, _ in chunks)  # a chunk that was rewritten lacks rows that are no longer kept
        parts = [part[begin - start :] for start, part in chunks]
        memory.put(begin, np.concatenate(parts, axis=1)[:, local_envs])
    memory.total_rows = total_rows[0]
    state = {name: array for name, array in states[0].items() if name != "sampled"}  # pending updates are dropped
    for key in memory.frames:
        envs = memory.num_envs * count // len(states)  # of each old memory
        places = np.concatenate([before[PLACES + key] + [0, envs * i, 0] for i, before in enumerate(states)])
        is_local = (local_envs.start <= places[:, 1]) & (places[:, 1] < local_envs.stop)
        frames = np.concatenate([before[FRAMES + key] for before in states])
        state |= {PLACES + key: places[is_local] - [0, local_envs.start, 0], FRAMES + key: frames[is_local]}
    if "leaves" in state:
        num_stored = min(memory.total_rows, memory.rows)
        leaves = np.concatenate([before["leaves"].reshape(num_stored, -1) for before in states], axis=1)
        largest = np.max([before["largest"] for before in states])
        state |= {"leaves": leaves[:, local_envs].ravel(), "largest": largest}
    memory.restore(state)


def _episodes(chunks: Rows, state: dict[str, np.ndarray], total_rows: int) -> list[np.ndarray]:
    """Returns the episodes of one memory, oldest first, each with its last observation as the last record."""
    tape, lengths = state["tape"], state["lengths"]
    parts = list(chunks)
    records = np.concatenate([tape[:0, 0], *(part for _, part in parts)])
    oldest = total_rows - int((lengths + 1).sum())
    ends = np.cumsum(lengths + 1) + oldest - (parts[0][0] if parts else total_rows)
    finished = [records[end - length - 1 : end] for end, length in zip(ends, lengths, strict=True)]
    if state["cut"]:
        finished = []  # it lacks its first steps, which is allowed only if it fills the memory
    running = [tape[max(begin, 0) :, env] for env, begin in enumerate(state["begin"].tolist()) if begin >= 0]
    return finished + [episode for episode in running if len(episode) > 1]
