"""Joining a Ray cluster: addresses, what does not answer, and a Ray of this machine that runs the same code."""

import os
import signal
import socket
import sys
import threading
import types

import pytest

from tfsac.distributed import ray_cluster
from tfsac.distributed.ray_cluster import connect


@pytest.mark.parametrize(
    "address", ["", "10.0.0.1", ":6379", "host:", "host:port", "host:0", "host:65536", "ray://host:1", "h:1:2", "locl"]
)
def test_another_kind_of_address_is_refused(address):
    with pytest.raises(ValueError, match=rf"is local, auto or HOST:PORT\. Received: '{address}'$"), connect(address):
        pass


def test_without_the_package_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'tfsac\[ray\]'\. Received: "), connect("local"):
        pass


def listening(answer):
    """Returns the address of something that answers once with these bytes, or says nothing when they are None."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        with server, server.accept()[0] as connection:
            if answer is None:
                threading.Event().wait(1.0)
            else:
                connection.recv(100)
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_an_address_where_no_ray_answers_is_refused_at_once(monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr(ray_cluster, "CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    cases = [
        (nobody, r"No Ray answers at this address \(.*refused\)"),
        (listening(None), r"No Ray answers at this address \(timed out\)"),
        (listening(b"HTTP/1.1 400 Bad Request\r\n"), "What answers at this address is not Ray"),
        (listening(b""), "What answers at this address is not Ray"),
        ("no-such-host.invalid:6379", r"There is no such host \(.*\)"),
    ]
    for address, message in cases:
        with pytest.raises(ConnectionError, match=rf"{message}\. Received: '{address}'$"), connect(address):
            pass
        monkeypatch.setenv("RAY_ADDRESS", address)
        if address == nobody:
            with pytest.raises(ConnectionError, match=rf"{message}\. Received: '{address}'$"), connect("auto"):
                pass


def watched(monkeypatch, head, store="store"):
    """Returns the watch of a cluster whose head is at an address."""
    here = types.SimpleNamespace(gcs_address=head, get_node_id=lambda: "n2")
    nodes = [{"NodeID": "n1", "ObjectStoreSocketName": "other"}, {"NodeID": "n2", "ObjectStoreSocketName": store}]
    monkeypatch.setattr(ray_cluster, "SECONDS_BETWEEN_CHECKS", 0.0)
    monkeypatch.setattr(ray_cluster, "LOST_SECONDS", 0.3)
    return ray_cluster.ClusterWatch(types.SimpleNamespace(get_runtime_context=lambda: here, nodes=lambda: nodes))


def test_a_head_that_answers_is_there_and_one_that_does_not_is_lost_for_good(monkeypatch, tmp_path):
    monkeypatch.setattr(ray_cluster, "SOCKETS", tmp_path / "none")
    head = listening(bytes([0, 0, 0, 4, 0]))  # answers once
    watch = watched(monkeypatch, head)
    watch.check()
    message = (
        rf"^The Ray cluster is lost: its head has not answered for 0.3 seconds \(.*refused\)\. Received: '{head}'$"
    )
    for _ in range(2):
        with pytest.raises(ConnectionError, match=message):
            watch.check()
        monkeypatch.setattr(ray_cluster, "_greet", None)


def test_a_process_of_this_machine_that_ended_is_noticed_before_ray_ends_this_one(monkeypatch, tmp_path):
    sockets = tmp_path / "unix"
    monkeypatch.setattr(ray_cluster, "SOCKETS", sockets)
    monkeypatch.setattr(ray_cluster, "_greet", lambda address: None)
    sockets.write_text("Num Path\n1: /tmp/ray/other\n2: /tmp/ray/store\n")
    watch = watched(monkeypatch, "127.0.0.1:1", "/tmp/ray/store")
    watch.check()
    sockets.write_text("Num Path\n1: /tmp/ray/other\n")
    with pytest.raises(
        ConnectionError, match=r"^The Ray cluster is lost: its process on this machine ended\. Received: '127.0.0.1:1'$"
    ):
        watch.check()


@pytest.mark.parametrize(
    ("address", "token", "mode"), [("local", False, "token"), ("h:1", True, "token"), ("h:1", False, None)]
)
def test_clusters_ask_for_a_token_where_there_is_one(monkeypatch, tmp_path, address, token, mode):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    (tmp_path / "ray.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    if token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("secret")
    ray_cluster._package(address)
    assert os.environ.get("RAY_AUTH_MODE") == mode


def seen(module):
    """Returns what a task sees: the file of a module that it imports, and its process."""
    import importlib

    return importlib.import_module(module).__file__, os.getpid()


@pytest.mark.acceptance
def test_a_ray_of_this_machine_imports_the_same_code_and_stops_afterwards():
    ray = pytest.importorskip("ray")
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyError, match="inside"), connect("local") as joined:
        assert joined is ray and ray.is_initialized()
        task = ray.remote(seen)
        for module, [file, process] in zip(
            ("tfsac", "tiny"), ray.get([task.remote("tfsac"), task.remote("tiny")]), strict=True
        ):
            assert file == seen(module)[0] and process != os.getpid()
        here = ray.get_runtime_context().gcs_address
        with connect("auto") as again, connect(here) as same:
            assert again is ray and same is ray
        assert ray.is_initialized()
        with (
            pytest.raises(ValueError, match=rf"connected to the Ray at {here}\. Received: '127.0.0.1:1'$"),
            connect("127.0.0.1:1"),
        ):
            pass
        ray_cluster._greet(here)
        raise KeyError("inside")
    assert not ray.is_initialized() and signal.getsignal(signal.SIGTERM) is handler
