"""Loggers: custom ones, CSV, MLflow, Weights & Biases and TensorBoard, without a network."""

import json
import pathlib
import shutil
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
import tiny
from toys import tiny_preset

import tfsac
from tfsac.errors import TfsacError
from tfsac.parameters import RunParameters
from tfsac.training import Callback, Trainer, reporting
from tfsac.training.loggers import CSVLogger, Logger, MLflowLogger, RunInfo, TensorBoardLogger, WandbLogger, services

PRESET = tiny.short_preset(schedule__improve_steps=30)
RUN = RunParameters(updates_between_diagnostics=1)  # so that only one graph is traced


class RecordingLogger:
    """Records all calls."""

    def __init__(self):
        self.calls, self.closed = [], []

    def start(self, run, resumed_at):
        self.run, self.resumed_at = run, resumed_at

    def write(self, kind, step, values):
        self.calls.append((kind, step, dict(values)))

    def close(self, reason):
        self.closed.append(reason)

    def rows(self):
        return [(step, values) for kind, step, values in self.calls if kind == "evaluation"]


class StopAt(Callback):
    def __init__(self, step):
        self.step = step

    def on_step(self, trainer):
        if trainer.counters.env_steps == self.step:
            trainer.stop("test")


def test_custom_logger_receives_the_same_as_csv(tmp_path):
    assert isinstance(RecordingLogger(), Logger)
    first, second = RecordingLogger(), RecordingLogger()
    stop = [StopAt(55)]
    tfsac.train(PRESET, tmp_path / "run", RUN, callbacks=stop, quiet=True, loggers=[first])
    tfsac.train(PRESET, tmp_path / "run", RUN, resume=True, quiet=True, loggers=[second])
    assert (first.resumed_at, second.resumed_at) == (None, 55)
    assert (first.closed, second.closed) == (["test"], ["finished"])
    assert first.run.path == tmp_path / "run" and first.run.preset["environment"]["level"] == "Pendulum-v1"
    assert (first.run.total, first.run.unit) == (70, "EnvironmentSteps")
    table = tiny.rows(tmp_path / "run")
    logged = first.rows() + second.rows()
    assert [step for step, _ in logged] == [int(row["env_steps"]) for row in table] == [50, 55, 70]
    for (_, values), row in zip(logged, table, strict=True):
        assert {name: str(value) for name, value in values.items()} == {k: v for k, v in row.items() if v}
    episodes = [(step, values["training/episode_length"]) for kind, step, values in first.calls if kind == "episode"]
    assert episodes == [(30, 30)]
    updates = [values for kind, _, values in first.calls if kind == "update" and values]
    assert updates and updates[0].keys() <= set(first.run.update_metrics)


def test_loggers_are_closed_with_the_error(tmp_path):
    recorder, failing = RecordingLogger(), Callback()
    failing.on_step = lambda trainer: 1 / 0
    trainer = Trainer(PRESET, tmp_path / "run", RUN, callbacks=[failing], quiet=True, loggers=[recorder])
    with pytest.raises(ZeroDivisionError):
        trainer.run()
    assert recorder.closed == ["failed: ZeroDivisionError"]


@pytest.mark.parametrize(("logger", "name"), [(WandbLogger, "wandb"), (MLflowLogger, "mlflow")])
def test_missing_package_error_names_the_extra(monkeypatch, logger, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TfsacError, match=rf"pip install 'tfsac\[{name}\]'"):
        logger("project")


def test_service_loggers_close_with_the_status_of_the_run(tmp_path):
    ends = []
    client = types.SimpleNamespace(set_terminated=lambda run, status: ends.append(status))
    for reason in ("finished", "test", "SIGTERM", "failed: ValueError"):
        mlflow, wandb = object.__new__(MLflowLogger), object.__new__(WandbLogger)
        mlflow.client, mlflow.run_id = client, "1"
        wandb.run = types.SimpleNamespace(finish=lambda exit_code: ends.append(exit_code))
        mlflow.close(reason)
        wandb.close(reason)
    assert ends == ["FINISHED", 0, "FINISHED", 0, "KILLED", 0, "FAILED", 1]


def test_metrics_csv_is_complete_after_every_line(tmp_path):
    path, info = tmp_path / "metrics.csv", RunInfo(tmp_path, [], [], 1, "", {}, {})
    logger = CSVLogger(path)
    logger.start(info, None)
    logger.write("episode", 1, {"a": 1})
    logger.write("evaluation", 1, {"env_steps": 1, "a": 0.5})
    path.unlink()
    logger.write("evaluation", 2, {"env_steps": 2, "evaluation/is_success": 1.0})
    assert path.read_text().split() == ["env_steps,a,evaluation/is_success", "1,0.5,", "2,,1.0"]
    resumed = CSVLogger(path)
    resumed.start(info, 1)
    assert path.read_text().split() == ["env_steps,a,evaluation/is_success", "1,0.5,"]
    assert path.read_bytes() == resumed.content


class CopyFolder(Callback):
    """Copies the working directory after the third evaluation, as if the run was killed there."""

    def on_evaluation(self, trainer, row):
        if trainer.counters.env_steps == 60:
            shutil.copytree(".", "../killed")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow uses deprecated functions of SQLAlchemy
def test_resumed_run_logs_every_line_once(tmp_path, monkeypatch):
    """The killed run has a checkpoint at step 50. The Weights & Biases stub writes lines to a file."""
    mlflow = pytest.importorskip("mlflow", reason="this logger needs: pip install 'tfsac[mlflow]'")

    def log(row, step):
        with pathlib.Path("wandb.txt").open("a") as file:
            print(step, row["evaluation/return_mean"], file=file)

    run = types.SimpleNamespace(id="3", log=log, finish=lambda exit_code: None)
    packages = {"wandb": types.SimpleNamespace(init=lambda **k: run), "mlflow": mlflow}
    monkeypatch.setattr(services, "_package", packages.get)
    schedule = {"heatup_steps": 40, "improve_steps": 60, "steps_between_evaluation_periods": 20}
    preset = tiny_preset(**{f"schedule__{name}": steps for name, steps in schedule.items()})
    settings = RunParameters(updates_between_diagnostics=1, checkpoint_save_steps=50)
    for folder, before in (("first", [CopyFolder()]), ("killed", [])):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        uri = f"sqlite:///{tmp_path / folder / 'mlflow.db'}"
        client = mlflow.MlflowClient(uri)
        loggers = [MLflowLogger("pendulum", uri), WandbLogger("pendulum")]
        Trainer(preset, "run", settings, folder == "killed", before, quiet=True, loggers=loggers).run()
        rows = tiny.rows(pathlib.Path("run"))
        table = [(int(row["env_steps"]), float(row["evaluation/return_mean"])) for row in rows]
        assert [step for step, _ in table] == [20, 40, 60, 80, 100]
        (logged,) = client.search_runs([client.get_experiment_by_name("pendulum").experiment_id])
        assert (logged.info.run_name, logged.info.status) == ("run", "FINISHED")
        assert logged.data.params["preset.environment.level"] == "Pendulum-v1"
        history = client.get_metric_history(logged.info.run_id, "evaluation/return_mean")
        assert [(metric.step, metric.value) for metric in history] == table
        lines = [line.split() for line in pathlib.Path("wandb.txt").read_text().splitlines()]
        assert [(int(step), float(value)) for step, value in lines] == table


@pytest.mark.slow
def test_wandb_offline_mode(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="this logger needs: pip install 'tfsac[wandb]'")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandbLogger("pendulum", mode="offline")
    Trainer(PRESET, tmp_path / "run", RUN, quiet=True, loggers=[logger]).run()
    wandb.teardown()
    known = json.loads((tmp_path / "run" / "wandb_run.json").read_text())
    assert known["env_steps"] == 70
    (file,) = (tmp_path / "run" / "wandb").glob(f"offline-run-*-{known['id']}/run-{known['id']}.wandb")
    assert file.stat().st_size > 0


def events(folder):
    """Returns the events of a run in the order in which TensorBoard reads them."""
    paths = [str(path) for path in sorted((folder / "events").iterdir())]
    return [tf.compat.v1.Event.FromString(x) for x in tf.data.TFRecordDataset(paths).as_numpy_iterator()]


def scalars(logged_events, tag):
    values = [(event.step, value) for event in logged_events for value in event.summary.value]
    return [(step, float(tf.make_ndarray(value.tensor))) for step, value in values if value.tag == tag]


def test_tensorboard_has_episodes_and_losses(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "STEPS_BETWEEN_CURVES", 20)
    losses_of_updates = []

    class Watch(Callback):
        def on_updates(self, trainer, metrics):
            losses_of_updates.append(metrics[:, trainer.update_metrics.index("loss/q1")])

    run = RunParameters(updates_between_diagnostics=1, histograms=True)
    preset = tiny_preset(schedule__heatup_steps=40, schedule__improve_steps=60)
    Trainer(preset, tmp_path / "run", run, callbacks=[Watch()], quiet=True).run()
    logged_events, losses = events(tmp_path / "run"), np.concatenate(losses_of_updates)
    tags = {value.tag for event in logged_events for value in event.summary.value}
    assert any(tag.startswith("policy/") and "kernel" in tag for tag in tags)
    assert [step for step, _ in scalars(logged_events, "training/episode_return")] == [30, 60, 90]
    assert [value for _, value in scalars(logged_events, "training/episode_length")] == [30, 30, 30]
    steps, values = zip(*scalars(logged_events, "loss/q1"), strict=True)
    assert steps == (60, 80, 100)
    np.testing.assert_allclose(values, losses.reshape(3, 20).mean(axis=1), rtol=1e-5)
    assert [step for step, _ in scalars(logged_events, "evaluation/return_mean")] == [100]


def test_tensorboard_drops_events_after_the_checkpoint(tmp_path):
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    info = RunInfo(tmp_path, [], [], 1, "", {}, {})
    first, second = (TensorBoardLogger(tmp_path / "events") for _ in range(2))
    first.start(info, None)
    for step in (10, 20, 30, 40):
        first.write("episode", step, {"training/episode_return": 1.0})
    first.close("SIGTERM")
    second.start(info, 20)
    second.write("episode", 25, {"training/episode_return": 2.0})
    second.close("finished")
    accumulator = EventAccumulator(str(tmp_path / "events")).Reload()
    points = accumulator.Tensors("training/episode_return")
    points = [(point.step, float(tf.make_ndarray(point.tensor_proto))) for point in points]
    assert points == [(10, 1.0), (20, 1.0), (25, 2.0)]
