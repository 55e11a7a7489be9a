"""Compiled updates, made at once or in a thread of their own while the collector acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from tfsac.agents import Agent
from tfsac.types import Batches, UpdateResult

PRIORITY = "updates/priority"  # array of a checkpoint


class Updates:
    """Hands batches to an agent, and its results to the rest of the run.

    Args:
        agent: that learns.
        computed: called in the thread of the caller with each batch and its result, as soon as someone waits for it.
        apply: called with each result when it takes effect: on the priorities of the memory, and on who acts.
        asynchronous: compute in a thread of its own, so that the caller can act meanwhile. A result takes effect when
            the next call begins, never earlier, so that a run does not depend on how fast the thread is, or on who
            waits for it.

    Attributes:
        pending: the result that was computed and does not take effect yet; part of a checkpoint, which `computed` may
            write.
    """

    def __init__(
        self,
        agent: Agent,
        computed: Callable[[Batches, UpdateResult], None],
        apply: Callable[[UpdateResult], None],
        asynchronous: bool = False,
    ):
        self.agent, self.computed, self.apply = agent, computed, apply
        self.thread = ThreadPoolExecutor(1, "updates") if asynchronous else None
        self.running: tuple[Batches, Future[UpdateResult]] | None = None
        self.pending: UpdateResult | None = None

    def start(self, batch: Batches) -> None:
        """Learns from stacked batches `[U, B, ...]`, after the call before is over and has taken effect."""
        self.finish()
        if self.thread is None:
            self.pending = self.agent.update(batch)
            self.computed(batch, self.pending)
            self.finish()
            return
        self.running = batch, self.thread.submit(self.agent.update, batch)

    def wait(self) -> None:
        """Waits for the call that is running, whose result does not take effect yet.

        Raises:
            Exception: what the update raised.
        """
        if self.running:
            (batch, future), self.running = self.running, None
            self.pending = future.result()
            self.computed(batch, self.pending)

    def finish(self) -> None:
        """Waits for the call that is running and lets its result take effect.

        Raises:
            Exception: what the update raised.
        """
        self.wait()
        if self.pending is not None:
            result, self.pending = self.pending, None
            self.apply(result)

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
