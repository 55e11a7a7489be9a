"""The calls that every logger gets."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

Kind = Literal["episode", "update", "evaluation"]


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """What loggers know of a run.

    Attributes:
        path: of its folder, whose name is the run's.
        update_metrics: metrics of an update.
        extra: metrics that callbacks add.
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
    """A place to which metrics go; see docs/callbacks.md for one of your own.

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
            run: its folder and parameters.
            resumed_at: environment steps of the checkpoint that is continued, or None. What was written of later
                steps is void: it is made again.
        """

    def write(self, kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        """Called with metrics by name.

        Args:
            kind: "episode" for means over the training episodes that ended in a step, "update" for means over the
                updates since the last ones (every 1000 environment steps, and at an evaluation), or "evaluation", with
                the row of metrics.csv.
            step: environment steps.
            values: without those that are not known.
        """

    def close(self, reason: str) -> None:
        """Called at the end.

        Args:
            reason: "finished", "threshold reached", the name of a signal, what `Trainer.stop` was given, or "failed: "
                and the error's type.
        """
