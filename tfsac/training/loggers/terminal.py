"""Progress on the terminal or in a notebook: a bar, and a line for each evaluation."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Mapping
from typing import IO, Any, cast

import rich.console
import rich.progress

from tfsac.training.loggers.logger import Kind, RunInfo

COLUMNS = ("evaluation/return_mean", "evaluation/return_std", "training/return_mean", "steps_per_second")
TITLES = {"steps": 9, "evaluation return": 20, "training return": 15, "steps/s": 7}  # with their widths


class _Stdout:
    """What `sys.stdout` is at that time; notes when nobody reads it any more, as after `head` or a closed terminal."""

    closed = False

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(getattr(sys.stdout, "rich_proxied_file", sys.stdout), name)  # rich's, while it shows a bar
        return self._unless_closed(attribute) if name in ("write", "flush") else attribute

    def _unless_closed(self, method: Any) -> Any:
        def call(*arguments: str) -> None:
            try:
                if not self.closed:
                    method(*arguments)
            except OSError:
                self.closed = True
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it at its end

        return call


class TerminalLogger:
    """A progress bar with speed, return and time left, and one line for each evaluation.

    A subclass may print something else: `Trainer(..., terminal=MyLogger)`.

    Args:
        quiet: print nothing.
    """

    def __init__(self, quiet: bool = False):
        self.quiet, self.stdout = quiet, _Stdout()
        console = rich.console.Console(file=cast(IO[str], self.stdout), quiet=quiet, highlight=False, soft_wrap=True)
        self.bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}"),
            rich.progress.TextColumn("{task.fields[speed]:.0f}/s  return {task.fields[value]}"),
            rich.progress.TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
            transient=True,
        )
        self.header_printed, self.extra = False, list[str]()

    @property
    def stdout_closed(self) -> bool:
        """Whether the program that read what is printed has ended, as `head` does."""
        return self.stdout.closed

    def start(self, run: RunInfo, resumed_at: int | None) -> None:
        """Shows the bar."""
        self.extra = run.extra
        self.task = self.bar.add_task("training", total=run.total, unit=run.unit, speed=0.0, value="-")
        self.bar.start()

    def advance(self, completed: int, speed: float, value: float | None) -> None:
        """Moves the bar to `completed` steps in the run's unit; shows environment steps a second and a mean return."""
        self.bar.update(self.task, completed=completed, speed=speed, value="-" if value is None else f"{value:.1f}")

    def write(self, kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        """Prints one evaluation."""
        if kind != "evaluation":
            return
        widths = [*TITLES.values(), *(max(12, len(name)) for name in self.extra)]
        header = [] if self.header_printed else [[*TITLES, *self.extra]]
        for cells in [*header, self.cells(step, values)]:
            self.print("  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
        self.header_printed = True

    def cells(self, step: int, values: Mapping[str, Any]) -> list[str]:
        """Returns an evaluation as text, a cell for each of `TITLES` and for each metric of callbacks."""
        mean, std, training, speed = (values.get(column) for column in COLUMNS)
        evaluated = "-" if mean is None else f"{mean:.1f} ± {std:<7.1f}"
        trained = "-" if training is None else f"{training:.1f}"
        more = [f"{value:.4g}" if (value := values.get(name)) is not None else "-" for name in self.extra]
        return [str(step), evaluated, trained, f"{speed:.0f}", *more]

    def print(self, text: str) -> None:
        """Prints a line above the bar."""
        self.bar.console.print(text, markup=False)

    def close(self, reason: str) -> None:
        """Removes the bar."""
        self.bar.stop()


class NotebookLogger(TerminalLogger):
    """A progress bar and a table of evaluations in the output of a notebook's cell, both updated in place."""

    state, handle = "", None

    def start(self, run: RunInfo, resumed_at: int | None) -> None:
        """Shows an empty table."""
        self.extra, self.total, self.unit = run.extra, run.total, run.unit
        self.rows: list[list[str]] = []
        self._show()

    def advance(self, completed: int, speed: float, value: float | None) -> None:
        """Moves the bar; see `TerminalLogger.advance`."""
        text = "-" if value is None else f"{value:.1f}"
        self.state = (
            f"<progress value='{completed}' max='{self.total}'></progress> "
            f"{completed}/{self.total} {self.unit}, {speed:.0f} steps/s, return {text}"
        )
        self._show()

    def write(self, kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        """Adds one evaluation to the table."""
        if kind == "evaluation":
            self.rows.append([cell.strip() for cell in self.cells(step, values)])
            self._show()

    def print(self, text: str) -> None:
        """Prints a line below."""
        if not self.quiet:
            print(text)

    def _show(self) -> None:
        if self.quiet:
            return
        from IPython.display import HTML, display

        lines = [
            "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"
            for tag, cells in [("th", [*TITLES, *self.extra]), *(("td", cells) for cells in self.rows)]
        ]
        content = HTML(f"<div>{self.state}</div><table>{''.join(lines)}</table>")
        if self.handle is None:
            self.handle = display(content, display_id=True)
        else:
            self.handle.update(content)


def terminal_or_notebook(quiet: bool) -> TerminalLogger:
    """Returns the logger of the place where the program runs: a notebook or a terminal."""
    return (NotebookLogger if rich.console.Console().is_jupyter else TerminalLogger)(quiet)
