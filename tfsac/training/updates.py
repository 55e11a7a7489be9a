"""Changes of an agent: compiled updates, made directly or in a thread while the collector acts, and resets."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from tfsac.agents import Agent
from tfsac.memories import EpisodicMemory, TransitionMemory
from tfsac.random_streams import Stream
from tfsac.training.collection import Collector
from tfsac.types import Batches, UpdateResult

PRIORITY = "updates/priority"  # array of a checkpoint


class Updates:
    """Passes batches to an agent, and its results to the memory (priorities) and the collector (weights).

    If `asynchronous`, a thread computes while the caller acts. A result takes effect only when `finish` is called, so
    that a run does not depend on the speed of the thread.

    Attributes:
        on_result: called in the caller's thread with each batch and its result, when the caller waits for the result.
        pending: a computed result that has not yet taken effect; part of a checkpoint, which `on_result` may write.
    """

    def __init__(
        self,
        agent: Agent,
        memory: TransitionMemory | EpisodicMemory,
        collector: Collector,
        on_result: Callable[[Batches, UpdateResult], None],
        asynchronous: bool = False,
    ):
        self.agent, self.memory, self.collector, self.on_result = agent, memory, collector, on_result
        self.thread = ThreadPoolExecutor(1, "updates") if asynchronous else None
        self.running: tuple[Batches, Future[UpdateResult]] | None = None
        self.pending: UpdateResult | None = None

    def start(self, batch: Batches) -> None:
        """Learns from stacked batches `[U, B, ...]` in the thread; the previous call must have taken effect."""
        assert self.thread and not self.running
        self.running = batch, self.thread.submit(self.agent.update, batch)

    def take(self, batch: Batches, result: UpdateResult) -> None:
        """Applies a result that was computed directly."""
        self.pending = result
        self.on_result(batch, result)
        self.finish()

    def wait(self) -> None:
        """Waits for the running call without applying its result; raises the update's exception, also when called
        again.
        """
        if self.running:
            batch, future = self.running
            self.pending = future.result()
            self.running = None  # before hooks, which may save or evaluate and so wait again
            self.on_result(batch, self.pending)

    def finish(self) -> None:
        """Waits for the running call and applies its result."""
        self.wait()
        if self.pending is not None:
            result, self.pending = self.pending, None
            if result.priority.size:
                prioritized: Any = self.memory
                prioritized.update_priorities(result.priority)
            self.collector.sync_from(self.agent.policy, result.actor_weights)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays of a pending result for a checkpoint, without its weights, which are the agent's."""
        return {PRIORITY: self.pending.priority} if self.pending else {}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores the arrays from `arrays`; ignores other arrays."""
        if PRIORITY in arrays:  # its metrics were already reported
            self.pending = UpdateResult(np.zeros((0, 0), np.float32), arrays[PRIORITY], None, np.zeros((0, 0), bool))

    def close(self) -> None:
        """Waits for the thread to end; drops a result that was not retrieved."""
        if self.thread:
            self.thread.shutdown()


class Resets:
    """Reinitialises an agent's networks, target networks, temperatures and optimizers at given environment steps, and
    keeps the memory (Nikishin et al. 2022, arXiv 2205.07802; Nauman et al. 2024, arXiv 2405.16158).

    The update count, the noise seed and the random numbers for acting are kept too. The agent's checkpoint contains the
    number of the last reset. `make_agent` returns an agent of the same kind with the initial weights of a seed.
    """

    def __init__(self, agent: Agent, steps: Sequence[int], make_agent: Callable[[int], Agent], seed: int):
        self.agent, self.steps, self.make_agent, self.seed = agent, steps, make_agent, seed
        self.num_resets: int | None = None

    def pending(self, env_steps: int) -> int:
        """Returns the number of the pending reset, from 1 on, or 0; if a step passes several, the last one."""
        number = bisect.bisect_right(self.steps, env_steps)
        if number and self.num_resets is None:  # reading a variable in every step takes 0.1 ms
            self.num_resets = int(self.agent.resets.numpy())
        return number if number > (self.num_resets or 0) else 0

    def reset(self, number: int) -> None:
        """Makes a reset; its number determines the seed."""
        agent = self.agent
        fresh = self.make_agent(int(np.random.default_rng([self.seed, Stream.RESETTING, number]).integers(2**31)))
        pairs = [(agent.policy.variables[name], value) for name, value in fresh.policy.variables.items()]
        for name, network in agent.networks.items():  # including running statistics, which are not trained
            pairs += zip(network.model.variables, fresh.networks[name].model.variables, strict=True)
        for name, optimizer in agent.optimizers.items():  # including temperatures, which are not networks
            pairs += zip(agent.trained[name], fresh.trained[name], strict=True)
            pairs += zip(optimizer.variables, fresh.optimizers[name].variables, strict=True)
        for variable, value in pairs:
            variable.assign(value.numpy())
        if agent.policy_average:
            agent.policy_average.restart()
        agent.resets.assign(number)
        self.num_resets = number
        agent.policy.refresh()
