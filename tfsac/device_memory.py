"""Replay memory on the accelerator: a ring of transitions in variables, sampled inside the compiled updates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.agents.batches import transition_spec
from tfsac.environments import Filters
from tfsac.errors import TfsacError
from tfsac.memories import TransitionMemory
from tfsac.memories.frames import EARLIER
from tfsac.types import OBSERVATION, Arrays, BatchesOnDevice, Spec, Transition, action_in

BYTES_PER_TRANSFER = 1 << 26  # limits what a resumed run copies at once
STEPS_PER_EPISODE = 8  # assumed average, for the initial size of the table of last frames
PLACE = 4  # bytes of an int32
CANDIDATES = 4  # slots drawn for each transition if some hold no step
UPDATES_PER_CALL = 1000  # batches that are drawn on the device take no additional memory


class DeviceMemory:
    """Holds the transitions of a `TransitionMemory` in variables on the device that runs the updates. The fields of a
    transition lie side by side: images as bytes, all others as float32.

    Checkpoints save and restore the memory in RAM. Rows added to it since the last call are copied before the next one.
    The compiled update draws batches, sums `n_step` rewards and applies the filters as `TransitionMemory.gather` and
    `Filters` do. The seed and the update number determine which transitions are drawn.

    Stacks of k frames are stored frame by frame; see `RingFrames`. The ring has k - 1 more rows than the one in RAM,
    for the frames before the oldest row.

    It replaces a `Packing` as `agent.compiled.source`, and the memory in RAM as the source of batches.

    Args:
        memory: a TransitionMemory in RAM, not a subclass.
        filters: the run's filters.
        spec: the agent's spec.
        batch_size: B.
        updates: variable that counts updates.
        seed: seed of sampling.

    Attributes:
        stored: variables `[R * E, F]` by dtype.
        last_frames: the frames after final and newest steps, which no row holds; None without frame stacks.

    Raises:
        TfsacError: an unsupported memory, or not enough room on the device.
    """

    def __init__(self, memory: Any, filters: Filters, spec: Spec, batch_size: int, updates: tf.Variable, seed: int):
        if type(memory) is not TransitionMemory:
            raise TfsacError(
                'agent.memory.device="accelerator" needs uniformly sampled transitions: '
                f"{type(memory).__name__} supports only RAM."
            )
        self.memory, self.filters, self.updates, self.seed = memory, filters, updates, seed
        self.batch = transition_spec(spec, batch_size, weighted=False)
        self.earlier = max((frames.shape[-1] - 1 for frames in memory.frames.values()), default=0)
        self.rows = memory.rows + self.earlier
        widths = {"float32": 0, "uint8": PLACE if memory.frames else 0}  # place of the next frame; see `LastFrames`
        self.slices: dict[str, tuple[str, slice]] = {}
        for name in memory.ring.dtype.names or ():
            field = memory.ring.dtype[name]
            dtype = "uint8" if field.base == np.uint8 else "float32"
            start, widths[dtype] = widths[dtype], widths[dtype] + math.prod(field.shape)
            self.slices[name] = dtype, slice(start, widths[dtype])
        self.row_bytes = memory.num_envs * (4 * widths["float32"] + widths["uint8"])
        size = self.rows * memory.num_envs
        try:
            self.stored = {
                dtype: tf.Variable(tf.zeros([size, width], dtype), trainable=False, name="replay")
                for dtype, width in widths.items()
                if width
            }
            self.last_frames = LastFrames(self.rows, memory.num_envs, widths["uint8"]) if memory.frames else None
        except tf.errors.ResourceExhaustedError as error:
            raise TfsacError(
                f"The replay memory needs more than {self.rows * self.row_bytes} bytes, which the accelerator does not "
                'have: set a smaller agent.memory.max_size, or agent.memory.device="cpu".'
            ) from error
        self.copied = 0  # absolute index of the first row that is not copied yet

    def sample(self, num_updates: int) -> BatchesOnDevice:
        """Returns the inputs with which a call of `num_updates` updates draws its batches."""
        self.copy_new_rows()
        total = tf.constant([self.memory.total_rows, num_updates], tf.int64)
        return BatchesOnDevice(num_updates, (total, tf.constant(self._filter_values())))

    def copy_new_rows(self) -> None:
        """Copies the rows that only the memory in RAM has."""
        memory, most = self.memory, max(BYTES_PER_TRANSFER // self.row_bytes, 1)
        # Copy the newest row again: its episodes may have been marked as ended after it was copied.
        begin = max(self.copied - 1, memory.oldest_row - self.earlier, 0)
        for start in range(begin, memory.total_rows, most):
            self._copy(np.arange(start, min(start + most, memory.total_rows)))
        self.copied = memory.total_rows

    def _copy(self, rows: np.ndarray) -> None:
        """Copies rows by absolute index; for rows before the oldest one, only frames."""
        memory, envs = self.memory, self.memory.num_envs
        records = memory.ring[rows % memory.rows].reshape(-1)
        packed = {dtype: np.empty((len(records), variable.shape[1]), dtype) for dtype, variable in self.stored.items()}
        for name, (dtype, part) in self.slices.items():
            packed[dtype][:, part] = records[name].reshape(len(records), -1)
        if self.last_frames:
            numbers, bytes_NF = (rows[:, None] * envs + np.arange(envs)).reshape(-1), packed["uint8"]
            num_older = np.count_nonzero(rows < memory.oldest_row) * envs
            self._put_extra_frames(bytes_NF, 2 * numbers[:num_older])
            is_last = records["terminated"] | records["truncated"] | (numbers >= (memory.total_rows - 1) * envs)
            is_last[:num_older] = False
            following = np.zeros((np.count_nonzero(is_last), bytes_NF.shape[1]), np.uint8)
            self._put_extra_frames(following, 2 * numbers[is_last] + 1)
            places = self.last_frames.store(rows % self.rows, is_last.reshape(-1, envs), following)
            bytes_NF[:, :PLACE] = places.reshape(-1, 1).view(np.uint8)
        slots = ((rows % self.rows)[:, None] * envs + np.arange(envs)).reshape(-1)
        for dtype, variable in self.stored.items():
            variable.scatter_update(tf.IndexedSlices(tf.constant(packed[dtype]), tf.constant(slots)))

    def _put_extra_frames(self, bytes_NF: np.ndarray, numbers: np.ndarray) -> None:
        """Writes frames into the first records, by their numbers in `RingFrames.extra_frames`."""
        for record, number in zip(bytes_NF, numbers.tolist(), strict=False):
            for key, frames in self.memory.frames.items():
                if number in frames.extra_frames:  # a shorter stack has fewer
                    record[self.slices[OBSERVATION + key][1]] = frames.extra_frames[number].reshape(-1)

    def _filter_values(self) -> np.ndarray:
        """Returns one array of the reward scale, and the mean and inverse deviation of each observation."""
        values = [self.filters.reward_scale(), *itertools.chain.from_iterable(self.filters.scale().values())]
        return np.concatenate([np.ravel(value) for value in values]).astype(np.float32)

    # -- inside the compiled update ------------------------------------------------------------------------------------

    def pack(self, batches: BatchesOnDevice) -> Any:
        """Returns the tensors of a call; see `Packing.pack`."""
        return batches.inputs

    def signature(self, updates: int | None) -> Any:
        """Returns the `tf.TensorSpec` of what `pack` returns."""
        del updates
        return tf.TensorSpec([2], tf.int64), tf.TensorSpec([len(self._filter_values())])

    def slice_updates(self, packed: Any, start: int, stop: int) -> Any:
        """Returns the tensors for some of the updates of a call, the same for all."""
        del start, stop
        return packed

    def unpack(self, packed: Any, update: int | tf.Tensor) -> Transition:
        """Returns the batch of the current update."""
        del update  # the variable counts updates
        seed = tf.stack([tf.constant(self.seed, tf.int64), self.updates])
        stored = tf.minimum(packed[0][0], self.memory.rows) * self.memory.num_envs
        candidates = CANDIDATES if self.memory.autoreset else 1
        size = [candidates * self.batch.reward.shape[0], *self.batch.reward.shape[1:]]
        index = tf.random.stateless_uniform(size, seed, 0, tf.cast(stored, tf.int32), tf.int32)
        return self.gather(packed, self.steps_among(packed, index) if self.memory.autoreset else index)

    # Indices are int64 because TensorFlow runs int32 operations on the CPU.

    def _absolute_rows(self, packed: Any, index: tf.Tensor) -> tf.Tensor:
        """Returns the absolute indices `[B]` of the rows of slots of the ring in RAM."""
        rows, oldest = self.memory.rows, tf.maximum(packed[0][0] - self.memory.rows, 0)
        return oldest + (tf.cast(index, tf.int64) // self.memory.num_envs - oldest) % rows

    def _slots(self, rows: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        """Returns the slots `[B]` in this ring of absolute rows, for the environments of slots of the ring in RAM."""
        return rows % self.rows * self.memory.num_envs + tf.cast(index, tf.int64) % self.memory.num_envs

    def steps_among(self, packed: Any, index: tf.Tensor) -> tf.Tensor:
        """Returns slots `[B]` that hold steps: for each transition the first such candidate, of slots `[C * B]`,
        otherwise the slot of the same environment's step before or after.
        """

        def holds_step(index: tf.Tensor) -> tf.Tensor:
            slots, dtype = self._slots(self._absolute_rows(packed, index), index), self.slices["autoreset"][0]
            return self._field({dtype: self.stored[dtype].sparse_read(slots)}, "autoreset") == 0

        first, *others = tf.split(index, CANDIDATES)
        for other in others:
            first = tf.where(holds_step(first), first, other)
        envs, oldest = self.memory.num_envs, tf.maximum(packed[0][0] - self.memory.rows, 0)
        neighbour = first + tf.where(self._absolute_rows(packed, first) > oldest, -envs, envs)
        return tf.where(holds_step(first), first, neighbour % self.memory.ring.size)

    def gather(self, packed: Any, index: tf.Tensor) -> Transition:
        """Returns the transitions that begin in slots `[B]` of the ring in RAM, filtered; see
        `TransitionMemory.gather`.
        """
        memory, filtered, total = self.memory, _FilterTensors(self.filters, packed[1]), packed[0][0]
        begin = end = self._absolute_rows(packed, index)

        def read(rows: tf.Tensor) -> dict[str, tf.Tensor]:
            slots = self._slots(rows, index)
            return {dtype: variable.sparse_read(slots) for dtype, variable in self.stored.items()}

        first = last = read(begin)
        reward, going = filtered.reward(self._field(first, "reward")), tf.ones_like(index, tf.bool)
        for i in range(1, memory.n_step):
            going &= (begin + i < total) & ~(self._field(last, "terminated") + self._field(last, "truncated") > 0)
            end = tf.where(going, begin + i, end)
            last = read(end)
            more = memory.powers[i] * filtered.reward(self._field(last, "reward"))
            reward += tf.where(tf.reshape(going, [-1, *[1] * (more.shape.rank - 1)]), more, 0.0)
        ended = self._field(last, "terminated") * float(not memory.ignore_done)
        observation = self._fields(first, memory.observation)
        next_observation = self._fields(last, memory.next_observation)
        for key in memory.frames:
            observation[key], next_observation[key] = self._stacks(key, read, begin, end)
        transition = Transition(
            observation=filtered.observation(observation),
            action=action_in({name: self._field(first, name) for name in memory.actions}, memory.actions),
            reward=reward,
            discount=tf.gather(memory.powers[1:], end - begin) * (1.0 - ended),
            next_observation=filtered.observation(next_observation),
            extras=self._fields(first, memory.extras),
        )
        return tf.nest.map_structure(lambda spec, x: tf.cast(x, spec.dtype), self.batch, transition)

    def _stacks(self, key: str, read: Callable[..., Any], begin: tf.Tensor, end: tf.Tensor) -> tuple[Any, Any]:
        """Returns the stacks `[B, H, W, k]` before and after transitions whose first and last steps `read` returns for
        `begin` and `end`.
        """
        assert self.last_frames
        part, shape = self.slices[OBSERVATION + key][1], self.memory.frames[key].shape

        def records(rows: tf.Tensor) -> list[tf.Tensor]:
            """Returns steps and those before; an episode's first step replaces missing earlier ones."""
            steps = read(rows)
            earlier = tf.cast(self._field(steps, EARLIER + key), tf.int64)
            before = [rows - tf.minimum(earlier, back) for back in range(shape[-1] - 1, 0, -1)]
            return [*(read(rows)["uint8"] for rows in before), steps["uint8"]]

        first = records(begin)
        last = first if begin is end else records(end)
        place = tf.cast(tf.bitcast(last[-1][:, :PLACE], tf.int32), tf.int64)
        no_row_has_it = self.last_frames.table.sparse_read(tf.maximum(place, 0))
        following = tf.where(place[:, None] < 0, read(end + 1)["uint8"], no_row_has_it)

        def stack(records: list[tf.Tensor]) -> tf.Tensor:
            # Not tf.stack, which TensorFlow does not have for bytes on a GPU.
            return tf.reshape(tf.concat([record[:, part, None] for record in records], axis=-1), [-1, *shape])

        return stack(first), stack([*last[1:], following])

    def _fields(self, records: Arrays, names: dict[str, str]) -> dict[str, tf.Tensor]:
        return {key: self._field(records, name) for key, name in names.items()}

    def _field(self, records: Arrays, name: str) -> tf.Tensor:
        dtype, part = self.slices[name]
        return tf.reshape(records[dtype][:, part], [-1, *self.memory.ring.dtype[name].shape])


class LastFrames:
    """Frames that no row of the ring holds, those after final and newest steps, in a table that grows.

    Args:
        rows, num_envs: shape of the ring.
        size: F, bytes of a record.

    Attributes:
        table: variable `[N, F]`.
        places: `[R, E]` int32, table index of the frame after each step; -1 if the next row holds it.
    """

    def __init__(self, rows: int, num_envs: int, size: int):
        self.free = list(range(num_envs + rows * num_envs // STEPS_PER_EPISODE))
        self.table = tf.Variable(tf.zeros([len(self.free), size], tf.uint8), trainable=False, shape=[None, size])
        self.places = np.full((rows, num_envs), -1, np.int32)

    def store(self, rows: np.ndarray, is_last: np.ndarray, frames: np.ndarray) -> np.ndarray:
        """Stores the frames `[M, F]` of the M steps that `is_last` `[n, E]` marks in some rows, and returns the places
        `[n, E]` of all. Places that these rows used before become free.
        """
        before = self.places[rows]
        self.free += before[before >= 0].tolist()
        if (missing := len(frames) - len(self.free)) > 0:  # XLA compiles again for the new size
            table = self.table.value()
            more = max(missing, len(table))
            self.table.assign(tf.concat([table, tf.zeros([more, table.shape[1]], tf.uint8)], axis=0))
            self.free += range(len(table), len(table) + more)
        places = np.full(is_last.shape, -1, np.int32)
        places[is_last] = [self.free.pop() for _ in frames]
        self.places[rows] = places
        self.table.scatter_update(tf.IndexedSlices(tf.constant(frames), tf.constant(places[is_last])))
        return places


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
