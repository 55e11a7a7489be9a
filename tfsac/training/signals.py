"""SIGTERM and Ctrl-C end a run after the current step instead of in the middle of one."""

from __future__ import annotations

import signal
import threading
from typing import Any


class StopSignals:
    """While entered, remembers the first SIGTERM or SIGINT in `received`; a second one acts as usual."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.previous: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # Python handles signals nowhere else
            self.previous = {number: signal.signal(number, self._remember) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def _remember(self, number: int, frame: object) -> None:
        self.received = number
        self._give_back()

    def _give_back(self) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
        self.previous = {}

    def __exit__(self, *error: object) -> None:
        self._give_back()
