"""Runs that are trained side by side, a process of `tfsac train` each: started, watched, ended. No TensorFlow."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, Protocol

from tfsac.experiments.plots import read_curve
from tfsac.files import lock_file
from tfsac.machine import ending_signals, usable_cores

TRAIN = ["-m", "tfsac", "train"]  # arguments of Python
# Flags that a resumed run has from its config.
KEPT = ("preset", "level", "num_envs", "seed", "checkpoint_restore_dir", "restore_memory")
SECONDS_BETWEEN_LOOKS = 0.1
SECONDS_BETWEEN_REPORTS = 60.0


class PlannedRun(NamedTuple):
    """A run to train: its folder and the flags of `train` without it."""

    path: pathlib.Path
    flags: list[str]

    @property
    def log(self) -> pathlib.Path:
        """Beside the folder, which must be new when the run starts."""
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def finished(self) -> bool:
        """Whether it has its policy, which is exported last and appears whole."""
        return (self.path / "policy").is_dir()

    @property
    def interrupted(self) -> bool:
        """Whether it has a checkpoint to resume from."""
        return not self.finished and any(folder.name.isdigit() for folder in (self.path / "checkpoints").glob("*"))

    def _only_begun(self) -> bool:
        """Whether a run was killed before its first checkpoint, or while it wrote its first file."""
        names = [path.name for path in self.path.iterdir()]
        return "config.json" in names or all(name.startswith(".") for name in names)

    def start(
        self, cores: int | None, prepare: Callable[[], None] | None = None, train: Sequence[str] = ()
    ) -> subprocess.Popen[bytes] | None:
        """Starts its process, or returns None if another process has finished it meanwhile.

        Args:
            cores: how many of them TensorFlow's threads may use, unless its variables say so; None for all.
            prepare: what the process does before it becomes its program.
            train: arguments of Python before the flags; `TRAIN` by default.

        Raises:
            BlockingIOError: another process is training it.
            OSError: its log cannot be written.
        """
        flags = self.flags
        threads = {} if cores is None else {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": str(cores)}
        with self.log.open("ab") as log:
            # And with it the run, for as long as its process keeps the log open.
            _lock(log, f"Another process is training this run. Received: {self.log}")
            if self.finished:
                return None
            if self.interrupted:
                flags = [flag for flag in flags if not flag.startswith(tuple(f"--{name}=" for name in KEPT))]
                flags.append("--resume")
            elif self.path.is_dir() and self._only_begun():
                shutil.rmtree(self.path)
            command = [sys.executable, *(train or TRAIN), *flags, f"--run_dir={self.path}"]
            log.write(f"$ {shlex.join(command)}\n".encode())
            log.flush()
            return subprocess.Popen(
                command,
                env={**threads, **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=prepare,
            )

    def starter(self, cores: int) -> Callable[[Callable[[], None]], subprocess.Popen[bytes] | None]:
        """Returns `start` as a function of `prepare`, for another machine with the same folders.

        Args:
            cores: as for `start`.
        """
        return functools.partial(self._replace(path=self.path.absolute()).start, cores, train=TRAIN)


class Process(Protocol):
    """A run that is being trained: what is used of `subprocess.Popen`."""

    returncode: Any

    def poll(self) -> int | None:
        """Returns the exit status, or None while it runs."""

    def send_signal(self, number: int, /) -> None:
        """Passes a signal on."""

    def wait(self) -> int:
        """Waits for the exit status."""


# Starts a run that may use so many cores, or returns None if another process has finished it meanwhile.
Launch = Callable[["PlannedRun", int | None], Process | None]


def train_side_by_side(
    folder: pathlib.Path,
    following: Callable[[], PlannedRun | None],
    ended: Callable[[PlannedRun, int, float, bool], None],
    jobs: int,
    cores: int | None = None,
    launch: Launch | None = None,
    to_end: Callable[[Collection[PlannedRun]], Collection[PlannedRun]] = lambda running: (),
) -> int | None:
    """Trains runs, so many at a time, until there is no following one or a signal comes.

    Args:
        folder: below which the runs lie; names in what is printed begin there.
        following: returns the next run, or None while there is none; it is asked again when another has ended.
        ended: is told a run that has ended, its exit status, how many seconds it took, and whether it ended because
            of a signal.
        jobs: runs at the same time.
        cores: of each run; by default the usable cores by the number of jobs.
        launch: starts a run that may use so many cores; by default as a process of this machine.
        to_end: of the runs that are trained, returns those that are to save and end.

    Returns:
        the number of the signal that stopped them, or None. The signal was passed on to the runs, which saved.

    Raises:
        BlockingIOError: other runs are trained side by side in this folder, or another process trains one of these.
    """
    if cores is None and jobs > 1:
        cores = max(usable_cores() // jobs, 1)
    processes: dict[Process, tuple[PlannedRun, float]] = {}
    asked: set[pathlib.Path] = set()
    with _alone_in(folder), _ended_together(processes), _remembered() as received:
        passed_on, reported = 0, dict[pathlib.Path, int]()
        next_report = time.monotonic() + SECONDS_BETWEEN_REPORTS
        while True:
            while len(processes) < jobs and not received and (run := following()) is not None:
                word = "resumed" if run.interrupted else "started"
                process = launch(run, cores) if launch else run.start(cores)
                if process is None:
                    ended(run, 0, 0.0, False)
                    continue
                say(f"{word:<9} {run.path.relative_to(folder)}")
                processes[process] = run, time.monotonic()
            if not processes:
                return received[0] if received else None
            for number in received[passed_on:]:
                passed_on += 1
                for process in processes:
                    process.send_signal(number)
            for process in [process for process in processes if process.poll() is not None]:
                run, since = processes.pop(process)
                ended(run, process.returncode, time.monotonic() - since, bool(received))
            ending = {run.path for run in to_end([run for run, _ in processes.values()])} - asked
            for process in [process for process, (run, _) in processes.items() if run.path in ending]:
                process.send_signal(signal.SIGTERM)
            asked |= ending
            if time.monotonic() >= next_report:
                next_report = time.monotonic() + SECONDS_BETWEEN_REPORTS
                _report([run for run, _ in processes.values()], folder, reported)
            time.sleep(SECONDS_BETWEEN_LOOKS)


def _report(runs: Collection[PlannedRun], folder: pathlib.Path, reported: dict[pathlib.Path, int]) -> None:
    """Prints the newest evaluation of each run that was not printed yet."""
    for run in runs:
        try:
            steps, returns = read_curve(run.path)
        except ValueError:  # it has none yet
            continue
        if steps[-1] > reported.get(run.path, 0):
            reported[run.path] = int(steps[-1])
            say(f"training  {run.path.relative_to(folder)}  {steps[-1]:,} steps, evaluation {returns[-1]:.1f}")


@contextlib.contextmanager
def _alone_in(folder: pathlib.Path) -> Iterator[None]:
    """Keeps others out of a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, f"Another process is training the runs in this folder. Received: {folder}")
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _ended_together(processes: Collection[Process]) -> Iterator[None]:
    """Ends processes that are left, as after an error."""
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait()


@contextlib.contextmanager
def _remembered() -> Iterator[list[int]]:
    """Gives the signals to end that were received instead of acting on them."""
    received: list[int] = []
    previous = {
        number: signal.signal(number, lambda number, frame: received.append(number)) for number in ending_signals()
    }
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _lock(file: BinaryIO | int, taken: str) -> None:
    try:
        lock_file(file)
    except BlockingIOError:
        raise BlockingIOError(taken) from None
    except OSError:  # there are no locks here
        return


def say(line: str) -> None:
    """Prints a line at once."""
    print(line, flush=True)
