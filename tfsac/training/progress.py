"""How far a run is, what the next row of metrics averages over (both are part of a checkpoint), and how it ended."""

from __future__ import annotations

import dataclasses
import pathlib
from collections import deque
from typing import Any

import numpy as np

from tfsac.parameters import EnvironmentEpisodes, EnvironmentSteps, StepMethod

SUMMARY = ("return_mean", "return_std", "return_min", "return_max", "length_mean")
RECENT_EPISODES = 10  # over which the progress bar averages


@dataclasses.dataclass
class Counters:
    """Environment steps over all environments, finished episodes, updates."""

    env_steps: int = 0
    episodes: int = 0
    updates: int = 0

    def of(self, steps: StepMethod) -> int:
        """Returns the counter in the unit of `steps`."""
        if isinstance(steps, EnvironmentSteps):
            return self.env_steps
        return self.episodes if isinstance(steps, EnvironmentEpisodes) else self.updates


@dataclasses.dataclass
class Result:
    """How a run ended.

    Attributes:
        reason: "finished", "threshold reached", the name of a signal, or what `Trainer.stop` was given.
        run_dir: its folder.
        counters: env_steps, episodes, updates.
        best_return: mean return of the best evaluation, or None.
        signal: the number of the signal that interrupted it, or None.
        accepted: whether an evaluation reached the preset's threshold within its number of training episodes; None for a
            preset without a threshold.
    """

    reason: str
    run_dir: pathlib.Path
    counters: Counters
    best_return: float | None
    signal: int | None
    accepted: bool | None


def summary(prefix: str, returns: np.ndarray, lengths: np.ndarray) -> dict[str, float]:
    """Returns mean, std, min and max of episodes' returns `[E]` and their mean length, as columns under a prefix."""
    values = (returns.mean(), returns.std(), returns.min(), returns.max(), lengths.mean())
    return {f"{prefix}/{name}": float(value) for name, value in zip(SUMMARY, values, strict=True)}


class Recorder:
    """Collects episodes and update metrics between two rows.

    Args:
        names: of the metrics that an update returns.
    """

    def __init__(self, names: list[str]):
        self.names = names
        self.recent: deque[float] = deque(maxlen=RECENT_EPISODES)
        self._clear()

    def _clear(self) -> None:
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.sums, self.updates = np.zeros(len(self.names)), 0

    def add_episode(self, episode_return: float, length: int) -> None:
        """Adds a finished training episode."""
        self.returns.append(episode_return)
        self.lengths.append(length)
        self.recent.append(episode_return)

    def add_updates(self, metrics: np.ndarray) -> None:
        """Adds the metrics `[U, M]` of U updates."""
        self.sums += metrics.sum(axis=0, dtype=np.float64)
        self.updates += len(metrics)

    def recent_return(self) -> float | None:
        """Returns the mean return of the last training episodes."""
        return float(np.mean(self.recent)) if self.recent else None

    def take(self) -> dict[str, float]:
        """Returns the means since the last call and begins anew; what did not happen is left out."""
        row: dict[str, float] = {}
        if self.returns:
            row |= summary("training", np.array(self.returns), np.array(self.lengths))
        if self.updates:
            row |= dict(zip(self.names, (self.sums / self.updates).tolist(), strict=True))
        self._clear()
        return row

    def state(self) -> dict[str, Any]:
        """Returns everything as JSON values, exactly."""
        return {
            "recent": list(self.recent),
            "returns": self.returns,
            "lengths": self.lengths,
            "sums": self.sums.tolist(),
            "updates": self.updates,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over what `state` returned."""
        self.recent.extend(state["recent"])
        self.returns, self.lengths = list(state["returns"]), list(state["lengths"])
        self.sums, self.updates = np.array(state["sums"]), state["updates"]
