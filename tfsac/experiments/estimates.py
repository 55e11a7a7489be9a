"""Statistics for few runs, with stratified bootstrap intervals.

They are those of Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical Precipice". The
strata of a group are its scores by level: a list of arrays `[n]`, one for each level. No TensorFlow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Strata = Sequence[np.ndarray]
CONFIDENCE, RESAMPLES = 0.95, 2000


class Estimate(NamedTuple):
    """A statistic and its bootstrap interval; low and high are NaN where there is none.

    The arrays of a curve have an entry for each of its points.
    """

    value: Any
    low: Any
    high: Any

    def __str__(self) -> str:
        interval = "" if math.isnan(self.low) else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.value:.2f}{interval}"


def mean(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Returns the mean of all runs; every run counts the same."""
    return np.concatenate(strata, axis).mean(axis)


def iqm(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Returns the interquartile mean: of all runs without the lowest and the highest fourth, rounded down."""
    from scipy.stats import trim_mean

    return trim_mean(np.concatenate(strata, axis), 0.25, axis=axis)


def improvement(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Returns the probability that a run of one group has a higher score than one of another, ties counting one half.

    It is Mann and Whitney's U over the number of pairs, and the mean of it over levels.

    Args:
        *strata: of the one group, then of the other.
        axis: of the runs.
    """
    half = len(strata) // 2
    of_levels = []
    for x, y in zip(strata[:half], strata[half:], strict=True):
        x, y = np.moveaxis(x, axis, -1)[..., :, None], np.moveaxis(y, axis, -1)[..., None, :]
        of_levels.append(((x > y) + 0.5 * (x == y)).mean((-1, -2)))
    return np.mean(of_levels, axis=0)


def profile(strata: Strata, taus: np.ndarray) -> np.ndarray:
    """Returns the performance profile: the fraction of runs whose score is above each tau, `[T]`."""
    return (np.concatenate(strata)[:, None] > taus).mean(0)


def estimate(statistic: Callable[..., np.ndarray], strata: Strata) -> Estimate:
    """Returns a statistic with its stratified percentile bootstrap interval of 95 %, drawn with a fixed seed.

    Runs are resampled with replacement within their level. Where a level has one run there is no interval.

    Args:
        statistic: `mean`, `iqm` or `improvement`.
        strata: of one group, or for `improvement` of two; `[n]`, or `[T, n]` for T points of a curve.
    """
    value = statistic(*strata)
    if min(scores.shape[-1] for scores in strata) < 2:
        return Estimate(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    from scipy.stats import bootstrap

    found = bootstrap(
        strata,
        statistic,
        axis=-1,
        vectorized=True,
        confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Estimate(value, found.low, found.high)
