"""Every agent on two devices, on two workers and with XLA matches one device."""

import functools
import json

import numpy as np
import pytest
import strategy_tools as tools

QUICK, *SLOW = tools.CASES
# One case of each kind; the others are compared on two devices and two workers.
XLA_CASES = ["twin, imitation", "v", "discrete, team", "taacl", "acer, discrete", "acer, gaussian, lstm, trunk"]
XLA_CASES += ["ensemble, dropout, policy delay"]
WORKERS = 2

MIRRORED = """
import json, sys
folder, path, *names = sys.argv[1:]
sys.path.insert(0, folder)
import strategy_tools
strategy = strategy_tools.two_cpu_devices()
strategy_tools.write_results(strategy, path, names)
print(json.dumps(strategy_tools.construction_errors(strategy)))
"""

WORKER = """
import sys
folder, path, worker, *names = sys.argv[1:]
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
sys.path.insert(0, folder)
import strategy_tools
strategy_tools.write_results(strategy, path, names, int(worker))
"""


@functools.cache
def on_one_device(name):
    """Returns the result of a case without a strategy."""
    return tools.run_updates(name)


def assert_equal(actual, expected, rows=slice(None)):
    """Compares results of a case; `rows` are the batch entries with priorities in `actual`."""
    assert actual["traces"] == expected["traces"]
    for field, tolerance in (("variables", {"atol": 1e-5, "rtol": 0}), ("metrics", {"atol": 1e-5, "rtol": 1e-4})):
        assert list(actual[field]) == list(expected[field])
        for name, value in expected[field].items():
            np.testing.assert_allclose(actual[field][name], value, **tolerance, err_msg=name)
    np.testing.assert_allclose(actual["priority"], expected["priority"][:, rows], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(actual["greedy"], expected["greedy"], atol=1e-4)


def on_devices(run_python, request, path, names):
    """Runs cases in one process with two devices; returns their results and the errors of unsupported agents."""
    printed = run_python(MIRRORED, str(request.path.parent), str(path), *names)
    return tools.read_results(path), json.loads(printed.splitlines()[-1])


@pytest.mark.slow
def test_two_devices_match_one_and_reject_unsupported_agents(run_python, request, tmp_path):
    actual, refusals = on_devices(run_python, request, tmp_path / "found.npz", [QUICK])
    agent = actual[QUICK]
    assert (agent["replicas"], agent["local_batch_size"], agent["traces"]) == (2, tools.BATCH, 2)
    assert_equal(agent, on_one_device(QUICK))
    assert len(refusals) == 2


@pytest.fixture(scope="module")
def slow_results(request, run_python, tmp_path_factory):
    """Results of the slow cases on two devices."""
    return on_devices(run_python, request, tmp_path_factory.mktemp("strategies") / "found.npz", SLOW)[0]


@pytest.mark.acceptance
@pytest.mark.parametrize("name", SLOW)
def test_two_devices_match_one(name, slow_results):
    assert slow_results[name]["replicas"] == 2
    assert_equal(slow_results[name], on_one_device(name))


@pytest.fixture(scope="module")
def workers(request, tmp_path_factory):
    """Results of all cases in two processes, each with its own batch entries."""
    paths = [tmp_path_factory.mktemp("workers") / f"{worker}.npz" for worker in range(WORKERS)]
    arguments = ["-c", WORKER, str(request.path.parent)]
    commands = [[*arguments, str(path), str(worker), *tools.CASES] for worker, path in enumerate(paths)]
    processes = tools.start_workers(commands)
    printed = tools.wait_for_workers(processes)
    assert [process.returncode for process in processes] == [0] * WORKERS, printed
    return [tools.read_results(path) for path in paths]


@pytest.mark.acceptance
@pytest.mark.parametrize("name", tools.CASES)
def test_two_workers_match_one_device(name, workers):
    expected = on_one_device(name)
    for worker, actual in enumerate(workers):
        size = int(actual[name]["local_batch_size"])
        assert actual[name]["replicas"] == WORKERS and WORKERS * size == expected["local_batch_size"]
        assert_equal(actual[name], expected, slice(worker * size, (worker + 1) * size))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [QUICK, *(pytest.param(name, marks=pytest.mark.acceptance) for name in XLA_CASES)],
)
def test_xla_matches_uncompiled_updates(name):
    assert_equal(tools.run_updates(name, noise=False, jit_compile=True), tools.run_updates(name, noise=False))


def test_xla_compiles_two_numbers_of_updates():
    compiled = tools.make_agent("v", jit_compile=True).compiled
    assert compiled._sizes(5) == [5]
    compiled._graphs = dict.fromkeys(["all", 5])
    assert compiled._sizes(5) == [5] and compiled._sizes(3) == [3]
    compiled._graphs[3] = None
    assert compiled._sizes(14) == [5, 5, 3, 1] and compiled._sizes(2) == [1, 1] and compiled._sizes(1) == [1]
