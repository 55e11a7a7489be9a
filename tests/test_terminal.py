"""Printed progress without a terminal, in narrow terminals and with closed output."""

import fcntl
import io
import os
import pathlib
import pty
import signal
import subprocess
import sys
import termios

import numpy as np
import pytest

from tfsac.training.evaluation import Evaluation
from tfsac.training.loggers import RunInfo, TerminalLogger

ROW = {"evaluation/return_mean": -1234.5, "evaluation/return_std": 10.0, "steps_per_second": 321.0}
INFO = RunInfo(pathlib.Path("run"), [], ["mine"], 10, "steps", {}, {})
LONG = ["--set=schedule.improve_steps=100000", "--set=schedule.steps_between_evaluation_periods=20"]
LONG += ["--set=schedule.evaluation_steps=1", "--set=environment.max_episode_steps=10"]


def start_training(run_dir, *flags, **streams):
    """Starts a training process that runs until it is stopped."""
    command = [sys.executable, "-m", "tfsac", "train", f"--run_dir={run_dir}", *LONG, *flags]
    return subprocess.Popen(command, **streams)


def replace_stdout(monkeypatch, width=300):
    """Replaces stdout by a buffer, which is no terminal, and returns it."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", str(width))
    return sys.stdout


@pytest.mark.parametrize("width", [20, 300])
def test_terminal_lines_are_not_wrapped(monkeypatch, width):
    out = replace_stdout(monkeypatch, width)
    terminal = TerminalLogger()
    terminal.start(INFO, None)
    terminal.advance(5, 100.0, None)
    terminal.write("episode", 900, {"training/episode_return": 1.0})
    terminal.write("evaluation", 1000, {**ROW, "mine": 0.25})
    terminal.close("finished")
    header, line = out.getvalue().splitlines()
    assert header.split()[-2:] == ["steps/s", "mine"] and len(header) == len(line)
    assert line.split() == ["1000", "-1234.5", "±", "10.0", "-", "321", "0.25"]
    terminal.write("evaluation", 2000, {**ROW, "evaluation/return_mean": 0.746, "evaluation/return_std": 20.0})
    # Small returns have two decimals.
    assert out.getvalue().splitlines()[-1].split()[1:4] == ["0.75", "±", "20.00"]


def test_success_rate_is_printed(monkeypatch):
    out = replace_stdout(monkeypatch)
    terminal = TerminalLogger()
    terminal.start(INFO, None)
    terminal.write("evaluation", 1000, {**ROW, "evaluation/is_success": 0.75, "mine": 0.25})
    terminal.close("finished")
    header, line = (text.split() for text in out.getvalue().splitlines())
    assert header[-2:] == ["evaluation/is_success", "mine"] and line[-2:] == ["0.75", "0.25"]
    evaluation = Evaluation(np.array([-1.0, -2.0]), np.array([3, 3]), info={"is_success": np.array([1.0, np.nan])})
    assert str(evaluation).endswith("success rate 1.00, 2 episodes")
    assert "success" not in str(evaluation._replace(info={}))


@pytest.mark.slow
def test_closed_stdout_saves_and_ends_the_run(tmp_path):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": {**os.environ, "COLUMNS": "300"}}
    flags = "--preset=pendulum_sac", "--set=schedule.heatup_steps=130"
    process = start_training(tmp_path / "run", *flags, text=True, **pipes)
    assert "pendulum_sac" in process.stdout.readline()
    process.stdout.close()
    assert process.wait(300) == 128 + 13
    assert process.stderr.read() == ""
    process.stderr.close()
    assert list((tmp_path / "run" / "checkpoints").glob("0*"))


@pytest.mark.acceptance
def test_closed_terminal_saves_and_ends_the_run(tmp_path):
    # The kernel sends SIGHUP, and every later write fails.
    master, slave = pty.openpty()
    streams = {"stdin": slave, "stdout": slave, "stderr": slave}
    streams |= {"start_new_session": True, "preexec_fn": control_terminal}
    run = start_training(tmp_path / "run", "--preset=pendulum_twin_sac", "--set=schedule.heatup_steps=300", **streams)
    os.close(slave)
    output = b""
    while b"/s  return" not in output[-400:] or not (tmp_path / "run" / "metrics.csv").is_file():
        output += os.read(master, 4096)
    os.close(master)
    assert run.wait(60) == 128 + signal.SIGHUP
    assert list((tmp_path / "run" / "checkpoints").glob("0*"))


def control_terminal():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
