"""A ring of transitions, sampled uniformly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from tfsac.errors import TfsacError
from tfsac.memories.frames import (
    FRAMES,
    PLACES,
    RingFrames,
    observation_fields,
    recorded_observations,
    without_frames,
)
from tfsac.memories.storage import Allocate, Ring
from tfsac.parameters import Preset
from tfsac.types import OBSERVATION, ArraySpec, Sequence, Spec, Transition, action_fields, action_in, rows_of

NEXT, EXTRA = "next_observation/", "extra/"


class MemoryContext(NamedTuple):
    """Inputs for building a memory in addition to the preset.

    Attributes:
        spec: spec of the agent.
        reward_filter: maps raw rewards, any shape, to those that the agent learns from.
        stored_action: maps an environment's actions, such as demonstrated ones, to those that a memory stores.
        recurrent_state: specs of the states of the agent's LSTMs by field.
        allocate: makes the arrays of the records.
        older_policies: whether collected steps may come from a policy before the last updates.
        autoreset: whether environment steps may only start an episode; see `Step.autoreset`.
        goals: the `GoalFunctions` of a goal environment, with which hindsight replay recomputes rewards; or None.
    """

    spec: Spec
    reward_filter: Callable[[np.ndarray], np.ndarray]
    stored_action: Callable[[Any], Any]
    recurrent_state: Mapping[str, ArraySpec] | None = None
    allocate: Allocate = np.zeros
    older_policies: bool = False
    autoreset: bool = False
    goals: Any = None


class TransitionMemory(Ring):
    """The newest `capacity` transitions of E environments, in a ring `[capacity // E, E]` of records.

    A record keeps all fields of a transition side by side, so that sampling any number of batches is one gather of
    whole records. It keeps only the newest frame of a stack; see `RingFrames`. Stored rewards and observations are raw;
    actions are in [-1, 1], or discrete and numbered from 0; hybrid ones have both in separate fields.

    A sampled transition spans up to `n_step` steps of its environment. Its reward is the sum of gamma^i * r_i over k
    rewards, until the episode ends or the newest row is reached; its discount is gamma^k * (1 - terminated). Its next
    observation and `terminated` are those of the last of these steps.

    Args:
        spec: fields and their shapes.
        capacity: number of transitions, over all environments.
        num_envs: number of environments that fill it.
        discount: gamma.
        n_step: maximum number of rewards that a sampled transition sums.
        ignore_done: whether the discount is gamma^k even after a terminated step. An episode's end still stops the sum.
        reward_filter: maps raw rewards, any shape, to those that the agent learns from, before they are summed.
        allocate: makes the ring, in RAM or with `on_disk`.
        autoreset: whether steps may only start an episode. Records mark such steps, which are never sampled.

    Attributes:
        total_rows: rows (one step of all environments) ever added.

    Raises:
        TfsacError: a capacity below one row.
    """

    min_rows = 1  # that the memory must have room for, and holds once it can be sampled

    def __init__(
        self,
        spec: Spec,
        capacity: int,
        num_envs: int = 1,
        discount: float = 0.99,
        n_step: int = 1,
        ignore_done: bool = False,
        reward_filter: Callable[[np.ndarray], np.ndarray] | None = None,
        allocate: Allocate = np.zeros,
        autoreset: bool = False,
    ):
        self.autoreset = autoreset
        self.min_rows += autoreset  # one of two steps of an environment is real
        self.rows = capacity // num_envs
        if self.rows < self.min_rows:
            raise TfsacError(
                f"agent.memory.max_size must be at least {self.min_rows * num_envs}, {self.min_rows} steps of each of "
                f"{num_envs} environments, got {capacity}"
            )
        self.discount, self.num_envs, self.total_rows = discount, num_envs, 0
        self.n_step, self.ignore_done = n_step, ignore_done
        self.reward_filter = reward_filter or np.asarray
        self.powers = (discount ** np.arange(n_step + 1)).astype(np.float32)
        # The operating system allocates zeroed memory page by page as it fills.
        self.ring = allocate((self.rows, num_envs), np.dtype(self._fields(spec)))
        self.frames = {
            key: RingFrames(self.ring, key, array) for key, array in spec.observation.items() if array.stacked
        }
        # For each kind, the record fields by key.
        self.names = without_frames(self.ring.dtype)
        self.observation, self.next_observation, self.extras = (
            {name.removeprefix(prefix): name for name in self.names if name.startswith(prefix)}
            for prefix in (OBSERVATION, NEXT, EXTRA)
        )
        self.actions = list(spec.action_fields)

    @classmethod
    def build(cls, preset: Preset, context: MemoryContext, **more: Any) -> Self:
        """Returns the memory that a preset describes, with none of the agent's own transitions.

        Args:
            preset: the experiment; its `agent.memory` has the parameters of the memory.
            context: additional inputs.
            more: arguments that a subclass adds in its own `build`.
        """
        algorithm: Any = preset.agent.algorithm
        arguments = {
            "num_envs": preset.environment.num_envs,
            "discount": algorithm.discount,
            "n_step": algorithm.n_step,
            "ignore_done": algorithm.ignore_done,
            "reward_filter": context.reward_filter,
            "allocate": context.allocate,
        }
        arguments |= {"autoreset": True} if context.autoreset else {}
        return cls(context.spec, preset.agent.memory.max_size, **{**arguments, **more})

    def _fields(self, spec: Spec) -> list[tuple[Any, ...]]:
        """Returns name, dtype and shape of the fields of a record."""
        fields = observation_fields(spec)
        fields += [(name, array.dtype, array.shape) for name, array in spec.action_fields.items()]
        fields += [("reward", "float32", () if spec.num_rewards is None else (spec.num_rewards,))]
        fields += [("terminated", "bool", ()), ("truncated", "bool", ())]
        fields += [("autoreset", "bool", ())] if self.autoreset else []
        fields += [
            (NEXT + key, array.dtype, array.shape) for key, array in spec.observation.items() if not array.stacked
        ]
        return fields + [(EXTRA + key, array.dtype, array.shape) for key, array in spec.extras.items()]

    @property
    def ready(self) -> bool:
        """Whether there is enough to sample."""
        return min(self.total_rows, self.rows) >= self.min_rows

    @property
    def oldest_row(self) -> int:
        """Absolute index of the oldest stored row."""
        return max(self.total_rows - self.rows, 0)

    def __len__(self) -> int:
        return min(self.total_rows, self.rows) * self.num_envs

    def add(
        self,
        observation: dict[str, np.ndarray],
        action: Any,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        next_observation: dict[str, np.ndarray],
        extras: dict[str, np.ndarray] | None = None,
        autoreset: Any = (),
    ) -> None:
        """Stores one step of all environments; arrays `[E, ...]`.

        Args:
            next_observation: at the end of an episode its last observation, not the first of the next.
            autoreset: `[E]`, where the step only started an episode.
        """
        row = self.ring[self.total_rows % self.rows]
        for key, name in self.observation.items():
            row[name] = observation[key]
            row[NEXT + key] = next_observation[key]
        for key, frames in self.frames.items():
            frames.add(self.total_rows, observation[key], next_observation[key], self._begins())
        for name, part in action_fields(action).items():
            row[name] = part
        row["reward"], row["terminated"], row["truncated"] = reward, terminated, truncated
        for key, value in (extras or {}).items():
            row[EXTRA + key] = value
        if self.autoreset:
            row["autoreset"] = autoreset
            row["truncated"] |= autoreset  # so that an episode starts after it
        self.total_rows += 1

    def _begins(self) -> np.ndarray:
        """Returns whether the next step of each environment is the first of its episode, `[E]`."""
        before = self.ring[(self.total_rows - 1) % self.rows]
        return before["terminated"] | before["truncated"] | (not self.total_rows)

    def sample(self, num_updates: int, batch_size: int, rng: np.random.Generator) -> Transition | Sequence:
        """Returns `num_updates` batches `[U, B, ...]`, with replacement; a `SequenceMemory` returns a Sequence."""
        index, weight = self.choose((num_updates, batch_size), rng)
        return self.gather(index, weight)

    def choose(self, shape: tuple[int, int], rng: np.random.Generator) -> tuple[np.ndarray, Any]:
        """Returns slots of the flat ring for a sample, here uniform ones, and their importance weights or ().

        Args:
            shape: `[U, B]` of both.
            rng: the random numbers of sampling.
        """
        index = rng.integers(len(self), size=shape)
        while self.autoreset and (no_step := self.ring["autoreset"].reshape(-1)[index]).any():
            index[no_step] = rng.integers(len(self), size=np.count_nonzero(no_step))
        return index, ()

    def gather(self, index: np.ndarray, weight: Any = ()) -> Transition:
        """Returns the transitions that begin in the given slots of the flat ring, summed over up to `n_step`
        rewards, as views of the gathered records.
        """
        flat, records = self.ring.reshape(-1), self._records(index)
        records["reward"] = self.reward_filter(records["reward"])
        last, steps = index, 1
        if self.n_step > 1:
            last, steps = self._sum_rewards(flat, records, index)
        return self._batch(records, index, last, steps, weight)

    def _records(self, index: np.ndarray) -> np.ndarray:
        """Returns a copy of the records in the given slots of the flat ring."""
        flat = self.ring.reshape(-1)
        return flat[self.names][index] if self.frames else flat.take(index)

    def _batch(self, records: np.ndarray, index: np.ndarray, last: np.ndarray, steps: Any, weight: Any) -> Transition:
        """Returns the transitions from slots `index` to slots `last`, summed over `steps` steps, as views of their
        records.
        """
        batch = Transition(
            observation={key: records[name] for key, name in self.observation.items()},
            action=action_in(records, self.actions),
            reward=records["reward"],
            discount=self.powers[steps] * ~(records["terminated"] & (not self.ignore_done)),
            next_observation={key: records[name] for key, name in self.next_observation.items()},
            weight=weight,
            extras={key: records[name] for key, name in self.extras.items()},
        )
        for key, frames in self.frames.items():
            begin = self._absolute(index)
            end = begin if last is index else self._absolute(last)
            batch.observation[key], batch.next_observation[key] = frames.stacks(begin, end)
        return batch

    def _sum_rewards(self, flat: np.ndarray, records: np.ndarray, index: np.ndarray) -> Any:
        """Adds the later rewards to records, whose next observation and `terminated` become those of the last step.

        Returns:
            slots of the last steps, and how many rewards were summed in each.
        """
        later = self.total_rows - 1 - self._absolute(index) // self.num_envs  # rows after the first one
        last, steps, going = index, np.ones(index.shape, int), np.ones(index.shape, bool)
        for i in range(1, self.n_step):
            going &= (i <= later) & ~(flat["terminated"][last] | flat["truncated"][last])
            last = np.where(going, (last + self.num_envs) % flat.size, last)
            records["reward"] += np.where(going, self.powers[i] * self.reward_filter(flat["reward"][last]), 0)
            steps += going
        for name in ("terminated", *self.next_observation.values()):
            records[name] = flat[name][last]
        return last, steps

    def _absolute(self, index: np.ndarray) -> np.ndarray:
        """Returns how many transitions had ever been added before those in the given slots of the flat ring."""
        oldest = self.oldest_row * self.num_envs
        return oldest + (index - oldest) % self.ring.size

    def newest_steps(self, num_rows: int) -> tuple[Any, dict[str, np.ndarray]] | None:
        """Returns the only environment's last steps, oldest first: actions one by one, observations by key.

        None if they are not all stored, or with several environments.
        """
        if self.num_envs > 1 or num_rows > min(self.total_rows, self.rows):
            return None
        rows = self.ring[np.arange(self.total_rows - num_rows, self.total_rows) % self.rows, 0]
        return rows_of(action_in(rows, self.actions)), recorded_observations(rows)

    def end_episodes(self) -> None:
        """Marks the newest row as the end of its episodes: what follows does not continue them."""
        if self.total_rows:
            row = self.ring[(self.total_rows - 1) % self.rows]
            row["truncated"] |= ~row["terminated"]

    def state(self) -> dict[str, np.ndarray]:
        """Returns what a checkpoint stores besides the rows and `total_rows`: the stacks' extra frames, "places/<key>"
        and "frames/<key>".
        """
        state = {}
        for key, frames in self.frames.items():
            state[PLACES + key], state[FRAMES + key] = frames.state()
        return state

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Restores a result of `state`, after the rows were restored and `total_rows` was set."""
        for key, frames in self.frames.items():
            frames.restore(arrays[PLACES + key], arrays[FRAMES + key])
