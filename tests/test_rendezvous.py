"""Workers wait for each other before TensorFlow connects them: all leave together, and missing ones are named."""

import socket
import threading

import numpy as np
import pytest
import tensorflow as tf
from strategy_tools import free_ports

from tfsac.distributed import rendezvous
from tfsac.distributed.rendezvous import MissingWorkers, wait_for_workers
from tfsac.distributed.tf_config import WorkerTask
from tfsac.distributed.workers import Workers
from tfsac.parameters import ParameterError


def tasks(count):
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(count))
    return [WorkerTask(worker, count, addresses) for worker in range(count)]


def met(those, seconds=20.0, delays=()):
    """Has workers wait for each other, each in a thread, and returns what each raised."""
    raised = {}

    def one(task, delay):
        threading.Event().wait(delay)
        try:
            wait_for_workers(task, lambda line: None, seconds)
        except Exception as error:
            raised[task.index] = error

    threads = [
        threading.Thread(target=one, args=each) for each in zip(those, delays or [0.0] * len(those), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_workers_that_come_at_different_times_all_meet_and_leave_their_ports_free():
    those = tasks(3)
    assert met(those, delays=(0.0, 0.6, 0.3)) == {}
    for address in those[0].addresses:
        socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))).close()


@pytest.mark.slow
def test_who_does_not_come_is_named(monkeypatch):
    monkeypatch.setattr(rendezvous, "QUIET_SECONDS", 0.2)
    one, two, _ = tasks(3)
    lines = []
    with pytest.raises(MissingWorkers) as error:
        wait_for_workers(one, lines.append, 0.7)
    names = f"worker 1 ({one.addresses[1]}), 2 ({one.addresses[2]})"
    assert str(error.value).endswith(f"start with the same command within 0.7 seconds. Received: nothing from {names}")
    assert lines[0].startswith(f"Waiting for {names}, ") and lines[0].endswith(" seconds more.")
    assert sorted(met([one, two], 1.0)) == [0, 1]


def test_workers_with_other_lists_of_workers_do_not_go_on():
    one, two = tasks(2)
    other = WorkerTask(1, 3, (*two.addresses, "127.0.0.1:1"))
    raised = met([one, other])
    message = f"this one {list(one.addresses)}. Received: {list(other.addresses)} from worker 1"
    assert isinstance(raised[0], MissingWorkers) and str(raised[0]).endswith(message)
    assert isinstance(raised[1], MissingWorkers)


def test_a_port_in_use_is_a_clear_error():
    one, _ = tasks(2)
    with socket.create_server(("127.0.0.1", int(one.addresses[0].rpartition(":")[2]))), pytest.raises(OSError) as error:
        wait_for_workers(one, print, 1.0)
    message = "This worker cannot listen at its address in TF_CONFIG (Address already in use): another program may use the port"
    assert str(error.value) == f"{message}. Received: '{one.addresses[0]}'"


def test_an_address_that_is_listed_twice_or_unknown_is_a_clear_error():
    [port] = free_ports(1)
    twice = (f"localhost:{port}", f"127.0.0.1:{port}")
    with pytest.raises(MissingWorkers) as error:
        wait_for_workers(WorkerTask(0, 2, twice), print, 5.0)
    assert str(error.value).endswith(
        f"each address of it another port or machine. Received: worker 0 twice in {list(twice)}"
    )
    with pytest.raises(
        OSError, match=r"^This worker's host in TF_CONFIG is unknown \(.*\)\. Received: 'no-such-host.invalid:2222'$"
    ):
        wait_for_workers(WorkerTask(0, 1, ("no-such-host.invalid:2222",)), print, 5.0)


@pytest.mark.slow
def test_what_other_programs_say_at_an_address_is_not_a_worker():
    one, two = tasks(2)
    with socket.create_server(("127.0.0.1", int(one.addresses[1].rpartition(":")[2]))) as server:

        def say():
            with server.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n")

        thread = threading.Thread(target=say)
        thread.start()
        with pytest.raises(MissingWorkers, match="nothing from worker 1"):
            wait_for_workers(one, lambda line: None, 0.3)
        thread.join()
    assert met([one, two]) == {}


def test_what_workers_were_asked_for_must_agree(monkeypatch):
    Workers(tf.distribute.get_strategy(), WorkerTask()).agree({"run": {"seed": 1}})
    second = Workers(tf.distribute.get_strategy(), WorkerTask(1, 2))
    of_the_chief = b'{"run": {"seed": 1, "eager": false}}'
    monkeypatch.setattr(second, "broadcast", lambda source, content: of_the_chief if source == 0 else content)
    monkeypatch.setattr(second, "gather", lambda arrays: {"differ": np.concatenate([[False], arrays["differ"]])})
    second.agree({"run": {"seed": 1, "eager": False}})
    with pytest.raises(ParameterError) as error:
        second.agree({"run": {"seed": 2, "eager": False}})
    assert (
        str(error.value)
        == "All workers of a run have the same preset and flags. Received: run.seed=2 at worker 1, 1 at worker 0"
    )
