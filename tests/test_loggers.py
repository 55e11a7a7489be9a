"""Loggers of other services, offline."""

import contextlib
import csv
import json
import pathlib
import re
import shutil
import signal
import sys
import types

import pytest

from tfsac.catalog import load_preset, preset_names
from tfsac.parameters import RunParameters
from tfsac.testing import tiny_preset
from tfsac.training import Callback, RunDirectory, Trainer, loggers
from tfsac.training.loggers import MLflowLogger, WandbLogger
from tfsac.user_code import UserCodeError

SHORT = {"schedule__heatup_steps": 40, "schedule__improve_steps": 30, "schedule__steps_between_evaluation_periods": 50}
RUN = RunParameters(updates_between_diagnostics=1)  # one graph is traced where there would be two


class StopAt(Callback):
    def __init__(self, step):
        self.step = step

    def on_step(self, trainer):
        if trainer.counters.env_steps == self.step:
            trainer.stop("test")


def train_twice(run_dir, logger):
    """Trains with a logger, and goes on with a second one after an interruption; returns both trainers."""
    first = Trainer(tiny_preset(**SHORT), run_dir, RUN, callbacks=[logger(), StopAt(55)], quiet=True)
    first.run()
    second = Trainer(tiny_preset(**SHORT), run_dir, RUN, resume=True, callbacks=[logger()], quiet=True)
    second.run()
    return first, second


@pytest.mark.parametrize(("logger", "name"), [(WandbLogger, "wandb"), (MLflowLogger, "mlflow")])
def test_a_missing_package_is_named_with_the_extra_that_has_it(monkeypatch, logger, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ImportError, match=rf"^This logger needs the package {name}: pip install 'tfsac\[{name}\]'\. Received: "
    ):
        logger("project")


@pytest.mark.slow
def test_a_run_that_fails_is_marked_as_failed(tmp_path, monkeypatch):
    told = {}
    client = types.SimpleNamespace(
        get_experiment_by_name=lambda name: types.SimpleNamespace(experiment_id="1"),
        create_run=lambda *a, **k: types.SimpleNamespace(info=types.SimpleNamespace(run_id="2")),
        log_param=lambda *a: None,
        log_batch=lambda *a: None,
        set_terminated=lambda run, status: told.update(mlflow=status),
    )
    run = types.SimpleNamespace(id="3", log=lambda *a, **k: None, finish=lambda exit_code: told.update(wandb=exit_code))
    entities = types.SimpleNamespace(Metric=lambda *a: a)
    package = types.SimpleNamespace(MlflowClient=lambda uri: client, entities=entities, init=lambda **k: run)
    monkeypatch.setattr(loggers, "_package", lambda name, extra: package)

    class Failing(Callback):
        def on_step(self, trainer):
            if trainer.counters.env_steps == 55:
                raise ValueError("broken")

    class Interrupting(Callback):
        def on_step(self, trainer):
            if trainer.counters.env_steps == 55:
                trainer.signals.received = signal.SIGTERM

    for name, more, expected in (
        ("ended", [], {"mlflow": "FINISHED", "wandb": 0}),
        ("stopped", [StopAt(55)], {"mlflow": "FINISHED", "wandb": 0}),
        ("interrupted", [Interrupting()], {"mlflow": "KILLED", "wandb": 0}),
        ("failed", [Failing()], {"mlflow": "FAILED", "wandb": 1}),
    ):
        callbacks = [MLflowLogger("pendulum"), WandbLogger("pendulum"), *more]
        trainer = Trainer(tiny_preset(**SHORT), tmp_path / name, RUN, callbacks=callbacks, quiet=True)
        with pytest.raises(UserCodeError) if name == "failed" else contextlib.nullcontext():
            trainer.run()
        assert told == expected


@pytest.mark.parametrize("name", preset_names())
def test_mlflow_accepts_the_names_of_all_parameters(name):
    trainer = types.SimpleNamespace(preset=load_preset(name), settings=RUN)
    paths = loggers._flat(loggers._config(trainer))
    assert "preset.agent.algorithm.discount" in paths and not any(path.startswith("preset.levels") for path in paths)
    assert all(re.fullmatch(r"[/\w.\- ]+", loggers._accepted(path)) for path in [*paths, "success (%)"])


def test_an_outage_of_mlflow_leaves_one_run_there(tmp_path, monkeypatch):
    made, reporter = [], types.SimpleNamespace(csv=None)
    trainer = types.SimpleNamespace(
        preset=tiny_preset(), settings=RUN, directory=RunDirectory(tmp_path), reporter=reporter
    )

    def down(*arguments):
        raise ConnectionError("no answer")

    client = types.SimpleNamespace(
        get_experiment_by_name=lambda name: types.SimpleNamespace(experiment_id="1"),
        create_run=lambda *a, **k: made.append(1) or types.SimpleNamespace(info=types.SimpleNamespace(run_id="2")),
        log_param=down,
        update_run=lambda *a: None,
        get_run=lambda run_id: types.SimpleNamespace(data=types.SimpleNamespace(metrics={})),
    )
    monkeypatch.setattr(loggers, "_package", lambda *a: types.SimpleNamespace(MlflowClient=lambda uri: client))
    with pytest.raises(ConnectionError):
        MLflowLogger("pendulum").on_training_begin(trainer)
    MLflowLogger("pendulum").on_training_begin(trainer)
    assert made == [1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's store uses what SQLAlchemy 2.1 deprecates
def test_every_row_reaches_mlflow_and_a_resumed_run_goes_on_there(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="this logger needs: pip install 'tfsac[mlflow]'")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.chdir(tmp_path)
    train_twice(tmp_path / "run", lambda: MLflowLogger("pendulum", uri))
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("pendulum").experiment_id])
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    assert run.data.params["preset.environment.level"] == "Pendulum-v1" and run.data.params["run.seed"] == "0"
    table = [line.split(",") for line in (tmp_path / "run" / "metrics.csv").read_text().splitlines()]
    for name in ("evaluation/return_mean", "loss/q1"):
        rows = [(int(row[0]), float(row[table[0].index(name)])) for row in table[1:]]
        assert [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)] == rows
        assert [step for step, _ in rows] == [50, 55, 70]


@pytest.mark.slow
def test_every_row_reaches_wandb_and_a_resumed_run_goes_on_there(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="this logger needs: pip install 'tfsac[wandb]'")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logged = []

    class Watched(WandbLogger):
        def on_training_begin(self, trainer):
            super().on_training_begin(trainer)
            log = self.run.log
            self.run.log = lambda row, step: (
                logged.append((self.run.id, step, row["evaluation/return_mean"])) or log(row, step=step)
            )

    train_twice(tmp_path / "run", lambda: Watched("pendulum", mode="offline"))
    wandb.teardown()
    assert [step for _, step, _ in logged] == [50, 55, 70]
    (name,) = {name for name, _, _ in logged}
    assert json.loads((tmp_path / "run" / "wandb_run.json").read_text()) == {"id": name, "env_steps": 70}
    files = list((tmp_path / "run" / "wandb").glob(f"offline-run-*-{name}/run-{name}.wandb"))
    assert files and all(file.stat().st_size > 0 for file in files)


class Copying(Callback):
    """Copies the folder of everything, as it is when a run is killed in a hook, to one beside it."""

    def __init__(self, hook, step):
        self.step = step
        setattr(self, hook, self.copy)

    def copy(self, trainer, row=None):
        if trainer.counters.env_steps == self.step:
            shutil.copytree(".", "../killed")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's store uses what SQLAlchemy 2.1 deprecates
@pytest.mark.parametrize(
    "killed", [("on_evaluation", 60), ("on_checkpoint", 50), ("on_step", 70)], ids=lambda killed: killed[0]
)
def test_every_row_of_a_run_that_was_killed_is_there_once(tmp_path, monkeypatch, killed):
    """It had a checkpoint at step 50. The stub of Weights & Biases keeps its rows in a file."""
    mlflow = pytest.importorskip("mlflow", reason="this logger needs: pip install 'tfsac[mlflow]'")

    def log(row, step):
        with pathlib.Path("wandb.txt").open("a") as file:
            print(step, row["evaluation/return_mean"], file=file)

    run = types.SimpleNamespace(id="3", log=log, finish=lambda exit_code: None)
    packages = {"wandb": types.SimpleNamespace(init=lambda **k: run), "mlflow": mlflow}
    monkeypatch.setattr(loggers, "_package", lambda name, extra: packages[name])
    schedule = {"heatup_steps": 40, "improve_steps": 60, "steps_between_evaluation_periods": 20}
    preset = tiny_preset(**{f"schedule__{name}": steps for name, steps in schedule.items()})
    settings = RunParameters(updates_between_diagnostics=1, checkpoint_save_steps=50)
    for folder, before in (("first", [Copying(*killed)]), ("killed", [])):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        uri = f"sqlite:///{tmp_path / folder / 'mlflow.db'}"
        client = mlflow.MlflowClient(uri)
        callbacks = [*before, MLflowLogger("pendulum", uri), WandbLogger("pendulum")]
        Trainer(preset, "run", settings, folder == "killed", callbacks, quiet=True).run()
        with pathlib.Path("run/metrics.csv").open(newline="") as file:
            table = [(int(row["env_steps"]), float(row["evaluation/return_mean"])) for row in csv.DictReader(file)]
        assert [step for step, _ in table] == [20, 40, 60, 80, 100]
        (logged,) = client.search_runs([client.get_experiment_by_name("pendulum").experiment_id])
        history = client.get_metric_history(logged.info.run_id, "evaluation/return_mean")
        assert [(metric.step, metric.value) for metric in history] == table
        lines = [line.split() for line in pathlib.Path("wandb.txt").read_text().splitlines()]
        assert [(int(step), float(value)) for step, value in lines] == table
