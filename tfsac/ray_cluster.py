"""Joining a Ray cluster: of this machine alone, or one that runs. No TensorFlow."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

CONNECT_SECONDS = 5.0
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# What a client of HTTP/2 says first, with empty settings; Ray's head answers with settings, the frame of type 4.
GREETING, SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), 4


@contextlib.contextmanager
def connect(address: str) -> Iterator[Any]:
    """Joins a cluster and gives the package `ray`; leaves it afterwards, and stops what "local" started.

    Tasks and actors import from the same folders as this process, which on other machines are those of a shared file
    system. A process has one connection: where it has one already, that one is used, as it is, and kept.

    Args:
        address: "local" starts a Ray on this machine, with all its cores; "auto" joins the one that runs on it (or that
            the variable RAY_ADDRESS names); "HOST:PORT" joins the one whose head is there. This machine must be in it.

    Raises:
        ImportError: without Ray.
        ValueError: another kind of address, or another cluster than the one this process is connected to.
        ConnectionError: no Ray answers there.
    """
    checked(address)
    ray = _package()
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if ":" in address and _resolved(address) != _resolved(here):
            raise ValueError(f"This process is connected to the Ray at {here}. Received: {address!r}")
        yield ray
        return
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", address)
    if ":" in checked(address):
        _greet(address)
    in_main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    started: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(
            address=address,
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}},
            log_to_driver=False,
            logging_level="ERROR",
            **started,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConnectionError(f"Ray cannot be joined ({error}). Received: {address!r}") from error
    if in_main_thread:
        signal.signal(signal.SIGTERM, handler)  # Ray has set its own
    try:
        yield ray
    finally:
        ray.shutdown()


def checked(address: str) -> str:
    """Returns an address as it is.

    Raises:
        ValueError: it is neither "local" nor "auto" nor HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    if address not in ("local", "auto") and not (host and ":" not in host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(f"The address of a Ray cluster is local, auto or HOST:PORT. Received: {address!r}")
    return address


def _package() -> Any:
    """Returns the package, which reads the variables in `QUIET` when it starts processes."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ImportError(f"Ray is needed: pip install 'tfsac[ray]'. Received: {error}") from error
    return ray


def _resolved(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    try:
        return socket.gethostbyname(host), int(port)
    except OSError as error:
        raise ConnectionError(f"There is no such host ({error}). Received: {address!r}") from error


def _greet(address: str) -> None:
    """Asks whether a Ray may answer at an address: joining one that does not takes minutes to fail."""
    place = _resolved(address)
    try:
        with socket.create_connection(place, CONNECT_SECONDS) as connection:
            connection.sendall(GREETING)
            answer = connection.recv(9)
    except OSError as error:
        raise ConnectionError(f"No Ray answers at this address ({error}). Received: {address!r}") from error
    if len(answer) < 4 or answer[3] != SETTINGS:
        raise ConnectionError(f"What answers at this address is not Ray. Received: {address!r}")
