"""What a run reports while it trains: rows of metrics to files and the terminal, the progress bar, the clock."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfsac.agents import Agent
from tfsac.metrics import CSVSink, TensorBoardSink, what_is_shown
from tfsac.parameters import ParameterError, Preset, RunParameters
from tfsac.training.progress import SUMMARY, Counters, Recorder
from tfsac.training.run_directory import RunDirectory

SECONDS_BETWEEN_BAR_UPDATES = 0.2
STEPS_BETWEEN_CURVES = 1000  # environment steps over which TensorBoard gets the means of an update's metrics


class Reporter:
    """Collects what a run reports, and sends it to the terminal, metrics.csv and TensorBoard.

    Args:
        preset: the experiment.
        settings: with `tensorboard` and `histograms`.
        names: of the metrics that an update returns.
        quiet: print nothing.
        extra: columns that callbacks add to the rows.

    Attributes:
        recorder: collects episodes and update metrics for the next row.
        terminal: what is printed.
        csv: metrics.csv, after `open`.
    """

    def __init__(self, preset: Preset, settings: RunParameters, names: list[str], quiet: bool, extra: Sequence[str] = ()):
        self.schedule, self.settings, self.extra = preset.schedule, settings, list(extra)
        self.recorder, self.curves = Recorder(names), Recorder(names)  # of the next row, and of TensorBoard's next point
        improve, heatup = self.schedule.improve_steps, self.schedule.heatup_steps
        total = improve.num_steps + (heatup.num_steps if type(heatup) is type(improve) else 0)
        self.terminal = what_is_shown(total, type(improve).__name__, quiet, self.extra)
        self.csv: CSVSink | None = None
        self.tensorboard: TensorBoardSink | None = None
        self.curves_drawn = 0  # periods of them
        self.wall_seconds, self.started, self.bar_moved, self.row_started = 0.0, 0.0, 0.0, (0.0, 0)

    def open(self, directory: RunDirectory, columns: list[str], content: bytes) -> None:
        """Opens metrics.csv; only the process that evaluates does.

        Args:
            directory: of the run.
            columns: of a row.
            content: of metrics.csv so far, for a run that is resumed.

        Raises:
            ValueError, OSError: see `CSVSink`.
        """
        self.csv = CSVSink(directory.metrics, columns, content)

    def columns(self, evaluation: list[str]) -> list[str]:
        """Returns the columns of a row.

        Args:
            evaluation: those of an evaluation.

        Raises:
            ParameterError: a callback adds one that every run has.
        """
        columns = ["env_steps", "updates", "episodes", "wall_seconds", "steps_per_second"]
        columns += [*(f"training/{name}" for name in SUMMARY), *self.recorder.names, *evaluation]
        taken = sorted(set(columns) & set(self.extra))
        if taken:
            raise ParameterError(f"Each metric of a callback has a name of its own. Received: {taken[0]!r}, which every run has")
        return columns + self.extra

    def start(self, directory: RunDirectory, counters: Counters) -> None:
        """Starts the clock, and the events for TensorBoard.

        Args:
            directory: of the run.
            counters: of the run.

        Raises:
            OSError: the events cannot be written.
        """
        self.started = time.perf_counter() - self.wall_seconds
        self.bar_moved = 0.0
        self.curves_drawn = counters.env_steps // STEPS_BETWEEN_CURVES
        if self.csv and self.settings.tensorboard:
            self.tensorboard = TensorBoardSink(directory.events, counters.env_steps and counters.env_steps + 1)
        self.begin_row(counters)

    def close(self) -> None:
        """Closes the events."""
        if self.tensorboard:
            self.tensorboard.close()

    def add_episode(self, counters: Counters, episode_return: float, length: int) -> None:
        """Adds a finished training episode.

        Args:
            counters: of the run, with its last step.
            episode_return: undiscounted.
            length: in steps.
        """
        self.recorder.add_episode(episode_return, length)
        if self.tensorboard:
            values = {"training/episode_return": episode_return, "training/episode_length": length}
            self.tensorboard.write(values, counters.env_steps)

    def add_updates(self, metrics: np.ndarray) -> None:
        """Adds the metrics `[U, M]` of U updates."""
        self.recorder.add_updates(metrics)
        self.curves.add_updates(metrics)

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

        Raises:
            OSError: a file cannot be written.
        """
        assert self.csv is not None
        self.csv.write(row)
        self.terminal.write(row)
        if self.tensorboard:
            of_updates = set(self.recorder.names)  # they have points of their own
            step = row["env_steps"]
            self.tensorboard.write({name: value for name, value in row.items() if name not in of_updates}, step)
            if self.settings.histograms:
                self.tensorboard.write_histograms(_weights(agent), step)
            self._draw_curves(step)

    def _draw_curves(self, step: int) -> None:
        assert self.tensorboard
        self.tensorboard.write(self.curves.take(), step)
        self.tensorboard.flush()

    def advance(self, counters: Counters) -> None:
        """Moves the progress bar, and TensorBoard's curves, from time to time.

        Args:
            counters: of the run.

        Raises:
            OSError: the events cannot be written.
        """
        periods = counters.env_steps // STEPS_BETWEEN_CURVES
        if self.tensorboard and periods > self.curves_drawn:
            self.curves_drawn = periods
            self._draw_curves(counters.env_steps)
        now = time.perf_counter()
        if now - self.bar_moved > SECONDS_BETWEEN_BAR_UPDATES:
            self.bar_moved = now
            done = counters.of(self.schedule.improve_steps)
            self.terminal.advance(done, self.steps_per_second(counters), self.recorder.recent_return())

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps, as JSON values."""
        return {"wall_seconds": self.clock(), "recorder": self.recorder.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over what `state` returned."""
        self.wall_seconds = state["wall_seconds"]
        self.recorder.restore(state["recorder"])


def _weights(agent: Agent) -> dict[str, Any]:
    return {
        f"{name}/{variable.path}": variable.numpy()
        for name, network in agent.networks.items()
        for variable in network.trainable_variables
    }
