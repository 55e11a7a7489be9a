"""Trains the runs of learning.py, each in its own process, and keeps a small record of every finished run.

A folder of records has `NAME.csv` with the evaluations of each run, and `runs.csv` with one row per run.
"""

import contextlib
import csv
import fcntl
import functools
import io
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from learning_suites import Run

from tfsac.distributed.ray_cluster import end_with_parent
from tfsac.experiments.learning_curves import read_evaluations
from tfsac.experiments.run_processes import PlannedRun
from tfsac.utils.files import atomic_write, differences

SB3_SCRIPT = pathlib.Path(__file__).with_name("learning_sb3.py")
CURVE = ["env_steps", "wall_seconds"] + [f"evaluation/return_{name}" for name in ("mean", "std", "min", "max")]
SUCCESS = "evaluation/is_success"  # for levels that report it
ROW = [
    "name",
    "level",
    "group",
    "seed",
    "steps",
    "score",
    "wall_seconds",
    "shared_clock",
    "starts",
    "cpu",
    "versions",
    "commit",
    "command",
    "failure",
]
PACKAGES = ("python", "tfsac", "tensorflow", "keras", "stable-baselines3", "torch", "gymnasium", "numpy", "mujoco")
STOPPED = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)  # exit statuses
GRACE = 1.15  # multiple of the minutes after which tfsac's runs save and end
SECONDS_BETWEEN_LOOKS = 0.2


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


# -- processes ---------------------------------------------------------------------------------------------------------


class Machine(NamedTuple):
    """How runs are trained here: in folders below `runs`, `jobs` in parallel, SB3's with another interpreter."""

    runs: pathlib.Path
    jobs: int = 1
    sb3_python: str | None = None

    def trainer(self, run: Run) -> "PlannedRun | Sb3Run":
        path = self.runs / run.name
        if run.package == "tfsac":
            return PlannedRun(path, list(run.flags))
        return Sb3Run(path, [*run.flags, *(["--threads=1"] if self.jobs > 1 else [])], self.sb3_python)

    def can_train(self, run: Run) -> bool:
        return run.package == "tfsac" or self.sb3_python is not None

    def start(self, run: Run) -> subprocess.Popen | None:
        """Starts or resumes a run; returns None if it has finished.

        Raises:
            BlockingIOError: another process is training it.
        """
        self.runs.mkdir(parents=True, exist_ok=True)
        trainer = self.trainer(run)
        process = trainer.start(None if self.jobs == 1 else 1, end_with_parent)
        if process is not None:
            with trainer.log.open("a") as log:
                log.write(f"# jobs={self.jobs}\n")
        return process

    def starts(self, run: Run) -> tuple[int, bool]:
        """Returns how often a run was started here, and whether its clock is meaningless: it was started several times,
        in parallel with others, or elsewhere.
        """
        log = self.trainer(run).log
        lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
        starts = sum(line.startswith("$ ") for line in lines)
        jobs = [line for line in lines if line.startswith("# jobs=")]
        return starts, not (starts == 1 and jobs == ["# jobs=1"])


class Sb3Run(NamedTuple):
    """A run of Stable-Baselines3. Its script can resume it, with new random numbers."""

    path: pathlib.Path
    flags: list[str]
    python: str | None

    @property
    def log(self) -> pathlib.Path:
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def finished(self) -> bool:
        """Whether the run has its metrics, which are written atomically at the end."""
        return (self.path / "metrics.csv").is_file()

    def start(self, cores: int | None, prepare) -> subprocess.Popen | None:
        command = [self.python, str(SB3_SCRIPT), *self.flags, f"--out={self.path}"]
        with self.log.open("ab") as log:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the process keeps it
            if self.finished:
                return None
            log.write(f"$ {shlex.join(command)}\n".encode())
            log.flush()
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=prepare
            )


# -- records -----------------------------------------------------------------------------------------------------------


class Records:
    """The committed records of runs in a folder."""

    def __init__(self, folder: pathlib.Path, last_evaluations: int):
        self.folder, self.last_evaluations = folder, last_evaluations
        self.rows = self._read()

    def _read(self) -> dict[str, dict[str, str]]:
        path = self.folder / "runs.csv"
        if not path.is_file():
            return {}
        with path.open(newline="") as file:
            return {row["name"]: row for row in csv.DictReader(file)}

    def curve(self, run: Run) -> pathlib.Path:
        return self.folder / f"{run.name}.csv"

    def success(self, run: Run) -> float | None:
        """The success rate in the last evaluations of a run; None if its level reports none."""
        with self.curve(run).open(newline="") as file:
            lines = [*csv.DictReader(file)][-self.last_evaluations :]
        rates = [float(line[SUCCESS]) for line in lines if SUCCESS in line]
        return sum(rates) / len(rates) if rates else None

    def has(self, run: Run) -> bool:
        """Whether the run with these flags has finished successfully."""
        row = self.rows.get(run.name)
        return (
            bool(row) and not row["failure"] and row["command"] == shlex.join(run.command) and self.curve(run).is_file()
        )

    def add(self, machine: Machine, run: Run, failure: str = "") -> str:
        """Adds the record of a run, and returns its failure, if any."""
        path, (starts, shared) = machine.runs / run.name, machine.starts(run)
        row = dict.fromkeys(ROW, "") | {name: getattr(run, name) for name in ("name", "level", "group", "seed")}
        row |= {"command": shlex.join(run.command), "starts": starts, "shared_clock": "yes" if shared else "no"}
        row |= {"cpu": cpu(), **origin(path / ("config.json" if run.package == "tfsac" else "versions.json"))}
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            refuse_other_experiment(path, run)
            if failure:
                raise ValueError(failure)
            read = read_evaluations(path / "metrics.csv", run.level, self.last_evaluations)
            with (path / "metrics.csv").open(newline="") as file:
                lines = [line for line in csv.DictReader(file) if line[CURVE[2]]]
            columns = [*CURVE, *[SUCCESS] * (SUCCESS in lines[0])]
            write(self.curve(run), [columns, *([line[column] for column in columns] for line in lines)])
            row |= {"steps": read.steps[-1], "score": f"{read.last:.6g}", "wall_seconds": f"{read.seconds[-1]:.6g}"}
        except ValueError as error:
            row["failure"] = " ".join(str(error).split())
        with alone_in(self.folder):
            self.rows = self._read() | {run.name: row}
            write(self.folder / "runs.csv", [ROW, *([line[column] for column in ROW] for line in self.rows.values())])
        self.rows = self._read()
        return row["failure"]

    def collect(self, machine: Machine, runs: Sequence[Run]) -> None:
        """Adds records of finished runs that have none yet."""
        for run in runs:
            if not self.has(run) and machine.trainer(run).finished:
                failure = self.add(machine, run)
                say(f"recorded  {run.name}" + (f"  {failure}" if failure else ""))


def write(path: pathlib.Path, rows) -> None:
    csv.writer(text := io.StringIO(), lineterminator="\n").writerows(rows)
    with atomic_write(path) as file:
        file.write(text.getvalue().encode())


@contextlib.contextmanager
def alone_in(folder: pathlib.Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@functools.cache
def cpu() -> str:
    """Returns the name of the processor, as printed by `tfsac info`."""
    printed = subprocess.run([sys.executable, "-m", "tfsac", "info"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^cpu {2,}(.*)$", printed, re.MULTILINE)[0]


def origin(file: pathlib.Path) -> dict[str, str]:
    """Returns the versions and the commit at the start of a run."""
    if not file.is_file():
        return {}
    content = json.loads(file.read_bytes())
    versions, git = content["versions"], content["git"]
    return {
        "versions": " ".join(f"{name}={versions[name]}" for name in PACKAGES if name in versions),
        "commit": (git["commit"] or "no commit") + (" with changes" if git.get("changed_files") else ""),
    }


@functools.cache
def refuse_other_experiment(path: pathlib.Path, run: Run) -> None:
    """Raises ValueError if the preset or seed in a tfsac run's folder differs from the run's flags."""
    config = path / "config.json"
    if run.package != "tfsac" or not config.is_file():
        return
    found = json.loads(config.read_bytes())
    wanted = shown([flag for flag in run.flags if flag.startswith(("--preset=", "--level=", "--num_envs=", "--set="))])
    # Read with the current tfsac, which may have more parameters than the version that trained the run.
    preset = shown([f"--preset={config}"])["preset"]
    given = {name: value for name, _, value in (flag.removeprefix("--").partition("=") for flag in run.flags)}
    defaults = {name: wanted["run"][name] for name in ("mixed_precision", "strategy", "num_actors")}
    run_flags = {name: type(default)(given.get(name, default)) for name, default in defaults.items()}
    theirs = {"preset": preset, "run": {name: found["run"].get(name) for name in (*run_flags, "seed")}}
    ours = {"preset": wanted["preset"], "run": run_flags | {"seed": run.seed}}
    if different := [f"{name}={value}" for name, value, _ in differences(theirs, ours)]:
        raise ValueError(
            f"The folder of a run holds another experiment; move it away. Received: {', '.join(different[:3])}"
        )


def shown(flags: list[str]) -> dict:
    """Returns the output of `tfsac show` for these flags."""
    command = [sys.executable, "-m", "tfsac", "show", "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"tfsac show failed: {done.stderr.strip()}. Received: {shlex.join(flags)}")
    return json.loads(done.stdout)


# -- the loop ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def remembered() -> Iterator[list[int]]:
    """Collects SIGTERM and Ctrl-C instead of acting on them."""
    received: list[int] = []
    previous = {
        number: signal.signal(number, lambda number, frame: received.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def failure_of(run: Run, machine: Machine, status: int) -> str:
    log = machine.trainer(run).log
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    said = [line for line in lines if line.strip() and not line.startswith(("$ ", "# "))]
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return f"{how}: {said[-1][-300:]}" if said else how


def train(runs: Sequence[Run], machine: Machine, records: Records, minutes: float | None = None) -> int:
    """Trains the missing runs that can be trained here, in order.

    Args:
        runs: runs in order.
        machine: how to train them.
        records: existing records, to which finished runs are added.
        minutes: nothing is started later; after `GRACE` times as many, runs of tfsac save and end.

    Returns:
        The exit status: 0, 1 if a run failed, or 128 plus the number of the signal that stopped everything.
    """
    records.collect(machine, runs)
    pending = [run for run in runs if not records.has(run) and machine.can_train(run)]
    if not pending and any(records.has(run) for run in runs):
        say(f"nothing   to train: {records.folder} has the records; new folders --results and --runs train again")
    running: dict[Run, subprocess.Popen] = {}
    asked: set[Run] = set()
    status, waiting, begun = 0, False, time.monotonic()
    with remembered() as received:
        try:
            while True:
                for run in [run for run, process in running.items() if process.poll() is not None]:
                    status |= ended(run, running.pop(run).returncode, machine, records)
                spent = (time.monotonic() - begun) / 60
                for run, process in running.items():
                    late = minutes is not None and spent >= GRACE * minutes and run.package == "tfsac"
                    if run not in asked and (late or received):
                        process.send_signal(signal.SIGTERM)
                        asked.add(run)
                if not pending or received or (minutes is not None and spent >= minutes):
                    if not running:
                        return 128 + received[0] if received else status
                elif len(running) < machine.jobs:
                    run, process = start_next(pending, machine)
                    if process is not None:
                        running[run] = process
                        say(f"started   {run.name}  ({len(pending)} more)")
                        continue
                    if run is not None:
                        status |= ended(run, 0, machine, records)
                    elif not waiting:
                        say(f"waiting   other processes are training {', '.join(run.name for run in pending)}")
                    waiting = run is None
                time.sleep(SECONDS_BETWEEN_LOOKS)
        finally:
            for process in running.values():
                process.send_signal(signal.SIGTERM)
            for process in running.values():
                process.wait()


def start_next(pending: list[Run], machine: Machine) -> tuple[Run | None, subprocess.Popen | None]:
    """Starts the first run that no other process is training, such as an earlier call that is still saving.

    Returns:
        The run, which is no longer pending, or None; and its process, or None if another process has finished it or its
        folder holds another experiment.
    """
    for run in pending:
        try:
            refuse_other_experiment(machine.runs / run.name, run)
            process = machine.start(run)
        except BlockingIOError:
            continue
        except ValueError:  # stored in its record
            process = None
        pending.remove(run)
        return run, process
    return None, None


def ended(run: Run, status: int, machine: Machine, records: Records) -> int:
    """Records a run after its process has ended, and returns 1 if it failed."""
    if not machine.trainer(run).finished:
        if status in STOPPED:
            say(f"stopped   {run.name}")
            return 0
        failure = records.add(machine, run, failure_of(run, machine, status))
    else:
        failure = records.add(machine, run)
    say(f"failed    {run.name}  {failure}" if failure else f"finished  {run.name}  {records.rows[run.name]['score']}")
    return int(bool(failure))
