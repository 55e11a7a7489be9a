"""A ring of steps, sampled uniformly as sequences of consecutive rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from tfsac.memories.transitions import EXTRA, NEXT, MemoryContext, TransitionMemory
from tfsac.parameters import Preset
from tfsac.types import (
    FIRST,
    LAST,
    MID,
    NEXT_STATE,
    OBSERVATION,
    PREVIOUS_ACTION,
    PREVIOUS_REWARD,
    STATE,
    ArraySpec,
    Sequence,
    Spec,
)


class SequenceMemory(TransitionMemory):
    """The newest steps of E environments, sampled as sequences of T rows of one environment each.

    The ring is that of `TransitionMemory`; records also mark the first step of an episode. A step that ends its episode
    makes two rows of a sequence: itself, and one of type LAST with the observation and the state after it. The rows
    after that are those of the next episode.

    Args:
        spec: fields and their shapes; extras "state/x" are paired with "next_state/x", previous action and reward with
            the step's.
        capacity: number of steps, over all environments.
        sequence_length: T.
        num_envs: number of environments that fill it.
        recurrent_state: specs of LSTM states by field, extras "state/x" of `add`; a sequence has that of its first row.
        more: `ignore_done`, whether even terminated steps count as nonterminal (an episode's end still makes a LAST
            row), and others of TransitionMemory.

    Raises:
        TfsacError: a capacity below T steps of every environment.
    """

    def __init__(
        self,
        spec: Spec,
        capacity: int,
        sequence_length: int,
        num_envs: int = 1,
        recurrent_state: Mapping[str, ArraySpec] | None = None,
        **more: Any,
    ):
        self.min_rows = self.sequence_length = sequence_length
        state = {STATE + field: array for field, array in (recurrent_state or {}).items()}
        super().__init__(spec._replace(extras={**spec.extras, **state}), capacity, num_envs, **more)
        self.initial_state = {key.removeprefix(STATE): self.extras.pop(key) for key in state}

    @classmethod
    def build(cls, preset: Preset, context: MemoryContext, **more: Any) -> Self:
        """Returns the memory that a preset describes; see `TransitionMemory.build`."""
        memory: Any = preset.agent.memory
        arguments = {"sequence_length": memory.sequence_length, "recurrent_state": context.recurrent_state}
        return super().build(preset, context, **{**arguments, **more})

    def _fields(self, spec: Spec) -> list[tuple[Any, ...]]:
        return [*super()._fields(spec), ("first", "bool", ())]

    def add(self, *step: Any, **fields: Any) -> None:
        """Stores one step of all environments, as `TransitionMemory.add`; rewards are `[E]`, or `[E, D]`."""
        self.ring["first"][self.total_rows % self.rows] = self._begins()
        super().add(*step, **fields)

    def sample(self, num_updates: int, batch_size: int, rng: np.random.Generator) -> Sequence:
        """Returns `num_updates` batches `[U, T, B, ...]` of sequences, with replacement.

        Every step with T - 1 more steps after it is equally likely to start a sequence. A LAST row never does: its loss
        is masked, and the rest would be a shorter sequence of the next episode.
        """
        num_stored = min(self.total_rows, self.rows)
        begins = (num_stored - self.sequence_length + 1) * self.num_envs
        first_slot = (self.total_rows - num_stored) * self.num_envs
        return self.sequences_from((first_slot + rng.integers(begins, size=(num_updates, batch_size))) % self.ring.size)

    def sequences_from(self, start: np.ndarray) -> Sequence:
        """Returns the sequences `[U, T, B, ...]` that begin in the given slots `[U, B]` of the flat ring."""
        flat = self.ring.reshape(-1)
        index = np.empty((len(start), self.sequence_length, start.shape[1]), np.int64)
        after = np.zeros(index.shape, bool)  # the LAST rows, made from the record that ends the episode
        index[:, 0] = start
        for t in range(1, self.sequence_length):
            slot = index[:, t - 1]
            after[:, t] = (flat["terminated"][slot] | flat["truncated"][slot]) & ~after[:, t - 1]
            index[:, t] = np.where(after[:, t], slot, (slot + self.num_envs) % flat.size)
        records = flat.take(index)
        nonterminal = np.where(after, 0, ~records["terminated"] | self.ignore_done).astype(np.float32)
        step_type = np.where(after, LAST, np.where(records["first"], FIRST, MID)).astype(np.int32)
        ended, names = records[after], records.dtype.names or ()
        records["reward"] = self.reward_filter(records["reward"])
        for name in names:
            later = _following(name)
            if later in names or name in ("action", "reward") or name.startswith(EXTRA):
                records[name][after] = ended[later] if later in names else 0
        observation = {key: records[name] for key, name in self.observation.items()}
        extras = {key: records[name] for key, name in self.extras.items()}
        for key, frames in self.frames.items():
            number = self._absolute(index)
            stacks, following = frames.stacks(number, number)
            stacks[after] = following[after]
            observation[key] = stacks
        state = {field: records[name][:, 0] for field, name in self.initial_state.items()}
        return Sequence(observation, records["action"], records["reward"], nonterminal, step_type, extras, state or ())


def _following(name: str) -> str | None:
    """Returns the field with another one's value after the step, or None for a field of the step itself."""
    of_step = {EXTRA + STATE + PREVIOUS_ACTION: "action", EXTRA + STATE + PREVIOUS_REWARD: "reward"}  # raw
    if name in of_step:
        return of_step[name]
    for now, later in ((OBSERVATION, NEXT), (EXTRA + STATE, EXTRA + NEXT_STATE)):
        if name.startswith(now):
            return later + name.removeprefix(now)
    return None
