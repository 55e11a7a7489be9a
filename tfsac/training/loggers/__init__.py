"""Loggers of a run's metrics: metrics.csv, the terminal, TensorBoard, W&B, MLflow, and custom loggers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tfsac.training.loggers.csv_file import CSVLogger
from tfsac.training.loggers.logger import Kind, Logger, RunInfo
from tfsac.training.loggers.services import MLflowLogger, WandbLogger
from tfsac.training.loggers.tensorboard import TensorBoardLogger
from tfsac.training.loggers.terminal import TerminalLogger
from tfsac.utils.imports import load

SERVICES: Mapping[str, Callable[[], Logger]] = {"wandb": WandbLogger, "mlflow": MLflowLogger}


def make_loggers(loggers: Sequence[Logger | str]) -> list[Logger]:
    """Returns the loggers, creating those given as "wandb", "mlflow" or "module:Class"."""
    return [(SERVICES.get(logger) or load(logger))() if isinstance(logger, str) else logger for logger in loggers]


__all__ = [
    "CSVLogger",
    "Kind",
    "Logger",
    "MLflowLogger",
    "RunInfo",
    "TensorBoardLogger",
    "TerminalLogger",
    "WandbLogger",
    "make_loggers",
]
