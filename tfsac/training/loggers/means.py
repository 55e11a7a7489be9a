"""Means over episodes and updates, and the names of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

SUMMARY = ("return_mean", "return_std", "return_min", "return_max", "length_mean")
AVERAGED = ("averaged/losses", "averaged/diagnostics")  # over how many updates the means of a row are
MOST_ADDED = 1000  # calls of updates whose metrics wait to be summed
RECENT_EPISODES = 10  # over which the progress bar averages, and by which runs without evaluations judge a policy
RECENT = "training/recent_return_mean"  # column of such runs


def summary(prefix: str, returns: np.ndarray, lengths: np.ndarray) -> dict[str, float]:
    """Returns mean, std, min and max of episodes' returns `[E]` and their mean length, as columns under a prefix; NaN
    where there are no episodes.
    """
    values = [np.nan] * 5
    if len(returns):
        values = [returns.mean(), returns.std(), returns.min(), returns.max(), lengths.mean()]
    return {f"{prefix}/{name}": float(value) for name, value in zip(SUMMARY, values, strict=True)}


class Means:
    """Averages the metrics of updates, by name, each over the updates that reported it."""

    def __init__(self, names: Sequence[str]):
        self.names = list(names)
        self.sums, self.counts = np.zeros(len(self.names)), np.zeros(len(self.names), np.int64)
        self.added: list[np.ndarray] = []  # not summed yet: many at once take a tenth of the time

    def add(self, metrics: np.ndarray) -> None:
        """Adds the metrics `[U, M]` of U updates, NaN for those that an update does not report."""
        self.added.append(metrics)
        if len(self.added) == MOST_ADDED:
            self._sum()

    def _sum(self) -> None:
        metrics = np.concatenate([np.zeros((0, len(self.names))), *self.added])
        reported = ~np.isnan(metrics)
        # One update after the other, so that the sums are the same to the bit however many are summed at once.
        self.sums = np.cumsum(np.concatenate([self.sums[None], np.where(reported, metrics, 0.0)]), axis=0)[-1]
        self.counts += reported.sum(axis=0)
        self.added = []

    def take(self) -> dict[str, float]:
        """Returns the means since the last call, NaN for metrics that no update reported."""
        self._sum()
        columns = zip(self.names, self.sums.tolist(), self.counts.tolist(), strict=True)
        means = {name: total / count if count else np.nan for name, total, count in columns}
        self.sums, self.counts = np.zeros_like(self.sums), np.zeros_like(self.counts)
        return means

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps, as JSON values, exactly."""
        self._sum()
        return {"sums": self.sums.tolist(), "counts": self.counts.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes what `state` returned."""
        self.sums, self.counts = np.array(state["sums"]), np.array(state["counts"], np.int64)
