"""Waits for all workers of a run before TensorFlow connects them, which would wait without end or a word."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

from tfsac.distributed.tf_config import WorkerTask
from tfsac.errors import TfsacError

TIMEOUT = 300.0  # seconds, for the other workers to start
SECONDS_BETWEEN_REPORTS = 10.0


def wait_for_workers(task: WorkerTask, report: Callable[[str], None], timeout: float = TIMEOUT) -> None:
    """Returns when every worker of a run has reached every other one.

    Each worker listens at its own port, which is free for TensorFlow afterwards, and sends the others its index.
    `report` gets a line that names the missing workers, every ten seconds. Raises TfsacError where a worker does not
    start within the timeout, in seconds, and OSError where this one cannot listen at its port.
    """
    other_workers = set(range(task.num_workers)) - {task.index}
    connected, reached = set[int](), set[int]()
    start = reported = time.monotonic()
    with socket.create_server(("", _host_and_port(task.addresses[task.index])[1])) as server:
        server.settimeout(0.1)
        while missing := other_workers - (connected & reached):
            for worker in other_workers - reached:
                with contextlib.suppress(OSError):
                    _send(task.addresses[worker], task.index)
                    reached.add(worker)
            with contextlib.suppress(OSError, ValueError):  # what other programs send
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(1.0)
                    connected.add(int(connection.recv(16)))
            now = time.monotonic()
            names = ", ".join(f"{worker} ({task.addresses[worker]})" for worker in sorted(missing))
            if now - start > timeout:
                same = "start all workers with the same command and the same list of workers in TF_CONFIG"
                raise TfsacError(f"Worker {names} has not started within {timeout:g} seconds; {same}")
            if now - reported > SECONDS_BETWEEN_REPORTS:
                reported = now
                report(f"Waiting for worker {names}, {start + timeout - now:.0f} seconds more.")


def _send(address: str, index: int) -> None:
    with socket.create_connection(_host_and_port(address), 1.0) as connection:
        connection.sendall(b"%d" % index)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
