"""How far a run is: its counters, its warm-up, its end, and the updates that are pending with their batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfsac.device_memory import UPDATES_PER_CALL, DeviceMemory
from tfsac.environments import Filters
from tfsac.memories import EpisodicMemory, TransitionMemory
from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentSteps,
    Preset,
    ScheduleParameters,
    StepMethod,
    TrainingSteps,
)
from tfsac.random_streams import Stream
from tfsac.types import Batch, Batches

COUNTERS = {EnvironmentSteps: "env_steps", EnvironmentEpisodes: "episodes", TrainingSteps: "updates"}
MAX_UPDATES_PER_CALL = 64  # bounds the memory that one stack of batches takes; a rollout and its replays are one stack


@dataclasses.dataclass
class Counters:
    """Environment steps over all environments, finished episodes, updates."""

    env_steps: int = 0
    episodes: int = 0
    updates: int = 0

    def of(self, steps: StepMethod) -> int:
        """Returns the counter in the unit of `steps`."""
        return getattr(self, COUNTERS[type(steps)])


class Period:
    """Watches a counter for complete periods."""

    def __init__(self, length: int):
        self.length, self.completed = length, 0

    def start(self, count: int) -> None:
        """Watches the counter from `count` on."""
        self.completed = count // self.length

    def due(self, count: int) -> bool:
        """Returns whether a period was completed since `start`."""
        return count // self.length > self.completed

    def tick(self, count: int) -> bool:
        """Returns whether a period is due, and starts the next one."""
        is_due = self.due(count)
        self.start(count)
        return is_due


class Schedule:
    """A run's way through its preset's schedule.

    Attributes:
        counters: of the run, always the same object; `heatup_end` is what they were when the warm-up ended.
        heating_up: whether the warm-up, during which nothing is learned, still lasts.
    """

    def __init__(self, parameters: ScheduleParameters):
        self.parameters, self.counters, self.heatup_end = parameters, Counters(), Counters()
        self.heating_up = parameters.heatup_steps.num_steps > 0

    def length(self) -> tuple[int, str]:
        """Returns how long the run is, and in which unit: its improvement's, with a warm-up of the same unit."""
        improve, heatup = self.parameters.improve_steps, self.parameters.heatup_steps
        return improve.num_steps + (heatup.num_steps if type(heatup) is type(improve) else 0), type(improve).__name__

    def steps_between_checkpoints(self, num_envs: int) -> int:
        """Returns the default of environment steps between checkpoints: 10 000 steps of all environments, or a tenth of
        a shorter run, at least 1000.
        """
        length, unit = self.length()
        most = 10_000 * num_envs
        return max(1000, min(most, length // 10)) if unit == EnvironmentSteps.__name__ else most

    def count(self, env_steps: int, episodes: int) -> None:
        """Counts environment steps and the episodes that they ended; ends the warm-up after its last step."""
        self.counters.env_steps += env_steps
        self.counters.episodes += episodes
        heatup = self.parameters.heatup_steps
        if self.heating_up and self.counters.of(heatup) >= heatup.num_steps:
            self.heating_up, self.heatup_end = False, dataclasses.replace(self.counters)

    def since_heatup(self, steps: StepMethod) -> int:
        """Returns how much was counted after the warm-up, in the unit of `steps`."""
        return self.counters.of(steps) - self.heatup_end.of(steps)

    def random_until(self) -> float:
        """Returns the environment steps before which actions are random."""
        steps, heatup = self.parameters.random_action_steps, self.parameters.heatup_steps
        if steps is not None or not self.heating_up:
            return steps or 0
        return np.inf if isinstance(heatup, EnvironmentEpisodes) else heatup.num_steps

    def finished(self) -> bool:
        """Returns whether the schedule is complete."""
        improve = self.parameters.improve_steps
        return not self.heating_up and self.since_heatup(improve) >= improve.num_steps

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps, as JSON values."""
        counters = {name: dataclasses.asdict(getattr(self, name)) for name in ("counters", "heatup_end")}
        return {**counters, "heating_up": self.heating_up}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes what `state` returned."""
        vars(self.counters).update(state["counters"])
        self.heatup_end, self.heating_up = Counters(**state["heatup_end"]), state["heating_up"]


class Sampler:
    """Draws the batches of the updates that are pending, normalised as the agent sees them: from the memory, or from
    `device_memory`, its copy on the accelerator.

    Attributes:
        workers_status: whether the memories of all workers are ready, and whether any has a complete rollout, so that
            each makes as many updates; None where there is one worker.
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
        self.algorithm: Any = preset.agent.algorithm
        self.memory, self.device_memory, self.filters, self.schedule = memory, device_memory, filters, schedule
        self.batch_size, self.seed = preset.agent.batch_size, seed
        self.rng = np.random.default_rng([seed, Stream.SAMPLING])
        self.workers_status: tuple[bool, bool] | None = None

    def pending(self) -> Iterator[int]:
        """Yields the number of updates of each compiled call to make now.

        N updates are pending after every M steps or episodes since the warm-up. An agent that learns from segments
        makes its updates when a rollout is complete: one from the rollout, then those from the replay.
        """
        if self.schedule.heating_up:
            return
        algorithm, memory, counters = self.algorithm, self.memory, self.schedule.counters
        ready, complete = self.workers_status or (memory.ready, getattr(memory, "rollout_complete", False))
        if isinstance(memory, EpisodicMemory):
            if complete:
                # The same for all workers: every one of them makes the same number of updates.
                rng = np.random.default_rng([self.seed, Stream.REPLAYING, counters.env_steps])
                yield algorithm.replays(rng) if ready else 0
        elif ready:
            playing = algorithm.num_consecutive_playing_steps
            periods = self.schedule.since_heatup(playing) // playing.num_steps
            pending = periods * algorithm.num_consecutive_training_steps - counters.updates
            most = UPDATES_PER_CALL if self.device_memory else MAX_UPDATES_PER_CALL
            while pending > 0:
                yield min(pending, most)
                pending -= most

    def draw(self, count: int) -> Batches | None:
        """Returns batches `[U, B, ...]` for a count of `pending`; None where there is nothing to learn from."""
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
