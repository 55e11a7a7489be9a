"""The runs of a sweep as tasks of a Ray cluster, each a process of `tfsac train` in a folder that all machines share."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from tfsac.distributed.ray_cluster import ClusterWatch
from tfsac.experiments import sweep
from tfsac.experiments.sweep import SECONDS_BETWEEN_LOOKS, Run

PATIENCE = 120.0  # seconds until what a lost machine locked is free
PR_SET_PDEATHSIG = 1
SECONDS_OF_A_WAIT = 2.0  # for the end of a run, until the cluster is asked whether it is there
PRCTL = getattr(ctypes.CDLL(None), "prctl", None)  # Linux


def jobs_of(ray: Any, cores: int) -> int:
    """Returns how many runs with so many cores each a cluster can train at a time.

    Raises:
        ValueError: no machine of it has so many.
    """
    machines = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    if cores > max(machines):
        raise ValueError(f"A run has at most the cores of the largest machine of the cluster, {max(machines)}. Received: {cores}")
    return sum(of_machine // cores for of_machine in machines)


class RayProcess:
    """A run that a cluster trains: it is started again, and resumed, where its machine is lost.

    Args:
        ray: the package, connected.
        watch: of the same connection.
        run: of a sweep in a folder that all machines have at the same place.
        cores: that Ray counts for it.
    """

    def __init__(self, ray: Any, watch: ClusterWatch, run: Run, cores: int):
        self.ray, self.watch = ray, watch
        self.returncode: int | None = None
        task = ray.remote(_train).options(num_cpus=cores, max_retries=-1, name=f"train {run.path}")
        self.reference = task.remote(run._replace(path=run.path.absolute()), sweep.TRAIN[1:], cores, os.getcwd(), PATIENCE)

    def poll(self) -> int | None:
        """Returns the exit status, or None while it runs.

        Raises:
            ConnectionError: the cluster is lost. Its machines have asked the run to save and end.
            OSError: another process is training it, or its log cannot be written.
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
        """Asks the run to save and end; it gets SIGTERM, whichever signal it was."""
        if not self.watch.lost:
            self.ray.cancel(self.reference)

    def wait(self) -> Any:
        """Waits for the exit status."""
        while self.poll() is None:
            self.ray.wait([self.reference], timeout=SECONDS_OF_A_WAIT)
        return self.returncode


def _train(run: Run, train: Sequence[str], cores: int, folder: str, patience: float) -> int:
    """Trains a run on this machine and returns its exit status; what Ray calls."""
    asked: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))  # so Ray tells of a cancellation
    try:
        os.chdir(folder)
        process, end = None, time.monotonic() + patience
        while process is None:
            if asked:
                return -signal.SIGTERM
            try:
                process = run.start(cores, [sys.executable, *train], _end_with_parent)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
                time.sleep(SECONDS_BETWEEN_LOOKS)
                continue
            if process is None:  # another process has finished it
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


def _end_with_parent() -> None:
    """Has this process saved and ended where the task that started it dies, for Ray begins that task again elsewhere."""
    if PRCTL is not None:
        PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)
