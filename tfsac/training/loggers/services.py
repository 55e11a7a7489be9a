"""Weights & Biases and MLflow.

Neither can delete logged rows, so a resumed run continues the service's run and skips rows that were already sent.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import re
import signal
import time
from collections.abc import Mapping
from typing import Any

from tfsac.errors import TfsacError
from tfsac.training.loggers.logger import Kind, RunInfo
from tfsac.utils.files import atomic_write, leaves, read_object

WANDB_RUN, MLFLOW_RUN = "wandb_run.json", "mlflow_run.json"  # in the run's folder


class WandbLogger:
    """Logs every row of metrics to Weights & Biases; a resumed run continues the same W&B run.

    Args:
        project: W&B project.
        **kwargs: arguments of `wandb.init`, such as `entity`, `tags` or `mode="offline"`.

    Example:
        >>> tfsac.train(preset, "runs/first", loggers=[WandbLogger("pendulum", mode="offline")])
    """

    def __init__(self, project: str = "tfsac", **kwargs: Any):
        self.wandb, self.kwargs = _package("wandb"), {"project": project, **kwargs}

    def start(self, run: RunInfo, resumed_at: int | None) -> None:
        """Starts or continues the W&B run."""
        self.file = run.path / WANDB_RUN
        saved = read_object(self.file) if self.file.is_file() else {}
        self.last_logged_step = saved.get("env_steps", -1)
        resume, path = "allow" if saved else None, {"name": run.path.name, "dir": str(run.path)}
        self.run = self.wandb.init(
            **{**path, "id": saved.get("id"), "resume": resume, "config": _config(run), **self.kwargs}
        )
        _write(self.file, {"id": self.run.id, "env_steps": self.last_logged_step})

    def write(self, kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        """Logs the row of an evaluation at its environment step."""
        if kind == "evaluation" and step > self.last_logged_step:
            self.run.log(dict(values), step=step)
            _write(self.file, {"id": self.run.id, "env_steps": step})

    def close(self, reason: str) -> None:
        """Finishes the W&B run, or marks it as failed."""
        self.run.finish(exit_code=int(reason.startswith("failed")))


class MLflowLogger:
    """Logs every row of metrics to MLflow; a resumed run continues the same MLflow run.

    Args:
        experiment: name of the MLflow experiment.
        tracking_uri: MLflow tracking URI, such as "http://localhost:5000" or "sqlite:///mlflow.db"; by default as
            configured in MLflow.

    Example:
        >>> tfsac.train(preset, "runs/first", loggers=[MLflowLogger("pendulum", "sqlite:///mlflow.db")])
    """

    def __init__(self, experiment: str = "tfsac", tracking_uri: str | None = None):
        self.mlflow = _package("mlflow")
        self.client, self.experiment, self.last_logged_step = self.mlflow.MlflowClient(tracking_uri), experiment, -1.0

    def start(self, run: RunInfo, resumed_at: int | None) -> None:
        """Starts or continues the MLflow run."""
        if (file := run.path / MLFLOW_RUN).is_file():
            self.run_id = read_object(file)["run_id"]
            self.client.update_run(self.run_id, "RUNNING")
            self.last_logged_step = self.client.get_run(self.run_id).data.metrics.get("env_steps", -1)
            return
        existing = self.client.get_experiment_by_name(self.experiment)
        experiment = existing.experiment_id if existing else self.client.create_experiment(self.experiment)
        self.run_id = self.client.create_run(experiment, run_name=run.path.name).info.run_id
        _write(file, {"run_id": self.run_id})
        for name, value in leaves(_config(run)):
            self.client.log_param(self.run_id, _accepted(name), value)

    def write(self, kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        """Logs the row of an evaluation at its environment step."""
        if kind == "evaluation" and step > self.last_logged_step:
            now, metric = int(time.time() * 1000), self.mlflow.entities.Metric
            metrics = [metric(_accepted(name), value, now, step) for name, value in values.items()]
            self.client.log_batch(self.run_id, metrics)  # atomic: after a kill, all or none are logged

    def close(self, reason: str) -> None:
        """Finishes the MLflow run, or marks it as killed by a signal or failed."""
        status = "KILLED" if reason in signal.Signals.__members__ else "FINISHED"
        self.client.set_terminated(self.run_id, "FAILED" if reason.startswith("failed") else status)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TfsacError(f"{name} is missing: pip install 'tfsac[{name}]'") from error


def _config(run: RunInfo) -> dict[str, Any]:
    """Returns preset and run parameters, without the preset's changes for other levels."""
    return {"preset": {name: x for name, x in run.preset.items() if name != "levels"}, "run": run.settings}


def _accepted(name: str) -> str:
    """Returns a name without characters that MLflow rejects."""
    return re.sub(r"[^/\w.\- ]", "_", name)


def _write(file: pathlib.Path, content: dict[str, Any]) -> None:
    with atomic_write(file) as opened:
        opened.write(json.dumps(content).encode())
