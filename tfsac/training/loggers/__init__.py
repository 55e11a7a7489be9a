"""Where the metrics of a run go: metrics.csv, the terminal, TensorBoard, W&B, MLflow, and loggers of the user's."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfsac.training.loggers.csv_file import CSVLogger
from tfsac.training.loggers.logger import Kind, Logger, RunInfo
from tfsac.training.loggers.services import MLflowLogger, WandbLogger
from tfsac.training.loggers.tensorboard import TensorBoardLogger
from tfsac.training.loggers.terminal import NotebookLogger, TerminalLogger, terminal_or_notebook
from tfsac.user_code import load

SERVICES: Mapping[str, Callable[[], Logger]] = {"wandb": WandbLogger, "mlflow": MLflowLogger}


def make_loggers(loggers: Sequence[Logger | str]) -> list[Logger]:
    """Returns loggers, made where they are given as "wandb", "mlflow" or "module:Class"."""
    return [(SERVICES.get(each) or load(each))() if isinstance(each, str) else each for each in loggers]


def own_loggers(
    path: pathlib.Path, tensorboard: bool, weights: Callable[[], Mapping[str, Any]] | None
) -> tuple[CSVLogger, list[Logger]]:
    """Returns the logger of metrics.csv, and all that write into a run's folder.

    Args:
        path: of the run's folder.
        tensorboard: whether events are written.
        weights: returns the arrays of the histograms; None writes none.
    """
    csv = CSVLogger(path / "metrics.csv")
    return csv, [csv, *([TensorBoardLogger(path / "events", weights)] if tensorboard else [])]


__all__ = [
    "CSVLogger",
    "Kind",
    "Logger",
    "MLflowLogger",
    "NotebookLogger",
    "RunInfo",
    "TensorBoardLogger",
    "TerminalLogger",
    "WandbLogger",
    "make_loggers",
    "own_loggers",
    "terminal_or_notebook",
]
