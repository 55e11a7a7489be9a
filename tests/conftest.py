"""What several test modules share."""

import gc
import os
import subprocess
import sys

import pytest


def pytest_configure(config):
    """Gives each of several workers one thread: there is one for each core, and more only wait for one another.

    Acceptance tests keep TensorFlow's own threads, as users' runs do.
    """
    if hasattr(config, "workerinput") and "not acceptance" in config.option.markexpr:
        import tensorflow as tf

        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.threading.set_intra_op_parallelism_threads(1)


def pytest_collection_finish(session):
    """Spares the collector of garbage the objects of TensorFlow and of the tests, which stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(autouse=True)
def used_tensorflow():
    """Keeps runs from setting threads, and from saying that it is too late: tests use TensorFlow before them."""
    devices = sys.modules.get("tfsac.training.devices")
    if devices is not None and not devices.CONFIGURED:
        devices.CONFIGURED.append(os.getpid())


@pytest.fixture
def training_alone(monkeypatch):
    """Leaves out what a run ends with, the curve and the exported policy."""
    monkeypatch.setattr("tfsac.api.export", lambda *args, **kwargs: None)
    monkeypatch.setattr("tfsac.experiments.plots.plot_run", lambda *args, **kwargs: None)


@pytest.fixture
def untraced(monkeypatch):
    """Leaves out tracing, for runs that are built and never make an update."""
    monkeypatch.setattr("tfsac.agents.compiled_updates.CompiledUpdates.trace", lambda self, single: [])


@pytest.fixture
def figures(monkeypatch):
    """Returns a list that gets every figure instead of its file."""
    from matplotlib.figure import Figure

    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: saved.append(figure))
    return saved


@pytest.fixture(scope="module")
def cluster():
    """A Ray of this machine, to which this process is connected."""
    pytest.importorskip("ray")
    from tfsac.distributed.ray_cluster import connect

    with connect("local") as ray:
        yield ray


@pytest.fixture(scope="session")
def run_python():
    """Runs a program in a fresh interpreter that sees the same packages and returns what it printed."""

    def run(program, *arguments):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
