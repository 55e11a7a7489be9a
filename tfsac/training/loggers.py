"""Callbacks that send the metrics of a run to Weights & Biases or MLflow.

Neither takes rows back. So a row is sent when the checkpoint that covers it is written: what a resumed run makes again
was not sent before.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import pathlib
import re
import time
from typing import TYPE_CHECKING, Any

from tfsac.files import written_aside
from tfsac.parameters import to_json
from tfsac.training.callbacks import Callback

if TYPE_CHECKING:
    from tfsac.training.trainer import Trainer


WANDB_RUN = "wandb_run.json"


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
        known = _read(trainer.directory.path / WANDB_RUN)
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
        # A run of an earlier version had sent every row at once.
        self.sent = known.get("env_steps", trainer.counters.env_steps if known else -1)
        self.on_checkpoint(trainer)

    def on_checkpoint(self, trainer: Trainer) -> None:
        """Logs the rows since the last checkpoint, each at its environment step."""
        for row in _rows_after(self.sent, trainer):
            self.sent = int(row["env_steps"])
            self.run.log(row, step=self.sent)
        _write(trainer.directory.path / WANDB_RUN, {"id": self.run.id, "env_steps": self.sent})

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
        self.mlflow = _package("mlflow", "mlflow")
        self.client, self.experiment, self.sent = self.mlflow.MlflowClient(tracking_uri), experiment, -1

    def on_training_begin(self, trainer: Trainer) -> None:
        """Starts or continues the run there."""
        file = trainer.directory.path / "mlflow_run.json"
        known = _read(file)
        if known:
            self.run_id = known["run_id"]
            self.client.update_run(self.run_id, "RUNNING")
            self.sent = self.client.get_run(self.run_id).data.metrics.get("env_steps", -1)
            self.on_checkpoint(trainer)
            return
        found = self.client.get_experiment_by_name(self.experiment)
        experiment = found.experiment_id if found else self.client.create_experiment(self.experiment)
        self.run_id = self.client.create_run(experiment, run_name=trainer.directory.path.name).info.run_id
        _write(file, {"run_id": self.run_id})
        for name, value in _flat(_config(trainer)).items():
            self.client.log_param(self.run_id, _accepted(name), value)
        self.on_checkpoint(trainer)

    def on_checkpoint(self, trainer: Trainer) -> None:
        """Logs the rows since the last checkpoint, each at its environment step."""
        for row in _rows_after(self.sent, trainer):
            now, step = int(time.time() * 1000), int(row["env_steps"])
            metrics = [self.mlflow.entities.Metric(_accepted(name), value, now, step) for name, value in row.items()]
            self.client.log_batch(self.run_id, metrics)  # all of them or, after a kill, none
            self.sent = step

    def on_training_end(self, trainer: Trainer) -> None:
        """Completes the run there, or marks it as killed by a signal or failed."""
        stopped = "KILLED" if trainer.signals.received else "FINISHED"
        self.client.set_terminated(self.run_id, "FAILED" if trainer.error else stopped)


def _rows_after(env_steps: float, trainer: Trainer) -> list[dict[str, float]]:
    """Returns the rows of metrics.csv after an environment step, without its empty cells."""
    content = trainer.reporter.csv.content.decode() if trainer.reporter.csv else ""
    cells = csv.DictReader(io.StringIO(content))
    rows = [{name: float(value) for name, value in row.items() if value} for row in cells]
    return [row for row in rows if row["env_steps"] > env_steps]


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


def _read(file: pathlib.Path) -> dict[str, Any]:
    return json.loads(file.read_text()) if file.is_file() else {}


def _write(file: pathlib.Path, content: dict[str, Any]) -> None:
    with written_aside(file) as opened:
        opened.write(json.dumps(content).encode())
