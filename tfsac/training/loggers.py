"""Callbacks that send the metrics of a run to Weights & Biases or MLflow."""

from __future__ import annotations

import importlib
import json
import math
import pathlib
import re
from typing import TYPE_CHECKING, Any

from tfsac.files import written_aside
from tfsac.parameters import to_json
from tfsac.training.callbacks import Callback

if TYPE_CHECKING:
    from tfsac.training.trainer import Trainer


class WandbLogger(Callback):
    """Logs every row of metrics to Weights & Biases; a resumed run continues the same run there.

    Args:
        project: of Weights & Biases.
        **kwargs: for `wandb.init`, such as `entity`, `tags` or `mode="offline"`.

    Raises:
        ImportError: the package wandb is missing.

    Example:
        >>> tfsac.train(preset, "runs/first", callbacks=[WandbLogger("pendulum", mode="offline")])
    """

    def __init__(self, project: str, **kwargs: Any):
        self.wandb = _package("wandb", "wandb")
        self.kwargs = {"project": project, **kwargs}

    def on_training_begin(self, trainer: Trainer) -> None:
        """Starts or continues the run there."""
        file = trainer.directory.path / "wandb_run.json"
        known = _read(file)
        self.run = self.wandb.init(
            **{
                "name": trainer.directory.path.name,
                "dir": str(trainer.directory.path),
                "id": known.get("id"),
                "resume": "allow" if known else None,
                "config": _config(trainer),
                **self.kwargs,
            }
        )
        _write(file, {"id": self.run.id})

    def on_evaluation(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """Logs a row at its environment step."""
        self.run.log(row, step=row["env_steps"])

    def on_training_end(self, trainer: Trainer) -> None:
        """Completes the run there, or marks it as failed."""
        self.run.finish(exit_code=1 if trainer.error else 0)


class MLflowLogger(Callback):
    """Logs every row of metrics to MLflow; a resumed run continues the same run there.

    Args:
        experiment: of MLflow.
        tracking_uri: where it keeps runs, such as "http://localhost:5000" or "sqlite:///mlflow.db"; by default as
            MLflow is set up.

    Raises:
        ImportError: the package mlflow is missing.

    Example:
        >>> tfsac.train(preset, "runs/first", callbacks=[MLflowLogger("pendulum", "sqlite:///mlflow.db")])
    """

    def __init__(self, experiment: str, tracking_uri: str | None = None):
        self.client = _package("mlflow", "mlflow").MlflowClient(tracking_uri)
        self.experiment = experiment

    def on_training_begin(self, trainer: Trainer) -> None:
        """Starts or continues the run there."""
        file = trainer.directory.path / "mlflow_run.json"
        known = _read(file)
        if known:
            self.run_id = known["run_id"]
            self.client.update_run(self.run_id, "RUNNING")
            return
        found = self.client.get_experiment_by_name(self.experiment)
        experiment = found.experiment_id if found else self.client.create_experiment(self.experiment)
        self.run_id = self.client.create_run(experiment, run_name=trainer.directory.path.name).info.run_id
        _write(file, {"run_id": self.run_id})
        for name, value in _flat(_config(trainer)).items():
            self.client.log_param(self.run_id, _accepted(name), value)

    def on_evaluation(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """Logs a row at its environment step."""
        for name, value in row.items():
            if math.isfinite(value):
                self.client.log_metric(self.run_id, _accepted(name), value, step=row["env_steps"])

    def on_training_end(self, trainer: Trainer) -> None:
        """Completes the run there, or marks it as killed by a signal or failed."""
        stopped = "KILLED" if trainer.signals.received else "FINISHED"
        self.client.set_terminated(self.run_id, "FAILED" if trainer.error else stopped)


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"This logger needs the package {name}: pip install 'tfsac[{extra}]'. Received: {error}"
        ) from error


def _config(trainer: Trainer) -> dict[str, Any]:
    """Returns preset and run parameters; what the preset would be on other levels does not describe the run."""
    preset = {name: value for name, value in to_json(trainer.preset).items() if name != "levels"}
    return {"preset": preset, "run": to_json(trainer.settings)}


def _accepted(name: str) -> str:
    """Returns a name in which MLflow accepts every letter."""
    return re.sub(r"[^/\w.\- ]", "_", name)


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Returns the leaves of nested dicts by their path."""
    if not isinstance(value, dict):
        return {path: value}
    return {
        name: leaf
        for key, part in value.items()
        for name, leaf in _flat(part, f"{path}.{key}" if path else key).items()
    }


def _read(file: pathlib.Path) -> dict[str, str]:
    return json.loads(file.read_text()) if file.is_file() else {}


def _write(file: pathlib.Path, content: dict[str, str]) -> None:
    with written_aside(file) as opened:
        opened.write(json.dumps(content).encode())
