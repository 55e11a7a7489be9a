"""One process trains a run: a lock of the operating system on a file in its folder."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import weakref
from collections.abc import Iterator

from tfsac.files import LOCK, being_trained, lock_file, writing

_held: weakref.WeakSet[RunLock] = weakref.WeakSet()


class RunLock:
    """A lock that is gone with its process, however that ends. A file that is left by a killed one means nothing."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._path = pathlib.Path()
        self._releases = 0  # that are still to come

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self, folder: pathlib.Path) -> str:
        """Locks the run in a folder.

        Args:
            folder: an existing one.

        Returns:
            A line to print where the file system has no locks, else nothing.

        Raises:
            BlockingIOError: another process, or another trainer of this one, has the run.
            OSError: the file cannot be made.
        """
        if self.held:
            return ""
        path = folder / LOCK
        try:
            descriptor = _opened(path)
            lock_file(descriptor)
            while not _is_at(path, descriptor):  # who held it has removed the file meanwhile
                os.close(descriptor)
                descriptor = _opened(path)
                lock_file(descriptor)
        except BlockingIOError:
            who = os.read(descriptor, 200).decode(errors="replace").strip()
            os.close(descriptor)
            raise being_trained(folder, who) from None
        except OSError as error:
            if "Received: " in str(error):
                raise
            os.close(descriptor)
            path.unlink(missing_ok=True)
            return (
                f"There are no locks of files here ({error.strerror}): see to it that only one process trains {folder}."
            )
        self._descriptor, self._path, self._releases = descriptor, path, 1
        _held.add(self)
        with contextlib.suppress(OSError):  # only for the error of others
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        return ""

    def release(self) -> None:
        """Unlocks, unless `kept` waits for something else to end."""
        self._releases = max(self._releases - 1, 0)
        if self._descriptor is not None and not self._releases:
            with contextlib.suppress(OSError):
                if _is_at(self._path, self._descriptor):
                    self._path.unlink()
            self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps a lock that is held until the end of the block, though it is released inside."""
        self._releases += self.held
        try:
            yield
        finally:
            self.release()

    def __del__(self) -> None:
        self._releases = 0
        self.release()


def _opened(path: pathlib.Path) -> int:
    with writing(path):  # programs that are started do not inherit the descriptor
        return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _is_at(path: pathlib.Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _leave_to_parent() -> None:
    """In a forked process: closes its copies, so that the lock ends with the process that took it."""
    for lock in _held:
        lock._close()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_leave_to_parent)
