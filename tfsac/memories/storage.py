"""Where the records of a memory lie: in RAM, or in a file on disk."""

from __future__ import annotations

import math
import mmap
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable

import numpy as np

from tfsac.utils.machine import usable_memory

Allocate = Callable[[tuple[int, ...], np.dtype], np.ndarray]  # shape and dtype -> zeros


def in_ram(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns zeros, which the operating system hands out page by page as they are written.

    Args:
        shape: of the array.
        dtype: of its elements.

    Raises:
        MemoryError: there are more bytes than RAM in the machine or container, or the operating system refuses them.
    """
    size = math.prod(shape) * dtype.itemsize
    ram = usable_memory()
    if size > ram:
        raise MemoryError(f"{size} bytes of RAM are needed, and this machine has {ram}")
    return np.zeros(shape, dtype)


def on_disk(folder: pathlib.Path) -> Allocate:
    """Returns what takes the place of `np.zeros` for arrays that lie in files of a folder, mapped into memory.

    The files have no name and are gone with their arrays, however the process ends. Their space is reserved at once,
    because a mapped file that finds the disk full kills the process.

    Args:
        folder: an existing one.

    Returns:
        A function of shape and dtype, which raises an OSError where the array does not fit or no file can be made.
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
        return np.ndarray(
            shape, dtype, content
        )  # a plain array: what is taken from a np.memmap is one too, which is slower

    return allocate
