"""Reporting of a run during training: metrics for the loggers, the progress bar, the clock."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shlex
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfsac.agents import Agent
from tfsac.parameters import Preset, RunParameters, to_json
from tfsac.parameters.experiment import EPISODE_METRICS
from tfsac.training.devices import device
from tfsac.training.loggers import CSVLogger, Kind, Logger, RunInfo, TensorBoardLogger, TerminalLogger
from tfsac.training.run_directory import METRICS, RunDirectory
from tfsac.training.schedule import Period, Schedule

AVERAGED = ("averaged/losses", "averaged/diagnostics")  # number of updates in the means of a row
RECENT_EPISODES = 10  # averaged for the progress bar, and to rate policies in runs without evaluations
RECENT = "training/recent_return_mean"  # column of such runs
SECONDS_BETWEEN_BAR_UPDATES = 0.2
CLIPPED, MUCH_CLIPPED = "q/clipped_mass", 0.05  # for categorical critics
STEPS_BETWEEN_CURVES = 1000  # environment steps between means of update metrics for the loggers


def summary(prefix: str, returns: np.ndarray, lengths: np.ndarray) -> dict[str, float]:
    """Returns mean, std, min and max of the episode returns `[E]` and the mean length, as columns under a prefix; NaN
    without episodes.
    """
    values = [np.nan] * 5
    if len(returns):
        values = [returns.mean(), returns.std(), returns.min(), returns.max(), lengths.mean()]
    return {f"{prefix}/{name}": float(value) for name, value in zip(EPISODE_METRICS, values, strict=True)}


class Means:
    """Averages the metrics of updates by name, each over the updates that report it."""

    def __init__(self, names: Sequence[str]):
        self.names = list(names)
        self.sums, self.counts = np.zeros(len(self.names)), np.zeros(len(self.names), np.int64)
        self.added: list[np.ndarray] = []  # since the last row or checkpoint; summing in bulk takes a tenth of the time

    def add(self, metrics: np.ndarray) -> None:
        """Adds the metrics `[U, M]` of U updates, NaN for unreported metrics."""
        self.added.append(metrics)

    def _sum(self) -> None:
        metrics = np.concatenate([np.zeros((0, len(self.names))), *self.added])
        reported = ~np.isnan(metrics)
        # Sum sequentially, so that the result is bitwise independent of how many updates are summed at once.
        self.sums = np.cumsum(np.concatenate([self.sums[None], np.where(reported, metrics, 0.0)]), axis=0)[-1]
        self.counts += reported.sum(axis=0)
        self.added = []

    def take(self) -> dict[str, float]:
        """Returns the means since the last call, NaN for unreported metrics."""
        self._sum()
        columns = zip(self.names, self.sums.tolist(), self.counts.tolist(), strict=True)
        means = {name: total / count if count else np.nan for name, total, count in columns}
        self.sums, self.counts = np.zeros_like(self.sums), np.zeros_like(self.counts)
        return means

    def state(self) -> dict[str, Any]:
        """Returns the exact state for a checkpoint, as JSON values."""
        self._sum()
        return {"sums": self.sums.tolist(), "counts": self.counts.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores a result of `state`."""
        self.sums, self.counts = np.array(state["sums"]), np.array(state["counts"], np.int64)


class Reporter:
    """Collects the metrics of a run and sends them to metrics.csv, TensorBoard, the terminal and `loggers`.

    Only the chief worker evaluates, so the others write no rows. `extra` are the metrics of callbacks. `running` `[E]`
    are the returns of the unfinished episodes so far.
    """

    def __init__(
        self,
        preset: Preset,
        settings: RunParameters,
        path: pathlib.Path,
        schedule: Schedule,
        agent: Agent,
        extra: Sequence[str],
        terminal: TerminalLogger,
        loggers: Sequence[Logger],
        is_chief: bool,
    ):
        names, environment = agent.metric_names, preset.environment
        self.info = RunInfo(path, names, list(extra), *schedule.length(), to_json(preset), to_json(settings))
        self.schedule, self.counters, self.terminal = schedule, schedule.counters, terminal
        self.csv = CSVLogger(path / METRICS)
        self.loggers: list[Logger] = [self.csv, terminal]
        self.not_started = list(loggers) if is_chief else []
        if is_chief and settings.tensorboard:
            histograms = agent.networks if settings.histograms else {}
            self.not_started.insert(0, TensorBoardLogger(path / "events", histograms))
        self.running = np.zeros(environment.num_envs)
        self.recent: deque[float] = deque(maxlen=RECENT_EPISODES)
        self.returns, self.lengths = list[float](), list[int]()  # episodes since the last row
        self.logged: dict[str, list[float]] = {key: [] for key in environment.logged_keys}
        self.updates, self.curves, self.curve_period = Means(names), Means(names), Period(STEPS_BETWEEN_CURVES)
        self.wall_seconds, self.clipping_reported = 0.0, False
        self.started = self.bar_moved = time.perf_counter()
        self.start_row()

    def start(self, resumed_at: int | None) -> None:
        """Starts the clock and the loggers, except metrics.csv, which has already started."""
        self.started = time.perf_counter() - self.wall_seconds
        self.curve_period.start(self.counters.env_steps)
        self.terminal.start(self.info, resumed_at)
        for logger in self.not_started:
            logger.start(self.info, resumed_at)
            self.loggers.append(logger)
        self.start_row()

    def start_row(self) -> None:
        """Starts measuring the speed for the next row."""
        self.row_started = (time.perf_counter(), self.counters.env_steps)

    def close(self, reason: str) -> None:
        """Closes all loggers, even if one raises."""
        with contextlib.ExitStack() as closing:
            for logger in self.loggers:
                closing.callback(logger.close, reason)

    def _write(self, kind: Kind, values: Mapping[str, Any]) -> None:
        without_nan = {name: value for name, value in values.items() if value == value}
        for logger in self.loggers:
            logger.write(kind, self.counters.env_steps, without_nan)

    def add_step(
        self, reward: np.ndarray, ended: np.ndarray, length: np.ndarray, logged: Mapping[str, np.ndarray]
    ) -> None:
        """Adds a step of all environments with rewards `[E]`, or `[E, D]`, which are summed. For episodes that `ended`,
        logs their means and adds the numbers in `logged` that are not NaN.
        """
        self.running += reward if reward.ndim == 1 else reward.sum(axis=1)
        if not ended.any():
            return
        returns, lengths = self.running[ended], length[ended]
        self.returns += returns.tolist()
        self.lengths += lengths.tolist()
        self.recent.extend(returns[-RECENT_EPISODES:].tolist())
        metrics = {"training/episode_return": returns.mean(), "training/episode_length": lengths.mean()}
        self._write("episode", {name: float(value) for name, value in metrics.items()})
        self.running[ended] = 0.0
        for key, values in logged.items():
            self.logged[key] += values[~np.isnan(values)].tolist()

    def recent_return(self) -> float | None:
        """Returns the mean return of the last training episodes."""
        return float(np.mean(self.recent)) if self.recent else None

    def add_updates(self, metrics: np.ndarray) -> None:
        """Adds the metrics `[U, M]` of U updates."""
        copied = metrics.copy()  # callbacks get the array next and may modify it
        self.updates.add(copied)
        self.curves.add(copied)

    def row(self, speed: float) -> dict[str, Any]:
        """Returns the next row of metrics, without the evaluation, with `speed`: the means since the last row and their
        number of updates; NaN for metrics without values.
        """
        row = {**dataclasses.asdict(self.counters), "wall_seconds": round(time.perf_counter() - self.started, 3)}
        row |= {f"training/{key}": np.mean(values) if values else np.nan for key, values in self.logged.items()}
        row |= summary("training", np.array(self.returns), np.array(self.lengths))
        self.returns, self.lengths, self.logged = [], [], {key: [] for key in self.logged}
        counts = self.updates.state()["counts"]
        averaged = dict(zip(AVERAGED, (max(counts), min(counts)), strict=True))
        return row | {"steps_per_second": round(speed, 1), **self.updates.take(), **averaged}

    def write(self, row: dict[str, Any]) -> dict[str, Any]:
        """Sends a row to all loggers, and returns it with NaN for the columns of metrics.csv that it lacks."""
        self._move_bar()
        self.csv.columns = list(dict.fromkeys([*self.csv.columns, *row]))  # including columns without a value so far
        self._write("evaluation", row)
        self._write("update", self.curves.take())
        if row.get(CLIPPED, 0.0) > MUCH_CLIPPED and not self.clipping_reported:
            self.clipping_reported = True
            self.terminal.print(
                f"{row[CLIPPED]:.0%} of the critics' targets lie beyond their atoms ({CLIPPED}). If it stays above "
                f"{MUCH_CLIPPED:.0%}: a smaller temperature, environment.filters.return_scaling, or wider bounds, "
                "agent.networks.q.head_parameters.distribution.low and high."
            )
        return dict.fromkeys(self.csv.columns, np.nan) | row

    def advance(self) -> None:
        """Updates the progress bar and logs update metrics when their intervals have passed."""
        if self.curve_period.tick(self.counters.env_steps):
            self._write("update", self.curves.take())
        if time.perf_counter() - self.bar_moved > SECONDS_BETWEEN_BAR_UPDATES:
            self._move_bar()

    def _move_bar(self) -> None:
        self.bar_moved = time.perf_counter()
        completed = self.counters.of(self.schedule.parameters.improve_steps)
        self.terminal.advance(completed, self.steps_per_second(), self.recent_return())

    def steps_per_second(self) -> float:
        """Returns the environment steps per second since the last row."""
        since, steps = self.row_started
        return (self.counters.env_steps - steps) / max(time.perf_counter() - since, 1e-9)

    def state(self) -> dict[str, Any]:
        """Returns the state for a checkpoint, as JSON values."""
        recorder = {
            "recent": list(self.recent),
            "running": self.running.tolist(),
            "returns": self.returns,
            "lengths": self.lengths,
            "logged": list(self.logged.values()),
            "updates": self.updates.state(),
        }
        return {"wall_seconds": time.perf_counter() - self.started, "recorder": recorder}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores a result of `state`."""
        self.wall_seconds = state["wall_seconds"]
        self.started = time.perf_counter() - self.wall_seconds
        recorder = state["recorder"]
        self.recent.extend(recorder["recent"])
        self.running = np.array(recorder["running"], np.float64)
        self.returns, self.lengths = recorder["returns"], recorder["lengths"]
        self.logged = dict(zip(self.logged, map(list, recorder["logged"]), strict=True))
        self.updates.restore(recorder["updates"])

    def files(self) -> dict[str, bytes]:
        """Returns the run's files that the reporter writes, as {name: content}, for a checkpoint."""
        return {METRICS: self.csv.content}


def opening(directory: RunDirectory, agent: Agent, tensorboard: bool) -> str:
    """Returns the text printed before the first step: folder, device, parameters and TensorBoard command."""
    sizes = {
        name: sum(int(np.prod(variable.shape)) for variable in network.trainable_variables)
        for name, network in agent.networks.items()
    }
    networks = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
    lines = [f"run         {directory.path}", f"device      {device()}"]
    lines.append(f"parameters  {sum(sizes.values()):,} ({networks})")
    if tensorboard:
        lines.append(f"curves      tensorboard {shlex.quote(f'--logdir={directory.path}')}")
    return "\n".join(lines)
