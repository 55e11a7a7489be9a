"""What a run does when it fails: it saves its state where that is possible, and says how to continue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import tensorflow as tf

from tfsac.distributed.workers import lost
from tfsac.environments import EnvironmentFailure
from tfsac.training.checkpoint import CheckpointError
from tfsac.user_code import described

if TYPE_CHECKING:
    from tfsac.training.trainer import Trainer


class OutOfMemory(RuntimeError):
    """An array cannot be had, in RAM or on a device."""


@contextlib.contextmanager
def saving(trainer: Trainer) -> Iterator[None]:
    """Saves the state of a run when an environment or a callback fails inside, explains other failures, and tells callbacks.

    Args:
        trainer: of the run.

    Raises:
        OutOfMemory: memory ran out; the run continues from its last checkpoint.
        WorkerLost: another worker of the run ended.
    """
    try:
        with _explained(trainer):
            yield
    except Exception as error:
        trainer.error = error
        trainer.hooks.end(trainer)
        raise


@contextlib.contextmanager
def _explained(trainer: Trainer) -> Iterator[None]:
    try:
        yield
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        raise OutOfMemory(
            f"Memory ran out at environment step {trainer.counters.env_steps}. A smaller agent.memory.max_size, --memory_on_disk, "
            f"a smaller batch_size or fewer environments take less. {_last_checkpoint(trainer)} Received: {first_line(error)}"
        ) from error
    except tf.errors.OpError as error:
        if trainer.workers.place.workers == 1:
            raise
        raise lost(error, f"Start all workers with {trainer.resume_command()} to continue from the last checkpoint.") from error
    except Exception as error:
        if isinstance(error, EnvironmentFailure):
            _save(trainer, error.what)
        elif error is trainer.hooks.error:
            _save(trainer, "A callback failed")
        raise


@contextlib.contextmanager
def writing(trainer: Trainer) -> Iterator[None]:
    """Explains what happens when a file of a run cannot be written, such as on a full disk.

    Args:
        trainer: of the run.

    Raises:
        OSError: with the run's folder and what to do.
    """
    try:
        yield
    except OSError as error:
        if "Received: " in str(error):
            raise
        raise OSError(
            f"{trainer.directory.path} cannot be written at environment step {trainer.counters.env_steps}. "
            f"{_last_checkpoint(trainer)} Received: {type(error).__name__}: {error}"
        ) from error


@contextlib.contextmanager
def writing_results(trainer: Trainer) -> Iterator[None]:
    """Explains what to do when a run is complete and its curve or policy cannot be written.

    Args:
        trainer: of the run.

    Raises:
        OSError: with the command that makes them.
    """
    try:
        yield
    except OSError as error:
        received = str(error) if "Received: " in str(error) else f"Received: {error}"
        raise OSError(
            "The run is complete and saved, but its curve or policy could not be written. When there is room, make them with: "
            f"{trainer.resume_command()}. {received}"
        ) from error


def first_line(error: BaseException) -> str:
    """Returns type and first line of an error, as TensorFlow's have many."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _last_checkpoint(trainer: Trainer) -> str:
    saved = trainer.checkpoints.places()
    if not saved:
        return "There is no checkpoint to continue from: the run begins again in another folder."
    return f"{trainer.resume_command()} continues from the last checkpoint, {saved[-1].name}."


def _save(trainer: Trainer, what: str) -> None:
    tell = trainer.reporter.terminal.print
    if trainer.workers.place.workers > 1:  # the others do not save with this one
        tell(f"{what} at step {trainer.counters.env_steps}. {_last_checkpoint(trainer)}")
        return
    try:
        place = trainer.save()
    except (CheckpointError, OSError) as error:
        tell(f"{what}, and its state could not be saved: {described(error)}")
        return
    tell(f"{what}; the state before is saved in {trainer.directory.shown(place)}. Continue with: {trainer.resume_command()}")
