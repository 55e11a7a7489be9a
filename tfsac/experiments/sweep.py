"""Sweeps: `tfsac train` for every combination of a grid with several seeds, a process each. No TensorFlow.

sweep.json                                       what is swept, so that the folder is resumed for nothing else
discount=0.98,learning_rate=0.001/seed1          a run directory
discount=0.98,learning_rate=0.001/seed1.log      what the run printed
comparison.csv, comparison.png                   the combinations against each other
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import functools
import json
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

from tfsac.experiments.comparison import compare
from tfsac.experiments.grid import LEVELS, Combination, named, text_of
from tfsac.experiments.plots import read_curve
from tfsac.files import differences, new_file, written_aside

TRAIN = ["-m", "tfsac", "train"]  # arguments of Python
KEPT = ("preset", "level", "num_envs", "seed", "checkpoint_restore_dir")  # flags that a resumed run has from its config
SECONDS_BETWEEN_LOOKS = 0.1


class SweepRun(NamedTuple):
    """A run of a sweep: its folder and the flags of `train` without it."""

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
            elif (self.path / "config.json").is_file():  # killed before its first checkpoint
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
    """A run that is being trained: what a sweep uses of `subprocess.Popen`."""

    returncode: Any

    def poll(self) -> int | None:
        """Returns the exit status, or None while it runs."""

    def send_signal(self, number: int, /) -> None:
        """Passes a signal on."""

    def wait(self) -> int:
        """Waits for the exit status."""


class Sweep:
    """Runs of every combination with every seed, in one folder.

    Args:
        folder: new or empty, or of the same sweep.
        combinations: from `plan`.
        seeds: of each combination.
        flags: of `train`, for all runs.

    Attributes:
        runs: by combination, in the order of the seeds.
        failed: runs that ended with another exit status than 0.

    Raises:
        FileExistsError, ValueError: there is something else in the folder, or another sweep.
        OSError: it cannot be written.
    """

    def __init__(
        self, folder: pathlib.Path, combinations: Sequence[Combination], seeds: Sequence[int], flags: Sequence[str]
    ):
        self.folder, self.combinations, self.seeds, self.failed = folder, combinations, seeds, list[SweepRun]()
        self.runs = {
            combination.name: [
                SweepRun(folder / combination.name / f"seed{seed}", [*flags, *combination.flags, f"--seed={seed}"])
                for seed in seeds
            ]
            for combination in combinations
        }
        self._claim()

    def _claim(self) -> None:
        file, first = self.folder / "sweep.json", self.combinations[0]
        # With the same grid and the same first combination all others are the same too.
        grid = {path: list(dict.fromkeys(text_of(c.values[path]) for c in self.combinations)) for path in first.values}
        content = {"format": 1, "grid": list(grid.items()), "first": first.experiment}
        if file.is_file():
            found = differences(_content(file), json.loads(json.dumps(content)))
            for name, theirs, ours in found:
                raise ValueError(f"{file} is of another sweep, whose {name} is {theirs!r}. Received: {name}={ours!r}")
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise FileExistsError(f"A sweep has a new or empty folder, or its own. Received: {self.folder}")
        for runs in self.runs.values():
            new_file(runs[0].log, replace=True)
        with written_aside(file) as stream:
            stream.write(json.dumps(content, indent=2).encode())

    def train(
        self,
        jobs: int = 1,
        cores: int | None = None,
        launch: Callable[[SweepRun, int | None], Process | None] | None = None,
    ) -> int | None:
        """Trains the runs that are not finished; one that fails does not stop the others.

        Args:
            jobs: runs at the same time.
            cores: of each run; by default the cores of this machine by the number of jobs.
            launch: starts a run that may use so many cores; by default as a process of this machine.

        Returns:
            the number of the signal that stopped it, or None. The signal was passed on to the runs, which saved.

        Raises:
            BlockingIOError: another sweep is training in this folder, or another process one of its runs.
        """
        everything = [run for runs in self.runs.values() for run in runs]
        waiting = [run for run in everything if not run.finished]
        jobs = min(jobs, len(waiting))
        if cores is None and jobs > 1:
            cores = max((os.cpu_count() or 1) // jobs, 1)
        _say(f"{self.folder}: {len(everything) - len(waiting)} of {len(everything)} runs are finished")
        processes: dict[Process, tuple[SweepRun, float]] = {}
        with _alone_in(self.folder), _ended_together(processes), _remembered() as received:
            passed_on = 0
            while processes or (waiting and not received):
                while waiting and len(processes) < jobs and not received:
                    run = waiting.pop(0)
                    word = "resumed" if run.interrupted else "started"
                    process = launch(run, cores) if launch else run.start(cores)
                    if process is None:
                        continue
                    _say(f"{word:<9} {self._name(run)}")
                    processes[process] = run, time.monotonic()
                for number in received[passed_on:]:
                    passed_on += 1
                    for process in processes:
                        process.send_signal(number)
                for process in [process for process in processes if process.poll() is not None]:
                    run, since = processes.pop(process)
                    self._ended(run, process.returncode, time.monotonic() - since, bool(received))
                time.sleep(SECONDS_BETWEEN_LOOKS)
        return received[0] if received and not all(run.finished for run in everything) else None

    def _name(self, run: SweepRun) -> str:
        return str(run.path.relative_to(self.folder))

    def _ended(self, run: SweepRun, status: int, seconds: float, stopping: bool) -> None:
        if status == 0:
            took, best = datetime.timedelta(seconds=round(seconds)), read_curve(run.path)[1].max()
            _say(f"finished  {self._name(run)}  best evaluation {best:.1f}, {took}")
        elif stopping:
            _say(f"stopped   {self._name(run)}")
        else:
            self.failed.append(run)
            last = run.log.read_text(errors="replace").splitlines()[-1]
            _say(f"failed    {self._name(run)}  status {status}, see {run.log}\n          {last}")

    def report(self) -> bool:
        """Compares the combinations over their finished runs: prints tables, writes comparison.csv and comparison.png.

        Returns:
            whether they could be compared.
        """
        kind = self.combinations[0].experiment["preset"]["agent"]["kind"]
        try:
            _say(compare({label or kind: runs for label, runs in finished_runs(self.folder).items()}, self.folder))
        except (ValueError, OSError) as error:
            _say(f"not compared: {error}")
            return False
        return True


def finished_runs(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Returns the folders of a sweep's finished runs by combination; what differs only in the level is together.

    The name of the only combination of an empty grid, or of one over levels alone, is empty.

    Raises:
        ValueError: `sweep.json` is damaged, or no run has finished.
    """
    axes = dict(_content(folder / "sweep.json")["grid"])
    known = {name or "." for name, _ in named(axes)}
    for path in (*folder.glob("seed*/policy"), *folder.glob("*/seed*/policy")):
        name = str(path.parent.parent.relative_to(folder))
        if name not in known:
            raise ValueError(
                f"The sweep.json in {folder} does not name this combination, so it is damaged. Received: {name!r}"
            )
    groups: dict[str, list[pathlib.Path]] = {}
    for (name, _), (label, _) in zip(named(axes), named(axes, LEVELS), strict=True):
        runs = [path for path in sorted((folder / name).glob("seed*")) if SweepRun(path, []).finished]
        if runs:
            groups.setdefault(label, []).extend(runs)
    if not groups:
        raise ValueError(f"No run of this sweep has finished. Received: {folder}")
    return groups


def _content(file: pathlib.Path) -> dict[str, Any]:
    wanted = ("format", "grid", "first")
    try:
        content = json.loads(file.read_bytes())
        if not isinstance(content, dict) or content.keys() < set(wanted):
            raise ValueError(f"it has no {', '.join(wanted)}")
        if not all(
            len(axis) == 2 and isinstance(axis[0], str) and all(isinstance(text, str) for text in axis[1])
            for axis in content["grid"]
        ):
            raise ValueError("grid lists paths with their values")
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{file} is damaged ({error}). Received: {file.stat().st_size} bytes") from error
    return {name: content[name] for name in wanted}


@contextlib.contextmanager
def _alone_in(folder: pathlib.Path) -> Iterator[None]:
    """Keeps other sweeps out of a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, f"Another sweep is training in this folder. Received: {folder}")
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
    """Gives the SIGTERM and Ctrl-C received instead of acting on them."""
    received: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.signal(number, lambda number, frame: received.append(number)) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _lock(file: BinaryIO | int, taken: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(taken) from None
    except OSError:  # a file system without locks
        return


def _say(line: str) -> None:
    print(line, flush=True)
