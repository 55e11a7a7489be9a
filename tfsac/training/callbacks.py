"""Hooks into the training loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tfsac.training.trainer import Trainer


class Callback:
    """Subclass it and override what you need; `trainer.stop("why")` ends the run after the current step.

    A hook that raises ends the run: the step is completed and the state is saved first. docs/callbacks.md has examples.

    Attributes:
        metric_names: names of the metrics that `metrics` adds to each row of metrics.csv, the terminal and TensorBoard.

    Example:
        >>> class Printer(Callback):
        ...     def on_evaluation(self, trainer, row):
        ...         print(row["env_steps"], row["evaluation/return_mean"])
    """

    metric_names: Sequence[str] = ()

    def on_training_begin(self, trainer: Trainer) -> None:
        """Called once, before the first step (of a resumed run too)."""

    def on_step(self, trainer: Trainer) -> None:
        """Called after every step of all environments and the updates that were due."""

    def on_updates(self, trainer: Trainer, metrics: np.ndarray) -> None:
        """Called after the updates of one compiled call.

        Args:
            trainer: of the run.
            metrics: `[U, M]` of U updates; `trainer.reporter.recorder.names` names the columns.
        """

    def metrics(self, trainer: Trainer) -> Mapping[str, float]:
        """Returns values of `metric_names` for the row of the evaluation that was just made; a missing one leaves its cell empty."""
        return {}

    def on_evaluation(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """Called with every row of metrics, after it was written."""

    def on_training_end(self, trainer: Trainer) -> None:
        """Called once, after the last checkpoint, also after an interruption or a failure, which `trainer.error` then is.

        It is not called where `on_training_begin` of this callback failed.
        """
