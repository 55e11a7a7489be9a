"""Batches on their way into the compiled update: all float32 fields in one array, so that a call has few arguments."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from tfsac.types import Transition

Packed = tuple[tf.Tensor, list[tf.Tensor]]  # the float32 fields `[U, F]`, and every other field `[U, B, ...]`


class Packing:
    """Packs stacked batches `[U, B, ...]` and takes single ones apart again in the graph.

    A call costs about 30 microseconds for every tensor that is handed over, which counts where a call makes one update.

    Args:
        batch: shapes and dtypes of one batch, without U, as `tf.TensorSpec`.
    """

    def __init__(self, batch: Transition):
        self.batch, self.specs = batch, tf.nest.flatten(batch)
        self.places: list[slice | None] = []  # of each field in the packed row; None for those that are not float32
        self.size = 0
        for spec in self.specs:
            start = self.size
            if spec.dtype == tf.float32:
                self.size += math.prod(spec.shape)
            self.places.append(slice(start, self.size) if spec.dtype == tf.float32 else None)
        self.expected = [(tuple(spec.shape), np.dtype(spec.dtype.as_numpy_dtype)) for spec in self.specs]
        self.buffer = np.empty((0, self.size), np.float32)

    def signature(self, updates: int | None) -> tuple[tf.TensorSpec, list[tf.TensorSpec]]:
        """Returns what `pack` returns for so many updates, or for any number."""
        others = [tf.TensorSpec([updates, *s.shape], s.dtype) for s in self.specs if s.dtype != tf.float32]
        return tf.TensorSpec([updates, self.size]), others

    def pack(self, stacked: Transition) -> Packed:
        """Returns stacked batches as few tensors.

        Raises:
            ValueError: fields that the agent was not made for, or of another shape or dtype.
        """
        leaves, updates = tf.nest.flatten(stacked), len(stacked.reward)
        if [(leaf.shape[1:], leaf.dtype) for leaf in leaves] != self.expected or {len(leaf) for leaf in leaves} != {updates}:
            found = tf.nest.map_structure(lambda leaf: (leaf.shape, str(leaf.dtype)), stacked)
            wanted = tf.nest.map_structure(lambda spec: (updates, *spec.shape), self.batch)
            raise ValueError(f"Batches of this agent are {wanted}. Received: {found}")
        if len(self.buffer) < updates:  # kept: taking fresh pages at every call took seven times as long
            self.buffer = np.empty((updates, self.size), np.float32)
        floats = self.buffer[:updates]
        for leaf, place in zip(leaves, self.places, strict=True):
            if place is not None:
                floats[:, place].reshape(leaf.shape)[:] = leaf
        others = [tf.constant(leaf) for leaf, place in zip(leaves, self.places, strict=True) if place is None]
        return tf.constant(floats), others

    def unpack(self, packed: Packed, update: int | tf.Tensor) -> Transition:
        """Returns the batch of one update, `[B, ...]`."""
        others = iter(packed[1])
        rest = [next(others) if place is None else None for place in self.places]
        leaves = []
        # What is made first runs first, and the longest chain of operations begins with the next observation.
        for spec, place, other in reversed([*zip(self.specs, self.places, rest, strict=True)]):
            row = packed[0][update, place] if other is None else other[update]
            leaves.append(tf.reshape(row, spec.shape))
        return tf.nest.pack_sequence_as(self.batch, leaves[::-1])
