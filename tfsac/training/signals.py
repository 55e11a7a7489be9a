"""SIGTERM, SIGHUP and Ctrl-C end a run after the current step instead of in the middle of one."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any

from tfsac.utils.machine import ending_signals

SIGNAL_HINT = b"tfsac: the run is saved and ends after this step or evaluation; a second signal acts at once\n"


class StopSignals:
    """While entered, the first of `ending_signals` sets `received`; those after it act as they did before."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.previous: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # Python handles signals nowhere else
            self.previous = {number: signal.signal(number, self._remember) for number in ending_signals()}
        return self

    def _remember(self, number: int, frame: object) -> None:
        self.received = self.received or number
        self._restore()
        with contextlib.suppress(OSError):  # a terminal that was closed
            os.write(2, SIGNAL_HINT)

    def _restore(self) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
        self.previous = {}

    def interrupt(self) -> None:
        """Takes a KeyboardInterrupt, such as one that an environment's own handler raised, as a signal to stop."""
        self.received = self.received or signal.SIGINT

    def __exit__(self, *error: object) -> None:
        self._restore()
