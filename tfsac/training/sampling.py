"""Which updates are pending, and the batches that they learn from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tfsac.memories import EpisodicMemory, TransitionMemory
from tfsac.parameters import ACERAlgorithmParameters, OffPolicyAlgorithmParameters, Preset
from tfsac.random_streams import Stream
from tfsac.training.schedule import Schedule
from tfsac.types import Batches

MAX_UPDATES_PER_CALL = 64  # bounds the memory that one stack of batches takes; a rollout and its replays are one stack


class Sampler:
    """Draws the batches of the updates that are pending.

    Args:
        preset: the experiment, or that of one worker.
        memory: of this worker.
        schedule: of the run.
        seed: of the run.

    Attributes:
        rng: the stream of random numbers from which batches are drawn.
        source: what batches are drawn from, the memory or its copy on the accelerator.
        updates_per_call: the most updates in one compiled call.
        ready: whether the memories of all workers have enough to sample.
        rollout_complete: whether that of any worker has a complete rollout, for agents that learn from segments.
    """

    def __init__(self, preset: Preset, memory: TransitionMemory | EpisodicMemory, schedule: Schedule, seed: int):
        self.algorithm, self.batch_size = preset.agent.algorithm, preset.agent.batch_size
        self.memory, self.schedule = memory, schedule
        self.source: Any = memory
        self.updates_per_call = MAX_UPDATES_PER_CALL
        self.rng, self.seed = np.random.default_rng([seed, Stream.SAMPLING]), seed
        self.ready, self.rollout_complete = False, False

    def reseed(self, seed: Sequence[int]) -> None:
        """Draws from another stream of random numbers from now on."""
        self.rng = np.random.default_rng(seed)

    def offers(self) -> dict[str, np.ndarray]:
        """Returns what the memory of this worker has, booleans `[1]` by name, for `agree`."""
        complete = isinstance(self.memory, EpisodicMemory) and self.memory.rollout_complete
        return {"ready": np.array([self.memory.ready]), "rollout_complete": np.array([complete])}

    def agree(self, offers: dict[str, np.ndarray]) -> None:
        """Takes what the memories of all workers have, so that each of them makes as many updates.

        Args:
            offers: booleans `[workers]` by name.
        """
        self.ready, self.rollout_complete = all(offers["ready"]), any(offers["rollout_complete"])

    def pending_batches(self) -> Iterator[Callable[[], Batches | None]]:
        """Yields functions that draw the stack of batches to learn from in one compiled call, or None where there is
        nothing.

        N updates are pending after every M steps or episodes since the warm-up. An agent that learns from segments
        makes its updates when a rollout is complete: one from the rollout, then those from the replay.
        """
        if self.schedule.heating_up:
            return
        algorithm, memory, counters = self.algorithm, self.memory, self.schedule.counters
        if isinstance(memory, EpisodicMemory):
            assert isinstance(algorithm, ACERAlgorithmParameters)
            if self.rollout_complete:
                # The same for all workers: every one of them makes the same number of updates.
                rng = np.random.default_rng([self.seed, Stream.REPLAYING, counters.env_steps])
                replays = algorithm.replays(rng) if self.ready else 0
                yield functools.partial(
                    memory.batches, replays, self.batch_size, self.rng, online=not algorithm.disable_online_update
                )
            return
        assert isinstance(algorithm, OffPolicyAlgorithmParameters)
        if not self.ready:
            return
        playing = algorithm.num_consecutive_playing_steps
        periods = self.schedule.since_heatup(playing) // playing.num_steps
        pending = periods * algorithm.num_consecutive_training_steps - counters.updates
        while pending > 0:
            count = min(pending, self.updates_per_call)
            yield functools.partial(self.source.sample, count, self.batch_size, self.rng)
            pending -= count

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps, as JSON values."""
        return {"rng": self.rng.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes what `state` returned."""
        self.rng.bit_generator.state = state["rng"]
