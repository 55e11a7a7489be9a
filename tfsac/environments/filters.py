"""Filters between the memory, which stores raw rewards and observations, and the agent."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfsac.environments.return_scaling import ReturnScaling
from tfsac.environments.running_statistics import EPSILON, merged
from tfsac.parameters import FilterParameters, ParameterError
from tfsac.types import Batch, Spec


class Filters:
    """Reward scale and clip, normalisation of rewards and observations with running statistics of all training steps.

    Statistics are a Welford-style merge of batches in float64, each of several rewards a step with its own; images are
    left alone. The agents of a team share them as they share the policy: the same observation looks the same to each.

    Args:
        parameters: of the filters.
        spec: of the agent.
        discount: gamma, of the returns by which return scaling divides.

    Raises:
        ParameterError: return scaling of several rewards a step.
    """

    def __init__(self, parameters: FilterParameters, spec: Spec, discount: float = 0.99):
        self.parameters = parameters
        self.count = 0
        self.mean: dict[str, np.ndarray] = {}
        self.squares: dict[str, np.ndarray] = {}  # sums of squared deviations from the mean
        if parameters.observation_normalization:
            for key, array in spec.of_one_agent().observation.items():
                if array.dtype == "float32":
                    self.mean[key], self.squares[key] = np.zeros(array.shape), np.zeros(array.shape)
        shape = () if spec.num_rewards is None else (spec.num_rewards,)
        self.reward_count, self.reward_mean, self.reward_squares = 0, np.zeros(shape), np.zeros(shape)
        self.returns: ReturnScaling | None = None
        if parameters.return_scaling:
            if spec.num_rewards is not None:
                raise ParameterError(
                    "return_scaling divides by the returns of one reward a step. Where there are several, "
                    "reward_normalization=True divides each by its own deviation. "
                    f"Received: return_scaling={parameters.return_scaling} for {spec.num_rewards} rewards a step"
                )
            self.returns = ReturnScaling(parameters.return_scaling, discount)

    def learn(self, observation: dict[str, np.ndarray]) -> None:
        """Adds observations `[E, ...]`, or `[E, P, ...]` of a team's agents, to the running statistics."""
        if not self.mean:
            return
        rows = {key: observation[key].reshape(-1, *mean.shape) for key, mean in self.mean.items()}
        added = len(next(iter(rows.values())))
        for key, mean in self.mean.items():
            self.mean[key], self.squares[key] = merged(self.count, mean, self.squares[key], rows[key])
        self.count += added

    def learn_reward(self, reward: np.ndarray, ended: np.ndarray) -> None:
        """Adds a step of every environment to the running statistics.

        Args:
            reward: raw ones, `[E]`, or `[E, D]` of D rewards a step.
            ended: booleans `[E]`, whether it was the last step of its episode.
        """
        if self.returns:
            self.returns.learn(reward, ended)
        if not self.parameters.reward_normalization:
            return
        self.reward_mean, self.reward_squares = merged(self.reward_count, self.reward_mean, self.reward_squares, reward)
        self.reward_count += len(reward)

    def end_episodes(self) -> None:
        """Continues no running episode: new ones start in all environments."""
        if self.returns:
            self.returns.end_episodes()

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
            key: np.clip((observation[key] - mean) * inverse, -bound, bound)
            for key, (mean, inverse) in self.scale().items()
            if key in observation
        }
        return {**observation, **filtered}

    def reward(self, reward: np.ndarray) -> np.ndarray:
        """Returns raw rewards with any leading dimensions as the agent sees them: divided, rescaled, then
        clipped.
        """
        scaled = reward * self.reward_scale()
        if self.parameters.reward_clipping_range is None:
            return scaled
        low, high = self.parameters.reward_clipping_range
        return np.clip(scaled, np.float32(low), np.float32(high))

    def reward_scale(self) -> np.ndarray:
        """Returns what rewards are multiplied by now, float32, `[]` or `[D]`."""
        scale = np.asarray(self.parameters.reward_rescale_factor)
        if self.reward_count:
            # Without subtracting the mean: that would change what ending an episode is worth.
            deviation = np.sqrt(self.reward_squares / self.reward_count + EPSILON)
            scale = scale / np.where(self.reward_squares > 0, deviation, 1.0)  # constant so far: as they are
        if self.returns:
            scale = scale / self.returns.divisor()
        return scale.astype(np.float32)

    def batch(self, batch: Batch) -> Batch:
        """Returns a sampled batch with all its observations filtered.

        Its rewards are: the memory filters each with `reward`.
        """
        names = [name for name in ("observation", "next_observation") if name in batch._fields]
        return batch._replace(**{name: self.observation(getattr(batch, name)) for name in names})

    def state(self) -> dict[str, Any]:
        """Returns the statistics as plain lists, exactly."""
        state: dict[str, Any] = {
            "count": self.count,
            "mean": {key: value.tolist() for key, value in self.mean.items()},
            "squares": {key: value.tolist() for key, value in self.squares.items()},
        }
        if self.parameters.reward_normalization:
            mean, squares = self.reward_mean.tolist(), self.reward_squares.tolist()
            state["reward"] = {"count": self.reward_count, "mean": mean, "squares": squares}
        if self.returns:
            state["returns"] = self.returns.state()
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Loads statistics that `state` returned."""
        self.count = state["count"]
        self.mean = {key: np.array(value) for key, value in state["mean"].items()}
        self.squares = {key: np.array(value) for key, value in state["squares"].items()}
        if self.parameters.reward_normalization and "reward" in state:  # weights may come from a run without
            reward = state["reward"]
            self.reward_count = reward["count"]
            self.reward_mean, self.reward_squares = np.array(reward["mean"]), np.array(reward["squares"])
        if self.returns and "returns" in state:
            self.returns.restore(state["returns"])
