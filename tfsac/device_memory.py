"""Replay memory on the accelerator: a ring of transitions in a variable, sampled inside the compiled updates."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.agents.batches import transition_spec
from tfsac.environments import Filters
from tfsac.errors import TfsacError
from tfsac.memories import TransitionMemory
from tfsac.memories.transitions import EXTRA, NEXT
from tfsac.types import OBSERVATION, BatchesOnDevice, Spec, Transition, action_in

ROWS_PER_TRANSFER = 1 << 16  # bounds what a resumed run copies at once
UPDATES_PER_CALL = 1000  # batches that are drawn on the device take no additional memory


class DeviceMemory:
    """Has the transitions of a `TransitionMemory` in a variable `[capacity, F]`, all fields of one as float32 side by
    side, where the updates run.

    The memory in RAM stays what checkpoints save and restore. What was added to it since the last call is copied before
    the next one, in one transfer. Batches are drawn, summed over `n_step` rewards and filtered inside the compiled
    update as `TransitionMemory.gather` and `Filters` do it; which transitions they have is a function of the seed
    and of the number of the update.

    It takes the place of a `Packing` as `agent.compiled.source`, and of a memory as what batches are sampled from.

    Args:
        memory: in RAM, a TransitionMemory and no subclass.
        filters: of the run.
        spec: of the agent.
        batch_size: B.
        updates: variable, how many updates were made.
        seed: of sampling.

    Raises:
        TfsacError: another memory, one with stacks of frames, or no room on the device.
    """

    def __init__(self, memory: Any, filters: Filters, spec: Spec, batch_size: int, updates: tf.Variable, seed: int):
        if (reason := why_in_ram(memory, spec)) is not None:
            raise TfsacError(f'agent.memory.device="accelerator" needs uniformly sampled vectors: {reason}.')
        self.memory, self.filters, self.updates, self.seed = memory, filters, updates, seed
        self.batch = transition_spec(spec, batch_size, weighted=False)
        fields = {name: memory.ring.dtype[name].shape for name in memory.ring.dtype.names or ()}
        ends = itertools.accumulate(map(math.prod, fields.values()))
        self.slices = {
            name: slice(end - math.prod(shape), end) for (name, shape), end in zip(fields.items(), ends, strict=True)
        }
        self.width = max(part.stop for part in self.slices.values())
        try:
            self.rows = tf.Variable(tf.zeros([memory.ring.size, self.width]), trainable=False, name="replay")
        except tf.errors.ResourceExhaustedError as error:
            raise TfsacError(
                f"The replay memory of {4 * memory.ring.size * self.width} bytes does not fit on the accelerator: set "
                'a smaller agent.memory.max_size, or agent.memory.device="cpu".'
            ) from error
        self.copied = 0  # absolute index of the first row that was not copied yet

    def sample(self, num_updates: int) -> BatchesOnDevice:
        """Returns what a call of so many updates needs to draw its batches."""
        self.copy_new_rows()
        total = tf.constant([self.memory.total_rows, num_updates], tf.int64)
        return BatchesOnDevice(num_updates, (total, tf.constant(self._filter_values())))

    def copy_new_rows(self) -> None:
        """Copies what the memory in RAM has and this one lacks."""
        memory, envs = self.memory, self.memory.num_envs
        # The newest row once more: the end of its episodes may have been noted after it was copied.
        begin = max(self.copied - 1, memory.oldest_row)
        for start in range(begin, memory.total_rows, max(ROWS_PER_TRANSFER // envs, 1)):
            stop = min(start + max(ROWS_PER_TRANSFER // envs, 1), memory.total_rows)
            index = np.arange(start, stop) % memory.rows
            records = memory.ring[index].reshape(-1)
            packed = np.empty((len(records), self.width), np.float32)
            for name, part in self.slices.items():
                packed[:, part] = records[name].reshape(len(records), -1)
            slots = (index[:, None] * envs + np.arange(envs)).reshape(-1).astype(np.int64)
            self.rows.scatter_update(tf.IndexedSlices(tf.constant(packed), tf.constant(slots)))
        self.copied = memory.total_rows

    def _filter_values(self) -> np.ndarray:
        """Returns in one array what rewards are multiplied by, and mean and inverse deviation of each observation."""
        values = [self.filters.reward_scale(), *itertools.chain.from_iterable(self.filters.scale().values())]
        return np.concatenate([np.ravel(value) for value in values]).astype(np.float32)

    # -- inside the compiled update ------------------------------------------------------------------------------------

    def pack(self, batches: BatchesOnDevice) -> Any:
        """Returns the tensors of a call; see `Packing.pack`."""
        return batches.inputs

    def signature(self, updates: int | None) -> Any:
        """Returns what `pack` returns as `tf.TensorSpec`."""
        del updates
        return tf.TensorSpec([2], tf.int64), tf.TensorSpec([len(self._filter_values())])

    def slice_updates(self, packed: Any, start: int, stop: int) -> Any:
        """Returns the tensors for some of the updates of a call, the same for all."""
        del start, stop
        return packed

    def unpack(self, packed: Any, update: int | tf.Tensor) -> Transition:
        """Returns the batch of the update that is being made."""
        del update  # counted by the variable
        seed = tf.stack([tf.constant(self.seed, tf.int64), self.updates])
        stored = tf.minimum(packed[0][0], self.memory.rows) * self.memory.num_envs
        size = self.batch.reward.shape
        index = tf.random.stateless_uniform(size, seed, 0, tf.cast(stored, tf.int32), tf.int32)
        return self.gather(packed, index)

    def gather(self, packed: Any, index: tf.Tensor) -> Transition:
        """Returns the transitions that begin in slots `[B]`, filtered; see `TransitionMemory.gather`."""
        memory, filtered = self.memory, _FilterTensors(self.filters, packed[1])
        first = last = self.rows.sparse_read(index)
        reward, steps = filtered.reward(self._field(first, "reward")), tf.zeros_like(index)
        if memory.n_step > 1:
            total, envs, size = packed[0][0], memory.num_envs, memory.ring.size
            oldest = tf.cast(tf.maximum(total - memory.rows, 0) % memory.rows * envs, tf.int32)
            rows_after_oldest = (index - oldest) % size // envs
            later = tf.cast(tf.minimum(total, memory.rows), tf.int32) - 1 - rows_after_oldest
            going, slot = tf.ones_like(index, tf.bool), index
            for i in range(1, memory.n_step):
                ended = self._field(last, "terminated") + self._field(last, "truncated") > 0
                going &= (i <= later) & ~ended
                slot = tf.where(going, (slot + envs) % size, slot)
                last = self.rows.sparse_read(slot)
                more = memory.powers[i] * filtered.reward(self._field(last, "reward"))
                reward += tf.where(tf.reshape(going, [-1, *[1] * (more.shape.rank - 1)]), more, 0.0)
                steps += tf.cast(going, tf.int32)
        ended = self._field(last, "terminated") * float(not memory.ignore_done)
        discount = tf.gather(memory.powers[1:], steps) * (1.0 - ended)
        transition = Transition(
            observation=filtered.observation(self._fields(first, OBSERVATION)),
            action=action_in({name: self._field(first, name) for name in self.slices}, self.slices),
            reward=reward,
            discount=discount,
            next_observation=filtered.observation(self._fields(last, NEXT)),
            extras=self._fields(first, EXTRA),
        )
        return tf.nest.map_structure(lambda spec, x: tf.cast(x, spec.dtype), self.batch, transition)

    def _fields(self, rows: tf.Tensor, prefix: str) -> dict[str, tf.Tensor]:
        names = [name for name in self.slices if name.startswith(prefix)]
        return {name.removeprefix(prefix): self._field(rows, name) for name in names}

    def _field(self, rows: tf.Tensor, name: str) -> tf.Tensor:
        return tf.reshape(rows[:, self.slices[name]], [-1, *self.memory.ring.dtype[name].shape])


class _FilterTensors:
    """The run's filters with their current statistics as a tensor; the formulas are those of `Filters`."""

    def __init__(self, filters: Filters, values: tf.Tensor):
        self.parameters = filters.parameters
        size = math.prod(filters.reward_scale().shape)
        self.reward_scale = tf.reshape(values[:size], filters.reward_scale().shape)
        self.scale: dict[str, tuple[tf.Tensor, tf.Tensor]] = {}
        for key, (mean, _) in filters.scale().items():
            mean_and_inverse = tf.reshape(values[size : size + 2 * mean.size], [2, *mean.shape])
            self.scale[key], size = (mean_and_inverse[0], mean_and_inverse[1]), size + 2 * mean.size

    def reward(self, reward: tf.Tensor) -> tf.Tensor:
        scaled = reward * self.reward_scale
        bounds = self.parameters.reward_clipping_range
        return scaled if bounds is None else tf.clip_by_value(scaled, *bounds)

    def observation(self, observation: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        bound = self.parameters.observation_clipping
        filtered = {
            key: tf.clip_by_value((observation[key] - mean) * inverse, -bound, bound)
            for key, (mean, inverse) in self.scale.items()
        }
        return {**observation, **filtered}


def why_in_ram(memory: Any, spec: Spec) -> str | None:
    """Returns why a memory's transitions stay in RAM, or None where they can be on the accelerator."""
    if type(memory) is not TransitionMemory:
        return f"{type(memory).__name__} is in RAM"
    stacked = [key for key, array in spec.observation.items() if array.stacked]
    return f"the frames of {stacked[0]!r} are in RAM" if stacked else None
