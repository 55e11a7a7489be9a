"""Train runs in parallel, each in a process of `tfsac train`. Without TensorFlow."""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
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
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from filelock import FileLock

from tfsac.distributed.ray_cluster import end_with_parent, start_when_free
from tfsac.errors import TfsacError
from tfsac.experiments.plots import trained_evaluations
from tfsac.utils.files import LOCK, acquire, atomic_write, check_new_folder, differences, read_object
from tfsac.utils.machine import ending_signals, usable_cores
from tfsac.utils.text import short

TRAIN = ["-m", "tfsac", "train"]  # arguments of Python
# Flags that a resumed run takes from its config.
FIXED_FLAGS = ("preset", "level", "num_envs", "seed", "checkpoint_restore_dir", "restore_memory")
EXTENDED = ("trials", "arguments")  # entries that may change when a tuning is resumed
SECONDS_BETWEEN_LOOKS = 0.1
say = functools.partial(print, flush=True)


class PlannedRun(NamedTuple):
    """A run to train: its folder and the flags of `train` without it."""

    path: pathlib.Path
    flags: list[str]

    @property
    def log(self) -> pathlib.Path:
        """The log file, next to the folder, which must be new when the run starts."""
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def finished(self) -> bool:
        """Whether the run has its policy, which is exported last and atomically."""
        return (self.path / "policy").is_dir()

    @property
    def interrupted(self) -> bool:
        """Whether the run has a checkpoint to resume from, including one that was being replaced."""
        names = [folder.name for folder in (self.path / "checkpoints").glob("*")]
        return not self.finished and any(name.removeprefix(".").removesuffix(".old").isdigit() for name in names)

    def start(
        self,
        cores: int | None,
        prepare: Callable[[], None] | None = None,
        train: Sequence[str] = (),
    ) -> subprocess.Popen[bytes] | None:
        """Starts the run's process, or returns None if another process has finished the run; raises BlockingIOError if
        one is training it.

        Args:
            cores: number of cores for TensorFlow's threads, unless its environment variables are set; None for all.
            prepare: called in the new process before it executes the program.
            train: arguments of Python before the flags; `TRAIN` by default.
        """
        threads = {} if cores is None else {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": str(cores)}
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with acquire(FileLock(self.path / LOCK)) if self.path.is_dir() else contextlib.nullcontext():
            if self.finished:
                return None
            flags = self._flags_to_continue()
        command = [sys.executable, *(train or TRAIN), *flags, f"--run_dir={self.path}"]
        with self.log.open("ab") as log:
            log.write(f"$ {shlex.join(command)}\n".encode())
            log.flush()
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            environment = {**threads, **os.environ}
            return subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=prepare, **streams)

    def _flags_to_continue(self) -> list[str]:
        """Returns the flags to start or resume with; removes the files of a process without a checkpoint."""
        if self.interrupted:
            fixed = {f"--{no}{name}" for name in FIXED_FLAGS for no in ("", "no")}
            return [*(flag for flag in self.flags if flag.partition("=")[0] not in fixed), "--resume"]
        names = [path.name for path in self.path.iterdir()] if self.path.is_dir() else ["new"]
        if "config.json" in names or all(name.startswith(".") for name in names):
            shutil.rmtree(self.path)
        return self.flags


# Starts a run with a number of cores; returns a `subprocess.Popen` or similar object with `poll` and `send_signal`, or
# None if another process has finished the run in the meantime.
Launch = Callable[[PlannedRun, int | None], Any]


class Series:
    """Runs in one folder that are trained in parallel; subclasses select them in `jobs` and train them in `do`.

    Args:
        folder: a new or empty folder, or the folder of the same series.
        name: name of the JSON file that describes the series.
        content: content of that file; a resumed series must have the same, except for the entries in `EXTENDED`.

    Attributes:
        signals: received signals; after one, the runs save and end, and no other run is started.
    """

    def __init__(self, folder: pathlib.Path, name: str, content: dict[str, Any]):
        self.folder, self.file, self.content, self.signals = folder, folder / name, content, list[int]()
        if self.file.is_file():
            before, now = read_object(self.file), json.loads(json.dumps(content))
            names = (before.keys() & now.keys()) - set(EXTENDED)
            for path, earlier, current in differences({n: before[n] for n in names}, {n: now[n] for n in names}):
                raise TfsacError(f"{self.file} was started with {path}={earlier!r}, got {current!r}; use a new folder")
        else:
            check_new_folder(folder)

    def jobs(self) -> Sequence[Any]:
        """Returns the jobs to do; called once no other process trains in the folder."""
        return ()

    def do(self, job: Any) -> None:
        """Does a job with `train_run`, in parallel with other threads."""

    def train(self, jobs: int = 1, cores: int | None = None, launch: Launch | None = None) -> int | None:
        """Trains the unfinished runs, `jobs` at a time; a failure does not stop the other runs.

        Args:
            jobs: number of runs at the same time.
            cores: cores of each run; by default the usable cores divided by `jobs`.
            launch: starts a run; by default a process on this machine, which saves and ends when this process dies.

        Returns:
            The number of the signal that stopped the series after its runs were saved, or None.
        """
        self.launch = launch or (lambda run, cores: run.start(cores, end_with_parent))
        self.folder.mkdir(parents=True, exist_ok=True)
        with acquire(FileLock(self.folder / LOCK)), _collect_signals(self.signals):
            with atomic_write(self.file) as stream:
                stream.write(json.dumps(self.content, indent=2).encode())
            waiting = self.jobs()
            jobs = max(min(jobs, len(waiting)), 1)
            self.cores = max(usable_cores() // jobs, 1) if cores is None and jobs > 1 else cores
            with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
                try:
                    for done in concurrent.futures.as_completed([pool.submit(self._do, job) for job in waiting]):
                        done.result()
                except BaseException:
                    if not self.signals:
                        self.signals.append(signal.SIGTERM)  # makes the other runs save and end
                    raise
        return self.signals[0] if self.signals else None

    def _do(self, job: Any) -> None:
        if not self.signals:
            self.do(job)

    def train_run(self, run: PlannedRun, ends: Callable[[], bool] = lambda: False) -> int:
        """Trains a run, prints its progress, and returns its exit status. Once `ends` is true, it saves and ends."""
        name, num_sent, ending, began = run.path.relative_to(self.folder), 0, False, time.monotonic()
        word = "resumed" if run.interrupted else "started"
        if (process := start_when_free(lambda: self.launch(run, self.cores), lambda: bool(self.signals))) is None:
            return 0
        say(f"{word:<9} {name}")
        try:
            while (status := process.poll()) is None:
                time.sleep(SECONDS_BETWEEN_LOOKS)
                for number in self.signals[num_sent:]:
                    num_sent += 1
                    process.send_signal(number)
                if not ending and ends():
                    ending = True
                    process.send_signal(signal.SIGTERM)
        except BaseException:
            process.send_signal(signal.SIGTERM)
            raise
        took = str(datetime.timedelta(seconds=round(time.monotonic() - began)))
        if status == 0:
            with contextlib.suppress(TfsacError):  # a run without evaluations
                took = f"best evaluation {short(trained_evaluations(run.path)[1].max())}, {took}"
            say(f"finished  {name}  {took}")
        elif self.signals:
            say(f"stopped   {name}")
        elif ending:
            say(f"pruned    {name}  after {took}")
        else:
            last = run.log.read_text(errors="replace").splitlines()[-1]
            say(f"failed    {name}  status {status}, see {run.log}\n          {last}")
        return status


@contextlib.contextmanager
def _collect_signals(received: list[int]) -> Iterator[None]:
    """Collects the signals that would end this process."""
    previous = {
        number: signal.signal(number, lambda number, frame: received.append(number)) for number in ending_signals()
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
