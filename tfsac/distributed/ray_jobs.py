"""Jobs on a Ray cluster: each runs a process on the machine that Ray chooses, and again where that machine is lost."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from tfsac.errors import TfsacError

LOCK_TIMEOUT = 120.0  # seconds until what a lost machine locked is free
PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.1  # at a process of this machine
PRCTL = getattr(ctypes.CDLL(None), "prctl", None)  # Linux

# Starts the process of a job, which calls the given function first; returns None if there is nothing to do.
Start = Callable[[Callable[[], None]], "subprocess.Popen[bytes] | None"]


def job_capacity(ray: Any, cores: int) -> int:
    """Returns how many jobs with so many cores each a cluster can run at a time; raises TfsacError where no machine of
    it has so many.
    """
    machines = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    if cores > max(machines):
        raise TfsacError(f"--cpus_per_run must be <= {max(machines)}, the cores of the largest machine, got {cores}")
    return sum(of_machine // cores for of_machine in machines)


class RayJob:
    """A process that a cluster runs, such as one of `tfsac train`; it is started again where its machine is lost.

    Args:
        ray: the package, connected.
        name: of the job, for Ray.
        start: starts its process on any machine of the cluster, in the folder of this process. It raises
            BlockingIOError while another process does the job.
        cores: that Ray counts for it.

    Attributes:
        returncode: exit status of the process, once it is known.
    """

    def __init__(self, ray: Any, name: str, start: Start, cores: int):
        self.ray = ray
        self.returncode: int | None = None
        task = ray.remote(_run).options(num_cpus=cores, max_retries=-1, name=name)
        self.reference = task.remote(start, os.getcwd(), LOCK_TIMEOUT)

    def poll(self, seconds: float | None = 0.0) -> int | None:
        """Returns the exit status, or None while it runs for so many seconds more; raises what `start` raised."""
        if self.returncode is None and self.ray.wait([self.reference], timeout=seconds)[0]:
            try:
                self.returncode = self.ray.get(self.reference)
            except self.ray.exceptions.TaskCancelledError:  # before it began
                self.returncode = -signal.SIGTERM
            except self.ray.exceptions.RayTaskError as error:
                self.returncode = 1
                raise error.cause from None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Has the process save and end; it gets SIGTERM, whichever signal it was."""
        self.ray.cancel(self.reference)

    def wait(self) -> Any:
        """Waits for the exit status."""
        return self.poll(None)


def _run(start: Start, folder: str, lock_timeout: float) -> int:
    """Runs a job's process on this machine and returns its exit status; what Ray calls."""
    cancelled = threading.Event()
    handler = signal.signal(signal.SIGINT, lambda number, frame: cancelled.set())  # so Ray reports a cancellation
    try:
        os.chdir(folder)
        end = time.monotonic() + lock_timeout
        while not cancelled.is_set():
            try:
                process = start(end_with_parent)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
                time.sleep(POLL_SECONDS)
        else:
            return -signal.SIGTERM
        if process is None:  # another process has done it
            return 0
        while (status := process.poll()) is None:
            if cancelled.is_set():
                process.terminate()
                return process.wait()
            time.sleep(POLL_SECONDS)
        return status
    finally:
        signal.signal(signal.SIGINT, handler)


def end_with_parent() -> None:
    """Has this process save and end where the process that started it dies, such as a task, which Ray starts again
    elsewhere. On Linux.
    """
    if PRCTL is not None:
        PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)
