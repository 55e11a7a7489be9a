"""One step of a run: act in every environment, store it, count it, and agree with other workers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from tfsac.memories import EpisodicMemory
from tfsac.parameters import EnvironmentEpisodes
from tfsac.training.failures import writing
from tfsac.types import Step

if TYPE_CHECKING:
    from tfsac.training.trainer import Trainer

OBSERVED = "observation/"


def play(trainer: Trainer) -> None:
    """Acts once in every environment and stores the steps.

    Args:
        trainer: of the run.

    Raises:
        EnvironmentFailure: an environment raised; nothing was stored.
        OSError: TensorBoard's events cannot be written.
    """
    step = trainer.collector.play(random_until(trainer), trainer.counters.env_steps)
    trainer.memory.add(
        step.observation, step.action, step.reward, step.terminated, step.truncated, step.next_observation, step.extras
    )
    trainer.returns += step.reward if step.reward.ndim == 1 else step.reward.sum(axis=1)
    _count(trainer, step)
    trainer.returns[step.ended] = 0.0
    heatup = trainer.schedule.heatup_steps
    if trainer.heating_up and trainer.counters.of(heatup) >= heatup.num_steps:
        trainer.heating_up, trainer.heatup_end = False, dataclasses.replace(trainer.counters)


def _count(trainer: Trainer, step: Step) -> None:
    """Brings counters, statistics and agreements up to date with a step of every worker."""
    code, memory, filters = trainer.signals.received or (-1 if trainer.stop_reason else 0), trainer.memory, trainer.filters
    complete = isinstance(memory, EpisodicMemory) and memory.rollout_complete
    own = {"ended": step.ended, "return": trainer.returns, "length": step.length, "reward": step.reward}
    own["flags"] = np.array([[code, memory.ready, complete]])
    seen = trainer.workers.gather({**own, **{OBSERVED + key: step.following[key] for key in filters.mean}})
    filters.learn({key: seen[OBSERVED + key] for key in filters.mean})
    filters.learn_reward(seen["reward"])
    trainer.counters.env_steps += len(seen["ended"])
    for i in np.flatnonzero(seen["ended"]):
        with writing(trainer):
            trainer.reporter.add_episode(trainer.counters, float(seen["return"][i]), int(seen["length"][i]))
        trainer.counters.episodes += 1
    codes, ready, complete = seen["flags"].T
    trainer.ready, trainer.rollout_complete = bool(ready.all()), bool(complete.any())
    if codes.any():
        trainer.stopped, received = True, int(codes.max())
        trainer.stop_reason = trainer.stop_reason or "another worker stopped"
        trainer.signals.received = received if received > 0 else None


def random_until(trainer: Trainer) -> float:
    """Returns environment steps before which actions are random: the heat-up's, or as many as the schedule says.

    Args:
        trainer: of the run.
    """
    steps, heatup = trainer.schedule.random_action_steps, trainer.schedule.heatup_steps
    if steps is None and isinstance(heatup, EnvironmentEpisodes):
        return np.inf if trainer.heating_up else 0
    return heatup.num_steps if steps is None else steps
