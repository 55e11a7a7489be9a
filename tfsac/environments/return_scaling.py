"""Return scaling: rewards divided by what the discounted returns of training vary by."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfsac.environments.running_statistics import EPSILON, merged
from tfsac.parameters import ReturnScalingParameters


class ReturnScaling:
    """Statistics of the running returns of all environments, and the divisor of rewards that follows from them.

    Each environment's return g becomes gamma * g + r with a reward r. Every g enters one running mean, variance and
    largest |g|. After the last step of an episode, terminated or truncated, g is zero.

    Args:
        parameters: of the scaling.
        discount: gamma.

    Attributes:
        running: g `[E]`; `[1]`, a zero, where all episodes start.
        count, mean, squares: statistics of all g so far; `squares` are summed squared deviations from the mean.
        largest: |g| so far.
    """

    def __init__(self, parameters: ReturnScalingParameters, discount: float):
        self.parameters, self.discount = parameters, discount
        self.count, self.mean, self.squares, self.largest = 0, np.zeros(()), np.zeros(()), 0.0
        self.end_episodes()

    def end_episodes(self) -> None:
        """Forgets the returns of the running episodes: new ones start everywhere, perhaps in more environments."""
        self.running = np.zeros(1)

    def learn(self, reward: np.ndarray, ended: np.ndarray) -> None:
        """Adds a step of every environment.

        Args:
            reward: `[E]`, raw.
            ended: booleans `[E]`, whether it was the last step of its episode.
        """
        returns = self.discount * self.running + reward.astype(np.float64)
        self.mean, self.squares = merged(self.count, self.mean, self.squares, returns)
        self.count += len(returns)
        self.largest = max(self.largest, float(np.abs(returns).max()))
        self.running = np.where(ended, 0.0, returns)

    def divisor(self) -> float:
        """Returns what raw rewards are divided by: the deviation of the returns, or more to keep them inside the bound;
        1 before there are any.
        """
        if not self.count:
            return 1.0
        deviation = float(np.sqrt(self.squares / self.count + EPSILON))
        bound = self.parameters.bound
        return deviation if bound is None else max(deviation, self.largest / bound)

    def state(self) -> dict[str, Any]:
        """Returns statistics and running returns as plain numbers, exactly."""
        return {
            "count": self.count,
            "mean": self.mean.tolist(),
            "squares": self.squares.tolist(),
            "largest": self.largest,
            "running": self.running.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Loads what `state` returned."""
        self.count, self.largest = state["count"], state["largest"]
        self.mean, self.squares = np.array(state["mean"], np.float64), np.array(state["squares"], np.float64)
        self.running = np.array(state["running"], np.float64)
