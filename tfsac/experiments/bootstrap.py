"""Statistics for few runs, with stratified bootstrap intervals.

They follow Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical Precipice". The strata of
a group are its scores by level: a list of arrays `[n]`, one for each level. Does not import TensorFlow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Strata = Sequence[np.ndarray]
CONFIDENCE, RESAMPLES = 0.95, 2000
GRID = 100  # maximum number of points of a combined curve


class Estimate(NamedTuple):
    """A statistic and its bootstrap interval, NaN if there is none; for a curve, arrays with one entry per point."""

    value: Any
    low: Any
    high: Any

    def __str__(self) -> str:
        interval = "" if math.isnan(self.low) else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.value:.2f}{interval}"


def mean(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Returns the mean of all runs, each with the same weight."""
    return np.concatenate(strata, axis).mean(axis)


def iqm(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Returns the interquartile mean: the mean without the lowest and the highest quarter of runs, rounded down."""
    from scipy.stats import trim_mean

    return trim_mean(np.concatenate(strata, axis), 0.25, axis=axis)


def improvement(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Returns the probability that a run of one group has a higher score than one of another, ties counting one half.

    It is the Mann-Whitney U statistic divided by the number of pairs, averaged over levels. `strata` are those of the
    first group, then those of the other.
    """
    half = len(strata) // 2
    of_levels = []
    for x, y in zip(strata[:half], strata[half:], strict=True):
        x, y = np.moveaxis(x, axis, -1)[..., :, None], np.moveaxis(y, axis, -1)[..., None, :]
        of_levels.append(((x > y) + 0.5 * (x == y)).mean((-1, -2)))
    return np.mean(of_levels, axis=0)


def profile(strata: Strata, taus: np.ndarray) -> np.ndarray:
    """Returns the performance profile: the fraction of runs with a score above each tau, `[T]`."""
    return (np.concatenate(strata)[:, None] > taus).mean(0)


def estimate(statistic: Callable[..., np.ndarray], strata: Strata) -> Estimate:
    """Returns a statistic with its 95 % stratified percentile bootstrap interval, with a fixed seed.

    Runs are resampled with replacement within their level. If a level has only one run, there is no interval.

    Args:
        statistic: `mean`, `iqm` or `improvement`.
        strata: strata of one group, or of two for `improvement`; `[n]`, or `[T, n]` for T points of a curve.
    """
    value = statistic(*strata)
    if min(scores.shape[-1] for scores in strata) < 2:
        return Estimate(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    from scipy.stats import bootstrap

    options: dict[str, Any] = {"axis": -1, "vectorized": True, "method": "percentile", "rng": np.random.default_rng(0)}
    resampled = bootstrap(strata, statistic, confidence_level=CONFIDENCE, n_resamples=RESAMPLES, **options)
    return Estimate(value, *resampled.confidence_interval)


def combined(
    curves: Sequence[tuple[np.ndarray, np.ndarray]], statistic: Callable[..., np.ndarray], levels: Sequence[str] = ()
) -> tuple[np.ndarray, Estimate]:
    """Returns a statistic of several runs as a curve: points `[T]`, empty if the runs do not overlap, and the estimate
    at each point.

    The curves are interpolated at the union of their points, or at `GRID` evenly spaced points if there are more, from
    the latest start to the earliest end.

    Args:
        curves: steps or seconds `[T_i]` and values `[T_i]` of each run.
        statistic: `mean` or `iqm`.
        levels: levels of the runs; empty for a single level.
    """
    start, end = max(at[0] for at, _ in curves), min(at[-1] for at, _ in curves)
    points = np.unique(np.concatenate([at for at, _ in curves]))
    points = points[(points >= start) & (points <= end)]
    if not len(points):
        return points, Estimate(points, points, points)
    if len(points) > GRID:
        points = np.linspace(start, end, GRID)
    by_level: dict[str, list[np.ndarray]] = {}
    for level, (at, values) in zip(levels or [""] * len(curves), curves, strict=True):
        by_level.setdefault(level, []).append(np.interp(points, at, values))
    return points, estimate(statistic, [np.stack(values, axis=-1) for values in by_level.values()])
