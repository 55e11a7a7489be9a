"""Where metrics go: a CSV file, TensorBoard, the terminal or a notebook. Each of these is a sink.

A callback sends metrics anywhere else: see docs/callbacks.md.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import html
import io
import os
import pathlib
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, cast

import rich.console
import rich.progress

from tfsac.utils.files import atomic_write

Row = dict[str, Any]  # of an evaluation: metrics by name, with env_steps
CHARTS = {  # of TensorBoard's tab "Custom Scalars": title, and tags as regular expressions
    "Evaluation return: mean, worst and best episode": ["evaluation/return_(mean|min|max)"],
    "Training return": ["training/episode_return", "training/return_mean"],
    "Critics": ["q/q[0-9]*", "q/target", "v/value", "v/target"],
    "Losses": ["loss/.*"],
    "Policy: entropy, or log-probability (its negative)": ["policy/log_prob", "policy/entropy"],
    "Temperature": ["temperature/.*"],
    "Norms of gradients": [".*/gradient_norm"],
    "Environment steps a second": ["steps_per_second"],
}


class Sink:
    """A place to which metrics go."""

    def write(self, row: Row) -> None:
        """Writes the row of an evaluation.

        Raises:
            OSError: it cannot be written.
        """
        raise NotImplementedError

    def write_points(self, values: Mapping[str, Any], step: int) -> None:
        """Writes numbers between two rows: of an episode, or means over updates. Most sinks leave them out.

        Args:
            values: by name.
            step: environment steps.

        Raises:
            OSError: they cannot be written.
        """

    def close(self) -> None:
        """Completes what was written; nothing is written afterwards."""


class CSVSink(Sink):
    """Appends rows to `metrics.csv`.

    What has been written is also kept in memory: checkpoints hold a copy, and a file that something else changed
    meanwhile is written again.

    Args:
        path: of the file.
        columns: of every row; a row may leave cells empty.
        content: of the file so far, for a run that is resumed; the file then has it already.
        optional: more columns, where the first row has one of them.

    Attributes:
        content: of the file.

    Raises:
        ValueError: the content has other columns.
        OSError: the file cannot be written.
    """

    def __init__(self, path: pathlib.Path, columns: Sequence[str], content: bytes = b"", optional: Sequence[str] = ()):
        self.optional = list(optional)
        if content.startswith(_line([*columns, *optional])):
            columns, self.optional = [*columns, *optional], []
        self.path, self.columns, self.content = path, list(columns), _line(columns)
        if not content:
            self._write_all()
        elif content.startswith(self.content):
            self.content = content
        else:
            header = next(csv.reader(io.StringIO(content.decode(errors="replace"))), [])
            raise ValueError(
                f"{path} should have the columns of the run so far "
                "(a resumed run keeps its stochastic_evaluation and the metrics of its callbacks: give callbacks=[...] "
                "again). "
                f"Received: differing columns {sorted(set(header) ^ set(self.columns))}"
            )

    def write(self, row: Row) -> None:
        """Writes one row and flushes it.

        Raises:
            OSError: it cannot be written; the file is as it was.
        """
        if self.content == _line(self.columns) and any(name in row for name in self.optional):
            self.columns += self.optional
            self.content, self.optional = _line(self.columns), []
        line, before = _line([row.get(column, "") for column in self.columns]), self.content
        self.content += line
        try:
            size = self.path.stat().st_size if self.path.is_file() else -1
            if size != len(before):
                self._write_all()
                return
            with self.path.open("r+b", buffering=0) as file:
                file.seek(size)
                written = 0
                try:
                    while written < len(line):  # a disk that is nearly full takes a part
                        written += file.write(line[written:]) or 0
                except OSError:
                    file.truncate(size)
                    raise
        except OSError:
            self.content = before
            raise

    def _write_all(self) -> None:
        with atomic_write(self.path) as file:
            file.write(self.content)


def _line(cells: Sequence[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


class TensorBoardSink(Sink):
    """Appends scalars, and histograms where given, to an event file of its own.

    Args:
        directory: of the event files.
        first: environment step from which it is written; TensorBoard drops what files before it have from there on.
        between: metrics that come as points between rows, so that rows leave them out.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, directory: pathlib.Path, first: int = 0, between: Sequence[str] = ()):
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.event, self.between = Event, frozenset(between)
        directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 1000:016d}.{socket.gethostname()}.{os.getpid()}"
        self.writer = RecordWriter((directory / name).open("wb"))
        self._add(file_version="brain.Event:2")
        self._add(step=first, session_log=SessionLog(status=SessionLog.START))
        self._add(step=first, summary=layout_summary())

    def _add(self, **fields: Any) -> None:
        self.writer.write(self.event(wall_time=time.time(), **fields).SerializeToString())

    def write(self, row: Row) -> None:
        """Adds the numbers of a row, but those that come between rows."""
        self.write_points({name: value for name, value in row.items() if name not in self.between}, row["env_steps"])

    def write_points(self, values: Mapping[str, Any], step: int) -> None:
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


def layout_summary() -> Any:
    """Returns TensorBoard's layout of its tab "Custom Scalars", the `CHARTS`."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.custom_scalar import layout_pb2, metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    charts = []
    for title, tags in CHARTS.items():
        lines = layout_pb2.MultilineChartContent(tag=[f"^{tag}$" for tag in tags])
        charts.append(layout_pb2.Chart(title=title, multiline=lines))
    layout = layout_pb2.Layout(category=[layout_pb2.Category(title="tfsac", chart=charts)])
    value = Summary.Value(
        tag=metadata.CONFIG_SUMMARY_TAG,
        metadata=metadata.create_summary_metadata(),
        tensor=make_tensor_proto(layout.SerializeToString(), dtype="string"),
    )
    return Summary(value=[value])


class _Stdout:
    """What `sys.stdout` is at that time; a terminal that was closed is a broken pipe."""

    def write(self, text: str) -> int:
        """Writes text."""
        with _hang_up():
            return self._file().write(text)

    def flush(self) -> None:
        """Writes what is buffered."""
        with _hang_up():
            self._file().flush()

    def _file(self) -> Any:
        return getattr(sys.stdout, "rich_proxied_file", sys.stdout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file(), name)


@contextlib.contextmanager
def _hang_up() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.EIO:
            raise BrokenPipeError from error
        raise


class _Console(rich.console.Console):
    """Notes that nobody reads what is printed, instead of ending the program there."""

    nobody_reads = False

    def on_broken_pipe(self) -> None:
        """Discards what is printed from now on."""
        self.quiet = self.nobody_reads = True
        nothing, terminal = os.open(os.devnull, os.O_WRONLY), os.fstat(sys.stdout.fileno()).st_rdev
        for stream in (sys.stdout, sys.stderr):  # Python complains about the first one when it flushes at its end
            if stream is sys.stdout or (terminal and os.fstat(stream.fileno()).st_rdev == terminal):
                os.dup2(nothing, stream.fileno())
        os.close(nothing)


def _can_print(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeError, LookupError):
        return False
    return True


class TerminalSink(Sink):
    """A progress bar with speed, return and time left, and one line for each evaluation.

    A subclass may print something else: `Trainer(..., terminal=MySink)`.

    Args:
        total: length of the run in its own unit.
        unit: what the bar counts.
        quiet: print nothing.
        extra: columns of callbacks, which each line ends with.
    """

    COLUMNS = (
        "env_steps",
        "evaluation/return_mean",
        "evaluation/return_std",
        "training/return_mean",
        "steps_per_second",
    )

    def __init__(self, total: int, unit: str, quiet: bool = False, extra: Sequence[str] = ()):
        self.quiet, self.extra = quiet, list(extra)
        self.console = _Console(file=cast(IO[str], _Stdout()), quiet=quiet, highlight=False, soft_wrap=True)
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
        self.task, self.header = self.bar.add_task("training", total=total, speed=0.0, value="-"), False
        self.plus_minus = "±" if _can_print("±", self.console.encoding) else "+"

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
        evaluated = "-" if mean is None else f"{mean:.1f} {self.plus_minus} {std:<7.1f}"
        self.print(f"{steps:>9}  {evaluated:>20}  {trained}  {speed:>7.0f}{more}")

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
        cells = [str(steps), "-" if mean is None else f"{mean:.1f} ± {std:.1f}", _short(training), f"{speed:.0f}"]
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


def terminal_or_notebook(total: int, unit: str, quiet: bool, extra: Sequence[str] = ()) -> TerminalSink:
    """Returns the sink of the place where the program runs: a notebook or a terminal.

    Args:
        total, unit, quiet, extra: as in TerminalSink.
    """
    return (NotebookSink if rich.console.Console().is_jupyter else TerminalSink)(total, unit, quiet, extra)
