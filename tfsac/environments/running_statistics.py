"""Running mean and variance, merged batch by batch as Welford's method does."""

from __future__ import annotations

import numpy as np

EPSILON = 1e-8  # added to a variance, so that what is constant is divided by 1e-4 and not by zero


def merged(count: int, mean: np.ndarray, squares: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and sum of squared deviations from it, float64, after more rows.

    Args:
        count: rows so far.
        mean, squares: `[...]`, of these.
        rows: `[K, ...]`, to add.
    """
    batch, total = rows.astype(np.float64), count + len(rows)
    batch_mean = batch.mean(axis=0)
    delta = batch_mean - mean
    squares = squares + ((batch - batch_mean) ** 2).sum(axis=0) + delta**2 * (count * len(rows) / total)
    return mean + delta * (len(rows) / total), squares
