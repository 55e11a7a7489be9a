"""Connects to a Ray cluster: one of this machine alone, or one that runs. No TensorFlow."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

from tfsac.errors import TfsacError

CONNECT_SECONDS = 5.0
SETTINGS_OF_RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@contextlib.contextmanager
def connect(address: str) -> Iterator[Any]:
    """Connects to a cluster and gives the package `ray`; disconnects afterwards, and stops what "local" started.

    Tasks and actors import from the same folders as this process, which on other machines are those of a shared file
    system. A process has one connection: where it has one already, that one is used, and kept.

    Args:
        address: "local" starts a Ray on this machine, with all its cores; "auto" connects to the one that runs on it
            (or that RAY_ADDRESS names); "HOST:PORT" to the one whose head is there. This machine must be in it.

    Raises:
        TfsacError: Ray is not installed, or it cannot connect.
        OSError: nothing answers at HOST:PORT.
    """
    for name, value in SETTINGS_OF_RAY.items():
        os.environ.setdefault(name, value)
    # A Ray listens on all interfaces and runs what it is sent. It reads this when it is imported.
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
    if ":" in address:  # Ray itself tries for minutes, and ends the process
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
        signal.signal(signal.SIGTERM, handler)  # Ray has set its own
    try:
        yield ray
    finally:
        ray.shutdown()
