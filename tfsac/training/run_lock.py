"""One process trains a run: a lock of the operating system on a file in its folder."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import weakref
from collections.abc import Iterator
from typing import IO

from tfsac.utils.files import LOCK, lock_file

_locks: weakref.WeakSet[RunLock] = weakref.WeakSet()


class RunLock:
    """File lock, released when the process exits. A stale file is ignored."""

    def __init__(self) -> None:
        self.file: IO[bytes] | None = None
        self.path = pathlib.Path()
        self._is_kept = False
        _locks.add(self)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self.file is not None

    def acquire(self, folder: pathlib.Path) -> str:
        """Locks the run in an existing folder, and returns a line to print where the file system has no locks.

        Raises:
            BlockingIOError: another process, or another trainer of this one, has the run.
        """
        if self.held:
            return ""
        path = folder / LOCK
        file = path.open("a+b", buffering=0)  # programs that are started do not inherit it
        try:
            lock_file(file)
            if not (path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))):
                file.close()  # who held it has removed the file meanwhile
                return self.acquire(folder)
        except BlockingIOError:
            file.seek(0)
            who = file.read(200).decode(errors="replace").strip()
            file.close()
            raise BlockingIOError(f"{folder} is being trained already ({who}): wait for its end") from None
        except OSError as error:
            file.close()
            path.unlink(missing_ok=True)
            return f"No file locks here ({error.strerror}): make sure that only one process trains {folder}."
        self.file, self.path = file, path
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        return ""

    def release(self) -> None:
        """Unlocks, unless `kept` waits for something else to end."""
        if self.file is not None and not self._is_kept:
            self.path.unlink(missing_ok=True)
            self._close()

    def _close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None

    def __del__(self) -> None:
        self._is_kept = False
        self.release()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps a lock that is held until the end of the block, though it is released inside."""
        self._is_kept = True
        try:
            yield
        finally:
            self._is_kept = False
            self.release()


def _leave_to_parent() -> None:
    """In a forked process: closes its copies, so that the lock ends with the process that took it."""
    for lock in _locks:
        lock._close()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_leave_to_parent)
