"""When updates are pending, and the batches that they learn from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfsac.device_memory import UPDATES_PER_CALL, DeviceMemory
from tfsac.environments import Filters
from tfsac.memories import EpisodicMemory, TransitionMemory
from tfsac.parameters import Preset
from tfsac.random_streams import Stream
from tfsac.training.schedule import Schedule
from tfsac.types import Batch, Batches

MAX_UPDATES_PER_CALL = 64  # bounds the memory that one stack of batches takes; a rollout and its replays are one stack


class Sampler:
    """Draws the batches of the updates that are pending, normalised as the agent sees them.

    Args:
        preset, memory, filters, schedule, seed: of the run, and its share where workers have one each.
        device_memory: the memory's copy on the accelerator, where batches are drawn there.

    Attributes:
        rng: the stream of random numbers from which batches are drawn.
        merged: what the memories of all workers have, where there are several; see `merge_status`.
    """

    def __init__(
        self,
        preset: Preset,
        memory: TransitionMemory | EpisodicMemory,
        filters: Filters,
        schedule: Schedule,
        seed: int,
        device_memory: DeviceMemory | None = None,
    ):
        self.device_memory = device_memory
        self.algorithm: Any = preset.agent.algorithm
        self.memory, self.filters, self.schedule, self.batch_size = memory, filters, schedule, preset.agent.batch_size
        self.rng, self.seed = np.random.default_rng([seed, Stream.SAMPLING]), seed
        self.merged: tuple[bool, bool] | None = None

    def reseed(self, seed: Sequence[int]) -> None:
        """Draws from another stream of random numbers from now on."""
        self.rng = np.random.default_rng(seed)

    def local_status(self) -> dict[str, np.ndarray]:
        """Returns what the memory of this worker has, booleans `[1]` by name, for `merge_status`."""
        complete = isinstance(self.memory, EpisodicMemory) and self.memory.rollout_complete
        return {"ready": np.array([self.memory.ready]), "rollout_complete": np.array([complete])}

    def merge_status(self, status: dict[str, np.ndarray]) -> None:
        """Takes what the memories of all workers have, booleans `[workers]` by name, so that each of them makes as many
        updates: they sample when all are ready, and learn from rollouts when any is complete.
        """
        self.merged = all(status["ready"]), any(status["rollout_complete"])

    def pending(self) -> Iterator[int]:
        """Yields the number of updates of each compiled call to make now.

        N updates are pending after every M steps or episodes since the warm-up. An agent that learns from segments
        makes its updates when a rollout is complete: one from the rollout, then those from the replay.
        """
        if self.schedule.heating_up:
            return
        algorithm, memory, counters = self.algorithm, self.memory, self.schedule.counters
        if isinstance(memory, EpisodicMemory):
            ready, complete = self.merged or (memory.ready, memory.rollout_complete)
            if complete:
                # The same for all workers: every one of them makes the same number of updates.
                rng = np.random.default_rng([self.seed, Stream.REPLAYING, counters.env_steps])
                yield algorithm.replays(rng) if ready else 0
        elif self.merged[0] if self.merged else memory.ready:
            playing = algorithm.num_consecutive_playing_steps
            periods = self.schedule.since_heatup(playing) // playing.num_steps
            pending = periods * algorithm.num_consecutive_training_steps - counters.updates
            most = UPDATES_PER_CALL if self.device_memory else MAX_UPDATES_PER_CALL
            while pending > 0:
                yield min(pending, most)
                pending -= most

    def draw(self, count: int) -> Batches | None:
        """Returns a stack of batches `[U, B, ...]` for a count that `pending` yielded; None where there is nothing to
        learn from.
        """
        if self.device_memory:
            return self.device_memory.sample(count)
        batch: Batch | None
        if isinstance(self.memory, EpisodicMemory):
            online = not self.algorithm.disable_online_update
            batch = self.memory.batches(count, self.batch_size, self.rng, online=online)
        else:
            batch = self.memory.sample(count, self.batch_size, self.rng)
        return self.filters.batch(batch) if batch is not None and self.filters.observations else batch

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps, as JSON values."""
        return {"rng": self.rng.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes what `state` returned."""
        self.rng.bit_generator.state = state["rng"]
