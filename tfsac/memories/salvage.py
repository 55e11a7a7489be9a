"""Putting back what is left of a memory of which a disk lost some rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfsac.memories.episodes import EpisodicMemory
from tfsac.memories.transitions import TransitionMemory

Part = tuple[
    int, int, np.ndarray | None
]  # absolute indices of the first row and after the last one; None where they are gone


def put_back_without(
    memory: TransitionMemory | EpisodicMemory, parts: Sequence[Part], state: dict[str, np.ndarray], total_rows: int
) -> None:
    """Fills an empty memory with the rows that are left, side by side.

    In a ring of steps, the step before a gap is marked as the end of its episodes. Of finished episodes, those that
    lost a record are left out.

    Args:
        memory: of the same run.
        parts: of its rows, one after the other.
        state, total_rows: as the memory had them when it was saved.

    Raises:
        ValueError: the memory was of other fields.
    """
    if isinstance(memory, EpisodicMemory):
        _put_episodes(memory, parts, state, total_rows)
        return
    oldest, kept = max(total_rows - memory.rows, 0), [np.zeros(0, np.int64)]
    for start, stop, rows in parts:
        begin = max(start, oldest)
        if rows is None:
            memory.end_episodes()
        elif begin < stop:
            memory.put(memory.total_rows, rows[begin - start :])
            memory.total_rows += stop - begin
            kept.append(np.arange(begin, stop))
    if "leaves" in state:
        state = {
            name: array for name, array in state.items() if name != "sampled"
        }  # which may be of rows that are gone
        slots = np.concatenate(kept) % memory.rows
        state = {**state, "leaves": state["leaves"].reshape(-1, memory.num_envs)[slots].ravel()}
    memory.restore(state)


def _put_episodes(memory: EpisodicMemory, parts: Sequence[Part], state: dict[str, np.ndarray], total_rows: int) -> None:
    lengths, left = state["lengths"], []
    begin = total_rows - int((lengths + 1).sum())
    for steps in lengths.tolist():
        end = begin + steps + 1
        pieces = [
            None if rows is None else rows[max(begin, start) - start : min(end, stop) - start]
            for start, stop, rows in parts
            if start < end and stop > begin
        ]
        whole = [piece for piece in pieces if piece is not None]
        if len(whole) == len(pieces):
            records = np.concatenate(whole)
            memory.put(memory.total_rows, records)
            memory.total_rows += len(records)
            left.append(steps)
        begin = end
    memory.restore({**state, "lengths": np.array(left, np.int64)})
