"""Compiled updates, made at once or while the collector plays."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tfsac.agents import Agent
from tfsac.types import Batch, UpdateResult

WARM_UP, TRIALS, PERIOD = 2, 60, 2000  # calls: not timed at first, to compare both ways, until they are compared again
WORTH = 0.97  # of the time at once: below it a thread is faster than chance makes it seem


class Updates:
    """Hands batches to an agent, and its results to the rest of the run.

    Args:
        agent: that learns.
        computed: called in the thread of the caller with each batch and its result, as soon as someone waits for it.
        apply: called with each result when it takes effect: on the priorities of the memory, and on who acts.
        beside: compute in a thread of its own, so that the caller can play meanwhile. A result takes effect when the next call
            begins, never earlier, so that a run does not depend on how fast the thread is, or on who waits for it. Where waking
            a thread costs more than there is to play, calls are computed at once; their results take effect as late.

    Attributes:
        pending: the result that was computed and takes effect when the next call begins; part of a checkpoint.
    """

    def __init__(
        self,
        agent: Agent,
        computed: Callable[[Batch, UpdateResult], None],
        apply: Callable[[UpdateResult], None],
        beside: bool = False,
    ):
        self.agent, self.computed, self.apply = agent, computed, apply
        self.thread = ThreadPoolExecutor(1, "updates") if beside else None
        self.running: tuple[Batch, Future[UpdateResult]] | None = None
        self.pending: UpdateResult | None = None
        self.calls, self.began, self.in_thread = 0, 0.0, True
        self.seconds: dict[bool, list[float]] = {True: [], False: []}  # from one call to the next, in a thread or at once

    def start(self, batch: Batch) -> None:
        """Learns from stacked batches `[U, B, ...]`, after the call before is over and has taken effect."""
        self.finish()
        if self.thread is None:
            result = self.agent.update(batch)
            self.computed(batch, result)
            self.apply(result)
            return
        self._choose()
        if self.in_thread:
            self.running = batch, self.thread.submit(self.agent.update, batch)
            return
        done: Future[UpdateResult] = Future()
        try:
            done.set_result(self.agent.update(batch))
        except Exception as error:
            done.set_exception(error)
        self.running = batch, done

    def _choose(self) -> None:
        """Tries both ways in turn for some calls, and then goes on in the faster one."""
        now, turn = time.perf_counter(), self.calls % PERIOD - WARM_UP
        if 0 < turn <= TRIALS:
            self.seconds[self.in_thread].append(now - self.began)
        if turn < TRIALS:
            self.in_thread = turn % 2 == 0
        elif turn == TRIALS:
            self.in_thread = statistics.median(self.seconds[True]) < WORTH * statistics.median(self.seconds[False])
            self.seconds = {True: [], False: []}
        self.calls, self.began = self.calls + 1, now

    def wait(self) -> None:
        """Waits for the call that is running, whose result does not take effect yet.

        Raises:
            Exception: what the update raised.
        """
        if self.running:
            (batch, future), self.running = self.running, None
            result = future.result()
            self.computed(batch, result)
            self.pending = result

    def finish(self) -> None:
        """Waits for the call that is running and lets its result take effect.

        Raises:
            Exception: what the update raised.
        """
        self.wait()
        if self.pending is not None:
            result, self.pending = self.pending, None
            self.apply(result)

    def close(self) -> None:
        """Waits for the thread to end; a result that nobody waited for is dropped."""
        if self.thread:
            self.thread.shutdown()
