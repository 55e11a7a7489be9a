"""Filters between the memory, which stores raw rewards and observations, and the agent."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfsac.parameters import FilterParameters
from tfsac.types import Spec, Transition

EPSILON = 1e-8  # added to the variance, so that a constant entry is divided by 1e-4 and not by zero


class Filters:
    """Reward scale and clip, observation normalisation with running statistics of all training steps.

    Statistics are a Welford-style merge of batches in float64; images are left alone. The agents of a team share them as
    they share the policy: the same observation looks the same to each.
    """

    def __init__(self, parameters: FilterParameters, spec: Spec):
        self.parameters = parameters
        self.count = 0
        self.mean: dict[str, np.ndarray] = {}
        self.squares: dict[str, np.ndarray] = {}  # sums of squared deviations from the mean
        if parameters.observation_normalization:
            for key, array in spec.of_one_agent().observation.items():
                if array.dtype == "float32":
                    self.mean[key], self.squares[key] = np.zeros(array.shape), np.zeros(array.shape)

    def learn(self, observation: dict[str, np.ndarray]) -> None:
        """Adds observations `[E, ...]`, or `[E, N, ...]` of a team's agents, to the running statistics."""
        if not self.mean:
            return
        rows = {key: observation[key].reshape(-1, *mean.shape) for key, mean in self.mean.items()}
        added = len(next(iter(rows.values())))
        total = self.count + added
        for key, mean in self.mean.items():
            batch = rows[key].astype(np.float64)
            batch_mean = batch.mean(axis=0)
            delta = batch_mean - mean
            self.squares[key] += ((batch - batch_mean) ** 2).sum(axis=0) + delta**2 * (self.count * added / total)
            self.mean[key] = mean + delta * (added / total)
        self.count = total

    def scale(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Returns (mean, 1 / deviation) by observation key, float32, for the keys that are normalised."""
        return {
            key: (
                mean.astype(np.float32),
                (1.0 / np.sqrt(self.squares[key] / max(self.count, 1) + EPSILON)).astype(np.float32),
            )
            for key, mean in self.mean.items()
        }

    def observation(self, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns observations with any leading dimensions as the agent sees them."""
        if not self.mean or not self.count:
            return observation
        bound = np.float32(self.parameters.observation_clipping)
        filtered = {
            key: np.clip((observation[key] - mean) * inverse, -bound, bound) for key, (mean, inverse) in self.scale().items()
        }
        return {**observation, **filtered}

    def reward(self, reward: np.ndarray) -> np.ndarray:
        """Returns rewards as the agent sees them: rescaled, then clipped."""
        scaled = reward * np.float32(self.parameters.reward_rescale_factor)
        if self.parameters.reward_clipping_range is None:
            return scaled
        low, high = self.parameters.reward_clipping_range
        return np.clip(scaled, np.float32(low), np.float32(high))

    def transition(self, batch: Transition) -> Transition:
        """Returns a sampled batch with both observations filtered.

        Its rewards are: the memory filters each with `reward` before it sums them.
        """
        return batch._replace(
            observation=self.observation(batch.observation),
            next_observation=self.observation(batch.next_observation),
        )

    def state(self) -> dict[str, Any]:
        """Returns the statistics as plain lists, exactly."""
        return {
            "count": self.count,
            "mean": {key: value.tolist() for key, value in self.mean.items()},
            "squares": {key: value.tolist() for key, value in self.squares.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over statistics that `state` returned."""
        self.count = state["count"]
        self.mean = {key: np.array(value) for key, value in state["mean"].items()}
        self.squares = {key: np.array(value) for key, value in state["squares"].items()}
