"""What changes an agent: compiled updates, made at once or in a thread while the collector acts, and resets."""

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
    """Hands batches to an agent, and its results to the memory (priorities) and to the collector (weights).

    If `asynchronous`, a thread computes while the caller acts. A result takes effect when `finish` is called, never
    earlier, so that a run does not depend on how fast the thread is.

    Attributes:
        on_result: called in the thread of the caller with each batch and its result, as soon as someone waits for it.
        pending: the result that was computed and does not take effect yet; part of a checkpoint, which `on_result` may
            write.
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
        """Learns from stacked batches `[U, B, ...]` in the thread; the call before must have taken effect."""
        assert self.thread and not self.running
        self.running = batch, self.thread.submit(self.agent.update, batch)

    def take(self, batch: Batches, result: UpdateResult) -> None:
        """Lets a result take effect that was computed at once."""
        self.pending = result
        self.on_result(batch, result)
        self.finish()

    def wait(self) -> None:
        """Waits for the call that is running, whose result does not take effect yet; raises what the update raised,
        also when it is called again.
        """
        if self.running:
            batch, future = self.running
            self.pending = future.result()
            self.running = None  # before a hook that saves or evaluates, and so waits again
            self.on_result(batch, self.pending)

    def finish(self) -> None:
        """Waits for the call that is running and lets its result take effect."""
        self.wait()
        if self.pending is not None:
            result, self.pending = self.pending, None
            if result.priority.size:
                prioritized: Any = self.memory
                prioritized.update_priorities(result.priority)
            self.collector.sync_from(self.agent.policy, result.actor_weights)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns what a checkpoint keeps of a result that does not take effect yet; its weights are the agent's."""
        return {PRIORITY: self.pending.priority} if self.pending else {}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Takes what `arrays` returned, from among other arrays."""
        if PRIORITY in arrays:  # its metrics were reported
            self.pending = UpdateResult(np.zeros((0, 0), np.float32), arrays[PRIORITY], None, np.zeros((0, 0), bool))

    def close(self) -> None:
        """Waits for the thread to end; a result that nobody waited for is dropped."""
        if self.thread:
            self.thread.shutdown()


class Resets:
    """Gives an agent fresh networks, target networks, temperatures and optimizers at given environment steps, while the
    memory stays (Nikishin et al. 2022, arXiv 2205.07802; Nauman et al. 2024, arXiv 2405.16158).

    The number of updates that were made, the seed of the noise and acting's random numbers stay. The agent's checkpoint
    holds the number of the last reset. `make_agent` makes an agent of the same kind with the first weights of a seed.
    """

    def __init__(self, agent: Agent, steps: Sequence[int], make_agent: Callable[[int], Agent], seed: int):
        self.agent, self.steps, self.make_agent, self.seed = agent, steps, make_agent, seed
        self.num_resets: int | None = None

    def pending(self, env_steps: int) -> int:
        """Returns the number of the reset to make, from 1 on, or 0; the last one stands for all that a step passes."""
        number = bisect.bisect_right(self.steps, env_steps)
        if number and self.num_resets is None:  # reading a variable in every step takes 0.1 ms
            self.num_resets = int(self.agent.resets.numpy())
        return number if number > (self.num_resets or 0) else 0

    def reset(self, number: int) -> None:
        """Makes a reset; its seed comes of the number."""
        agent = self.agent
        fresh = self.make_agent(int(np.random.default_rng([self.seed, Stream.RESETTING, number]).integers(2**31)))
        pairs = [(agent.policy.variables[name], value) for name, value in fresh.policy.variables.items()]
        for name, network in agent.networks.items():  # running statistics too, which nothing trains
            pairs += zip(network.model.variables, fresh.networks[name].model.variables, strict=True)
        for name, optimizer in agent.optimizers.items():  # and temperatures, which are no networks
            pairs += zip(agent.trained[name], fresh.trained[name], strict=True)
            pairs += zip(optimizer.variables, fresh.optimizers[name].variables, strict=True)
        for variable, value in pairs:
            variable.assign(value.numpy())
        agent.resets.assign(number)
        self.num_resets = number
        agent.policy.refresh()
