"""One process trains a run: a lock on a file in its folder."""

from __future__ import annotations

import pathlib

from filelock import FileLock, Timeout

from tfsac.utils.files import LOCK


def run_lock(folder: pathlib.Path) -> FileLock:
    """Returns the lock of a run's folder, not acquired; the operating system releases it when the process ends."""
    return FileLock(folder / LOCK, blocking=False, thread_local=False)


def acquire(lock: FileLock) -> None:
    """Acquires a run's lock; raises BlockingIOError where another process, or another trainer of this one, has it."""
    try:
        lock.acquire()
    except Timeout:
        folder = pathlib.Path(lock.lock_file).parent
        raise BlockingIOError(f"{folder} is being trained already: wait for its end") from None
