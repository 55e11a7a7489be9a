"""Where rows of metrics go: the terminal, a CSV file, TensorBoard."""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Sequence
from typing import Any

import rich.console
import rich.progress

Row = dict[str, Any]


class CSVSink:
    """Appends rows to `metrics.csv`.

    Args:
        path: of the file; made with a header when it does not exist.
        columns: of every row; a row may leave cells empty.
        rows_to_keep: of an existing file; what was written after the checkpoint a run continues from is cut off.

    Raises:
        ValueError: an existing file has other columns.
    """

    def __init__(self, path: pathlib.Path, columns: Sequence[str], rows_to_keep: int = 0):
        self.path, self.columns, self.rows = path, list(columns), rows_to_keep
        kept: list[list[str]] = [self.columns]
        if rows_to_keep:
            with path.open(newline="") as file:
                kept = list(csv.reader(file))[: rows_to_keep + 1]
            if kept[0] != self.columns or len(kept) != rows_to_keep + 1:
                other = sorted(set(kept[0]) ^ set(self.columns))
                raise ValueError(
                    f"{path} should have {rows_to_keep} rows and the columns of the run so far (a resumed run keeps its "
                    f"stochastic_evaluation). Received: {len(kept) - 1} rows, differing columns {other}"
                )
        aside = path.with_suffix(".tmp")
        with aside.open("w", newline="") as file:
            csv.writer(file).writerows(kept)
        aside.replace(path)

    def write(self, row: Row) -> None:
        """Writes one row and flushes it."""
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerow([row.get(column, "") for column in self.columns])
        self.rows += 1


class TensorBoardSink:
    """Writes scalars, and histograms where given, for TensorBoard."""

    def __init__(self, directory: pathlib.Path):
        import tensorflow as tf

        self.tf = tf
        self.writer = tf.summary.create_file_writer(str(directory))

    def write(self, row: Row, histograms: dict[str, Any] | None = None) -> None:
        """Writes one row at its number of environment steps."""
        step = int(row["env_steps"])
        with self.writer.as_default():
            for name, value in row.items():
                if isinstance(value, int | float):
                    self.tf.summary.scalar(name, value, step)
            for name, values in (histograms or {}).items():
                self.tf.summary.histogram(name, values, step)
        self.writer.flush()


class TerminalSink:
    """A progress bar with speed, return and time left, and one line for each evaluation.

    Args:
        total: length of the run in its own unit.
        unit: what the bar counts.
        quiet: print nothing.
    """

    COLUMNS = ("env_steps", "evaluation/return_mean", "evaluation/return_std", "training/return_mean", "steps_per_second")

    def __init__(self, total: int, unit: str, quiet: bool = False):
        self.quiet, self.console = quiet, rich.console.Console(quiet=quiet, highlight=False, soft_wrap=True)
        self.bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.completed:.0f}/{task.total:.0f} " + unit),
            rich.progress.TextColumn("{task.fields[speed]:.0f}/s  return {task.fields[value]}"),
            rich.progress.TimeRemainingColumn(),
            console=self.console,
            disable=quiet or not self.console.is_terminal,
            transient=True,
        )
        self.task = self.bar.add_task("training", total=total, speed=0.0, value="-")
        self.header = False

    def __enter__(self) -> TerminalSink:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def advance(self, completed: int, speed: float, value: float | None) -> None:
        """Moves the bar; `value` is the mean return of recent training episodes."""
        self.bar.update(self.task, completed=completed, speed=speed, value="-" if value is None else f"{value:.1f}")

    def write(self, row: Row) -> None:
        """Prints one evaluation."""
        if not self.header:
            self.print(f"{'steps':>9}  {'evaluation return':>20}  {'training return':>15}  {'steps/s':>7}")
            self.header = True
        steps, mean, std, training, speed = (row.get(column) for column in self.COLUMNS)
        trained = f"{training:15.1f}" if isinstance(training, float) else f"{'-':>15}"
        self.print(f"{steps:>9}  {mean:>10.1f} ± {std:<7.1f}  {trained}  {speed:>7.0f}")

    def print(self, text: str) -> None:
        """Prints a line above the bar."""
        self.bar.console.print(text, markup=False)
