"""Connecting to a Ray cluster or starting a local one."""

import os
import signal
import socket

import pytest

from tfsac.distributed.ray_cluster import connect
from tfsac.errors import TfsacError


def test_unreachable_address_is_rejected(monkeypatch):
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(TfsacError, match=address), connect(address):
        pass
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(TfsacError, match=address), connect("auto"):
        pass


def module_and_pid(module):
    """Returns the file of an imported module and the process id."""
    import importlib

    return importlib.import_module(module).__file__, os.getpid()


@pytest.mark.acceptance
def test_local_cluster_imports_the_same_code_and_stops():
    ray = pytest.importorskip("ray")
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyError, match="inside"), connect("local") as first:
        assert first is ray and ray.is_initialized()
        task = ray.remote(module_and_pid)
        answers = ray.get([task.remote("tfsac"), task.remote("tiny")])
        for module, [file, process] in zip(("tfsac", "tiny"), answers, strict=True):
            assert file == module_and_pid(module)[0] and process != os.getpid()
        with connect("auto") as second, connect(ray.get_runtime_context().gcs_address) as third:
            assert second is ray and third is ray
        assert ray.is_initialized()
        raise KeyError("inside")
    assert not ray.is_initialized() and signal.getsignal(signal.SIGTERM) is handler
