"""A ring of transitions with goals replaced by achieved ones (Andrychowicz et al. 2017, arXiv 1707.01495)."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from tfsac.errors import TfsacError
from tfsac.memories.transitions import NEXT, MemoryContext, TransitionMemory
from tfsac.parameters import Preset
from tfsac.types import ACHIEVED_GOAL, DESIRED_GOAL, OBSERVATION, Spec, Transition

METRICS = ("replay/relabelled", "replay/reward_relabelled", "replay/reward_original")


class HindsightMemory(TransitionMemory):
    """Transitions of finished episodes; k of k + 1 get a goal that their episode achieved.

    The reward of every step of such a transition is recomputed for that goal, and so is `terminated` if the environment
    has a function for it. A transition ends after a step that terminates for its goal, with its episode or after
    `n_step` steps. The ring keeps the original goals and rewards.

    Args:
        spec: fields and their shapes, with the observations "achieved_goal" and "desired_goal".
        capacity: number of transitions, over all environments.
        num_envs: number of environments that fill it.
        goals: has `reward(achieved, desired)` and `terminated(achieved, desired)` for pairs of goals `[K, ...]`; the
            second returns None to keep the stored values. See `tfsac.environments.goals.GoalFunctions`.
        strategy, goals_per_step: as in `HindsightExperienceReplayParameters`.
        more: as in TransitionMemory.
    """

    def __init__(
        self,
        spec: Spec,
        capacity: int,
        num_envs: int = 1,
        *,
        goals: Any,
        strategy: str = "future",
        goals_per_step: int = 4,
        **more: Any,
    ):
        super().__init__(spec, capacity, num_envs, **more)
        self.goals, self.strategy, self.share = goals, strategy, goals_per_step / (goals_per_step + 1)
        # Absolute rows of the first and the last step of each record's episode; the last is undefined while it runs.
        self.first, self.last = np.zeros((2, *self.ring.shape), np.int64)
        self.begin = np.zeros(num_envs, np.int64)  # of the running episodes
        self.end = np.full(num_envs, -1)  # of the newest finished ones
        self.counts, self.rewards = np.zeros(2), np.zeros(2)  # of relabelled and other samples since the last metrics

    @classmethod
    def build(cls, preset: Preset, context: MemoryContext, **more: Any) -> Self:
        """Returns the memory that a preset describes; see `TransitionMemory.build`."""
        parameters: Any = preset.agent.memory
        limit, num_envs = context.goals.time_limit, preset.environment.num_envs
        if limit is not None and parameters.max_size // num_envs <= limit:
            raise TfsacError(
                f"agent.memory.max_size of kind 'hindsight' must exceed the time limit, {limit} steps, for each of "
                f"{num_envs} environments, got {parameters.max_size}"
            )
        names = ("strategy", "goals_per_step")
        fields = {name: getattr(parameters, name) for name in names}
        return super().build(preset, context, goals=context.goals, **fields, **more)

    @property
    def ready(self) -> bool:
        """Whether a step of a finished episode is stored."""
        return bool((self.end >= self.oldest_row).any())

    def add(self, *step: Any, **fields: Any) -> None:
        """Stores one step of all environments; see `TransitionMemory.add`."""
        row = self.total_rows
        super().add(*step, **fields)
        self.first[row % self.rows] = self.begin
        for env in np.flatnonzero(self._begins()):
            rows = np.arange(max(self.begin[env], self.oldest_row), row + 1)
            self.last[rows % self.rows, env] = row
            self.begin[env] = row + 1
            if not (self.autoreset and self.ring["autoreset"][row % self.rows, env]):
                self.end[env] = row

    def _find_episodes(self) -> None:
        """Finds where the episodes of all stored rows begin and end."""
        rows = np.arange(self.oldest_row, self.total_rows)[:, None]
        slots = rows[:, 0] % self.rows
        ended = self.ring["terminated"][slots] | self.ring["truncated"][slots]
        begins = np.where(np.vstack([np.ones((1, self.num_envs), bool), ended[:-1]]), rows, -1)
        self.first[slots] = np.maximum.accumulate(begins, axis=0)
        self.last[slots] = np.minimum.accumulate(np.where(ended, rows, self.total_rows)[::-1], axis=0)[::-1]
        self.begin = np.maximum(np.where(ended, rows, -1).max(axis=0, initial=-1) + 1, self.oldest_row)
        steps = ended & ~self.ring["autoreset"][slots] if self.autoreset else ended
        self.end = np.where(steps, rows, -1).max(axis=0, initial=-1)

    def sample(self, num_updates: int, batch_size: int, rng: np.random.Generator) -> Transition:
        """Returns `num_updates` batches `[U, B, ...]` of finished episodes, with replacement."""
        index, goal = self.draw(rng.random((num_updates, batch_size, 3)))
        while self.autoreset and (no_step := self.ring["autoreset"].reshape(-1)[index]).any():
            index[no_step], goal[no_step] = self.draw(rng.random((np.count_nonzero(no_step), 3)))
        return self.relabel(index, goal)

    def draw(self, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Chooses transitions and goals by uniform numbers in [0, 1), `[..., 3]`.

        Returns:
            slots of the flat ring `[...]`: of transitions, and of those whose achieved goal they get; -1 for their own.
        """
        oldest = self.oldest_row
        # Steps are ordered by row, then by environment. Between two ends, the same environments have steps.
        ends = np.unique(self.end[self.end >= oldest])
        begins = np.append(oldest, ends[:-1] + 1)
        has_steps = self.end >= ends[:, None]
        widths = has_steps.sum(axis=1)
        totals = np.cumsum((ends - begins + 1) * widths)
        number = _pick(uniform[..., 0], totals[-1])
        part = np.searchsorted(totals, number, side="right")
        down, across = np.divmod(number - np.append(0, totals)[part], widths[part])
        row, env = begins[part] + down, np.argsort(~has_steps, axis=1, kind="stable")[part, across]
        slot = row % self.rows
        goal = last = self.last[slot, env]
        if self.strategy != "final":
            first = row if self.strategy == "future" else np.maximum(self.first[slot, env], oldest)
            goal = first + _pick(uniform[..., 2], last - first + 1)
        goal = np.where(uniform[..., 1] < self.share, goal % self.rows * self.num_envs + env, -1)
        return slot * self.num_envs + env, goal

    def relabel(self, index: np.ndarray, goal: np.ndarray) -> Transition:
        """Returns the transitions that begin in slots `[U, B]`, with the goals from `draw`."""
        flat, records, relabelled = self.ring.reshape(-1), self._records(index), goal >= 0
        goals = flat[NEXT + ACHIEVED_GOAL][goal[relabelled]]
        later = np.arange(self.n_step).reshape(-1, *[1] * index.ndim)
        slots = (index + later * self.num_envs) % flat.size
        reward, terminated = flat["reward"][slots], flat["terminated"][slots]
        if len(goals):
            achieved = flat[NEXT + ACHIEVED_GOAL][slots[:, relabelled]]
            pairs = [x.reshape(-1, *goals.shape[1:]) for x in (achieved, np.broadcast_to(goals, achieved.shape))]
            reward[:, relabelled] = self.goals.reward(*pairs).reshape(self.n_step, -1)
            if (computed := self.goals.terminated(*pairs)) is not None:
                terminated[:, relabelled] = computed.reshape(self.n_step, -1)
        steps_left = self.last.reshape(-1)[index] - self._absolute(index) // self.num_envs
        going = np.logical_and.accumulate(
            np.concatenate([np.ones_like(terminated[:1]), ~terminated[:-1]]) & (later <= steps_left)
        )
        steps = going.sum(axis=0)
        last = np.take_along_axis(slots, steps[None] - 1, axis=0)[0]
        for name in self.next_observation.values():
            records[name] = flat[name][last]
        for prefix in (OBSERVATION, NEXT):
            records[prefix + DESIRED_GOAL][relabelled] = goals
        records["terminated"] = np.take_along_axis(terminated, steps[None] - 1, axis=0)[0]
        powers = self.powers[:-1].reshape(later.shape)
        records["reward"] = np.where(going, powers * self.reward_filter(reward), 0).sum(axis=0)
        for i, kind in enumerate((relabelled, ~relabelled)):
            self.counts[i] += np.count_nonzero(kind)
            self.rewards[i] += reward[0][kind].sum(dtype=np.float64)
        return self._batch(records, index, last, steps, ())

    def metrics(self) -> dict[str, float]:
        """Returns the share of samples since the last call that were relabelled, and the mean raw reward of the first
        step of these and of the others; NaN if there were none.
        """
        with np.errstate(invalid="ignore"):
            values = [self.counts[0] / self.counts.sum(), *(self.rewards / self.counts)]
        self.counts, self.rewards = np.zeros(2), np.zeros(2)
        return {name: float(value) for name, value in zip(METRICS, values, strict=True)}

    def end_episodes(self) -> None:
        """Marks the newest row as the end of its episodes; see `TransitionMemory.end_episodes`."""
        super().end_episodes()
        self._find_episodes()

    def state(self) -> dict[str, np.ndarray]:
        """Returns the state of a `TransitionMemory`, and the sums of `metrics`."""
        return {**super().state(), "hindsight": np.stack([self.counts, self.rewards])}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Restores a result of `state`, after the rows were restored and `total_rows` was set."""
        super().restore(arrays)
        self.counts, self.rewards = arrays["hindsight"].copy()
        self._find_episodes()


def _pick(uniform: np.ndarray, count: Any) -> np.ndarray:
    """Returns integers from 0 to below `count` for uniform numbers in [0, 1)."""
    return np.minimum(np.floor(uniform * count), count - 1).astype(np.int64)
