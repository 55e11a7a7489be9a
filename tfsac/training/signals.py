"""SIGTERM, SIGHUP and Ctrl-C end a run after the current step instead of in the middle of one; the second one ends it
at once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

from tfsac.utils.machine import SIGNALLED, ending_signals

SECONDS_OF_SILENCE, SECONDS_BETWEEN_LOOKS = 2.0, 0.1
SIGNAL_HINT = b"tfsac: the run is saved and ends after this step or evaluation; a second signal ends it at once\n"
SHOW_CURSOR = b"\x1b[?25h"  # which the progress bar hides


class StopSignals:
    """While entered, remembers the first of `ending_signals` in `received`; the second one ends the process and its
    children at once.

    A thread waits for the second one, because Python's handlers run in the main thread, which may hang in TensorFlow's
    code or in an environment's. In a notebook, whose process has more than this run, the second one raises
    KeyboardInterrupt.

    The middleware of a robot or a simulator may install handlers of its own while the run trains. The thread notices
    a signal whoever handles it, and `keep` puts the run's handlers back; they call the others.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.interrupted, self.kept = False, 0.0
        self.previous: dict[int, Any] = {}
        self.replaced: dict[int, Any] = {}  # handlers that were installed during the run
        self.in_notebook = "ipykernel" in sys.modules
        self.wakeup: socket.socket | None = None

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # Python handles signals nowhere else
            self.previous = {number: signal.signal(number, self._remember) for number in ending_signals()}
            if not self.in_notebook:
                heard, self.wakeup = socket.socketpair()
                self.wakeup.setblocking(False)
                self.earlier = signal.set_wakeup_fd(self.wakeup.fileno(), warn_on_full_buffer=False)
                threading.Thread(target=self._end_at_the_second, args=(heard,), name="signals", daemon=True).start()
        return self

    def _remember(self, number: int, frame: object) -> None:
        if self.received and self.in_notebook:
            raise KeyboardInterrupt
        self.received = self.received or number
        if callable(replaced := self.replaced.pop(number, None)):  # which may call this one in turn
            with contextlib.suppress(KeyboardInterrupt, SystemExit):  # the run ends where it can be saved
                replaced(number, frame)

    def keep(self) -> None:
        """Puts the handlers back that something else has replaced, and the file descriptor that wakes the thread; not
        in every step, which would take tens of microseconds.
        """
        if time.monotonic() < self.kept + SECONDS_BETWEEN_LOOKS:
            return
        self.kept = time.monotonic()
        for number in self.previous:
            if (found := signal.getsignal(number)) != self._remember:
                self.replaced[number] = found
                signal.signal(number, self._remember)
        if self.wakeup:
            signal.set_wakeup_fd(self.wakeup.fileno(), warn_on_full_buffer=False)

    def interrupt(self) -> None:
        """Takes a KeyboardInterrupt that was raised, such as by a callback, for the first Ctrl-C; raises the second."""
        if self.interrupted or (self.received and self.in_notebook):
            raise KeyboardInterrupt
        self.interrupted, self.received = True, self.received or signal.SIGINT

    def _end_at_the_second(self, heard: socket.socket) -> None:
        numbers, silent = list[int](), True
        with heard:
            while len(numbers) < 2:
                try:
                    arrived = heard.recv(16)
                except TimeoutError:
                    os.write(2, SIGNAL_HINT)
                    arrived, silent = b" ", False
                if not arrived:
                    return
                numbers += [number for number in arrived if number in self.previous]
                if numbers:
                    self.received = self.received or numbers[0]
                heard.settimeout(SECONDS_OF_SILENCE if numbers and silent else None)
        for child in multiprocessing.active_children():
            with contextlib.suppress(OSError):
                child.kill()
        if os.isatty(1):
            os.write(1, SHOW_CURSOR)
        os._exit(SIGNALLED + numbers[1])

    def __exit__(self, *error: object) -> None:
        if not self.previous:
            return
        for number, handler in self.previous.items():
            signal.signal(number, handler)
        self.previous, self.replaced = {}, {}
        if self.wakeup:
            signal.set_wakeup_fd(self.earlier)
            self.wakeup.close()  # ends the thread
