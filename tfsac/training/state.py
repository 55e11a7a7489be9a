"""What a checkpoint holds of a run beside the agent and the memory."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from tfsac.memories import PrioritizedMemory
from tfsac.training.progress import Counters
from tfsac.training.remote import RemoteCollector
from tfsac.training.weights import acting_weights
from tfsac.types import UpdateResult

if TYPE_CHECKING:
    from tfsac.training.trainer import Trainer

PRIORITY, SAMPLED, HANDED = "updates/priority", "updates/sampled", "updates/handed/"  # arrays of a checkpoint beside the collector's
OF_ENVIRONMENTS = ("episode", "length", "returns")  # `[E]` each


def state_of(trainer: Trainer) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the state of a run as JSON values and as arrays. All workers call it together; each gets the whole run's."""
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
        **trainer.evaluator.state(),
        **trainer.reporter.state(),
        "filters": trainer.filters.state(),
        "environments": environments,
        "sampling": trainer.rng.bit_generator.state,
        "acting": trainer.collector.agent.rng.bit_generator.state,
    }
    # The episodes of several workers begin anew where the run goes on.
    return state, {**trainer.collector.arrays(), **_pending(trainer)} if place.workers == 1 else {}


def _pending(trainer: Trainer) -> dict[str, np.ndarray]:
    """Returns what the next call of updates begins with: priorities that are not set yet, and the weights that act until then."""
    result, collector = trainer.updates.pending, trainer.collector
    if result is None or isinstance(collector, RemoteCollector):
        return {}
    arrays = {PRIORITY: result.priority, **{f"{HANDED}{i}": weights for i, weights in enumerate(collector.handed)}}
    if isinstance(trainer.memory, PrioritizedMemory) and trainer.memory.sampled is not None:
        arrays[SAMPLED] = trainer.memory.sampled
    return arrays


def _restore_pending(trainer: Trainer, arrays: dict[str, np.ndarray]) -> None:
    """Takes what `_pending` returned out of the arrays of a checkpoint."""
    handed = [arrays.pop(f"{HANDED}{i}") for i in range(sum(name.startswith(HANDED) for name in arrays))]
    priority, sampled, collector = arrays.pop(PRIORITY, None), arrays.pop(SAMPLED, None), trainer.collector
    if priority is None or trainer.workers.place.workers > 1 or isinstance(collector, RemoteCollector):
        collector.hand_over(trainer.agent)
        return
    if isinstance(trainer.memory, PrioritizedMemory):
        trainer.memory.sampled = sampled
    metrics = np.zeros((0, len(trainer.reporter.recorder.names)))  # these were reported
    trainer.updates.pending = UpdateResult(metrics, priority, acting_weights(trainer.agent))
    if collector.agent is not trainer.agent:
        collector.act_with(handed)


def restore(trainer: Trainer) -> int:
    """Brings a new run to where its newest whole checkpoint was taken, also by another number of workers.

    Returns:
        the number of rows of metrics at that time.

    Raises:
        CheckpointError: there is nothing to go on from.
    """
    state, arrays, refused = trainer.checkpoints.restore()
    for line in refused:
        trainer.reporter.terminal.print(line)
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
    if not trainer.collector.restore(environments, arrays, actions):
        trainer.memory.end_episodes()
        trainer.checkpoints.rewrite_newest_chunk()
        trainer.returns[:] = 0.0
        trainer.reporter.terminal.print("The running episodes cannot be continued exactly; new ones begin.")
    trainer.reporter.terminal.print(f"Continuing {trainer.directory.path} from step {trainer.counters.env_steps}.")
    return state["rows"]
