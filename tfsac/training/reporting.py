"""What a run reports while it trains: rows of metrics to the sinks, the progress bar, the clock."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfsac.agents import Agent
from tfsac.metrics import CSVSink, Row, Sink, TensorBoardSink, TerminalSink
from tfsac.parameters import EnvironmentParameters, ParameterError, RunParameters
from tfsac.training.devices import device
from tfsac.training.recorder import AVERAGED, SUMMARY, Means, Recorder
from tfsac.training.run_directory import METRICS, RunDirectory
from tfsac.training.schedule import Period, Schedule

SECONDS_BETWEEN_BAR_UPDATES = 0.2
CLIPPED, MUCH_CLIPPED = "q/clipped_mass", 0.05  # of the targets of categorical critics, which a run warns of
STEPS_BETWEEN_CURVES = 1000  # environment steps over which TensorBoard gets the means of an update's metrics


class Reporter:
    """Collects what a run reports, and sends it to the terminal, metrics.csv and TensorBoard.

    Args:
        schedule: of the run, with its counters.
        settings: with `tensorboard` and `histograms`.
        names: of the metrics that an update returns.
        environment: of the run, with the keys of `info` that are averaged.
        terminal: what is printed.
        extra: columns that callbacks add to the rows.

    Attributes:
        recorder: collects episodes and update metrics for the next row.
        csv: metrics.csv, after `open`.
        tensorboard: the events, after `start`, where the run has them.
    """

    def __init__(
        self,
        schedule: Schedule,
        settings: RunParameters,
        names: Sequence[str],
        environment: EnvironmentParameters,
        terminal: TerminalSink,
        extra: Sequence[str] = (),
    ):
        self.schedule, self.counters, self.settings = schedule, schedule.counters, settings
        self.names, self.extra, self.terminal = list(names), list(extra), terminal
        self.logged_info = environment.logged_info
        self.recorder, self.curves = (
            Recorder(names, environment.num_envs, environment.logged_keys),
            Means(names),
        )  # of the next row, and of TensorBoard's next point
        self.csv: CSVSink | None = None
        self.tensorboard: TensorBoardSink | None = None
        self.curve_period, self.warned = Period(STEPS_BETWEEN_CURVES), False
        self.wall_seconds, self.started, self.bar_moved, self.row_started = 0.0, 0.0, 0.0, (0.0, 0)

    @property
    def sinks(self) -> list[Sink]:
        """The places that metrics go to in this process."""
        return [sink for sink in (self.csv, self.terminal, self.tensorboard) if sink is not None]

    def columns(self, evaluation: list[str]) -> list[str]:
        """Returns the columns of a row.

        Args:
            evaluation: those of an evaluation.

        Raises:
            ParameterError: a callback, or `logged_info`, adds one that every run has.
        """
        columns = ["env_steps", "updates", "episodes", "wall_seconds", "steps_per_second"]
        columns += [*(f"training/{name}" for name in SUMMARY), *self.names, *AVERAGED, *evaluation]
        of_info = _of_info(columns, self.logged_info)
        for what, added in (("metric of a callback", self.extra), ("key of logged_info", of_info)):
            if taken := sorted(set(columns) & set(added)):
                raise ParameterError(f"Each {what} has a name of its own. Received: {taken[0]!r}, which every run has")
            columns += added
        return columns

    def open(self, directory: RunDirectory, columns: list[str], content: bytes) -> None:
        """Opens metrics.csv; only the process that evaluates does.

        Args:
            directory: of the run.
            columns: of a row.
            content: of metrics.csv so far, for a run that is resumed.

        Raises:
            ValueError, OSError: see `CSVSink`.
        """
        success = [name for name in _of_info(columns, ["is_success"]) if name not in columns]
        self.csv = CSVSink(directory.metrics, columns, content, success)

    def start(self, directory: RunDirectory) -> None:
        """Starts the clock, and the events for TensorBoard.

        Args:
            directory: of the run.

        Raises:
            OSError: the events cannot be written.
        """
        self.started = time.perf_counter() - self.wall_seconds
        self.bar_moved = 0.0
        self.curve_period.start(self.counters.env_steps)
        if self.csv and self.settings.tensorboard:
            step = self.counters.env_steps
            self.tensorboard = TensorBoardSink(directory.events, step and step + 1, self.names)  # updates have curves
        self.start_row()

    def start_row(self) -> None:
        """Measures the speed from here on."""
        self.row_started = (time.perf_counter(), self.counters.env_steps)

    def close(self) -> None:
        """Closes all sinks, also where one raises."""
        with contextlib.ExitStack() as closing:
            for sink in self.sinks:
                closing.callback(sink.close)

    def add_step(
        self, reward: np.ndarray, ended: np.ndarray, length: np.ndarray, logged: Mapping[str, np.ndarray] | None = None
    ) -> None:
        """Adds a training step of all environments, which the counters have already.

        Args:
            reward, ended, length, logged: see `Recorder.add_step`.

        Raises:
            OSError: an episode cannot be written.
        """
        for episode_return, steps in self.recorder.add_step(reward, ended, length, logged):
            values = {"training/episode_return": episode_return, "training/episode_length": steps}
            for sink in self.sinks:
                sink.write_points(values, self.counters.env_steps)

    def drop_running(self) -> None:
        """Forgets the episodes that run; new ones start."""
        self.recorder.drop_running()

    def add_updates(self, metrics: np.ndarray) -> None:
        """Adds the metrics `[U, M]` of U updates."""
        kept = metrics.copy()  # callbacks get the array next, and may change it
        self.recorder.updates.add(kept)
        if self.tensorboard:
            self.curves.add(kept)

    def row(self, speed: float) -> Row:
        """Returns the next row of metrics without its evaluation, and empties the recorder.

        Args:
            speed: `steps_per_second` before the evaluation.
        """
        row: Row = {**dataclasses.asdict(self.counters), "wall_seconds": round(self._clock(), 3)}
        return row | {"steps_per_second": round(speed, 1), **self.recorder.take()}

    def write(self, row: Row, agent: Agent) -> Row:
        """Sends a row everywhere.

        Args:
            row: of metrics; NaN is left out.
            agent: whose weights go into the histograms.

        Returns:
            the row with all columns of the run, NaN where it has no value.

        Raises:
            OSError: a file cannot be written.
        """
        self._move_bar()
        columns = [*self.csv.columns, *self.csv.optional] if self.csv else list(row)
        row = {name: row[name] for name in columns if name in row and row[name] == row[name]}
        for sink in self.sinks:
            sink.write(row)
        if row.get(CLIPPED, 0.0) > MUCH_CLIPPED and not self.warned:
            self.warned = True
            self.terminal.print(
                f"{row[CLIPPED]:.0%} of the critics' targets lie beyond their atoms: scale returns, with "
                "environment.filters.return_scaling, or set wider bounds, "
                "agent.networks.q.head_parameters.distribution.low and high."
            )
        if self.tensorboard and self.settings.histograms:
            self.tensorboard.write_histograms(_weights(agent), row["env_steps"])
        self._draw_curves()
        return {name: row.get(name, np.nan) for name in (self.csv.columns if self.csv else row)}

    def _draw_curves(self) -> None:
        if self.tensorboard:
            self.tensorboard.write_points(self.curves.take(), self.counters.env_steps)
            self.tensorboard.flush()

    def advance(self) -> None:
        """Moves the progress bar, and TensorBoard's curves, from time to time.

        Raises:
            OSError: the events cannot be written.
        """
        if self.curve_period.passed(self.counters.env_steps):
            self._draw_curves()
        if time.perf_counter() - self.bar_moved > SECONDS_BETWEEN_BAR_UPDATES:
            self._move_bar()

    def _move_bar(self) -> None:
        self.bar_moved = time.perf_counter()
        done = self.counters.of(self.schedule.parameters.improve_steps)
        self.terminal.advance(done, self.steps_per_second(), self.recorder.recent_return())

    def _clock(self) -> float:
        """Returns the seconds that the run has taken, also before it was resumed."""
        return time.perf_counter() - self.started

    def steps_per_second(self) -> float:
        """Returns the speed since the last row, in environment steps."""
        since, steps = self.row_started
        return (self.counters.env_steps - steps) / max(time.perf_counter() - since, 1e-9)

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps, as JSON values."""
        return {"wall_seconds": self._clock(), "recorder": self.recorder.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes what `state` returned."""
        self.wall_seconds = state["wall_seconds"]
        self.recorder.restore(state["recorder"])

    def files(self) -> dict[str, bytes]:
        """Returns the contents of the run's files that are written here, by name, for a checkpoint."""
        return {METRICS: self.csv.content} if self.csv else {}


def _of_info(columns: Sequence[str], keys: Sequence[str]) -> list[str]:
    """Returns the columns of keys of `info`, beside those of the mean returns."""
    kinds = [name.partition("/")[0] for name in columns if name.endswith("/return_mean")]
    return [f"{kind}/{key}" for kind in kinds for key in keys]


def opening(directory: RunDirectory, agent: Agent, visible: Sequence[int] | None, tensorboard: bool) -> str:
    """Returns what a run says before its first step: folder, device, number of parameters, entries of the observation
    if some are hidden, and where TensorBoard finds it.

    Args:
        directory: of the run.
        agent: with its networks.
        visible: entries of the observation; None for all.
        tensorboard: whether the run writes events.
    """
    sizes = {
        name: sum(int(np.prod(variable.shape)) for variable in network.trainable_variables)
        for name, network in agent.networks.items()
    }
    networks = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
    lines = [
        f"run         {directory.shown()}",
        f"device      {device()}",
        f"parameters  {sum(sizes.values()):,} ({networks})",
    ]
    if visible is not None:
        lines.append(f"observation only the entries {', '.join(map(str, visible))} (environment.visible_entries)")
    if tensorboard:
        lines.append(f"curves      tensorboard {shlex.quote(f'--logdir={directory.shown()}')}")
    return "\n".join(lines)


def _weights(agent: Agent) -> dict[str, Any]:
    return {
        f"{name}/{variable.path}": variable.numpy()
        for name, network in agent.networks.items()
        for variable in network.trainable_variables
    }
