"""Random streams of a run, and seeds of its episodes. Each use has its own `numpy.random.default_rng([seed, stream])`:
no two repeat each other's numbers, and changing one leaves the others unchanged.
"""

from __future__ import annotations

import enum

import numpy as np

TRAINING, EVALUATION = 0, 1  # purposes of episodes


class Stream(enum.IntEnum):
    """Uses of random numbers. Initial weights depend only on the run's seed."""

    ACTING = 1  # actions chosen in this process
    SAMPLING = 2  # batches from the memory
    EVALUATING = 3  # evaluations during training
    REPLAYING = 4  # number of replay updates after a rollout (ACER)
    ROLLOUT_ACTORS = 5  # actions chosen by Ray actors
    RESETTING = 6  # fresh weights at a reset


def episode_seed(seed: int, purpose: int, *position: int) -> int:
    """Returns an independent episode seed for each (run seed, purpose, environment, episode, ...)."""
    return int(np.random.SeedSequence([seed, purpose, *position]).generate_state(1)[0]) % 2**31  # simulators take int32
