"""A ring of steps, sampled uniformly as sequences of consecutive rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from tfsac.memories.storage import Allocate
from tfsac.memories.transitions import EXTRA, NEXT, MemoryContext, TransitionMemory
from tfsac.parameters import Preset
from tfsac.types import FIRST, LAST, MID, NEXT_STATE, OBSERVATION, STATE, Sequence, Spec


class SequenceMemory(TransitionMemory):
    """The newest steps of E environments, sampled as sequences of T rows of one environment each.

    The ring is that of `TransitionMemory`, whose records also tell whether their step is the first of its episode. A
    step that ends its episode makes two rows of a sequence: itself, and one of type LAST with the observation and the
    state after it. The rows after that are those of the next episode.

    Args:
        spec: fields and their shapes; extras "state/x" go with "next_state/x".
        capacity: number of steps, over all environments.
        sequence_length: T.
        num_envs: number of environments that fill it.
        ignore_done: whether steps count as nonterminal where the task ended too. An episode's end makes a LAST row
            anyway.
        reward_filter: what the agent sees of raw rewards, any shape.
        allocate: as in TransitionMemory.

    Raises:
        ValueError: a capacity below T steps of every environment, or T below 2.
    """

    def __init__(
        self,
        spec: Spec,
        capacity: int,
        sequence_length: int,
        num_envs: int = 1,
        ignore_done: bool = False,
        reward_filter: Callable[[np.ndarray], np.ndarray] | None = None,
        allocate: Allocate = np.zeros,
    ):
        if sequence_length < 2:
            raise ValueError(f"A sequence has at least 2 rows. Received: sequence_length={sequence_length}")
        if capacity // num_envs < sequence_length:
            raise ValueError(
                f"The capacity must hold {sequence_length} steps of every environment. Received: {capacity} for "
                f"{num_envs}"
            )
        super().__init__(
            spec, capacity, num_envs, ignore_done=ignore_done, reward_filter=reward_filter, allocate=allocate
        )
        self.sequence_length = sequence_length

    @classmethod
    def build(cls, preset: Preset, context: MemoryContext, **more: Any) -> Self:
        """Returns the memory that a preset describes; see `TransitionMemory.build`."""
        agent: Any = preset.agent
        return cls(
            context.spec,
            agent.memory.max_size,
            agent.memory.sequence_length,
            preset.environment.num_envs,
            agent.algorithm.ignore_done,
            context.reward_filter,
            context.allocate,
            **more,
        )

    @property
    def ready(self) -> bool:
        """Whether there is a sequence to sample."""
        return min(self.total_rows, self.rows) >= self.sequence_length

    def _fields(self, spec: Spec) -> list[tuple[Any, ...]]:
        return [*super()._fields(spec), ("first", "bool", ())]

    def add(
        self,
        observation: dict[str, np.ndarray],
        action: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        next_observation: dict[str, np.ndarray],
        extras: dict[str, np.ndarray] | None = None,
    ) -> None:
        """Stores one step of all environments, as `TransitionMemory.add`; rewards are `[E]`, or `[E, D]`."""
        self.ring["first"][self.total_rows % self.rows] = self._begins()
        super().add(observation, action, reward, terminated, truncated, next_observation, extras)

    def sample(self, num_updates: int, batch_size: int, rng: np.random.Generator) -> Sequence:
        """Returns `num_updates` batches `[U, T, B, ...]` of sequences, with replacement.

        Every step that has T - 1 more after it begins a sequence with the same probability. A LAST row begins none: its
        loss is masked, and the rest of the sequence is a shorter one of the next episode.

        Raises:
            ValueError: fewer than T rows.
        """
        kept = min(self.total_rows, self.rows)
        if not self.ready:
            raise ValueError(f"Sampling needs at least {self.sequence_length} rows. Received: {kept} in memory")
        begins = (kept - self.sequence_length + 1) * self.num_envs
        first_slot = (self.total_rows - kept) * self.num_envs
        return self.sequences_from((first_slot + rng.integers(begins, size=(num_updates, batch_size))) % self.ring.size)

    def sequences_from(self, start: np.ndarray) -> Sequence:
        """Returns the sequences `[U, T, B, ...]` that begin in the given slots `[U, B]` of the flat ring."""
        flat = self.ring.reshape(-1)
        index = np.empty((len(start), self.sequence_length, start.shape[1]), np.int64)
        after = np.zeros(index.shape, bool)  # the LAST rows, which are made of the record that ends the episode
        index[:, 0] = start
        for t in range(1, self.sequence_length):
            slot = index[:, t - 1]
            after[:, t] = (flat["terminated"][slot] | flat["truncated"][slot]) & ~after[:, t - 1]
            index[:, t] = np.where(after[:, t], slot, (slot + self.num_envs) % flat.size)
        records = flat.take(index)
        nonterminal = np.where(after, 0, ~records["terminated"] | self.ignore_done).astype(np.float32)
        step_type = np.where(after, LAST, np.where(records["first"], FIRST, MID)).astype(np.int32)
        records["reward"] = self.reward_filter(records["reward"])
        ended, names = records[after], records.dtype.names or ()
        for name in names:
            later = _following(name)
            if later in names or name in ("action", "reward") or name.startswith(EXTRA):
                records[name][after] = ended[later] if later else 0
        part = {
            prefix: {name.removeprefix(prefix): records[name] for name in names if name.startswith(prefix)}
            for prefix in (OBSERVATION, EXTRA)
        }
        for key, frames in self.frames.items():
            number = self._absolute(index)
            stacks, following = frames.stacks(number, number)
            stacks[after] = following[after]
            part[OBSERVATION][key] = stacks
        return Sequence(part[OBSERVATION], records["action"], records["reward"], nonterminal, step_type, part[EXTRA])


def _following(name: str) -> str | None:
    """Returns the field that holds what the given one becomes after the step, or None for one that just belongs to
    it.
    """
    for now, later in ((OBSERVATION, NEXT), (EXTRA + STATE, EXTRA + NEXT_STATE)):
        if name.startswith(now):
            return later + name.removeprefix(now)
    return None
