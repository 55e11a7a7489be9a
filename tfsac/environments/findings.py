"""What a check of an environment finds: lines of a report, and the range of what was observed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

OK, WARNING, PROBLEM = "ok", "warning", "problem"
FEW = 16  # numbers of float32 in the range of an entry
OFFSET = 1e4  # smaller numbers may vary by rounding alone


class Finding(NamedTuple):
    """One line of a report: "ok", "warning" or "problem", and what it is about."""

    kind: str
    text: str


class EnvironmentReport(NamedTuple):
    """What `check_environment` found; printed, a line for each finding.

    Attributes:
        name: of the environment.
        findings: in the order in which they were looked for.
    """

    name: str
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> list[str]:
        """What hinders training."""
        return [text for kind, text in self.findings if kind == PROBLEM]

    @property
    def warnings(self) -> list[str]:
        """What may be meant so."""
        return [text for kind, text in self.findings if kind == WARNING]

    @property
    def usable(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    def __str__(self) -> str:
        lines = [f"  {kind:<8} {text}" for kind, text in self.findings]
        counts = [
            f"{len(x)} {word}{'s' * (len(x) != 1)}"
            for x, word in ((self.problems, PROBLEM), (self.warnings, WARNING))
            if x
        ]
        verdict = "usable" if self.usable else "not usable"
        return "\n".join([f"{self.name}:", *lines, f"{verdict}{': ' if counts else ''}{', '.join(counts)}"])


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
