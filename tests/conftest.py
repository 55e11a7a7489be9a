"""What several test modules share."""

import os
import subprocess
import sys

import pytest


@pytest.fixture(autouse=True)
def used_tensorflow():
    """Keeps runs from setting threads, and from saying that it is too late: tests use TensorFlow before them."""
    devices = sys.modules.get("tfsac.training.devices")
    if devices is not None and not devices.CONFIGURED:
        devices.CONFIGURED.append(os.getpid())


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
