"""Fixtures and pytest hooks for all tests."""

import gc
import os
import subprocess
import sys

import pytest
from cli_tools import SUBPROCESS_ENV


def pytest_configure(config):
    """Gives each pytest-xdist worker one TensorFlow thread, because there is one worker per core.

    Acceptance tests keep TensorFlow's default threads, like users' runs.
    """
    if hasattr(config, "workerinput") and "not acceptance" in config.option.markexpr:
        import tensorflow as tf

        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.threading.set_intra_op_parallelism_threads(1)


def pytest_collection_finish(session):
    """Excludes objects that live until the end, such as TensorFlow's, from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(autouse=True)
def threads_configured():
    """Keeps runs from setting TensorFlow's threads or warning about it: earlier tests have used TensorFlow."""
    devices = sys.modules.get("tfsac.training.devices")
    if devices is not None and not devices.CONFIGURED:
        devices.CONFIGURED.append(os.getpid())


@pytest.fixture
def no_export_or_plot(monkeypatch):
    """Skips the learning curve and the exported policy at the end of a run."""
    monkeypatch.setattr("tfsac.api.export", lambda *args, **kwargs: None)
    monkeypatch.setattr("tfsac.experiments.plots.plot_run", lambda *args, **kwargs: None)


@pytest.fixture
def no_tracing(monkeypatch):
    """Skips tracing, for runs that never make an update."""
    monkeypatch.setattr("tfsac.agents.compiled_updates.CompiledUpdates.trace", lambda self, single: [])


@pytest.fixture
def figures(monkeypatch):
    """Collects Matplotlib figures in a list instead of saving them."""
    from matplotlib.figure import Figure

    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: saved.append(figure))
    return saved


@pytest.fixture(scope="module")
def cluster():
    """A local Ray cluster to which this process is connected."""
    pytest.importorskip("ray")
    from tfsac.distributed.ray_cluster import connect

    with connect("local") as ray:
        yield ray


@pytest.fixture(scope="session")
def run_python():
    """Returns a function that runs a program in a new interpreter with the same packages and returns its stdout."""

    def run(program, *arguments):
        command = [sys.executable, "-c", program, *arguments]
        result = subprocess.run(command, env=SUBPROCESS_ENV, capture_output=True, text=True, timeout=900)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run
