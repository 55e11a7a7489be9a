"""Transfers batches into the compiled update: all float32 fields in one array, so that a call has few arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.types import ArraySpec, Batch, DiscreteSpec, Segments, Sequence, Spec, Transition, action_in

ALIGNMENT = 64  # bytes, of TensorFlow's arrays
Packed = tuple[tf.Tensor, list[tf.Tensor]]  # the float32 fields `[U, F]`, and every other field `[U, B, ...]`


def tensor_specs(arrays: Mapping[str, ArraySpec | DiscreteSpec], leading: list[int]) -> dict[str, tf.TensorSpec]:
    """Returns shapes and dtypes of arrays with leading dimensions."""
    return {key: tf.TensorSpec([*leading, *array.shape], array.dtype) for key, array in arrays.items()}


def action_tensors(spec: Spec, leading: list[int]) -> Any:
    """Returns shape and dtype of agents' actions with leading dimensions, a dict for hybrid ones."""
    fields = tensor_specs(spec.action_fields, leading)
    return action_in(fields, fields)


def transition_spec(spec: Spec, batch_size: int, weighted: bool) -> Transition:
    """Returns a batch of transitions `[B, ...]`, optionally with importance weights, as `tf.TensorSpec`."""
    leading = [batch_size]
    scalar, action = tf.TensorSpec(leading), action_tensors(spec, leading)
    observation, extras = tensor_specs(spec.observation, leading), tensor_specs(spec.extras, leading)
    return Transition(observation, action, scalar, scalar, dict(observation), scalar if weighted else (), extras)


def sequence_spec(spec: Spec, steps: int, batch_size: int, state: dict[str, ArraySpec] | None = None) -> Sequence:
    """Returns a batch of sequences `[T, B, ...]` as `tf.TensorSpec`, T being `steps`; `state` is that of LSTMs."""
    leading = [steps, batch_size]
    scalar, action = tf.TensorSpec(leading), action_tensors(spec, leading)
    reward = tf.TensorSpec([*leading, *([spec.num_rewards] if spec.num_rewards else [])])
    observation, extras = tensor_specs(spec.observation, leading), tensor_specs(spec.extras, leading)
    initial_state = tensor_specs(state, [batch_size]) if state else ()
    return Sequence(observation, action, reward, scalar, tf.TensorSpec(leading, tf.int32), extras, initial_state)


def segment_spec(spec: Spec, steps: int, batch_size: int, state: dict[str, ArraySpec]) -> Segments:
    """Returns a batch of segments `[T, B, ...]` as `tf.TensorSpec`, T being `steps`; `state` is that of LSTMs."""
    leading = [steps, batch_size]
    scalar, action = tf.TensorSpec(leading), action_tensors(spec, leading)
    observation = tensor_specs(spec.observation, [steps + 1, batch_size])
    initial_state, extras = tensor_specs(state, [batch_size]), tensor_specs(spec.extras, leading)
    return Segments(observation, action, scalar, scalar, scalar, scalar, scalar, initial_state, extras)


class Packing:
    """Packs stacked batches `[U, B, ...]`, and unpacks single ones in the graph.

    A call costs about 30 microseconds per tensor argument, which matters if it makes a single update. The float32
    fields are passed without a copy, for which `tf.constant` takes 0.1 ms.
    """

    def __init__(self, batch: Batch):
        self.batch, self.specs = batch, tf.nest.flatten(batch)
        self.slices: list[slice | None] = []  # of each field in the packed row; None unless it is float32
        self.size = 0
        for spec in self.specs:
            start = self.size
            if spec.dtype == tf.float32:
                self.size += math.prod(spec.shape)
            self.slices.append(slice(start, self.size) if spec.dtype == tf.float32 else None)
        self.expected = [(tuple(spec.shape), np.dtype(spec.dtype.as_numpy_dtype)) for spec in self.specs]
        self.buffer = self._buffer(0)

    def signature(self, updates: int | None) -> tuple[tf.TensorSpec, list[tf.TensorSpec]]:
        """Returns the specs of what `pack` returns for this many updates, or for any number."""
        other_fields = [tf.TensorSpec([updates, *s.shape], s.dtype) for s in self.specs if s.dtype != tf.float32]
        return tf.TensorSpec([updates, self.size]), other_fields

    def pack(self, stacked: Batch) -> Packed:
        """Returns stacked batches as few tensors, valid until the next call.

        Raises:
            ValueError: unexpected fields, shapes or dtypes.
        """
        leaves, updates = tf.nest.flatten(stacked), len(stacked.reward)
        if [(leaf.shape, leaf.dtype) for leaf in leaves] != [((updates, *s), dtype) for s, dtype in self.expected]:
            received = tf.nest.map_structure(lambda leaf: (leaf.shape, str(leaf.dtype)), stacked)
            expected = tf.nest.map_structure(lambda spec: (updates, *spec.shape), self.batch)
            raise ValueError(f"batches must be {expected}, got {received}")
        if len(self.buffer) < updates:  # reused: allocating pages in every call took seven times as long
            self.buffer = self._buffer(updates)
        floats = self.buffer[:updates]
        for leaf, field_slice in zip(leaves, self.slices, strict=True):
            if field_slice is not None:
                floats[:, field_slice].reshape(leaf.shape)[:] = leaf
        other_fields = [
            tf.constant(leaf) for leaf, field_slice in zip(leaves, self.slices, strict=True) if field_slice is None
        ]
        return tf.experimental.dlpack.from_dlpack(floats.__dlpack__()), other_fields

    def _buffer(self, updates: int) -> np.ndarray:
        """Returns an array `[updates, F]` aligned so that TensorFlow need not copy it."""
        size = 4 * updates * self.size
        memory = np.empty(size + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        return memory[start : start + size].view(np.float32).reshape(updates, self.size)

    def slice_updates(self, packed: Packed, start: int, stop: int) -> Packed:
        """Returns the packed batches of some of the updates."""
        return tf.nest.map_structure(lambda x: x if stop - start == len(x) else x[start:stop], packed)

    def unpack(self, packed: Packed, update: int | tf.Tensor) -> Any:
        """Returns the batch of one update, `[B, ...]` or `[T, B, ...]`."""
        other_fields = iter(packed[1])
        unpacked = [next(other_fields) if field_slice is None else None for field_slice in self.slices]
        leaves = []
        floats = packed[0][update]  # separate: XLA confuses rows of an unknown index with those of a known one
        # Operations created first run first, and the longest chain of operations starts with the next observation.
        for spec, field_slice, unpacked_field in reversed([*zip(self.specs, self.slices, unpacked, strict=True)]):
            field = floats[field_slice] if unpacked_field is None else unpacked_field[update]
            leaves.append(tf.reshape(field, spec.shape))
        return tf.nest.pack_sequence_as(self.batch, leaves[::-1])
