"""Ray: starts a cluster on this machine or connects to a running one, and runs jobs on it. Each job is a process on a
machine that Ray chooses, restarted elsewhere if that machine is lost. Loads no TensorFlow.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tfsac.errors import TfsacError

CONNECT_SECONDS = 5.0
SETTINGS_OF_RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
LOCK_TIMEOUT = 120.0  # seconds until the locks of a lost machine are free
PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.1  # between polls of a process on this machine
PRCTL = getattr(ctypes.CDLL(None), "prctl", None)  # Linux

P = TypeVar("P")  # a process, local or on the cluster
# Starts the process of a job, which calls the given function first; returns None if there is nothing to do.
Start = Callable[[Callable[[], None]], "subprocess.Popen[bytes] | None"]


@contextlib.contextmanager
def connect(address: str) -> Iterator[Any]:
    """Connects to a cluster and yields the `ray` module; then disconnects, and stops a cluster that "local" started.

    Tasks and actors import from the same folders as this process, so other machines need a shared file system. An
    existing connection of this process is used and kept.

    Args:
        address: "local" starts Ray on this machine, with all its cores; "auto" connects to the cluster running on it
            (or named by RAY_ADDRESS); "HOST:PORT" to that with this head node. The cluster must include this machine.
    """
    for name, value in SETTINGS_OF_RAY.items():
        os.environ.setdefault(name, value)
    # Ray listens on all interfaces and runs any code sent to it. It reads this variable at import.
    if address == "local" and "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        import ray
    except ImportError as error:
        raise TfsacError("Ray is needed: pip install 'tfsac[ray]'") from error
    if ray.is_initialized():
        yield ray
        return
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", address)
    if ":" in address:  # Ray itself retries for minutes, then ends the process
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            raise TfsacError(f"No Ray answers at {address} ({error})") from error
    handler = signal.getsignal(signal.SIGTERM)
    started: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(
            address=address,
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}},
            log_to_driver=False,
            logging_level=logging.ERROR,
            **started,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise TfsacError(f"Ray cannot connect to {address!r}: {error}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray replaced it
    try:
        yield ray
    finally:
        ray.shutdown()


def job_capacity(ray: Any, cores: int) -> int:
    """Returns how many jobs with this many cores each a cluster can run at once; raises TfsacError if none of its
    machines has enough.
    """
    machines = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    if cores > max(machines):
        raise TfsacError(f"--cpus_per_run must be <= {max(machines)}, the cores of the largest machine, got {cores}")
    return sum(of_machine // cores for of_machine in machines)


class RayJob:
    """A process on a cluster, such as one of `tfsac train`; it is restarted if its machine is lost.

    Args:
        ray: the `ray` module, connected.
        name: of the job, for Ray.
        start: starts the process on any machine of the cluster, in this process's working directory. It raises
            BlockingIOError while another process does the job.
        cores: number of cores that Ray reserves for it.

    Attributes:
        returncode: exit status of the process, once it is known.
    """

    def __init__(self, ray: Any, name: str, start: Start, cores: int):
        self.ray = ray
        self.returncode: int | None = None
        task = ray.remote(_run).options(num_cpus=cores, max_retries=-1, name=name)
        self.reference = task.remote(start, os.getcwd())

    def poll(self) -> int | None:
        """Returns the exit status, or None while it runs; raises what `start` raised."""
        if self.returncode is None and self.ray.wait([self.reference], timeout=0)[0]:
            try:
                self.returncode = self.ray.get(self.reference)
            except self.ray.exceptions.TaskCancelledError:  # before it started
                self.returncode = -signal.SIGTERM
            except self.ray.exceptions.RayTaskError as error:
                self.returncode = 1
                raise error.cause from None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Makes the process save and exit; it receives SIGTERM, whatever the signal."""
        self.ray.cancel(self.reference)


def _run(start: Start, folder: str) -> int:
    """Runs a job's process on this machine and returns its exit status; called by Ray."""
    os.chdir(folder)
    cancelled = threading.Event()
    signal.signal(signal.SIGINT, lambda number, frame: cancelled.set())  # so Ray reports a cancellation
    process = start_when_free(lambda: start(end_with_parent), cancelled.is_set)
    while process is not None and process.poll() is None:
        if cancelled.wait(POLL_SECONDS):
            process.terminate()
            return process.wait()
    if process is not None:
        return process.returncode
    return -signal.SIGTERM if cancelled.is_set() else 0  # 0: another process did the job


def start_when_free(start: Callable[[], P | None], cancelled: Callable[[], bool]) -> P | None:
    """Starts a process once no other one trains its run; one left by a killed series does so until it has saved.
    Returns None if there is nothing to do, or the job was cancelled first.
    """
    end = time.monotonic() + LOCK_TIMEOUT
    while not cancelled():
        try:
            return start()
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(POLL_SECONDS)
    return None


def end_with_parent() -> None:
    """Makes this process save and exit if its parent process dies, such as a task that Ray restarts elsewhere. Linux
    only.
    """
    if PRCTL is not None:
        PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)
