"""Streams of random numbers of a run: each use has one of its own, `numpy.random.default_rng([seed, Stream.ACTING])`,
so that no two repeat each other's numbers and a change of one leaves the others as they are.
"""

from __future__ import annotations

import enum


class Stream(enum.IntEnum):
    """What random numbers are drawn for. Weights have the run's seed alone.

    Attributes:
        ACTING: of whoever acts in this process.
        SAMPLING: batches from the memory.
        EVALUATING: evaluations during training.
        REPLAYING: how many updates from the replay follow a rollout (ACER).
        ROLLOUT_ACTORS: acting in the processes of a Ray cluster.
        RESETTING: fresh weights at a reset.
    """

    ACTING = 1
    SAMPLING = 2
    EVALUATING = 3
    REPLAYING = 4
    ROLLOUT_ACTORS = 5
    RESETTING = 6
