"""How far a run is: its counters, its warm-up, its end."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tfsac.parameters import EnvironmentEpisodes, EnvironmentSteps, ScheduleParameters, StepMethod, TrainingSteps

COUNTERS = {EnvironmentSteps: "env_steps", EnvironmentEpisodes: "episodes", TrainingSteps: "updates"}


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
    """Tells when another period of a counter is complete."""

    def __init__(self, length: int):
        self.length, self.completed = length, 0

    def start(self, count: int) -> None:
        """Begins to watch a counter that is at `count`."""
        self.completed = count // self.length

    def tick(self, count: int) -> bool:
        """Returns whether a period was completed since the last call, or since `start`."""
        before, self.completed = self.completed, count // self.length
        return self.completed > before


class Schedule:
    """A run's way through its preset's schedule.

    Attributes:
        counters: of the run, always the same object.
        heatup_end: the counters when the warm-up ended.
        heating_up: whether the warm-up, during which nothing is learned, still lasts.
    """

    def __init__(self, parameters: ScheduleParameters):
        self.parameters, self.counters, self.heatup_end = parameters, Counters(), Counters()
        self.heating_up = parameters.heatup_steps.num_steps > 0

    def length(self) -> tuple[int, str]:
        """Returns how long the run is, and in which unit: its improvement's, with a warm-up of the same unit."""
        improve, heatup = self.parameters.improve_steps, self.parameters.heatup_steps
        return improve.num_steps + (heatup.num_steps if type(heatup) is type(improve) else 0), type(improve).__name__

    def steps_between_checkpoints(self) -> int:
        """Returns the default of environment steps between checkpoints: a tenth of the run, from 1000 to 10 000."""
        length, unit = self.length()
        return max(1000, min(10_000, length // 10)) if unit == EnvironmentSteps.__name__ else 10_000

    def count(self, env_steps: int, episodes: int) -> None:
        """Counts environment steps and the episodes that they ended; ends the warm-up after its last step."""
        self.counters.env_steps += env_steps
        self.counters.episodes += episodes
        heatup = self.parameters.heatup_steps
        if self.heating_up and self.counters.of(heatup) >= heatup.num_steps:
            self.heating_up, self.heatup_end = False, dataclasses.replace(self.counters)

    def since_heatup(self, steps: StepMethod) -> int:
        """Returns how much was counted after the warm-up, in the unit of `steps`."""
        name = COUNTERS[type(steps)]
        return getattr(self.counters, name) - getattr(self.heatup_end, name)

    def random_until(self) -> float:
        """Returns the environment steps before which actions are random."""
        steps, heatup = self.parameters.random_action_steps, self.parameters.heatup_steps
        if steps is None and isinstance(heatup, EnvironmentEpisodes):
            return np.inf if self.heating_up else 0
        return heatup.num_steps if steps is None else steps

    def finished(self) -> bool:
        """Returns whether the schedule is complete."""
        improve = self.parameters.improve_steps
        return not self.heating_up and self.since_heatup(improve) >= improve.num_steps

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps, as JSON values."""
        counters, heatup_end = dataclasses.asdict(self.counters), dataclasses.asdict(self.heatup_end)
        return {"counters": counters, "heatup_end": heatup_end, "heating_up": self.heating_up}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes what `state` returned."""
        vars(self.counters).update(state["counters"])
        self.heatup_end, self.heating_up = Counters(**state["heatup_end"]), state["heating_up"]
