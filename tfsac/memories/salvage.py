"""Putting back what is left of a memory of which a disk lost some rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfsac.memories.episodes import EpisodicMemory
from tfsac.memories.frames import FRAMES, PLACES
from tfsac.memories.transitions import TransitionMemory

Part = tuple[
    int, int, np.ndarray | None
]  # absolute indices of the first row and after the last one; None where they are gone


def put_back_without(
    memory: TransitionMemory | EpisodicMemory, parts: Sequence[Part], state: dict[str, np.ndarray], total_rows: int
) -> None:
    """Fills an empty memory with the rows that are left, side by side.

    In a ring of steps, the step before a gap is marked as the end of its episodes. Of stacks of frames, the last step
    before a gap is left out, because the frame after it is gone; the first steps after a gap repeat the oldest frame
    that is left. Of finished episodes, those that lost a record are left out.

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
    after_gaps: list[int] = []  # the rows that follow one
    for start, stop, rows in parts:
        begin = max(start, oldest)
        if rows is None:
            rows_since = memory.total_rows - max(after_gaps, default=0)
            if memory.frames and rows_since:
                memory.total_rows, kept[-1] = memory.total_rows - 1, kept[-1][:-1]
                for frames in memory.frames.values() if rows_since > 1 else ():
                    frames.put_aside(memory.total_rows)
            memory.end_episodes()
            after_gaps.append(memory.total_rows)
        elif begin < stop:
            memory.put(memory.total_rows, rows[begin - start :])
            memory.total_rows += stop - begin
            kept.append(np.arange(begin, stop))
    for key, frames in memory.frames.items():
        for row in after_gaps:
            frames.forget_before(row, memory.total_rows)
        state = {**state, **_frames_of(key, state, np.concatenate(kept), oldest, whole=0 not in after_gaps)}
    if "leaves" in state:
        state = {
            name: array for name, array in state.items() if name != "sampled"
        }  # which may be of rows that are gone
        slots = np.concatenate(kept) % memory.rows
        state = {**state, "leaves": state["leaves"].reshape(-1, memory.num_envs)[slots].ravel()}
    memory.restore(state)


def _frames_of(
    key: str, state: dict[str, np.ndarray], kept: np.ndarray, oldest: int, whole: bool
) -> dict[str, np.ndarray]:
    """Returns the frames aside of the rows that are kept, where these lie now.

    Args:
        key: of the observation.
        state: of the memory before.
        kept: absolute indices of the rows before.
        oldest: the first one that there was.
        whole: whether nothing is gone right after the frames before that one.
    """
    places, frames = state[PLACES + key], state[FRAMES + key]
    row, before = places[:, 0], places[:, 0] < oldest
    there = np.where(before, whole, np.isin(row, kept))
    places = np.column_stack((np.where(before, row - oldest, np.searchsorted(kept, row)), places[:, 1:]))
    return {PLACES + key: places[there], FRAMES + key: frames[there]}


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
