"""Progress in the terminal or a notebook: a bar (in notebooks with ipywidgets) and one line per evaluation."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import Any

import rich.console
import rich.progress

from tfsac.training.loggers.logger import Kind, RunInfo
from tfsac.utils.text import short

COLUMNS = ("evaluation/return_mean", "evaluation/return_std", "training/return_mean", "steps_per_second")
SUCCESS = "evaluation/is_success"  # for environments that report it
TITLES = {"steps": 9, "evaluation return": 20, "training return": 15, "steps/s": 7}  # column widths


class _Console(rich.console.Console):
    """Detects when stdout is closed, for example by `head` or a closed terminal."""

    stdout_closed = False

    def on_broken_pipe(self) -> None:
        self.quiet = self.stdout_closed = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout on exit


class TerminalLogger:
    """A progress bar with speed, return and remaining time, and one line per evaluation.

    To print something else, pass a subclass: `Trainer(..., terminal=MyLogger)`.

    Args:
        quiet: print nothing.
    """

    def __init__(self, quiet: bool = False):
        self.console = console = _Console(quiet=quiet, highlight=False, soft_wrap=True)
        has_widgets = console.is_jupyter and importlib.util.find_spec("ipywidgets")
        self.bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}"),
            rich.progress.TextColumn("{task.fields[speed]:.0f}/s  return {task.fields[value]}"),
            rich.progress.TimeRemainingColumn(),
            console=console,
            disable=quiet or not (console.is_terminal or has_widgets),
            transient=True,
        )
        self.task = self.bar.add_task("training", total=None, unit="", speed=0.0, value="-")
        self.header_printed, self.extra = False, list[str]()

    def start(self, run: RunInfo, resumed_at: int | None) -> None:
        """Shows the bar."""
        self.extra = run.extra
        self.bar.update(self.task, total=run.total, unit=run.unit)
        self.bar.start()

    def advance(self, completed: int, speed: float, value: float | None) -> None:
        """Moves the bar to `completed` steps in the run's unit; shows environment steps per second and mean return."""
        self.bar.update(self.task, completed=completed, speed=speed, value=short(value))

    def write(self, kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        """Prints one evaluation."""
        if kind != "evaluation":
            return
        if SUCCESS in values and not self.header_printed:
            self.extra = [SUCCESS, *self.extra]
        mean, std, training, speed = (values.get(column) for column in COLUMNS)
        evaluated = "-" if mean is None else f"{short(mean)} ± {short(std, mean):<7}"
        more = [f"{value:.4g}" if (value := values.get(name)) is not None else "-" for name in self.extra]
        widths = [*TITLES.values(), *(max(12, len(name)) for name in self.extra)]
        header = [] if self.header_printed else [[*TITLES, *self.extra]]
        for cells in [*header, [str(step), evaluated, short(training), f"{speed:.0f}", *more]]:
            self.print("  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
        self.header_printed = True

    def print(self, text: str) -> None:
        """Prints a line above the bar."""
        try:
            self.console.print(text, markup=False)
        except OSError:  # the terminal was closed
            self.console.on_broken_pipe()

    def close(self, reason: str) -> None:
        """Removes the bar."""
        self.bar.stop()
