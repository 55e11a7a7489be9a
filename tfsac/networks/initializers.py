"""Seeded kernel initialisers, so that a run's initial weights depend only on its seed."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np

registered = keras.saving.register_keras_serializable("tfsac")  # models with them can be cloned, saved and loaded


@registered
class NormalizedColumns(keras.initializers.Initializer):
    """Gaussian columns scaled to a norm of 0.01 each: outputs near zero at first (Coach's "normalized_columns")."""

    def __init__(self, seed: int):
        self.seed = seed

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> keras.KerasTensor:
        """Draws a kernel."""
        draw = np.random.default_rng(self.seed).standard_normal(shape)
        norm = np.sqrt((draw**2).sum(axis=0, keepdims=True))
        return keras.ops.convert_to_tensor(0.01 * draw / norm, dtype=dtype or keras.config.floatx())

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments."""
        return {"seed": self.seed}


@registered
class Parts(keras.initializers.Initializer):
    """A kernel made of several: stacked `[N, ...]`, or side by side, as for layers with the same input."""

    def __init__(self, parts: list[Any], stacked: bool):
        self.parts, self.stacked = [keras.initializers.get(part) for part in parts], stacked

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> keras.KerasTensor:
        """Draws a kernel."""
        part = shape[1:] if self.stacked else (*shape[:-1], shape[-1] // len(self.parts))
        kernels = [initializer(part, dtype=dtype) for initializer in self.parts]
        return keras.ops.stack(kernels) if self.stacked else keras.ops.concatenate(kernels, axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments."""
        return {"parts": [keras.initializers.serialize(part) for part in self.parts], "stacked": self.stacked}


KINDS = {
    "he_normal": keras.initializers.HeNormal,  # for residual blocks
    "xavier": keras.initializers.GlorotUniform,
    "he": keras.initializers.HeUniform,
    "orthogonal": keras.initializers.Orthogonal,
    "normalized_columns": NormalizedColumns,
    "lecun_normal": keras.initializers.LecunNormal,
    "fan_in_uniform": functools.partial(  # in +-1 / sqrt(fan_in)
        keras.initializers.VarianceScaling, 1.0 / 3.0, mode="fan_in", distribution="uniform"
    ),
}


class Initializers:
    """Creates initialisers of one kind, or uniform within a bound, each with its own seed."""

    def __init__(self, kind: str, seeds: np.random.Generator, bound: float | None = None):
        self.kind, self.seeds, self.bound = kind, seeds, bound

    def next(self, kind: str | None = None, critics: int | None = None) -> keras.initializers.Initializer:
        """Returns the next initialiser, of this kind if given; for N critics, one for all their kernels."""
        if critics is not None:
            return Parts([self.next(kind) for _ in range(critics)], stacked=True)
        seed = int(self.seeds.integers(2**31))
        if self.bound is not None:
            return keras.initializers.RandomUniform(-self.bound, self.bound, seed)
        return KINDS[kind or self.kind](seed=seed)
