"""Shape checks at trace time: a silent broadcast of [B] with [B, 1] to [B, B] must not be possible."""

from __future__ import annotations

import tensorflow as tf


def assert_shapes(**tensors: tuple[tf.Tensor, str]) -> None:
    """Checks ranks and equal sizes of tensors, named with a letter for each dimension: ``log_prob=(log_prob_B, "B")``.

    Raises:
        ValueError: a rank or a size that does not fit.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for name, (tensor, dimensions) in tensors.items():
        shape = tf.convert_to_tensor(tensor).shape
        if shape.rank != len(dimensions):
            raise ValueError(f"{name} must have the dimensions [{', '.join(dimensions)}], got shape {shape}")
        for letter, size in zip(dimensions, shape.as_list(), strict=True):
            if size is not None and sizes.setdefault(letter, (size, name))[0] != size:
                first, other_name = sizes[letter]
                raise ValueError(f"{name} and {other_name} differ in {letter}: expected {first}, got shape {shape}")
