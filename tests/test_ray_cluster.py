"""Joining a Ray cluster: what does not answer, and a Ray of this machine that runs the same code."""

import os
import signal
import socket

import pytest

from tfsac.distributed.ray_cluster import connect
from tfsac.errors import TfsacError


def test_an_address_where_nothing_answers_is_refused_at_once(monkeypatch):
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(TfsacError, match=nobody), connect(nobody):
        pass
    monkeypatch.setenv("RAY_ADDRESS", nobody)
    with pytest.raises(TfsacError, match=nobody), connect("auto"):
        pass


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
        answers = ray.get([task.remote("tfsac"), task.remote("tiny")])
        for module, [file, process] in zip(("tfsac", "tiny"), answers, strict=True):
            assert file == seen(module)[0] and process != os.getpid()
        with connect("auto") as again, connect(ray.get_runtime_context().gcs_address) as same:
            assert again is ray and same is ray
        assert ray.is_initialized()
        raise KeyError("inside")
    assert not ray.is_initialized() and signal.getsignal(signal.SIGTERM) is handler
