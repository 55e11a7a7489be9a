"""Compiled updates, made at once or in a thread while the collector acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from tfsac.agents import Agent
from tfsac.memories import EpisodicMemory, TransitionMemory
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

    def learn(self, batch: Batches) -> None:
        """Learns from stacked batches `[U, B, ...]`: at once, or in the thread after the call before took effect."""
        self.finish()
        if self.thread:
            self.running = batch, self.thread.submit(self.agent.update, batch)
        else:
            self.pending = self.agent.update(batch)
            self.on_result(batch, self.pending)
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
