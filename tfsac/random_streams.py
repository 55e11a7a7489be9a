"""Streams of random numbers of a run: each use has one of its own, `numpy.random.default_rng([seed, Stream.ACTING])`,
so that no two repeat each other's numbers and a change of one leaves the others as they are; and seeds of episodes.
"""

from __future__ import annotations

import enum

import numpy as np

TRAINING, EVALUATION = 0, 1  # purposes of episodes


class Stream(enum.IntEnum):
    """What random numbers are drawn for. Weights have the run's seed alone."""

    ACTING = 1  # of whoever acts in this process
    SAMPLING = 2  # batches from the memory
    EVALUATING = 3  # evaluations during training
    REPLAYING = 4  # how many updates from the replay follow a rollout (ACER)
    ROLLOUT_ACTORS = 5  # acting in the processes of a Ray cluster
    RESETTING = 6  # fresh weights at a reset


def episode_seed(seed: int, purpose: int, *position: int) -> int:
    """Returns the seed of one episode, independent of every other (run seed, purpose, environment, episode, ...)."""
    return int(np.random.SeedSequence([seed, purpose, *position]).generate_state(1)[0]) % 2**31  # simulators take int32
