"""Workers wait for each other before TensorFlow connects them: all leave together, and missing ones are named."""

import socket
import threading

import numpy as np
import pytest
import tensorflow as tf
from strategy_tools import free_ports

from tfsac.distributed import rendezvous
from tfsac.distributed.rendezvous import wait_for_workers
from tfsac.distributed.tf_config import WorkerTask
from tfsac.distributed.workers import Workers
from tfsac.errors import TfsacError


def tasks(count):
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(count))
    return [WorkerTask(worker, count, addresses) for worker in range(count)]


def meet(workers, delays):
    """Has workers wait for each other, each in a thread, and returns what each raised."""
    raised = {}

    def one(task, delay):
        threading.Event().wait(delay)
        try:
            wait_for_workers(task, lambda line: None, 20.0)
        except Exception as error:
            raised[task.index] = error

    threads = [threading.Thread(target=one, args=each) for each in zip(workers, delays, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_workers_that_start_at_different_times_all_meet_and_leave_their_ports_free():
    workers = tasks(3)
    assert meet(workers, (0.0, 0.6, 0.3)) == {}
    for address in workers[0].addresses:
        socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))).close()


def test_missing_workers_are_named_and_the_wait_ends(monkeypatch):
    monkeypatch.setattr(rendezvous, "SECONDS_BETWEEN_REPORTS", 0.2)
    one, *_ = tasks(3)
    lines, names = [], f"1 ({one.addresses[1]}), 2 ({one.addresses[2]})"
    other_program = socket.create_server(("127.0.0.1", int(one.addresses[1].rpartition(":")[2])))
    with other_program, pytest.raises(TfsacError) as error:
        wait_for_workers(one, lines.append, 0.7)
    assert names in str(error.value) and names in lines[0]


def test_a_port_in_use_is_an_error():
    one, _ = tasks(2)
    with socket.create_server(("", int(one.addresses[0].rpartition(":")[2]))), pytest.raises(OSError, match="in use"):
        wait_for_workers(one, print, 1.0)


def test_workers_must_have_the_same_settings(monkeypatch):
    Workers(tf.distribute.get_strategy(), WorkerTask()).check_shared({"run": {"seed": 1}})
    second = Workers(tf.distribute.get_strategy(), WorkerTask(1, 2))
    of_the_chief = b'{"run": {"seed": 1, "eager": false}}'
    monkeypatch.setattr(second, "broadcast", lambda source, content: of_the_chief if source == 0 else content)
    monkeypatch.setattr(second, "gather", lambda arrays: {"differ": np.concatenate([[False], arrays["differ"]])})
    second.check_shared({"run": {"seed": 1, "eager": False}})
    with pytest.raises(TfsacError, match=r"run\.seed=2 at worker 1, 1 at worker 0"):
        second.check_shared({"run": {"seed": 2, "eager": False}})
