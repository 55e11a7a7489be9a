"""SIGTERM, SIGHUP and Ctrl-C stop a run after the current step rather than in the middle of one."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Self

from tfsac.utils.machine import ending_signals

SIGNAL_HINT = b"tfsac: the run is saved and ends after this step or evaluation; a second signal acts at once\n"


class StopSignals(contextlib.ExitStack):
    """While entered, the first of `ending_signals` sets `received`; later ones get their previous handlers."""

    received: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python handles signals only here
            for number in ending_signals():
                self.callback(signal.signal, number, signal.signal(number, self._remember))
        return super().__enter__()

    def _remember(self, number: int, frame: object) -> None:
        self.received = self.received or number
        self.close()
        with contextlib.suppress(OSError):  # the terminal was closed
            os.write(2, SIGNAL_HINT)
