"""Filters of rewards and observations for the agent; the memory stores raw values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from tfsac.parameters import FilterParameters, ParameterError, ReturnScalingParameters
from tfsac.types import Batch, Spec

EPSILON = 1e-8  # added to a variance, so that constant values are divided by 1e-4 instead of zero


class RunningStatistics:
    """Mean and variance in float64, merged batch by batch as in Chan, Golub and LeVeque (1979).

    Attributes:
        count: number of values so far.
        mean, squares: `[...]`; `squares` is the sum of squared deviations from the mean.
    """

    def __init__(self, shape: tuple[int, ...] = ()):
        self.count, self.mean, self.squares = 0, np.zeros(shape), np.zeros(shape)

    def add(self, values: np.ndarray) -> None:
        """Adds values `[K, ...]`."""
        if not len(values):
            return
        batch, total = values.astype(np.float64), self.count + len(values)
        batch_mean = batch.mean(axis=0)
        delta = batch_mean - self.mean
        between = delta**2 * (self.count * len(values) / total)
        self.squares = self.squares + ((batch - batch_mean) ** 2).sum(axis=0) + between
        self.mean = self.mean + delta * (len(values) / total)
        self.count = total

    def deviation(self) -> np.ndarray:
        """Returns the standard deviation `[...]`."""
        return np.sqrt(self.squares / max(self.count, 1) + EPSILON)

    def state(self) -> dict[str, Any]:
        """Returns the exact statistics as plain lists."""
        return {"count": self.count, "mean": self.mean.tolist(), "squares": self.squares.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores a result of `state`."""
        self.count = state["count"]
        self.mean, self.squares = np.array(state["mean"], np.float64), np.array(state["squares"], np.float64)


class ReturnScaling(RunningStatistics):
    """Divides rewards by the standard deviation of the discounted training returns.

    A reward r changes the return g of its environment to gamma * g + r. Every g enters the statistics. After the last
    step of an episode, terminated or truncated, g is zero.

    Attributes:
        running: g `[E]`; a zero `[1]` when all episodes start.
        largest: the largest |g| so far.
    """

    def __init__(self, parameters: ReturnScalingParameters, discount: float):
        super().__init__()
        self.parameters, self.discount = parameters, discount
        self.largest, self.running = 0.0, np.zeros(1)

    def learn(self, reward: np.ndarray, ended: np.ndarray, made: Any = slice(None)) -> None:
        """Adds raw rewards `[E]` of a step. `ended` `[E]` marks the last step of an episode; `made` `[E]` selects the
        environments that made a step.
        """
        returns = self.discount * self.running + reward.astype(np.float64)
        self.add(returns[made])
        self.largest = max(self.largest, float(np.abs(returns).max()))
        self.running = np.where(ended, 0.0, returns)

    def divisor(self) -> float:
        """Returns the deviation of the returns, or more to keep them within the bound; 1 before the first return."""
        if not self.count:
            return 1.0
        deviation, bound = float(self.deviation()), self.parameters.bound
        return deviation if bound is None else max(deviation, self.largest / bound)

    def state(self) -> dict[str, Any]:
        """Returns the exact statistics and running returns as plain numbers."""
        return {**super().state(), "largest": self.largest, "running": self.running.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores a result of `state`."""
        super().restore(state)
        self.largest, self.running = state["largest"], np.array(state["running"], np.float64)


class Filters:
    """Reward scale and clip, normalisation of rewards and observations with running statistics of all training steps.

    With several rewards per step, each has its own statistics. Images are not normalised. The members of a team share
    the statistics as they share the policy, so the same observation looks the same to each.

    Args:
        parameters: parameters of the filters.
        spec: spec of the agent.
        discount: gamma for the returns in return scaling.
        shared: observation keys that share statistics, such as goals, which replace each other.

    Raises:
        ParameterError: return scaling with several rewards per step.
    """

    def __init__(self, parameters: FilterParameters, spec: Spec, discount: float = 0.99, shared: Collection[str] = ()):
        self.parameters = parameters
        arrays = spec.single_agent().observation if parameters.observation_normalization else {}
        self.observations = {
            key: RunningStatistics(array.shape) for key, array in arrays.items() if array.dtype == "float32"
        }
        normalized = [key for key in shared if key in self.observations]
        self.observations |= {key: self.observations[normalized[0]] for key in normalized}
        self.rewards = RunningStatistics(() if spec.num_rewards is None else (spec.num_rewards,))
        self.returns: ReturnScaling | None = None
        if parameters.return_scaling:
            if spec.num_rewards is not None:
                instead = "reward_normalization=True scales each reward"
                raise ParameterError(f"return_scaling needs one reward per step, got {spec.num_rewards}; {instead}")
            self.returns = ReturnScaling(parameters.return_scaling, discount)
        self.learns_rewards = bool(parameters.return_scaling or parameters.reward_normalization)

    @property
    def count(self) -> int:
        """Number of observations in the running statistics; 0 without observation normalisation."""
        return max((statistics.count for statistics in self.observations.values()), default=0)

    def learn(self, observation: dict[str, np.ndarray]) -> None:
        """Adds observations `[E, ...]`, or `[E, P, ...]` for a team, to the running statistics."""
        for key, statistics in self.observations.items():
            statistics.add(observation[key].reshape(-1, *statistics.mean.shape))

    def learn_reward(self, reward: np.ndarray, ended: np.ndarray, made: Any = slice(None)) -> None:
        """Adds raw rewards `[E]` or `[E, D]` of a step. `ended` `[E]` marks the last step of an episode; `made` `[E]`
        selects the environments that made a step.
        """
        if self.returns:
            self.returns.learn(reward, ended, made)
        if self.parameters.reward_normalization:
            self.rewards.add(reward[made])

    def end_episodes(self) -> None:
        """Resets the running returns, because new episodes start in all environments; their number may change."""
        if self.returns:
            self.returns.running = np.zeros(1)

    def scale(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Returns (mean, 1 / deviation) by observation key, float32, for the normalised keys."""
        return {
            key: (statistics.mean.astype(np.float32), (1.0 / statistics.deviation()).astype(np.float32))
            for key, statistics in self.observations.items()
        }

    def observation(self, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns filtered observations; they may have any leading dimensions."""
        if not self.count:
            return observation
        bound = np.float32(self.parameters.observation_clipping)
        filtered = dict(observation)
        for key, (mean, inverse) in self.scale().items():
            if key in observation:
                filtered[key] = np.clip((observation[key] - mean) * inverse, -bound, bound)
        return filtered

    def reward(self, reward: np.ndarray) -> np.ndarray:
        """Returns filtered rewards: divided, rescaled, then clipped. They may have any leading dimensions."""
        scaled, bounds = reward * self.reward_scale(), self.parameters.reward_clipping_range
        return scaled if bounds is None else np.clip(scaled, *np.array(bounds, np.float32))

    def reward_scale(self) -> np.ndarray:
        """Returns the current factor of the rewards, float32, `[]` or `[D]`."""
        scale = np.asarray(self.parameters.reward_rescale_factor)
        if self.rewards.count:
            # Do not subtract the mean: that would change the value of ending an episode.
            scale = scale / np.where(self.rewards.squares > 0, self.rewards.deviation(), 1.0)  # 1 for constant rewards
        if self.returns:
            scale = scale / self.returns.divisor()
        return scale.astype(np.float32)

    def batch(self, batch: Batch) -> Batch:
        """Returns a sampled batch with filtered observations; the memory filters its rewards with `reward`."""
        names = [name for name in ("observation", "next_observation") if name in batch._fields]
        return batch._replace(**{name: self.observation(getattr(batch, name)) for name in names})

    def state(self) -> dict[str, Any]:
        """Returns the exact statistics as plain lists."""
        observations = {key: statistics.state() for key, statistics in self.observations.items()}
        by_key = {name: {key: values[name] for key, values in observations.items()} for name in ("mean", "squares")}
        counts = {key: values["count"] for key, values in observations.items()}
        reward = {"reward": self.rewards.state()} if self.parameters.reward_normalization else {}
        returns = {"returns": self.returns.state()} if self.returns else {}
        return {"count": self.count, "counts": counts, **by_key, **reward, **returns}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores a result of `state`."""
        counts = state.get("counts", {})  # missing in older states
        for key, statistics in self.observations.items():
            if key in state["mean"]:
                values = {name: state[name][key] for name in ("mean", "squares")}
                statistics.restore({"count": counts.get(key, state["count"]), **values})
        if self.parameters.reward_normalization and "reward" in state:  # weights may come from a run without
            self.rewards.restore(state["reward"])
        if self.returns and "returns" in state:
            self.returns.restore(state["returns"])
