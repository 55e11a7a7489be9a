"""The suites of benchmarks/learning.py: resuming, failures, records and tables, with a fake for SB3."""

import csv
import importlib
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tfsac.cli.command_registry import parse
from tfsac.cli.train import requested_run

BENCHMARKS = pathlib.Path(__file__).resolve().parents[1] / "benchmarks"

# Replaces the interpreter that runs learning_sb3.py. It writes evaluations after 100, 200 and 300 steps, waits in the
# middle while a file "wait" exists, and fails if a file "fail" exists.
STAND_IN = """#!{python}
import json, pathlib, sys, time
flags = dict(word.lstrip("-").split("=", 1) for word in sys.argv[2:])
out, here = pathlib.Path(flags["out"]), pathlib.Path(__file__).parent
out.mkdir(parents=True, exist_ok=True)
versions = {{"versions": {{"torch": "2.0", "gymnasium": "1.0"}}, "git": {{"commit": "abc", "changed_files": ""}}}}
(out / "versions.json").write_text(json.dumps(versions))
if (here / "fail").exists():
    sys.exit("no such\\nlevel")
with (out / "metrics.csv.partial").open("w") as file:
    print("env_steps,wall_seconds,evaluation/return_mean,evaluation/return_std,evaluation/return_min,"
          "evaluation/return_max", file=file)
    for step in (100, 200, 300):
        value = step * int(flags["seed"])
        print(f"{{step}},{{step / 10}},{{value}},0,{{value}},{{value}}", file=file, flush=True)
        while step == 200 and (here / "wait").exists():
            time.sleep(0.01)
(out / "metrics.csv.partial").rename(out / "metrics.csv")
"""
DRIVER = """
import sys
sys.path.insert(0, {benchmarks!r})
import learning, learning_runs
from learning_suites import *
learning_runs.cpu = lambda: "a processor"

both = (
    Group("sb3", SB3, (), "sb3", (1, 2)),
    Group("sb3_fast", "fast", ("--learning_rate=1",), "sb3", (1,)),
)
SUITES["tiny"] = Suite(
    (
        Level("Pendulum-v1", both, "-150 ± 10"),
        Level("Pendulum-v1", both, kwargs={{"g": 5.0}}, variant="-light", label="light Pendulum"),
    ),
    "something.",
    last_evaluations=2,
)

if __name__ == "__main__":
    raise SystemExit(learning.main())
"""
NAMES = [
    "sb3_Pendulum-v1_seed1",
    "sb3_fast_Pendulum-v1_seed1",
    "sb3_Pendulum-v1-light_seed1",
    "sb3_fast_Pendulum-v1-light_seed1",
    "sb3_Pendulum-v1_seed2",
    "sb3_Pendulum-v1-light_seed2",
]


class Suites:
    """A driver with tiny suites, in its own folder."""

    def __init__(self, folder):
        self.folder, self.records = folder, folder / "results" / "tiny"
        self.driver, self.stand_in = folder / "driver.py", folder / "python"
        self.driver.write_text(DRIVER.format(benchmarks=str(BENCHMARKS)))
        self.stand_in.write_text(STAND_IN.format(python=sys.executable))
        self.stand_in.chmod(0o755)

    def start(self, *flags):
        command = [sys.executable, str(self.driver), "--suite=tiny", "--runs=runs", "--results=results", *flags]
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *flags):
        """Returns the exit status and the output."""
        process = self.start(*flags, f"--sb3_python={self.stand_in}")
        printed, _ = process.communicate(timeout=300)
        return process.returncode, printed

    def rows(self):
        with (self.records / "runs.csv").open(newline="") as file:
            return {row["name"]: row for row in csv.DictReader(file)}


@pytest.fixture
def suites(tmp_path):
    return Suites(tmp_path)


@pytest.fixture
def module(monkeypatch):
    """Returns a function that imports a module of benchmarks/."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def kill_when(process, condition):
    """Kills a suite once a condition holds."""
    for _ in range(6000):  # a number of polls, because a busy machine is slow
        if condition() or process.poll() is not None:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    printed, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, printed


def started(printed):
    return [line.split()[2] for line in printed.splitlines() if " started " in line]


@pytest.mark.slow
def test_killed_suite_continues_and_ignores_partial_curves(suites):
    (suites.folder / "wait").touch()
    first = suites.start(f"--sb3_python={suites.stand_in}")
    partial = suites.folder / "runs" / "tiny" / NAMES[0] / "metrics.csv.partial"
    kill_when(first, lambda: partial.is_file() and partial.read_text().count("\n") == 3)
    (suites.folder / "wait").unlink()
    assert not (suites.records / "runs.csv").exists()
    status, printed = suites.run()
    assert status == 0 and sorted(started(printed)) == sorted(NAMES)
    # All first seeds run before the second seeds.
    assert [name[-1] for name in started(printed)][-2:] == ["2", "2"]
    rows = suites.rows()
    assert [rows[name]["starts"] for name in NAMES] == ["2", "1", "1", "1", "1", "1"]
    row = rows[NAMES[5]]
    assert [row["score"], row["steps"], row["wall_seconds"]] == ["500", "300", "30"]  # (400 + 600) / 2
    assert [row["level"], row["group"], row["seed"]] == ["light Pendulum", "Stable-Baselines3 SAC", "2"]
    assert [row["cpu"], row["versions"], row["commit"]] == ["a processor", "torch=2.0 gymnasium=1.0", "abc"]
    assert (suites.records / f"{NAMES[0]}.csv").read_text().splitlines()[1:] == [
        f"{step},{step / 10},{step},0,{step},{step}" for step in (100, 200, 300)
    ]


@pytest.mark.slow
def test_failed_run_is_retried_and_tables_are_rebuilt(suites):
    (suites.folder / "fail").touch()
    status, printed = suites.run("--only=fast_Pendulum-v1_")
    assert status == 1 and started(printed) == [NAMES[1]]
    assert suites.rows()[NAMES[1]]["failure"] == "exit status 1: level"
    assert "0 of 6 runs have ended." in (suites.records / "tables.md").read_text()
    (suites.folder / "fail").unlink()
    status, printed = suites.run("--jobs=2")
    assert status == 0 and NAMES[1] in started(printed)
    assert all(row["shared_clock"] == "yes" and row["failure"] == "" for row in suites.rows().values())
    table = (suites.records / "tables.md").read_text()
    scores = "375.00 [250.00, 500.00] | 375.00 [250.00, 500.00]"
    assert f"| Pendulum-v1 | Stable-Baselines3 SAC | 300 | 2 | {scores} |  | -150 ± 10 |" in table
    shutil.rmtree(suites.folder / "runs")
    (suites.records / "tables.md").unlink()
    assert suites.run("--collect")[0] == 0
    assert (suites.records / "tables.md").read_text() == table
    assert (suites.records / "Pendulum-v1-light" / "comparison.png").is_file()


def test_runs_of_every_suite_are_unique_and_valid(module):
    for suite in module("learning_suites").SUITES.values():
        runs = suite.runs()
        assert len(runs) == len({run.name for run in runs}) == len({tuple(run.command) for run in runs})
        tried = set()
        for run in runs:
            if run.package == "tfsac" and (run.level, run.group) not in tried:
                tried.add((run.level, run.group))
                experiment, settings = requested_run(parse("train", run.flags)[0])
                assert settings.seed == run.seed
                plan = experiment.schedule
                steps = plan.heatup_steps.num_steps + plan.improve_steps.num_steps
                evaluations = steps / plan.steps_between_evaluation_periods.num_steps
                assert evaluations >= suite.last_evaluations, run.name  # otherwise the run would have no score
