"""Waits for all workers of a run before TensorFlow connects them, and names those that are missing."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

from tfsac.distributed.tf_config import WorkerTask

SECONDS = 300.0  # to wait for the other workers
QUIET_SECONDS = 10.0  # until the missing workers are named, and named again
GREETING = "tfsac worker"
MESSAGE_BYTES = 2**16


class MissingWorkers(RuntimeError):
    """Workers of a run did not start, or have another list of workers."""


def wait_for_workers(task: WorkerTask, say: Callable[[str], None], seconds: float = SECONDS) -> None:
    """Returns when every worker of a run has reached every other one.

    Each worker listens at its own address, which is free for TensorFlow afterwards, and asks the others at theirs.

    Args:
        task: of this worker.
        say: gets a line that names the missing workers, every ten seconds.
        seconds: to wait.

    Raises:
        MissingWorkers: a worker did not start in time, or has another TF_CONFIG.
        OSError: this worker cannot listen at its address.
    """
    others = set(range(task.num_workers)) - {task.index}
    own = json.dumps([GREETING, task.index, task.addresses]).encode() + b"\n"
    heard: dict[int, list[str]] = {}  # the addresses that each other worker has, from those who asked this one
    answered: dict[int, list[str]] = {}  # and from those whom this one asked
    with _answering(task.addresses[task.index], own, heard):
        began = told = time.monotonic()
        while missing := others - (heard.keys() & answered.keys()):
            for worker in others - answered.keys():
                if (found := _ask(task.addresses[worker], own)) is not None:
                    answered[found[0]] = found[1]
            for worker, addresses in {**heard, **answered}.items():
                if worker not in others:
                    message = (
                        "Each process is another worker of TF_CONFIG, and each address of it another port or machine"
                    )
                    raise MissingWorkers(f"{message}. Received: worker {worker} twice in {list(task.addresses)}")
                if addresses != list(task.addresses):
                    message = f"Every worker has the same list of workers in TF_CONFIG, this one {list(task.addresses)}"
                    raise MissingWorkers(f"{message}. Received: {addresses} from worker {worker}")
            names = ", ".join(f"{worker} ({task.addresses[worker]})" for worker in sorted(missing))
            now = time.monotonic()
            if now - began > seconds:
                raise MissingWorkers(
                    f"All {task.num_workers} workers of TF_CONFIG start with the same command within {seconds:g} "
                    f"seconds. Received: nothing from worker {names}"
                )
            if now - told > QUIET_SECONDS:
                told = now
                say(f"Waiting for worker {names}, {began + seconds - now:.0f} seconds more.")
            time.sleep(0.1)


@contextlib.contextmanager
def _answering(address: str, own: bytes, heard: dict[int, list[str]]) -> Iterator[None]:
    """Answers workers that ask at an address meanwhile; it is free afterwards."""
    with _listening(address) as server:
        thread = threading.Thread(target=_answer, args=(server, own, heard), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)  # ends a call of accept, which would keep the port
            thread.join()


def _listening(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        socket.getaddrinfo(host.strip("[]"), int(port))
    except OSError as error:
        raise OSError(
            f"This worker's host in TF_CONFIG is unknown ({error.strerror}). Received: {address!r}"
        ) from error
    try:
        with contextlib.suppress(OSError):
            return socket.create_server((host.strip("[]"), int(port)))
        return socket.create_server(("", int(port)))  # the name may be that of a gateway
    except OSError as error:
        message = (
            f"This worker cannot listen at its address in TF_CONFIG ({os.strerror(error.errno or 0)}): "
            f"another program may use the port"
        )
        raise OSError(f"{message}. Received: {address!r}") from error


def _answer(server: socket.socket, own: bytes, heard: dict[int, list[str]]) -> None:
    """Tells every worker that asks which one this is, until the server is closed."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError, ValueError):
            connection.settimeout(2.0)
            connection.sendall(own)
            worker, addresses = _read(connection)
            heard[worker] = addresses


def _ask(address: str, own: bytes) -> tuple[int, list[str]] | None:
    """Returns the worker at an address and its list of addresses, or None where none answers."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), 1.0) as connection:
            connection.settimeout(2.0)
            connection.sendall(own)
            return _read(connection)
    except (OSError, ValueError):
        return None


def _read(connection: socket.socket) -> tuple[int, list[str]]:
    with connection.makefile("rb") as stream:
        greeting, worker, addresses = json.loads(stream.readline(MESSAGE_BYTES))
    if greeting != GREETING:
        raise ValueError(greeting)
    return worker, addresses
