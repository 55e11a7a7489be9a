"""Files of a memory's rows, which several checkpoints share and which are never changed."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import stat
from collections.abc import Collection
from typing import Any

import numpy as np

from tfsac.files import written_aside
from tfsac.training.checkpoints.manifest import ROWS, check_file, digest

LEFT = re.compile(rf"\.{ROWS.pattern}\.\d+", re.ASCII)  # by a killed writer


class Chunks:
    """The files `rows-<first>-<last>-<hash>.npy` in one folder.

    Each is compared with its checksum once in the life of this object: when it is written, or when it is first asked
    for. After that, size, time of change and inode tell whether it is still the same. That costs one look a file,
    however large it is; a disk that alters bytes without a trace in these three is noticed by the next process that
    resumes.

    Args:
        folder: where they are.
    """

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self._known: dict[str, tuple[Any, ...]] = {}  # by name

    def problem(self, chunk: dict[str, Any]) -> str:
        """Returns what is wrong with a chunk, in one line, or nothing.

        Args:
            chunk: what `write` returned.
        """
        path = self.folder / chunk["file"]
        try:
            if self._known.get(path.name) != (chunk["sha256"], *_look(path)):
                check_file(path, chunk)
                self._known[path.name] = (chunk["sha256"], *_look(path))
        except (OSError, ValueError) as error:
            return f"{path.name} is missing" if isinstance(error, FileNotFoundError) else str(error)
        return ""

    def name(self, start: int, stop: int, rows: np.ndarray) -> str:
        """Returns the name of the file for the rows with absolute indices start to stop - 1."""
        return f"rows-{start:010d}-{stop:010d}-{hashlib.sha256(rows.view(np.uint8).data).hexdigest()[:12]}.npy"

    def write(self, name: str, start: int, stop: int, rows: np.ndarray) -> dict[str, Any]:
        """Writes rows and returns how a manifest names them.

        Raises:
            OSError: they cannot be written.
        """
        path = self.folder / name
        with written_aside(path) as file:
            np.save(file, rows)
        chunk = {"start": start, "stop": stop, "file": name, **digest(path)}
        self._known[name] = (chunk["sha256"], *_look(path))
        return chunk

    def rows(self, chunk: dict[str, Any]) -> np.ndarray:
        """Returns the rows of a chunk, mapped into memory.

        Raises:
            ValueError: it holds another number of rows.
        """
        rows = np.load(self.folder / chunk["file"], mmap_mode="r", allow_pickle=False)
        if len(rows) != chunk["stop"] - chunk["start"]:
            raise ValueError(f"{chunk['file']} has {len(rows)} rows")
        return rows

    def delete(self, names: Collection[str]) -> None:
        """Deletes all chunks but the named ones, and what killed writers left; other files and links stay.

        Raises:
            OSError: one cannot be deleted.
        """
        for entry in list(os.scandir(self.folder)):
            ours = ROWS.fullmatch(entry.name) or LEFT.fullmatch(entry.name)
            if ours and entry.name not in names and stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                os.unlink(entry.path)


def _look(path: pathlib.Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_size, status.st_mtime_ns, status.st_ino
