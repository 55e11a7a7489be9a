"""SIGTERM, SIGHUP and Ctrl-C stop a run after the current step rather than in the middle of one."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Self

from tfsac.utils.machine import ending_signals

SIGNAL_HINT = b"tfsac: the run is saved and ends after this step or evaluation; a later signal acts at once\n"
SAME_EVENT = 1.0  # seconds: a shell that ends and the kernel each send SIGHUP, a scheduler and a sweep each SIGTERM


class StopSignals(contextlib.ExitStack):
    """While entered, the first of `ending_signals` sets `received`; a second one, later, gets its previous handler."""

    received: int | None = None
    received_at = float("-inf")

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python handles signals only here
            for number in ending_signals():
                self.callback(signal.signal, number, signal.signal(number, self._remember))
        return super().__enter__()

    def _remember(self, number: int, frame: object) -> None:
        if self.received is None:
            self.received, self.received_at = number, time.monotonic()
            with contextlib.suppress(OSError):  # the terminal was closed
                os.write(2, SIGNAL_HINT)
        elif time.monotonic() - self.received_at > SAME_EVENT:
            self.close()
            signal.raise_signal(number)
