"""Jobs on a Ray cluster: each runs a process on the machine that Ray chooses, and again where that machine is lost."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

from tfsac.distributed.ray_cluster import ClusterWatch

PATIENCE = 120.0  # seconds until what a lost machine locked is free
PR_SET_PDEATHSIG = 1
SECONDS_BETWEEN_LOOKS = 0.1  # at a process of this machine
SECONDS_OF_A_WAIT = 2.0  # for the end of a job, until the cluster is asked whether it is there
PRCTL = getattr(ctypes.CDLL(None), "prctl", None)  # Linux

# Starts the process of a job, which calls the given function first; returns None if there is nothing to do.
Start = Callable[[Callable[[], None]], "subprocess.Popen[bytes] | None"]


def job_capacity(ray: Any, cores: int) -> int:
    """Returns how many jobs with so many cores each a cluster can run at a time.

    Raises:
        ValueError: no machine of it has so many.
    """
    machines = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    if cores > max(machines):
        raise ValueError(
            f"A run has at most the cores of the largest machine of the cluster, {max(machines)}. Received: {cores}"
        )
    return sum(of_machine // cores for of_machine in machines)


class RayJob:
    """A process that a cluster runs, such as one of `tfsac train`; it is started again where its machine is lost.

    Args:
        ray: the package, connected.
        watch: of the same connection.
        name: of the job, for Ray.
        start: starts its process on any machine of the cluster, in the folder of this process. It raises
            BlockingIOError while another process does the job.
        cores: that Ray counts for it.

    Attributes:
        returncode: exit status of the process, once it is known.
    """

    def __init__(self, ray: Any, watch: ClusterWatch, name: str, start: Start, cores: int):
        self.ray, self.watch = ray, watch
        self.returncode: int | None = None
        task = ray.remote(_run).options(num_cpus=cores, max_retries=-1, name=name)
        self.reference = task.remote(start, os.getcwd(), PATIENCE)

    def poll(self) -> int | None:
        """Returns the exit status, or None while it runs.

        Raises:
            ConnectionError: the cluster is lost. Its machines have asked the process to save and end.
            OSError: `start` raised, as while another process does the job.
        """
        self.watch.check()
        if self.returncode is None and self.ray.wait([self.reference], timeout=0)[0]:
            self.returncode = self._status()
        return self.returncode

    def _status(self) -> Any:
        try:
            return self.ray.get(self.reference)
        except self.ray.exceptions.TaskCancelledError:  # before it began
            return -signal.SIGTERM
        except self.ray.exceptions.RayTaskError as error:
            self.returncode = 1  # so that nothing asks again
            raise error.cause from None

    def send_signal(self, number: int) -> None:
        """Asks the process to save and end; it gets SIGTERM, whichever signal it was."""
        if not self.watch.lost:
            self.ray.cancel(self.reference)

    def wait(self) -> Any:
        """Waits for the exit status."""
        while self.poll() is None:
            self.ray.wait([self.reference], timeout=SECONDS_OF_A_WAIT)
        return self.returncode


def _run(start: Start, folder: str, patience: float) -> int:
    """Runs a job's process on this machine and returns its exit status; what Ray calls."""
    asked: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))  # so Ray tells of a cancellation
    try:
        os.chdir(folder)
        process, end = None, time.monotonic() + patience
        while process is None:
            if asked:
                return -signal.SIGTERM
            try:
                process = start(end_with_parent)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
                time.sleep(SECONDS_BETWEEN_LOOKS)
                continue
            if process is None:  # another process has done it
                return 0
        passed_on = 0
        while True:
            for _ in asked[passed_on:]:
                passed_on += 1
                process.terminate()
            try:
                return process.wait(SECONDS_BETWEEN_LOOKS)
            except subprocess.TimeoutExpired:
                continue
    finally:
        signal.signal(signal.SIGINT, handler)


def end_with_parent() -> None:
    """Has this process save and end where the process that started it dies, such as a task, which Ray starts again
    elsewhere. On Linux.
    """
    if PRCTL is not None:
        PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)
