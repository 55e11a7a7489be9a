"""The folder of a run's checkpoints: which of them are whole, which is to be used, and what may be deleted."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
from typing import Any

from tfsac.files import NO_CHECKPOINT, writing
from tfsac.machine import option
from tfsac.training.checkpoints.chunks import Chunks
from tfsac.training.checkpoints.manifest import CheckpointError, check_file, chunks_of, memories, read_manifest

STEP = re.compile(r"\d+", re.ASCII)
LEFT = re.compile(r"\.\d+\.\d+", re.ASCII)  # by a killed writer
REPLACED = re.compile(r"\.(\d+)\.old", re.ASCII)


class CheckpointFolder:
    """Checkpoints by environment steps, the chunks that they share, and damaged ones that were set aside.

    Args:
        path: of the folder.
    """

    def __init__(self, path: pathlib.Path):
        self.path, self.chunks = path, Chunks(path / "memory")

    def refuse_links(self) -> None:
        """Raises a CheckpointError if the folder, or that of the memory, is a link."""
        for folder in (self.path, self.chunks.folder):
            if folder.is_symlink():
                raise CheckpointError(
                    "Old checkpoints are deleted, so they lie in folders of the run itself and not behind a link; "
                    f"the run's folder may be a link instead. Received: {folder} -> {os.readlink(folder)}"
                )

    def places(self) -> list[pathlib.Path]:
        """Returns the checkpoints' folders, oldest first."""
        if not self.path.is_dir():
            return []
        found = [
            path
            for path in self.path.iterdir()
            if STEP.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
        ]
        return sorted(found, key=lambda path: int(path.name))

    def choose(
        self, skip_damaged_rows: bool, workers: int
    ) -> tuple[pathlib.Path, list[tuple[int, int]], dict[pathlib.Path, str]]:
        """Looks at every file of every checkpoint, after what killed writers left was removed.

        Args:
            skip_damaged_rows: as in `CheckpointManager.restore`.
            workers: that share the run.

        Returns:
            the checkpoint to use, first and last of each range of rows that it lacks, and what is wrong with others.

        Raises:
            CheckpointError: there is none to use, or it was written by another version.
        """
        self.refuse_links()
        self._remove_leftovers()
        whole, partly, damaged = [], dict[pathlib.Path, list[tuple[int, int]]](), dict[pathlib.Path, str]()
        for place in reversed(self.places()):
            try:
                manifest = self._verify_files(place)
            except (OSError, ValueError) as error:
                damaged[place] = str(error)
                continue
            problems = {
                (c["start"], c["stop"] - 1): problem for c in chunks_of(manifest) if (problem := self.chunks.problem(c))
            }
            if not problems:
                whole.append(place)
                continue
            damaged[place] = "; ".join(problems.values())
            if workers == len(memories(manifest)) == 1:
                partly[place] = sorted(problems)
        if whole:
            return whole[0], [], damaged
        if not damaged:
            raise CheckpointError(f"{NO_CHECKPOINT} Received: {self.path} (it has none)")
        for place, gone in partly.items():
            reason = damaged.pop(place)
            if skip_damaged_rows:
                return place, gone, damaged
            rows = ", ".join(f"{first} to {last}" for first, last in gone)
            raise CheckpointError(
                f"Rows {rows} of the replay memory are gone, "
                "and there is no checkpoint to continue from that does not need them. "
                "To resume without them: "
                f"{option('--skip_damaged_rows', 'RunParameters(skip_damaged_rows=True)')}. "
                f"Received: {place} ({reason})"
            )
        problem = "; ".join(f"{place} is damaged and was not used: {reason}" for place, reason in damaged.items())
        raise CheckpointError(f"There is no checkpoint to continue from. Received: {self.path} ({problem})")

    def newest_whole(self, places: list[pathlib.Path]) -> pathlib.Path:
        """Returns the last of some checkpoints whose own files are whole, whatever the rows of its memory are.

        Raises:
            CheckpointError: there is none, or it was written by another version.
        """
        damaged = []
        for place in reversed(places):
            try:
                self._verify_files(place)
            except (OSError, ValueError) as error:
                damaged.append(f"{place} is damaged: {error}")
                continue
            return place
        raise CheckpointError(
            "There is no checkpoint to take the last policy from, or a memory. "
            f"Received: {'; '.join(damaged) or self.path}"
        )

    def _remove_leftovers(self) -> None:
        """Removes what killed writers left, and brings back a checkpoint that one was about to replace."""
        for path in list(self.path.iterdir()) if self.path.is_dir() else ():
            replaced = REPLACED.fullmatch(path.name)
            with contextlib.suppress(OSError):  # a disk that is read-only says so where something has to be written
                if replaced and not (self.path / replaced[1]).exists():
                    path.rename(self.path / replaced[1])
                elif replaced or LEFT.fullmatch(path.name):
                    shutil.rmtree(path)

    def _verify_files(self, place: pathlib.Path) -> dict[str, Any]:
        manifest = read_manifest(place)
        for name, expected in manifest["files"].items():
            check_file(place / name, expected)
        return manifest

    def prune(self, keep: int) -> None:
        """Deletes what no longer belongs to the newest `keep` checkpoints; those with a damaged manifest are set
        aside.
        """
        with contextlib.suppress(OSError):  # what cannot be deleted now is deleted next time
            kept, named = 0, set[str]()
            for place in reversed(self.places()):
                if kept == keep:  # renamed first: a half of it would be taken for a damaged one
                    shutil.rmtree(place.rename(place.with_name(f".{place.name}.{os.getpid()}")))
                    continue
                try:
                    named |= {chunk["file"] for chunk in chunks_of(read_manifest(place))}
                    kept += 1
                except (OSError, ValueError, CheckpointError):
                    self.set_aside(place)
            for path in self.path.iterdir():
                if LEFT.fullmatch(path.name) or REPLACED.fullmatch(path.name):
                    shutil.rmtree(path)
            self.chunks.delete(named)

    def set_aside(self, place: pathlib.Path) -> pathlib.Path:
        """Renames a damaged checkpoint and returns its new place."""
        names = (f"damaged-{place.name}{f'-{i}' if i else ''}" for i in range(10**6))
        aside = next(path for name in names if not (path := self.path / name).exists())
        with writing(place):
            place.rename(aside)
        return aside
