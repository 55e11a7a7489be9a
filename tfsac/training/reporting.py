"""What a run reports while it trains: rows of metrics to files and the terminal, the progress bar, the clock."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from tfsac.agents import Agent
from tfsac.metrics import CSVSink, TensorBoardSink, TerminalSink
from tfsac.parameters import Preset, RunParameters
from tfsac.training.progress import SUMMARY, Counters, Recorder
from tfsac.training.run_directory import RunDirectory

SECONDS_BETWEEN_BAR_UPDATES = 0.2


class Reporter:
    """Collects what a run reports, and sends it to the terminal, metrics.csv and TensorBoard.

    Args:
        preset: the experiment.
        settings: with `tensorboard` and `histograms`.
        names: of the metrics that an update returns.
        quiet: print nothing.

    Attributes:
        recorder: collects episodes and update metrics for the next row.
        terminal: what is printed.
        csv: metrics.csv, after `open`.
    """

    def __init__(self, preset: Preset, settings: RunParameters, names: list[str], quiet: bool):
        self.schedule, self.settings, self.recorder = preset.schedule, settings, Recorder(names)
        improve, heatup = self.schedule.improve_steps, self.schedule.heatup_steps
        total = improve.num_steps + (heatup.num_steps if type(heatup) is type(improve) else 0)
        self.terminal = TerminalSink(total, type(improve).__name__, quiet)
        self.csv: CSVSink | None = None
        self.tensorboard: TensorBoardSink | None = None
        self.wall_seconds, self.started, self.bar_moved, self.row_started = 0.0, 0.0, 0.0, (0.0, 0)

    def open(self, directory: RunDirectory, evaluation: list[str], rows: int) -> None:
        """Opens the files; only the process that evaluates does.

        Args:
            directory: of the run.
            evaluation: columns of an evaluation.
            rows: of metrics.csv to keep.

        Raises:
            ValueError, OSError: see `CSVSink`.
        """
        columns = ["env_steps", "updates", "episodes", "wall_seconds", "steps_per_second"]
        columns += [*(f"training/{name}" for name in SUMMARY), *self.recorder.names, *evaluation]
        self.csv = CSVSink(directory.metrics, columns, rows)
        self.tensorboard = TensorBoardSink(directory.events) if self.settings.tensorboard else None

    def start(self, counters: Counters) -> None:
        """Starts the clock."""
        self.started = time.perf_counter() - self.wall_seconds
        self.bar_moved = 0.0
        self.begin_row(counters)

    def begin_row(self, counters: Counters) -> None:
        """Measures the speed from here on."""
        self.row_started = (time.perf_counter(), counters.env_steps)

    def clock(self) -> float:
        """Returns the seconds that the run has taken, also before it was resumed."""
        return time.perf_counter() - self.started

    def steps_per_second(self, counters: Counters) -> float:
        """Returns the speed since the last row, in environment steps."""
        since, steps = self.row_started
        return (counters.env_steps - steps) / max(time.perf_counter() - since, 1e-9)

    def row(self, counters: Counters) -> dict[str, Any]:
        """Returns the next row of metrics without its evaluation, and empties the recorder."""
        row: dict[str, Any] = {**dataclasses.asdict(counters), "wall_seconds": round(self.clock(), 3)}
        return row | {"steps_per_second": round(self.steps_per_second(counters), 1), **self.recorder.take()}

    def write(self, row: dict[str, Any], agent: Agent) -> None:
        """Sends a row everywhere.

        Args:
            row: of metrics.
            agent: whose weights go into the histograms.
        """
        assert self.csv is not None
        self.csv.write(row)
        self.terminal.write(row)
        if self.tensorboard:
            self.tensorboard.write(row, _weights(agent) if self.settings.histograms else None)

    def advance(self, counters: Counters) -> None:
        """Moves the progress bar, from time to time."""
        now = time.perf_counter()
        if now - self.bar_moved > SECONDS_BETWEEN_BAR_UPDATES:
            self.bar_moved = now
            done = counters.of(self.schedule.improve_steps)
            self.terminal.advance(done, self.steps_per_second(counters), self.recorder.recent_return())

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps, as JSON values."""
        return {"wall_seconds": self.clock(), "rows": self.csv.rows if self.csv else 0, "recorder": self.recorder.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over what `state` returned; `open` is told the rows."""
        self.wall_seconds = state["wall_seconds"]
        self.recorder.restore(state["recorder"])


def _weights(agent: Agent) -> dict[str, Any]:
    return {
        f"{name}/{variable.path}": variable.numpy()
        for name, network in agent.networks.items()
        for variable in network.trainable_variables
    }
