"""What a run says when it fails: what went wrong, and how to continue."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfsac.distributed.workers import worker_lost
from tfsac.machine import option
from tfsac.training.checkpoints import CheckpointManager
from tfsac.training.run_directory import RunDirectory
from tfsac.training.schedule import Counters


class OutOfMemory(RuntimeError):
    """An array cannot be had, in RAM or on a device."""


class HowToResume:
    """How a run can be continued.

    Args:
        directory: of the run.
        checkpoints: of the run.
        functions: names of the user's functions that made its environment and its networks, as `recorded` returns them.
        callbacks: whether it has any.

    Attributes:
        call: the call in Python that continues a run where no command and not `tfsac.train` does.
    """

    call = ""

    def __init__(
        self, directory: RunDirectory, checkpoints: CheckpointManager, functions: dict[str, Any], callbacks: bool
    ):
        self.directory, self.checkpoints = directory, checkpoints
        self.functions, self.callbacks = functions, callbacks

    def command(self) -> str:
        """Returns the command that continues the run, or the call in Python where it needs functions or callbacks."""
        if self.call:
            return self.call
        given = [
            f"{name}={function.rpartition('.')[2]}"
            for name in ("env_fn", "models")
            if (function := self.functions[name])
        ]
        if self.callbacks:
            given.append("callbacks=[...]")
        config, folder = str(self.directory.shown(self.directory.config)), str(self.directory.shown())
        in_python = f"tfsac.train({', '.join([repr(config), repr(folder), 'resume=True', *given])})"
        if given:  # which no command line has
            return in_python
        return option(f"tfsac train {shlex.quote(f'--run_dir={folder}')} --resume", in_python)

    def advice(self) -> str:
        """Returns the same in a sentence, with the last checkpoint, where there is one."""
        saved = self.checkpoints.places()
        if not saved:
            return "There is no checkpoint to continue from: the run begins again in another folder."
        return f"{self.command()} continues from the last checkpoint, {saved[-1].name}."


@contextlib.contextmanager
def explaining(counters: Counters, resume: HowToResume, workers: int) -> Iterator[None]:
    """Explains what happens when memory runs out or another worker is lost.

    Args:
        counters: of the run.
        resume: how it can be continued.
        workers: that share it.

    Raises:
        OutOfMemory: memory ran out; the run continues from its last checkpoint.
        TfsacError: another worker of the run ended.
    """
    try:
        yield
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        raise OutOfMemory(
            f"Memory ran out at environment step {counters.env_steps}. "
            f"{option('--memory_on_disk', 'RunParameters(memory_on_disk=True)')} takes less, also when the run "
            "is resumed. A new run takes less with a smaller "
            f"agent.memory.max_size or batch_size, or fewer environments. {resume.advice()} "
            f"Received: {first_line(error)}"
        ) from error
    except tf.errors.OpError as error:
        if workers == 1:
            raise
        advice = f"Start all workers with {resume.command()} to continue from the last checkpoint."
        raise worker_lost(error, advice) from error


class Writing:
    """While entered, explains what happens when a file of a run cannot be written, such as on a full disk.

    A class, because a run enters it in every step and a generator takes four times as long.

    Args:
        counters: of the run.
        resume: how it can be continued.
    """

    def __init__(self, counters: Counters, resume: HowToResume):
        self.counters, self.resume = counters, resume

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and "Received: " not in str(error):
            raise OSError(
                f"{self.resume.directory.path} cannot be written at environment step {self.counters.env_steps}. "
                f"{self.resume.advice()} Received: {type(error).__name__}: {error}"
            ) from error


@contextlib.contextmanager
def writing_results(resume: HowToResume) -> Iterator[None]:
    """Explains what to do when a run is complete and its curve or policy cannot be written.

    Args:
        resume: how the run can be continued.

    Raises:
        OSError: with the command that makes them.
    """
    try:
        yield
    except OSError as error:
        received = str(error) if "Received: " in str(error) else f"Received: {error}"
        raise OSError(
            "The run is complete and saved, but its curve or policy could not be written. "
            f"When there is room, make them with: {resume.command()}. {received}"
        ) from error


def first_line(error: BaseException) -> str:
    """Returns type and first line of an error, as TensorFlow's have many."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
