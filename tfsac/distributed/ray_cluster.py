"""Connects to a Ray cluster: one of this machine alone, or one that runs. No TensorFlow."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

CONNECT_SECONDS = 5.0
LOST_SECONDS = 5.0  # without an answer, until the head counts as lost
SECONDS_BETWEEN_CHECKS = 2.0
# The last one is how long Ray waits for a lost head before it ends the process, with a status and words of its own:
# `ClusterWatch` is faster.
SETTINGS_OF_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "3600",
}
TOKEN_FILE = pathlib.Path(".ray", "auth_token")  # in the home folder
SOCKETS = pathlib.Path("/proc/net/unix")  # those of running processes, on Linux
# What a client of HTTP/2 says first, with empty settings; Ray's head answers with settings, the frame of type 4.
GREETING, SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), 4


@contextlib.contextmanager
def connect(address: str) -> Iterator[Any]:
    """Connects to a cluster and gives the package `ray`; disconnects afterwards, and stops what "local" started.

    Tasks and actors import from the same folders as this process, which on other machines are those of a shared file
    system. A process has one connection: where it has one already, that one is used, as it is, and kept.

    Args:
        address: "local" starts a Ray on this machine, with all its cores; "auto" connects to the one that runs on it
            (or that RAY_ADDRESS names); "HOST:PORT" to the one whose head is there. This machine must be in it.

    Raises:
        ImportError: without Ray.
        ValueError: another kind of address, or another cluster than the one this process is connected to.
        ConnectionError: no Ray answers there.
    """
    checked(address)
    ray = _package(address)
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
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConnectionError(f"The connection to Ray failed ({_reason(error)}). Received: {address!r}") from error
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
    if address not in ("local", "auto") and not (
        host and ":" not in host and port.isdecimal() and 0 < int(port) < 2**16
    ):
        raise ValueError(f"The address of a Ray cluster is local, auto or HOST:PORT. Received: {address!r}")
    return address


class ClusterWatch:
    """Tells whether the cluster that this process is connected to is lost: many calls of Ray then end the process or
    never return.

    Args:
        ray: the package, connected.

    Attributes:
        lost: what was found, once the cluster is lost.
    """

    def __init__(self, ray: Any):
        here = ray.get_runtime_context()
        self.head, self.checked, self.lost = here.gcs_address, time.monotonic(), ""
        self.store = next(node["ObjectStoreSocketName"] for node in ray.nodes() if node["NodeID"] == here.get_node_id())

    def check(self) -> None:
        """Asks Ray's process of this machine whether it is there, and the head at most once in two seconds.

        Raises:
            ConnectionError: the one is not, or the other has not answered for `LOST_SECONDS`.
        """
        self.lost = self.lost or self._found()
        if self.lost:
            raise ConnectionError(f"The Ray cluster is lost: {self.lost}. Received: {self.head!r}")

    def _found(self) -> str:
        # Ray ends this process, without a word, as soon as it uses the object store of a process that is not there.
        if SOCKETS.exists() and self.store not in SOCKETS.read_text(errors="replace"):
            return "its process on this machine ended"
        began = time.monotonic()
        if began - self.checked < SECONDS_BETWEEN_CHECKS:
            return ""
        while True:
            try:
                _greet(self.head)
                self.checked = time.monotonic()
                return ""
            except ConnectionError as error:
                if time.monotonic() - began > LOST_SECONDS:
                    return f"its head has not answered for {LOST_SECONDS:g} seconds ({_reason(error)})"
                time.sleep(0.5)


def _package(address: str) -> Any:
    """Returns the package, which reads the variables in `SETTINGS_OF_RAY` when it is imported and when it starts
    processes.
    """
    for name, value in SETTINGS_OF_RAY.items():
        os.environ.setdefault(name, value)
    # Ray's ports listen on all interfaces. It makes a token for a cluster that it starts; one that runs may ask for it.
    variables = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    known = any(map(os.environ.get, variables)) or (pathlib.Path.home() / TOKEN_FILE).exists()
    if (
        address == "local" or known
    ) and "ray" not in sys.modules:  # what it reads when it is imported holds from then on
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        import ray
    except ImportError as error:
        raise ImportError(f"Ray is needed: pip install 'tfsac[ray]'. Received: {error}") from error
    return ray


def _reason(error: BaseException) -> str:
    """Returns the innermost reason of an error in one sentence."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1].partition("Received: ")[0].partition(". ")[0].rstrip(". ") if lines else type(error).__name__
    return f"{text}; RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH gives the cluster's" if "InvalidAuthToken" in text else text


def _resolved(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    try:
        return socket.gethostbyname(host), int(port)
    except OSError as error:
        raise ConnectionError(f"There is no such host ({error}). Received: {address!r}") from error


def _greet(address: str) -> None:
    """Asks whether a Ray may answer at an address: connecting to none takes minutes to fail."""
    host_and_port = _resolved(address)
    try:
        with socket.create_connection(host_and_port, CONNECT_SECONDS) as connection:
            connection.sendall(GREETING)
            answer = connection.recv(9)
    except OSError as error:
        raise ConnectionError(f"No Ray answers at this address ({error}). Received: {address!r}") from error
    if len(answer) < 4 or answer[3] != SETTINGS:
        raise ConnectionError(f"What answers at this address is not Ray. Received: {address!r}")
