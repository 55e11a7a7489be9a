"""Where the records of a memory lie, in RAM or in a file on disk, and what a checkpoint takes of them."""

from __future__ import annotations

import math
import mmap
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable

import numpy as np

from tfsac.errors import TfsacError
from tfsac.utils.machine import usable_memory

Allocate = Callable[[tuple[int, ...], np.dtype], np.ndarray]  # shape and dtype -> zeros


class Ring:
    """Base of memories, whose records lie in a ring and are saved row by row.

    Attributes:
        ring: the newest rows, `[R, ...]`; the one with the absolute index i is in slot i % R.
        total_rows: rows ever stored; the absolute index of the next one.
    """

    ring: np.ndarray
    total_rows: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.ring[0].nbytes

    def metrics(self) -> dict[str, float]:
        """Returns what to report of the samples since the last call, by column of metrics.csv."""
        return {}

    def between(self, start: int, stop: int) -> np.ndarray:
        """Returns copies of the rows with absolute indices start to stop - 1, which must be kept."""
        return self.ring.take(np.arange(start, stop) % len(self.ring), axis=0)

    def put(self, start: int, rows: np.ndarray) -> None:
        """Writes rows at their absolute indices, as a checkpoint does before `restore`.

        Raises:
            TfsacError: rows with other fields, which another agent recorded, or of another number of environments.
        """
        expected, received = ((array.dtype, array.shape[1:]) for array in (self.ring, rows))
        if expected != received:  # NumPy would take fields by their places
            raise TfsacError(
                "The replay was recorded with other fields or another number of environments: this memory has "
                f"{expected[0].names} of {expected[1]}, got {received[0].names} of {received[1]}"
            )
        self.ring[np.arange(start, start + len(rows)) % len(self.ring)] = rows


def in_ram(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns zeros, which the operating system hands out page by page as they are written.

    Raises:
        MemoryError: there are more bytes than RAM in the machine or container, or the operating system refuses them.
    """
    size = math.prod(shape) * dtype.itemsize
    ram = usable_memory()
    if size > ram:
        raise MemoryError(f"{size} bytes of RAM are needed, and this machine has {ram}")
    return np.zeros(shape, dtype)


def on_disk(folder: pathlib.Path) -> Allocate:
    """Returns what takes the place of `np.zeros`: arrays mapped into memory from files of an existing folder.

    The files have no name and are gone with their arrays, however the process ends. Their space is reserved at once,
    because a mapped file that finds the disk full kills the process. An array that does not fit is an OSError.
    """

    def allocate(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        size = math.prod(shape) * dtype.itemsize
        try:
            # Asked first: a reservation that fails has taken all space from others for a moment.
            free = shutil.disk_usage(folder).free
            if size > free:
                raise OSError(f"only {free} are free")
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, size)
                content = mmap.mmap(file.fileno(), size)
            content.madvise(mmap.MADV_RANDOM)  # samples lie anywhere: what is read ahead is hardly ever wanted
        except OSError as error:
            raise OSError(f"The replay memory needs {size} bytes of the disk of {folder}: {error}") from error
        return np.ndarray(shape, dtype, content)  # what is taken from a np.memmap is one too, which is slower

    return allocate
