"""The interface of loggers."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

Kind = Literal["episode", "update", "evaluation"]


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """Information about a run for its loggers.

    Attributes:
        path: folder of the run; its name is the name of the run.
        update_metrics: names of the metrics of an update.
        extra: names of the metrics from callbacks.
        total, unit: length of the run, such as 100000 "EnvironmentSteps".
        preset, settings: the experiment and its `RunParameters` as JSON values.
    """

    path: pathlib.Path
    update_metrics: list[str]
    extra: list[str]
    total: int
    unit: str
    preset: dict[str, Any]
    settings: dict[str, Any]


@runtime_checkable
class Logger(Protocol):
    """Receives the metrics of a run; docs/callbacks.md shows how to write a custom logger.

    Example:
        >>> class Printer:
        ...     def start(self, run, resumed_at):
        ...         print(run.path.name)
        ...     def write(self, kind, step, values):
        ...         if kind == "evaluation":
        ...             print(step, values["evaluation/return_mean"])
        ...     def close(self, reason):
        ...         print(reason)
        >>> tfsac.train("pendulum_sac", "runs/printed", loggers=[Printer()])
    """

    def start(self, run: RunInfo, resumed_at: int | None) -> None:
        """Called before the first step.

        Args:
            run: folder and parameters of the run.
            resumed_at: environment steps of the checkpoint that the run resumes from, or None. Discard anything written
                for later steps: the run repeats them.
        """

    def write(self, kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        """Called with metrics by name.

        Args:
            kind: "episode" for means over the training episodes that ended in a step, "update" for means over the
                updates since the last call (every 1000 environment steps, and at an evaluation), or "evaluation" for
                the row of metrics.csv.
            step: environment steps.
            values: the metrics, without missing ones.
        """

    def close(self, reason: str) -> None:
        """Called at the end.

        Args:
            reason: "finished", "threshold reached", the name of a signal, the argument of `Trainer.stop`, or "failed: "
                and the error's type.
        """
