"""Agents of every algorithm on two devices, on two workers and compiled with XLA: all learn what one device learns."""

import functools
import json

import numpy as np
import pytest
import strategy_tools as tools

QUICK, *SLOW = tools.CASES
# One of each kind: what distinguishes the others is compared on two devices and on two workers.
FEW = ["twin, imitation", "v", "discrete, team", "taacl", "acer, discrete", "acer, gaussian, lstm, trunk"]
WORKERS = 2

MIRRORED = """
import json, sys
folder, path, *names = sys.argv[1:]
sys.path.insert(0, folder)
import strategy_tools
strategy = strategy_tools.two_devices()
strategy_tools.write_updated(strategy, path, names)
print(json.dumps(strategy_tools.refusals(strategy)))
"""

WORKER = """
import sys
folder, path, worker, *names = sys.argv[1:]
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
sys.path.insert(0, folder)
import strategy_tools
strategy_tools.write_updated(strategy, path, names, int(worker))
"""


@functools.cache
def on_one_device(name):
    """What comes of a case without a strategy."""
    return tools.updated(name)


def assert_equal(found, expected, rows=slice(None)):
    """Compares what came of a case; `rows` are those whose priorities were found."""
    assert found["traces"] == expected["traces"]
    for field, tolerance in (("variables", {"atol": 1e-5, "rtol": 0}), ("metrics", {"atol": 1e-5, "rtol": 1e-4})):
        assert list(found[field]) == list(expected[field])
        for name, value in expected[field].items():
            np.testing.assert_allclose(found[field][name], value, **tolerance, err_msg=name)
    np.testing.assert_allclose(found["priority"], expected["priority"][:, rows], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["greedy"], expected["greedy"], atol=1e-4)


# -- devices of one process --------------------------------------------------------------------------------------------


def on_devices(run_python, request, path, names):
    """Returns what came of cases, one after another in one process, and what that process says to agents that do
    not fit.
    """
    printed = run_python(MIRRORED, str(request.path.parent), str(path), *names)
    return tools.read_updated(path), json.loads(printed.splitlines()[-1])


@pytest.mark.slow
def test_two_devices_learn_what_one_does_and_refuse_what_they_cannot_share(run_python, request, tmp_path):
    found, refusals = on_devices(run_python, request, tmp_path / "found.npz", [QUICK])
    agent = found[QUICK]
    assert (agent["replicas"], agent["local_batch_size"], agent["traces"]) == (2, tools.BATCH, 2)
    assert_equal(agent, on_one_device(QUICK))
    assert len(refusals) == 2


@pytest.fixture(scope="module")
def others(request, run_python, tmp_path_factory):
    """What came of the other cases on two devices."""
    return on_devices(run_python, request, tmp_path_factory.mktemp("strategies") / "found.npz", SLOW)[0]


@pytest.mark.acceptance
@pytest.mark.parametrize("name", SLOW)
def test_two_devices_learn_what_one_does(name, others):
    assert others[name]["replicas"] == 2
    assert_equal(others[name], on_one_device(name))


# -- several workers ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workers(request, tmp_path_factory):
    """What came of all cases in two processes, each with its own rows; both go through them in the same order."""
    paths = [tmp_path_factory.mktemp("workers") / f"{worker}.npz" for worker in range(WORKERS)]
    arguments = ["-c", WORKER, str(request.path.parent)]
    commands = [[*arguments, str(path), str(worker), *tools.CASES] for worker, path in enumerate(paths)]
    processes = tools.start_workers(commands)
    printed = tools.end_workers(processes)
    assert [process.returncode for process in processes] == [0] * WORKERS, printed
    return [tools.read_updated(path) for path in paths]


@pytest.mark.acceptance
@pytest.mark.parametrize("name", tools.CASES)
def test_two_workers_learn_what_one_device_does_and_each_has_the_priorities_of_its_rows(name, workers):
    expected = on_one_device(name)
    for worker, found in enumerate(workers):
        size = int(found[name]["local_batch_size"])
        assert found[name]["replicas"] == WORKERS and WORKERS * size == expected["local_batch_size"]
        assert_equal(found[name], expected, slice(worker * size, (worker + 1) * size))


# -- XLA ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [QUICK, *(pytest.param(name, marks=pytest.mark.acceptance) for name in [*FEW, "ensemble, dropout, policy delay"])],
)
def test_xla_learns_the_same_from_the_same_noise(name):
    assert_equal(tools.updated(name, noise=False, jit_compile=True), tools.updated(name, noise=False))


def test_xla_compiles_two_numbers_of_updates_and_divides_others_among_them():
    compiled = tools.make_agent("v", jit_compile=True).compiled
    assert compiled._sizes(5) == [5]
    compiled._graphs = dict.fromkeys(["all", 5])
    assert compiled._sizes(5) == [5] and compiled._sizes(3) == [3]
    compiled._graphs[3] = None
    assert compiled._sizes(14) == [5, 5, 3, 1] and compiled._sizes(2) == [1, 1] and compiled._sizes(1) == [1]
