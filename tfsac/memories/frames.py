"""Frame stacks, `[H, W, k]` bytes: a memory stores each frame once, and stacks frames when it samples."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from tfsac.types import OBSERVATION, ArraySpec, Spec

EARLIER = "earlier/"  # number of earlier frames of the episode in a record's stack
PLACES, FRAMES = "places/", "frames/"  # arrays of a checkpoint
BLOCK = 16  # stacks that are made at once, so that their frames fit the processor's cache


def observation_fields(spec: Spec) -> list[tuple[Any, ...]]:
    """Returns name, dtype and shape of a record's observation fields; of a stack, only the newest frame."""
    fields: list[tuple[Any, ...]] = []
    for key, array in spec.observation.items():
        fields += [(OBSERVATION + key, array.dtype, array.shape[:-1] if array.stacked else array.shape)]
        fields += [(EARLIER + key, "uint8", ())] if array.stacked else []
    return fields


def without_frames(dtype: np.dtype) -> list[str]:
    """Returns the fields of a record without the frames and the fields for stacking them."""
    names = dtype.names or ()
    stacked = {OBSERVATION + name.removeprefix(EARLIER) for name in names if name.startswith(EARLIER)}
    return [name for name in names if name not in stacked and not name.startswith(EARLIER)]


def recorded_observations(records: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the observations in records by key, without stacks of frames."""
    names = [name for name in without_frames(records.dtype) if name.startswith(OBSERVATION)]
    return {name.removeprefix(OBSERVATION): records[name] for name in names}


class RingFrames:
    """The frames of one observation in a ring `[R, E]` of steps, one per record.

    `extra_frames` holds the frames that no record holds: those after the newest and after final steps, and the k - 1
    before the oldest row.

    Args:
        ring: the records.
        key: key of the observation.
        array: its spec.

    Attributes:
        extra_frames: frames `[H, W]` by number, `2 * transition` for that of an overwritten transition,
            `2 * transition + 1` for the one after it. Transitions are numbered by row, then by environment.
    """

    def __init__(self, ring: np.ndarray, key: str, array: ArraySpec):
        self.interleave = importlib.import_module("cv2").merge  # takes a third of NumPy's time; games need cv2 anyway
        self.frames, self.earlier, self.shape = ring[OBSERVATION + key], ring[EARLIER + key], array.shape
        self.rows, self.num_envs = ring.shape
        self.extra_frames: dict[int, np.ndarray] = {}

    def add(self, row: int, stack: np.ndarray, following: np.ndarray, first: np.ndarray) -> None:
        """Stores the frames of one step of all environments.

        Args:
            row: absolute index of the step.
            stack, following: `[E, H, W, k]`, before and after the step.
            first: `[E]`, whether the step is the first of its episode.
        """
        slot, longest = row % self.rows, self.shape[-1] - 1
        for env in range(self.num_envs):
            overwritten = 2 * ((row - self.rows) * self.num_envs + env)
            self.extra_frames.pop(overwritten + 1, None)
            if row >= self.rows:
                self.extra_frames[overwritten] = self.frames[slot, env].copy()
            self.extra_frames.pop(overwritten - 2 * longest * self.num_envs, None)
            number = 2 * (row * self.num_envs + env)
            if not first[env]:
                self.extra_frames.pop(number - 2 * self.num_envs + 1, None)  # this row holds it from now on
            self.extra_frames[number + 1] = following[env, ..., -1].copy()
        self.earlier[slot] = np.where(first, 0, np.minimum(self.earlier[slot - 1] + 1, longest))
        self.frames[slot] = stack[..., -1]

    def stacks(self, first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the stacks before the first and after the last transition of each span, `[..., H, W, k]` each.

        Args:
            first, last: numbers `[...]` of stored transitions; the same array for spans of one step.
        """
        stacks = np.empty((2, *first.shape, *self.shape), np.uint8)
        num_frames = self.shape[-1]
        back = np.arange(num_frames - 1, -2, -1)  # steps before each transition, oldest first, and the one after it
        spans = [(first, back)] if last is first else [(first, back[:-1]), (last, back[1:])]
        slots, numbers = np.concatenate([self._around(*span) for span in spans], axis=1)
        before, after = stacks.reshape(2, first.size, -1, num_frames)
        frames = self.frames.reshape(self.rows * self.num_envs, -1)
        for start in range(0, first.size, BLOCK):
            block = slice(start, start + BLOCK)
            block_frames = frames[slots[:, block]]
            self.interleave([*block_frames[:num_frames]], dst=before[block])
            self.interleave([*block_frames[-num_frames:]], dst=after[block])
            del block_frames  # so that the next block takes its place in the processor's cache
        for position, number in enumerate(numbers.ravel().tolist()):
            if number in self.extra_frames:
                row, i = divmod(position, first.size)
                for stack, channel in ((before[i], row), (after[i], row - len(slots) + num_frames)):
                    if 0 <= channel < num_frames:
                        stack[:, channel] = self.extra_frames[number].reshape(-1)
        return stacks[0], stacks[1]

    def _around(self, transition: np.ndarray, back: np.ndarray) -> np.ndarray:
        """Returns slots of the flat ring and numbers `[2, m, n]` of the frames m steps before n transitions.

        An episode's first frame replaces missing earlier ones. The numbers are keys of `extra_frames`, which may hold
        the frame instead.
        """
        transition, back = transition.reshape(-1), back[:, None]
        size = self.rows * self.num_envs
        number = transition - np.minimum(back, self.earlier.reshape(size)[transition % size]) * self.num_envs
        return np.stack((number % size, np.where(back < 0, 2 * transition + 1, 2 * number)))

    def state(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns `extra_frames` as arrays: `[M, 3]` int64 (row, environment, 1 for the frame after), `[M, H, W]`."""
        numbers = np.array([*self.extra_frames], np.int64)
        row, env = np.divmod(numbers // 2, self.num_envs)
        places = np.stack((row, env, numbers % 2), axis=1)
        return places, np.array([*self.extra_frames.values()], np.uint8).reshape(-1, *self.shape[:-1])

    def restore(self, places: np.ndarray, frames: np.ndarray) -> None:
        """Restores `extra_frames` from the result of `state`."""
        numbers = 2 * (places[:, 0] * self.num_envs + places[:, 1]) + places[:, 2]
        self.extra_frames |= dict(zip(numbers.tolist(), frames.copy(), strict=True))


class EpisodeFrames:
    """The frames of one observation in records of complete episodes, one per record, including the last observation.

    Args:
        key: key of the observation.
        array: its spec.

    Attributes:
        num_earlier: k - 1.
    """

    def __init__(self, key: str, array: ArraySpec):
        self.interleave = importlib.import_module("cv2").merge  # takes a third of NumPy's time; games need cv2 anyway
        self.frame, self.earlier, self.shape = OBSERVATION + key, EARLIER + key, array.shape
        self.num_earlier = array.shape[-1] - 1

    def store(
        self, row: np.ndarray, after: np.ndarray, stack: np.ndarray, following: np.ndarray, steps: np.ndarray
    ) -> None:
        """Stores the frames of one step of all environments.

        Args:
            row, after: records `[E]` of the step and of the observation after it.
            stack, following: `[E, H, W, k]`, before and after the step.
            steps: `[E]`, number of earlier steps of each episode.
        """
        row[self.frame], after[self.frame] = stack[..., -1], following[..., -1]
        row[self.earlier] = np.minimum(steps, self.num_earlier)
        after[self.earlier] = np.minimum(steps + 1, self.num_earlier)

    def segments(self, exists: np.ndarray, sources: Iterable[tuple[np.ndarray, np.ndarray, int]]) -> np.ndarray:
        """Returns the stacks `[U, T + 1, B, H, W, k]` of segments.

        Args:
            exists: `[U, T + 1, B]`, whether there is a stack; missing ones are zero.
            sources: for consecutive groups of updates: a ring of records, the index `[u, T + 1, B]` of each stack's own
                record, and the distance between the records of two steps.
        """
        stacks = np.empty((*exists.shape, *self.shape), np.uint8)
        flat, filled = stacks.reshape(exists.size, -1, self.shape[-1]), 0
        for records, index, stride in sources:
            frames, index = records[self.frame].reshape(len(records), -1), index.reshape(-1)
            earlier = records[self.earlier][index % len(records)]
            back = np.minimum(np.arange(self.num_earlier, -1, -1)[:, None], earlier)
            slots = (index - back * stride) % len(records)
            for start in range(0, index.size, BLOCK):
                block = slots[:, start : start + BLOCK]
                self.interleave([*frames[block]], dst=flat[filled : filled + block.shape[1]])
                filled += block.shape[1]
        stacks[~exists] = 0
        return stacks
