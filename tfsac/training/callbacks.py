"""Hooks into the training loop. An exception in a hook ends the run at a point where its state can be saved."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tfsac.training.trainer import Trainer


class Callback:
    """Base class of callbacks. Override the hooks you need; `trainer.stop("why")` ends the run after the current step.

    A hook that raises ends the run after the step is completed and the state is saved. To send metrics elsewhere, use
    a logger. docs/callbacks.md has examples of both.

    Attributes:
        metric_names: names of the metrics from `metrics`, added to each row of metrics.csv and sent to every logger.

    Example:
        >>> class Printer(Callback):
        ...     def on_evaluation(self, trainer, row):
        ...         print(row["env_steps"], row["evaluation/return_mean"])
    """

    metric_names: Sequence[str] = ()

    def on_training_begin(self, trainer: Trainer) -> None:
        """Called once, before the first step of a new or resumed run."""

    def on_step(self, trainer: Trainer) -> None:
        """Called after every step of all environments and the updates that follow it."""

    def on_updates(self, trainer: Trainer, metrics: np.ndarray) -> None:
        """Called after the updates of one compiled call.

        Args:
            trainer: trainer of the run.
            metrics: `[U, M]` for U updates; `trainer.update_metrics` names the columns. NaN for metrics that an update
                does not report.
        """

    def metrics(self, trainer: Trainer) -> Mapping[str, float]:
        """Returns values of `metric_names` for the row of the current evaluation; missing ones leave cells empty."""
        return {}

    def on_evaluation(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """Called with every row of metrics, after it was written.

        Args:
            trainer: trainer of the run.
            row: a number for every column of metrics.csv, NaN for an empty cell.
        """

    def on_checkpoint(self, trainer: Trainer) -> None:
        """Called after a checkpoint was written. The rows of metrics.csv so far survive if the run is killed."""

    def on_training_end(self, trainer: Trainer) -> None:
        """Called once, after the last checkpoint; also after an interruption or a failure (`trainer.error`)."""


class Hooks:
    """The callbacks of a run.

    Attributes:
        error: the first error in a hook, kept until `raise_error` so that the step is completed first.
    """

    def __init__(self, callbacks: Sequence[Callback], trainer: Trainer):
        self.callbacks, self.trainer = list(callbacks), trainer
        for callback in callbacks:
            if isinstance(callback.metric_names, str):
                raise TypeError(f"metric_names must be a tuple of names, got the text {callback.metric_names!r}")
        self.error: Exception | SystemExit | None = None

    def call(self, hook: str, *arguments: Any) -> None:
        """Calls a hook of every callback; Ctrl-C in a hook ends the run as anywhere else."""
        for callback in self.callbacks:
            self._call(callback, hook, *arguments)

    def metrics(self) -> dict[str, float]:
        """Returns the values of the callbacks' metrics; a callback that fails leaves its cells empty."""
        values: dict[str, float] = {}
        for callback in self.callbacks:
            if callback.metric_names:
                values |= self._call(callback, "metrics") or dict.fromkeys(callback.metric_names, np.nan)
        return values

    def _call(self, callback: Callback, hook: str, *arguments: Any) -> Any:
        try:
            returned = getattr(callback, hook)(self.trainer, *arguments)
            if hook == "metrics":
                if unknown := (returned or {}).keys() - set(callback.metric_names):
                    raise KeyError(f"metric_names lacks {', '.join(sorted(unknown))}")
                return {name: float((returned or {}).get(name, np.nan)) for name in callback.metric_names}
        except KeyboardInterrupt:
            self.trainer._signals.received = self.trainer._signals.received or signal.SIGINT
        except (Exception, SystemExit) as error:
            error.add_note(f"in {hook} of the callback {type(callback).__name__}")
            if self.trainer.error or self.error:  # do not hide the earlier error
                self.trainer.print(f"{type(error).__name__} in {hook} of {type(callback).__name__}: {error}")
            self.error = self.error or error
        return None

    def raise_error(self) -> None:
        """Raises the first error in a hook, if any."""
        if self.error is not None:
            raise self.error
