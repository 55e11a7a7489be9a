"""metrics.csv: one row per evaluation."""

from __future__ import annotations

import csv
import io
import pathlib
from collections.abc import Mapping
from typing import Any

from tfsac.training.loggers.logger import Kind, RunInfo
from tfsac.utils.files import atomic_write


class CSVLogger:
    """Writes one row per evaluation. Replaces the whole file each time, so that it is always complete.

    Attributes:
        columns: columns of all rows so far; a row may leave cells empty.
        content: content of the file, for checkpoints.
    """

    def __init__(self, path: pathlib.Path):
        self.path, self.content = path, b""
        self.columns: list[str] = []
        self.rows: list[Mapping[str, Any]] = []

    def start(self, run: RunInfo, resumed_at: int | None) -> None:
        """In a resumed run, keeps the rows up to the checkpoint."""
        self.columns, self.rows = [], []
        if resumed_at is not None and self.path.is_file():
            with self.path.open(newline="") as file:
                reader = csv.DictReader(file)
                self.rows = [row for row in reader if int(row["env_steps"]) <= resumed_at]
                self.columns = list(reader.fieldnames or [])
        self._save()

    def write(self, kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        """Adds the row of an evaluation."""
        if kind == "evaluation":
            self.columns += [name for name in values if name not in self.columns]
            self.rows.append(dict(values))
            self._save()

    def close(self, reason: str) -> None:
        """Does nothing: the file is complete after every row."""

    def _save(self) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns)
        writer.writeheader()
        writer.writerows(self.rows)
        content = text.getvalue().encode()
        with atomic_write(self.path) as file:
            file.write(content)
        self.content = content
