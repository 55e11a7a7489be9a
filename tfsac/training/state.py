"""What a checkpoint holds of a run beside the agent and the memory."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from tfsac.memories import PrioritizedMemory
from tfsac.training.manifest import understanding
from tfsac.training.progress import Counters
from tfsac.training.ray_collector import RayCollector
from tfsac.training.run_directory import BEST, CONFIG, METRICS
from tfsac.training.weights import acting_weights
from tfsac.types import UpdateResult

if TYPE_CHECKING:
    from tfsac.training.trainer import Trainer

PRIORITY, SAMPLED, HANDED = "updates/priority", "updates/sampled", "updates/handed/"  # arrays of a checkpoint beside the collector's
OF_ENVIRONMENTS = ("episode", "length", "returns")  # `[E]` each


def state_of(trainer: Trainer) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, bytes]]:
    """Returns the state of a run as JSON values, as arrays, and as contents of files in its folder.

    All workers call it together; each gets the whole run's values and arrays, and the chief the files.
    """
    place, environments = trainer.workers.place, trainer.environments.state()
    of_environments = {"episode": environments["episode"], "length": environments["length"], "returns": trainer.returns}
    everywhere = trainer.workers.gather({name: np.array(value) for name, value in of_environments.items()})
    returns = everywhere.pop("returns").tolist()
    environments |= {name: value.tolist() for name, value in everywhere.items()}
    state = {
        "counters": dataclasses.asdict(trainer.counters),
        "heatup_end": dataclasses.asdict(trainer.heatup_end),
        "heating_up": trainer.heating_up,
        "returns": returns,
        **trainer.evaluator.state(trainer.counters),
        **trainer.reporter.state(),
        "filters": trainer.filters.state(),
        "environments": environments,
        "sampling": trainer.rng.bit_generator.state,
        "acting": trainer.collector.agent.rng.bit_generator.state,
    }
    # The episodes of several workers begin anew where the run goes on.
    return state, {**trainer.collector.arrays(), **_pending(trainer)} if place.workers == 1 else {}, _run_files(trainer)


def _pending(trainer: Trainer) -> dict[str, np.ndarray]:
    """Returns what the next call of updates begins with: priorities that are not set yet, and the weights that act until then."""
    result, collector = trainer.updates.pending, trainer.collector
    if result is None or isinstance(collector, RayCollector):
        return {}
    arrays = {PRIORITY: result.priority, **{f"{HANDED}{i}": weights for i, weights in enumerate(collector.handed)}}
    if isinstance(trainer.memory, PrioritizedMemory) and trainer.memory.sampled is not None:
        arrays[SAMPLED] = trainer.memory.sampled
    return arrays


def _restore_pending(trainer: Trainer, arrays: dict[str, np.ndarray]) -> None:
    """Takes what `_pending` returned out of the arrays of a checkpoint."""
    handed = [arrays.pop(f"{HANDED}{i}") for i in range(sum(name.startswith(HANDED) for name in arrays))]
    priority, sampled, collector = arrays.pop(PRIORITY, None), arrays.pop(SAMPLED, None), trainer.collector
    if priority is None or trainer.workers.place.workers > 1 or isinstance(collector, RayCollector):
        collector.hand_over(trainer.agent)
        return
    if isinstance(trainer.memory, PrioritizedMemory):
        trainer.memory.sampled = sampled
    metrics = np.zeros((0, len(trainer.reporter.recorder.names)))  # these were reported
    trainer.updates.pending = UpdateResult(metrics, priority, acting_weights(trainer.agent))
    if collector.agent is not trainer.agent:
        collector.act_with(handed)


def _run_files(trainer: Trainer) -> dict[str, bytes]:
    if trainer.reporter.csv is None:
        return {}
    files, config = {**trainer.run_files, METRICS: trainer.reporter.csv.content}, trainer.directory.config
    if trainer.evaluator.best_weights:
        files[BEST] = trainer.evaluator.best_weights
    return {**files, CONFIG: config.read_bytes()} if config.is_file() else files


def restore(trainer: Trainer) -> None:
    """Locks the run's folder and brings a new run to where its newest whole checkpoint was taken, also by another number of workers.

    Raises:
        CheckpointError: there is nothing to resume from.
        BlockingIOError: another process has the run.
    """
    place = trainer.workers.place
    if place.chief and trainer.checkpoints.places() and (note := trainer.lock.acquire(trainer.directory.path)):
        trainer.reporter.terminal.print(note)
    restored = trainer.checkpoints.restore(trainer.settings.skip_damaged_rows)
    for note in restored.notes:
        trainer.reporter.terminal.print(note)
    with understanding(restored.place):
        refuse_other_kinds(restored.state, state_of(trainer)[0])
        exact = _take_over(trainer, restored.state, restored.arrays)
    trainer.run_files = restored.run_files
    trainer.evaluator.best_weights = trainer.run_files.get(BEST, b"")
    if not exact:
        trainer.memory.end_episodes()
        trainer.checkpoints.rewrite_newest_chunk()
        trainer.returns[:] = 0.0
        trainer.reporter.terminal.print("The running episodes cannot be continued exactly; new ones begin.")
    trainer.reporter.terminal.print(f"Continuing {trainer.directory.shown()} from step {trainer.counters.env_steps}.")


def refuse_other_kinds(theirs: Any, ours: Any, name: str = "state") -> None:
    """Compares the state in a checkpoint with that of a new run, which has the same parts.

    Raises:
        ValueError: it has other names, or values of other types; the first is named.
    """
    if isinstance(ours, dict):
        if not isinstance(theirs, dict) or (differing := sorted(theirs.keys() ^ ours.keys())):
            raise ValueError(f"{name} differs in {differing[0]!r}" if isinstance(theirs, dict) else f"{name} is {theirs!r}")
        for key, value in ours.items():
            refuse_other_kinds(theirs[key], value, f"{name}.{key}")
    elif isinstance(ours, list):
        wrong = theirs if not isinstance(theirs, list) else [x for x in theirs if not isinstance(x, int | float | list)]
        if wrong or not isinstance(theirs, list):
            raise ValueError(f"{name} is {wrong!r}")
    elif ours is None:  # of a number that there is not yet
        if theirs is not None:
            refuse_other_kinds(theirs, 0.0, name)
    elif isinstance(theirs, bool) != isinstance(ours, bool) or not isinstance(theirs, (int, float) if isinstance(ours, float) else type(ours)):
        raise ValueError(f"{name} is {theirs!r}")


def _take_over(trainer: Trainer, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> bool:
    """Sets everything but agent and memory; returns whether the running episodes are where they were."""
    place = trainer.workers.place
    trainer.agent.refresh()
    trainer.counters, trainer.heatup_end = Counters(**state["counters"]), Counters(**state["heatup_end"])
    trainer.heating_up = state["heating_up"]
    trainer.evaluator.restore(state, trainer.counters)
    trainer.reporter.restore(state)
    trainer.filters.restore(state["filters"])
    envs, environments = trainer.environments.num_envs, state["environments"]
    own = slice(place.worker * envs, (place.worker + 1) * envs)
    trainer.returns = np.array(state["returns"])[own]
    environments = {**environments, **{name: environments[name][own] for name in ("episode", "length")}}
    if place.workers == trainer.checkpoints.workers_before == 1:
        trainer.rng.bit_generator.state = state["sampling"]
        trainer.collector.agent.rng.bit_generator.state = state["acting"]
    else:
        trainer.seed_anew()
    _restore_pending(trainer, arrays)
    played = trainer.memory.newest(environments["length"][0])
    actions = None if played is None else played["action"][:, 0]
    return trainer.collector.restore(environments, arrays, actions)
