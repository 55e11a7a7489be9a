"""What several test modules share."""

import os
import subprocess
import sys

import pytest


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
