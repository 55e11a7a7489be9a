"""Progress of a run: counters, warm-up, end, and the pending updates with their batches."""

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
MAX_UPDATES_PER_CALL = 64  # bounds the RAM of a stack of batches; not for ACER, where a rollout and its replays are one


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
    """Detects when a counter completes a period."""

    def __init__(self, length: int):
        self.length, self.completed = length, 0

    def start(self, count: int) -> None:
        """Starts at `count`."""
        self.completed = count // self.length

    def due(self, count: int) -> bool:
        """Returns whether a period has been completed since `start`."""
        return count // self.length > self.completed

    def tick(self, count: int) -> bool:
        """Returns whether a period is due, and starts the next one."""
        is_due = self.due(count)
        self.start(count)
        return is_due


class Schedule:
    """Progress of a run in its preset's schedule.

    Attributes:
        counters: counters of the run, always the same object; `heatup_end` are their values at the end of the warm-up.
        heating_up: whether the run is in the warm-up, which makes no updates.
    """

    def __init__(self, parameters: ScheduleParameters):
        self.parameters, self.counters, self.heatup_end = parameters, Counters(), Counters()
        self.heating_up = parameters.heatup_steps.num_steps > 0

    def length(self) -> tuple[int, str]:
        """Returns length and unit of the run: `improve_steps`, plus the warm-up if it has the same unit."""
        improve, heatup = self.parameters.improve_steps, self.parameters.heatup_steps
        return improve.num_steps + (heatup.num_steps if type(heatup) is type(improve) else 0), type(improve).__name__

    def steps_between_checkpoints(self, num_envs: int) -> int:
        """Returns the default number of environment steps between checkpoints: 10 000 per environment, or a tenth of a
        shorter run, at least 1000.
        """
        length, unit = self.length()
        most = 10_000 * num_envs
        return max(1000, min(most, length // 10)) if unit == EnvironmentSteps.__name__ else most

    def count(self, env_steps: int, episodes: int) -> None:
        """Counts environment steps and finished episodes; ends the warm-up after its last step."""
        self.counters.env_steps += env_steps
        self.counters.episodes += episodes
        heatup = self.parameters.heatup_steps
        if self.heating_up and self.counters.of(heatup) >= heatup.num_steps:
            self.heating_up, self.heatup_end = False, dataclasses.replace(self.counters)

    def since_heatup(self, steps: StepMethod) -> int:
        """Returns the count since the warm-up, in the unit of `steps`."""
        return self.counters.of(steps) - self.heatup_end.of(steps)

    def random_until(self) -> float:
        """Returns the number of environment steps before which actions are random."""
        steps, heatup = self.parameters.random_action_steps, self.parameters.heatup_steps
        if steps is not None or not self.heating_up:
            return steps or 0
        return np.inf if isinstance(heatup, EnvironmentEpisodes) else heatup.num_steps

    def finished(self) -> bool:
        """Returns whether the schedule is complete."""
        improve = self.parameters.improve_steps
        return not self.heating_up and self.since_heatup(improve) >= improve.num_steps

    def state(self) -> dict[str, Any]:
        """Returns the state for a checkpoint, as JSON values."""
        counters = {name: dataclasses.asdict(getattr(self, name)) for name in ("counters", "heatup_end")}
        return {**counters, "heating_up": self.heating_up}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores a result of `state`."""
        vars(self.counters).update(state["counters"])
        self.heatup_end, self.heating_up = Counters(**state["heatup_end"]), state["heating_up"]


class Sampler:
    """Draws the batches of the pending updates, normalised for the agent: from the memory, or from `device_memory`, its
    copy on the accelerator.

    Attributes:
        workers_status: whether the memories of all workers are ready, and whether any has a complete rollout, so that
            all make the same number of updates; None for a single worker.
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
        """Yields the number of updates in each compiled call that is pending.

        N updates are pending after every M steps or episodes since the warm-up. For an agent that learns from segments,
        updates are pending when a rollout is complete: one from the rollout, then those from the replay.
        """
        if self.schedule.heating_up:
            return
        algorithm, memory, counters = self.algorithm, self.memory, self.schedule.counters
        ready, complete = self.workers_status or (memory.ready, getattr(memory, "rollout_complete", False))
        if isinstance(memory, EpisodicMemory):
            if complete:
                # Use the same seed on all workers, so that they make the same number of updates.
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
        """Returns batches `[U, B, ...]` for a count from `pending`; None if there is nothing to learn from."""
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
        """Returns the state for a checkpoint, as JSON values."""
        return {"rng": self.rng.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores a result of `state`."""
        self.rng.bit_generator.state = state["rng"]
