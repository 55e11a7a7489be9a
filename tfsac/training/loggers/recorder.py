"""What the next row of metrics averages over: episodes that ended, and updates. It is part of a checkpoint."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

SUMMARY = ("return_mean", "return_std", "return_min", "return_max", "length_mean")
AVERAGED = ("averaged/losses", "averaged/diagnostics")  # over how many updates the means of a row are
MOST_ADDED = 1000  # calls of updates whose metrics wait to be summed
RECENT_EPISODES = 10  # over which the progress bar averages, and by which runs without evaluations judge a policy
RECENT = "training/recent_return_mean"  # column of such runs


def summary(prefix: str, returns: np.ndarray, lengths: np.ndarray) -> dict[str, float]:
    """Returns mean, std, min and max of episodes' returns `[E]` and their mean length, as columns under a prefix."""
    values = (returns.mean(), returns.std(), returns.min(), returns.max(), lengths.mean())
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
        """Returns the means since the last call, without metrics that no update reported."""
        self._sum()
        columns = zip(self.names, self.sums.tolist(), self.counts.tolist(), strict=True)
        means = {name: total / count for name, total, count in columns if count}
        self.sums, self.counts = np.zeros_like(self.sums), np.zeros_like(self.counts)
        return means

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps, as JSON values, exactly."""
        self._sum()
        return {"sums": self.sums.tolist(), "counts": self.counts.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes what `state` returned."""
        self.sums, self.counts = np.array(state["sums"]), np.array(state["counts"], np.int64)


class Recorder:
    """Collects episodes of E environments, the values in their `logged` infos and update metrics between two rows.

    Attributes:
        running: `[E]`, the returns so far of the episodes that run.
    """

    def __init__(self, names: Sequence[str], num_envs: int, logged: Sequence[str] = ()):
        self.updates, self.running = Means(names), np.zeros(num_envs)
        self.recent: deque[float] = deque(maxlen=RECENT_EPISODES)
        self.episodes: list[tuple[float, int]] = []  # return and length
        self.logged: dict[str, list[float]] = {key: [] for key in logged}

    def add_step(
        self, reward: np.ndarray, ended: np.ndarray, length: np.ndarray, logged: Mapping[str, np.ndarray]
    ) -> list[tuple[float, int]]:
        """Adds a step of all environments.

        Args:
            reward: `[E]`, or `[E, D]` of environments with D of them a step, which are summed.
            ended: booleans `[E]`, where an episode ended.
            length: `[E]`, steps of each episode so far.
            logged: `[E]` by key, values of `info` where an episode ended; NaN where there is none.

        Returns:
            undiscounted return and length of each episode that ended.
        """
        self.running += reward if reward.ndim == 1 else reward.sum(axis=1)
        if not ended.any():
            return []
        episodes = [(float(self.running[i]), int(length[i])) for i in np.flatnonzero(ended)]
        self.running[ended] = 0.0
        self.episodes += episodes
        self.recent += (episode_return for episode_return, _ in episodes)
        for key, values in logged.items():
            self.logged[key] += values[~np.isnan(values)].tolist()
        return episodes

    def recent_return(self) -> float | None:
        """Returns the mean return of the last training episodes."""
        return float(np.mean(self.recent)) if self.recent else None

    def take(self) -> dict[str, float]:
        """Returns the means since the last call, and of how many updates; what did not happen is left out."""
        row = summary("training", *np.array(self.episodes).T) if self.episodes else {}
        row |= {f"training/{key}": float(np.mean(values)) for key, values in self.logged.items() if values}
        self.episodes, self.logged = [], {key: [] for key in self.logged}
        counts = self.updates.state()["counts"]
        return row | self.updates.take() | dict(zip(AVERAGED, (max(counts), min(counts)), strict=True))

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps, as JSON values, exactly."""
        return {
            "recent": list(self.recent),
            "running": self.running.tolist(),
            "returns": [episode_return for episode_return, _ in self.episodes],
            "lengths": [length for _, length in self.episodes],
            "logged": list(self.logged.values()),
            "updates": self.updates.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Takes what `state` returned."""
        self.recent.extend(state["recent"])
        self.running = np.array(state["running"], np.float64)
        self.episodes = list(zip(state["returns"], state["lengths"], strict=True))
        self.logged = dict(zip(self.logged, map(list, state["logged"]), strict=True))
        self.updates.restore(state["updates"])
