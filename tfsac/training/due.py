"""Which updates are due, and what they learn from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np

from tfsac.memories import EpisodicMemory, TransitionMemory
from tfsac.parameters import ACERAlgorithmParameters, OffPolicyAlgorithmParameters, Preset
from tfsac.training.progress import Counters
from tfsac.types import Batch

REPLAYING = 4  # stream of random numbers beside those of a run
MAX_UPDATES_PER_CALL = 64  # bounds the memory that one stack of batches takes; a rollout and its replays are one stack


def due_samples(
    preset: Preset,
    memory: TransitionMemory | EpisodicMemory,
    counters: Counters,
    heatup_end: Counters,
    rng: np.random.Generator,
    ready: bool,
    rollout_complete: bool,
) -> Iterator[Callable[[], Batch | None]]:
    """Yields functions that sample the stack of batches to learn from in one compiled call, or None where there is nothing.

    N updates are due after every M steps or episodes played since the heat-up. An agent that learns from segments makes its updates
    when a rollout is complete: one from the rollout, then those from the replay.

    Args:
        preset: the experiment, or a worker's share of it.
        memory: of this worker.
        counters: how far the run is; those who make an update count it.
        heatup_end: the counters when the heat-up ended.
        rng: for sampling.
        ready: whether there is enough to sample, in every worker's memory.
        rollout_complete: whether it is in any worker's.
    """
    algorithm, batch_size = preset.agent.algorithm, preset.agent.batch_size
    if isinstance(memory, EpisodicMemory):
        assert isinstance(algorithm, ACERAlgorithmParameters)
        if rollout_complete:
            # The same for all workers: every one of them makes the same number of updates.
            replays = algorithm.replays(np.random.default_rng([REPLAYING, counters.env_steps])) if ready else 0
            yield functools.partial(memory.batches, replays, batch_size, rng, online=not algorithm.disable_online_update)
        return
    assert isinstance(algorithm, OffPolicyAlgorithmParameters)
    if not ready:
        return
    playing = algorithm.num_consecutive_playing_steps
    stretches = (counters.of(playing) - heatup_end.of(playing)) // playing.num_steps
    due = stretches * algorithm.num_consecutive_training_steps - counters.updates
    while due > 0:
        count = min(due, MAX_UPDATES_PER_CALL)
        yield functools.partial(memory.sample, count, batch_size, rng)
        due -= count
