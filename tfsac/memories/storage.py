"""Storage of a memory's records, in RAM or in a file on disk, and their access by checkpoints."""

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
    """Base class of memories; records lie in a ring and are saved row by row.

    Attributes:
        ring: the newest rows, `[R, ...]`; the row with the absolute index i is in slot i % R.
        total_rows: number of rows ever stored; the absolute index of the next one.
    """

    ring: np.ndarray
    total_rows: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.ring[0].nbytes

    def metrics(self) -> dict[str, float]:
        """Returns metrics of the samples since the last call, by column of metrics.csv."""
        return {}

    def between(self, start: int, stop: int) -> np.ndarray:
        """Returns copies of the rows with absolute indices start to stop - 1, which must still be stored."""
        return self.ring.take(np.arange(start, stop) % len(self.ring), axis=0)

    def put(self, start: int, rows: np.ndarray) -> None:
        """Writes rows at their absolute indices, as a checkpoint does before `restore`.

        Raises:
            TfsacError: rows with other fields, recorded by another agent, or of another number of environments.
        """
        expected, received = ((array.dtype, array.shape[1:]) for array in (self.ring, rows))
        if expected != received:  # NumPy would match fields by position
            raise TfsacError(
                "The replay memory was recorded with other fields or another number of environments: this one has "
                f"{expected[0].names} of {expected[1]}, got {received[0].names} of {received[1]}"
            )
        self.ring[np.arange(start, start + len(rows)) % len(self.ring)] = rows


def in_ram(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns zeros, which the operating system allocates page by page as they are written.

    Raises:
        MemoryError: the array exceeds the RAM of the machine or container, or the operating system refuses it.
    """
    size = math.prod(shape) * dtype.itemsize
    ram = usable_memory()
    if size > ram:
        raise MemoryError(f"{size} bytes of RAM are needed, but this machine has {ram}")
    return np.zeros(shape, dtype)


def on_disk(folder: pathlib.Path) -> Allocate:
    """Returns a replacement for `np.zeros` that maps arrays into memory from files in an existing folder.

    The files have no name and disappear with their arrays, however the process ends. Their space is reserved at once,
    because writing to a mapped file on a full disk kills the process. An array that does not fit raises OSError.
    """

    def allocate(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        size = math.prod(shape) * dtype.itemsize
        try:
            # Checked first: a reservation that fails takes all space from others for a moment.
            free = shutil.disk_usage(folder).free
            if size > free:
                raise OSError(f"only {free} are free")
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, size)
                content = mmap.mmap(file.fileno(), size)
            content.madvise(mmap.MADV_RANDOM)  # samples are scattered: read-ahead is hardly ever useful
        except OSError as error:
            raise OSError(f"The replay memory needs {size} bytes of the disk of {folder}: {error}") from error
        return np.ndarray(shape, dtype, content)  # parts of a np.memmap are memmaps too, which are slower

    return allocate
