"""Which updates are due, and what they learn from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tfsac.memories import EpisodicMemory, TransitionMemory
from tfsac.parameters import ACERAlgorithmParameters, OffPolicyAlgorithmParameters, Preset
from tfsac.training.progress import Counters
from tfsac.types import Batch

MAX_UPDATES_PER_CALL = 64  # bounds the memory that one stack of batches takes; a rollout and its replays are one stack


def due_batches(
    preset: Preset,
    memory: TransitionMemory | EpisodicMemory,
    counters: Counters,
    heatup_end: Counters,
    rng: np.random.Generator,
) -> Iterator[Batch]:
    """Yields the stacks of batches to learn from now, one for each compiled call.

    N updates are due after every M steps or episodes played since the heat-up. An agent that learns from segments makes its updates
    when a rollout is complete: one from the rollout, then those from the replay.

    Args:
        preset: the experiment.
        memory: of the run.
        counters: how far the run is; those who make an update count it.
        heatup_end: the counters when the heat-up ended.
        rng: for sampling.
    """
    algorithm, batch_size = preset.agent.algorithm, preset.agent.batch_size
    if isinstance(memory, EpisodicMemory):
        assert isinstance(algorithm, ACERAlgorithmParameters)
        if memory.rollout_complete:
            segments = memory.batches(algorithm.replays(rng), batch_size, rng, online=not algorithm.disable_online_update)
            yield from () if segments is None else (segments,)
        return
    assert isinstance(algorithm, OffPolicyAlgorithmParameters)
    if not memory.ready:
        return
    playing = algorithm.num_consecutive_playing_steps
    stretches = (counters.of(playing) - heatup_end.of(playing)) // playing.num_steps
    due = stretches * algorithm.num_consecutive_training_steps - counters.updates
    while due > 0:
        count = min(due, MAX_UPDATES_PER_CALL)
        yield memory.sample(count, batch_size, rng)
        due -= count
