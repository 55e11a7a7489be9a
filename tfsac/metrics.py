"""Where metrics go: a CSV file, TensorBoard, the terminal or a notebook."""

from __future__ import annotations

import csv
import html
import os
import pathlib
import socket
import sys
import time
from collections.abc import Mapping, Sequence
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
                    f"stochastic_evaluation and the metrics of its callbacks). Received: {len(kept) - 1} rows, differing columns {other}"
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
    """Appends scalars, and histograms where given, to an event file of its own.

    Args:
        directory: of the event files.
        first: environment step from which it is written; TensorBoard drops what files before it have from there on.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, directory: pathlib.Path, first: int = 0):
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.event = Event
        directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 1000:016d}.{socket.gethostname()}.{os.getpid()}"
        self.writer = RecordWriter((directory / name).open("wb"))
        self._add(file_version="brain.Event:2")
        self._add(step=first, session_log=SessionLog(status=SessionLog.START))

    def _add(self, **fields: Any) -> None:
        self.writer.write(self.event(wall_time=time.time(), **fields).SerializeToString())

    def write(self, values: Mapping[str, Any], step: int) -> None:
        """Adds the numbers among some values.

        Args:
            values: by tag.
            step: environment steps.
        """
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        for tag, value in values.items():
            if isinstance(value, int | float):
                self._add(step=step, summary=scalar_pb(tag, value))

    def write_histograms(self, values: Mapping[str, Any], step: int) -> None:
        """Adds histograms of arrays.

        Args:
            values: by tag.
            step: environment steps.
        """
        from tensorboard.plugins.histogram.summary_v2 import histogram_pb

        for tag, array in values.items():
            self._add(step=step, summary=histogram_pb(tag, array))

    def flush(self) -> None:
        """Lets TensorBoard see what was added."""
        self.writer.flush()

    def close(self) -> None:
        """Flushes and closes the file."""
        self.writer.close()


class _Console(rich.console.Console):
    """Notes that nobody reads what is printed, instead of ending the program there."""

    nobody_reads = False

    def on_broken_pipe(self) -> None:
        """Discards what is printed from now on."""
        self.quiet = self.nobody_reads = True
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())  # or else Python complains when it flushes at its end
        os.close(nothing)


class TerminalSink:
    """A progress bar with speed, return and time left, and one line for each evaluation.

    Args:
        total: length of the run in its own unit.
        unit: what the bar counts.
        quiet: print nothing.
        extra: columns of callbacks, which each line ends with.
    """

    COLUMNS = ("env_steps", "evaluation/return_mean", "evaluation/return_std", "training/return_mean", "steps_per_second")

    def __init__(self, total: int, unit: str, quiet: bool = False, extra: Sequence[str] = ()):
        self.quiet, self.extra = quiet, list(extra)
        self.console = _Console(quiet=quiet, highlight=False, soft_wrap=True)
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

    @property
    def nobody_reads(self) -> bool:
        """Whether the program that read what is printed has ended, as `head` does."""
        return self.console.nobody_reads

    def advance(self, completed: int, speed: float, value: float | None) -> None:
        """Moves the bar; `value` is the mean return of recent training episodes."""
        self.bar.update(self.task, completed=completed, speed=speed, value="-" if value is None else f"{value:.1f}")

    def write(self, row: Row) -> None:
        """Prints one evaluation."""
        if not self.header:
            titles = "".join(f"  {name:>12}" for name in self.extra)
            self.print(f"{'steps':>9}  {'evaluation return':>20}  {'training return':>15}  {'steps/s':>7}{titles}")
            self.header = True
        steps, mean, std, training, speed = (row.get(column) for column in self.COLUMNS)
        trained = f"{training:15.1f}" if isinstance(training, float) else f"{'-':>15}"
        more = "".join(f"  {_short(row.get(name)):>{max(12, len(name))}}" for name in self.extra)
        self.print(f"{steps:>9}  {mean:>10.1f} ± {std:<7.1f}  {trained}  {speed:>7.0f}{more}")

    def print(self, text: str) -> None:
        """Prints a line above the bar."""
        self.bar.console.print(text, markup=False)


class NotebookSink(TerminalSink):
    """A progress bar and a table of evaluations in the output of a notebook's cell, both updated in place.

    Args:
        total, unit, quiet, extra: as in TerminalSink.
    """

    def __init__(self, total: int, unit: str, quiet: bool = False, extra: Sequence[str] = ()):
        super().__init__(total, unit, quiet, extra)
        self.total, self.unit = total, unit
        self.rows: list[list[str]] = []
        self.state, self.handle = "", None

    def __enter__(self) -> NotebookSink:
        self._show()
        return self

    def __exit__(self, *error: object) -> None:
        self._show()

    def advance(self, completed: int, speed: float, value: float | None) -> None:
        """Moves the bar; `value` is the mean return of recent training episodes."""
        shown = "-" if value is None else f"{value:.1f}"
        self.state = (
            f"<progress value='{completed}' max='{self.total}'></progress> "
            f"{completed}/{self.total} {self.unit}, {speed:.0f} steps/s, return {shown}"
        )
        self._show()

    def write(self, row: Row) -> None:
        """Adds one evaluation to the table."""
        steps, mean, std, training, speed = (row.get(column) for column in self.COLUMNS)
        cells = [str(steps), f"{mean:.1f} ± {std:.1f}", _short(training), f"{speed:.0f}"]
        self.rows.append([*cells, *(_short(row.get(name)) for name in self.extra)])
        self._show()

    def print(self, text: str) -> None:
        """Prints a line below."""
        if not self.quiet:
            print(text)

    def _show(self) -> None:
        if self.quiet:
            return
        from IPython.display import HTML, display

        titles = ["steps", "evaluation return", "training return", "steps/s", *self.extra]
        lines = [
            "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"
            for tag, cells in [("th", titles), *(("td", cells) for cells in self.rows)]
        ]
        content = HTML(f"<div>{self.state}</div><table>{''.join(lines)}</table>")
        if self.handle is None:
            self.handle = display(content, display_id=True)
        else:
            self.handle.update(content)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "-"


def what_is_shown(total: int, unit: str, quiet: bool, extra: Sequence[str] = ()) -> TerminalSink:
    """Returns the sink of the place where the program runs: a notebook or a terminal.

    Args:
        total, unit, quiet, extra: as in TerminalSink.
    """
    return (NotebookSink if rich.console.Console().is_jupyter else TerminalSink)(total, unit, quiet, extra)
