"""The range of what an environment shows, and what float32 loses of it."""

from __future__ import annotations

import numpy as np

FEW = 16  # numbers of float32 in the range of an entry
OFFSET = 1e4  # smaller numbers may vary by rounding alone


class Range:
    """The smallest and the largest number of each entry of an observation, before it becomes float32.

    Args:
        first: the first observation; none of its numbers is counted.
    """

    def __init__(self, first: np.ndarray):
        self.low, self.high = np.full(first.shape, np.inf), np.full(first.shape, -np.inf)

    @property
    def largest(self) -> float:
        """The largest absolute value of all entries; 0 before there are any."""
        ends = np.abs([self.low, self.high])
        return float(ends[np.isfinite(ends)].max(initial=0.0))

    def add(self, observation: np.ndarray) -> None:
        """Counts an observation of the same shape; entries that are not finite are left out."""
        finite = np.isfinite(observation)
        self.low = np.where(finite & (observation < self.low), observation, self.low)
        self.high = np.where(finite & (observation > self.high), observation, self.high)

    def lost_in_float32(self) -> str:
        """Returns what to say of an entry whose values float32 can hardly tell apart, or nothing."""
        width, largest = self.high - self.low, np.maximum(np.abs(self.low), np.abs(self.high))
        with np.errstate(over="ignore"):
            few = FEW * np.spacing(largest.astype(np.float32))
        lost = np.argwhere((largest > OFFSET) & np.isfinite(width) & (width > 0) & (width < few))
        if not lost.size:
            return ""
        i = tuple(map(int, lost[0]))
        return (
            f"entry {i[0] if len(i) == 1 else i} varies by {width[i]:.4g} around {self.low[i]:.4g}, and agents see "
            "float32, which hardly tells such numbers apart: subtract an offset in the environment"
        )
