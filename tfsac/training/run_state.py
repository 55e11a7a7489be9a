"""What a checkpoint holds of a run beside the agent and the memory: the state of each part, which the part itself
gives and takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tfsac.agents import Agent
from tfsac.distributed.workers import Workers
from tfsac.environments import Filters
from tfsac.environments.vectorize import EARLIER_SEEDS_BELOW
from tfsac.memories import EpisodicMemory, TransitionMemory
from tfsac.random_streams import Stream
from tfsac.training.checkpoints import Restored
from tfsac.training.collection import Collector
from tfsac.training.evaluator import Evaluator
from tfsac.training.ray_collector import RayCollector
from tfsac.training.reporting import Reporter
from tfsac.training.sampling import Sampler
from tfsac.training.schedule import Schedule
from tfsac.training.updates import Updates

PER_ENVIRONMENT = ("episode", "length")  # entries of the environments' state, a number for each of them


@dataclass(frozen=True, kw_only=True)
class RunState:
    """The parts of a run that have a state.

    Attributes:
        workers: that share the run.
        agent: that learns.
        memory: of this worker, as all that follows.
        schedule, sampler, collector, updates, evaluator, reporter, filters: the parts.
        seed: of the run.
    """

    workers: Workers
    agent: Agent
    memory: TransitionMemory | EpisodicMemory
    schedule: Schedule
    sampler: Sampler
    collector: Collector | RayCollector
    updates: Updates
    evaluator: Evaluator
    reporter: Reporter
    filters: Filters
    seed: int

    def values(self) -> dict[str, Any]:
        """Returns the state of the whole run as JSON values, at every worker; all of them call it together."""
        collector = self.collector.state()
        environments = collector["environments"]
        everywhere = self.workers.gather({name: np.array(environments[name]) for name in PER_ENVIRONMENT})
        environments = {**environments, **{name: value.tolist() for name, value in everywhere.items()}}
        return {
            "schedule": self.schedule.state(),
            "sampler": self.sampler.state(),
            "collector": {**collector, "environments": environments},
            "evaluator": self.evaluator.state(self.schedule.counters),
            "reporter": self.reporter.state(),
            "filters": self.filters.state(),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays of the same: what the running episodes and the updates that are underway need to
        continue.
        """
        # Several workers start new episodes where the run is resumed.
        return {**self.collector.arrays(), **self.updates.arrays()} if self.workers.task.num_workers == 1 else {}

    def files(self) -> dict[str, bytes]:
        """Returns the contents of the files of a run that its parts write, by name; nothing but at the chief."""
        return {**self.reporter.files(), **self.evaluator.files()} if self.workers.task.is_chief else {}

    def restore(self, restored: Restored) -> bool:
        """Has each part take its state, after agent and memory were restored.

        Args:
            restored: what a checkpoint held, perhaps of another number of workers.

        Returns:
            whether the running episodes continue; else new ones start.

        Raises:
            ValueError: the state is of another version.
        """
        state, task = restored.state, self.workers.task
        if isinstance(state.get("evaluator"), dict):  # checkpoints of earlier versions do not say when the best one was
            state["evaluator"] = {"best_step": None, "best_updates": None, **state["evaluator"]}
        self.evaluator.seeds_below = state["collector"]["environments"].setdefault("seeds_below", EARLIER_SEEDS_BELOW)
        # Checkpoints of earlier versions have no values of `info`.
        recorder = state.get("reporter", {}).get("recorder", {})
        recorder.setdefault("logged", self.reporter.recorder.state()["logged"])
        refuse_other_kinds(state, self.values())
        self.agent.policy.refresh()
        self.schedule.restore(state["schedule"])
        self.evaluator.restore(state["evaluator"], self.schedule.counters, restored.run_files)
        self.reporter.restore(state["reporter"])
        self.filters.restore(state["filters"])
        self.sampler.restore(state["sampler"])
        collector, environments = state["collector"], state["collector"]["environments"]
        envs = len(environments["length"]) // task.num_workers
        own = slice(task.index * envs, (task.index + 1) * envs)
        collector = {
            **collector,
            "environments": {**environments, **{name: environments[name][own] for name in PER_ENVIRONMENT}},
        }
        alone = restored.workers == task.num_workers == 1
        arrays = restored.arrays if alone else {}
        if restored.whole:  # else the updates that are underway learned from rows that are gone
            self.updates.restore(arrays)
        actions = self.memory.newest_actions(collector["environments"]["length"][0])
        exact = self.collector.restore(collector, arrays, actions, self.agent.policy)
        if not alone:
            self.reseed()
        if not exact:
            self.end_episodes()
        return exact

    def end_episodes(self) -> None:
        """Notes that the running episodes do not continue."""
        self.memory.end_episodes()
        self.filters.end_episodes()
        self.reporter.drop_running()

    def reseed(self) -> None:
        """Gives this worker streams of random numbers that no other one has, and that it did not have before this
        step.
        """
        where = [self.workers.task.index, self.workers.task.num_workers, self.schedule.counters.env_steps]
        self.sampler.reseed([self.seed, Stream.SAMPLING, *where])
        self.collector.reseed([self.seed, Stream.ACTING, *where])


def refuse_other_kinds(theirs: Any, ours: Any, name: str = "state") -> None:
    """Compares the state in a checkpoint with that of a new run, which has the same parts.

    Raises:
        ValueError: it has other names, or values of other types; the first is named.
    """
    if isinstance(ours, dict):
        if not isinstance(theirs, dict) or (differing := sorted(theirs.keys() ^ ours.keys())):
            raise ValueError(
                f"{name} differs in {differing[0]!r}" if isinstance(theirs, dict) else f"{name} is {theirs!r}"
            )
        for key, value in ours.items():
            refuse_other_kinds(theirs[key], value, f"{name}.{key}")
    elif isinstance(ours, list):
        wrong = theirs if not isinstance(theirs, list) else [x for x in theirs if not isinstance(x, int | float | list)]
        if wrong or not isinstance(theirs, list):
            raise ValueError(f"{name} is {wrong!r}")
    elif ours is None:  # of a number that there is not yet
        if theirs is not None:
            refuse_other_kinds(theirs, 0.0, name)
    elif isinstance(theirs, bool) != isinstance(ours, bool) or not isinstance(
        theirs, (int, float) if isinstance(ours, float) else type(ours)
    ):
        raise ValueError(f"{name} is {theirs!r}")
