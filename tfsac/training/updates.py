"""Compiled updates, made at once or beside the playing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tfsac.agents import Agent
from tfsac.types import Batch, UpdateResult


class Updates:
    """Hands batches to an agent and its results on.

    Args:
        agent: that learns.
        finished: called in the thread of the caller with each batch and its result.
        beside: compute in a thread of its own, so that the caller can play meanwhile. The result of a call is taken when
            the next one begins, never earlier, so that a run does not depend on how fast the thread is.
    """

    def __init__(self, agent: Agent, finished: Callable[[Batch, UpdateResult], None], beside: bool = False):
        self.agent, self.finished = agent, finished
        self.thread = ThreadPoolExecutor(1, "updates") if beside else None
        self.running: tuple[Batch, Future[UpdateResult]] | None = None

    @property
    def underway(self) -> int:
        """Number of updates whose result was not taken yet."""
        return len(self.running[0].reward) if self.running else 0

    def start(self, batch: Batch) -> None:
        """Learns from stacked batches `[U, B, ...]`; what was begun before is over."""
        self.finish()
        if self.thread is None:
            self.finished(batch, self.agent.update(batch))
        else:
            self.running = batch, self.thread.submit(self.agent.update, batch)

    def finish(self) -> None:
        """Waits for what is underway and takes its result.

        Raises:
            Exception: what the update raised.
        """
        if self.running:
            (batch, future), self.running = self.running, None
            self.finished(batch, future.result())

    def close(self) -> None:
        """Waits for the thread to end; a result that nobody took is dropped."""
        if self.thread:
            self.thread.shutdown()
