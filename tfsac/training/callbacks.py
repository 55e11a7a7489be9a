"""Hooks into the training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tfsac.training.trainer import Trainer


class Callback:
    """Subclass it and override what you need; `trainer.stop("why")` ends the run after the current step.

    Example:
        >>> class Slower(Callback):
        ...     def on_evaluation(self, trainer, row):
        ...         print(row["env_steps"], row["evaluation/return_mean"])
    """

    def on_training_begin(self, trainer: Trainer) -> None:
        """Called once, before the first step (of a resumed run too)."""

    def on_step(self, trainer: Trainer) -> None:
        """Called after every step of all environments and the updates that were due."""

    def on_updates(self, trainer: Trainer, metrics: np.ndarray) -> None:
        """Called after the updates of one compiled call with their metrics `[U, M]`; `trainer.reporter.recorder.names` names them."""

    def on_evaluation(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """Called with every row of metrics."""

    def on_training_end(self, trainer: Trainer) -> None:
        """Called once, also after an interruption."""
