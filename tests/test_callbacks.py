"""Callbacks: errors in hooks, stopping and metrics; runs that fail for other reasons."""

import functools
import sys

import numpy as np
import pytest
import tiny
from tiny import short_preset

from tfsac.environments import EnvironmentFailure
from tfsac.errors import TfsacError
from tfsac.parameters import RunParameters, override
from tfsac.training import Callback, Trainer

HOOKS = ("on_training_begin", "on_step", "on_updates", "on_evaluation", "metrics", "on_training_end")
RUN = RunParameters(updates_between_diagnostics=1)  # so that only one graph is traced


def preset(**changes):
    return short_preset(schedule__improve_steps=30, **changes)


def checkpoint_names(trainer):
    return [path.name for path in trainer._checkpoints.saved_checkpoints()]


class ActInHook(Callback):
    """Calls a function in one hook, from step 50 on or when training begins."""

    metric_names = ("mine",)

    def __init__(self, hook="", act=None):
        self.ends = []
        for name in HOOKS:
            setattr(self, name, functools.partial(self.called, name, act if name == hook else None))

    def called(self, name, act, trainer, *arguments):
        if name == "on_training_end":
            self.ends.append((trainer.error, len(checkpoint_names(trainer))))
        if act and (trainer.counters.env_steps >= 50 or name == "on_training_begin"):
            act(trainer)
        return {}


def fail(trainer):
    raise ZeroDivisionError("no such number")


def disk_full(*arguments):
    raise OSError(28, "No space left on device")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    trainer = Trainer(preset(), tmp_path_factory.mktemp("full") / "run", RUN, callbacks=[ActInHook()], quiet=True)
    trainer.run()
    return trainer


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["on_evaluation", *(pytest.param(x, marks=pytest.mark.acceptance) for x in HOOKS[:2])])
def test_run_resumes_exactly_after_hook_raised(tmp_path, capsys, uninterrupted, hook):
    trainer = Trainer(preset(), tmp_path / "run", RUN, callbacks=[ActInHook(hook, fail)])
    with pytest.raises(ZeroDivisionError) as error:
        trainer.run()
    assert error.value.__notes__ == [f"in {hook} of the callback ActInHook"]
    assert error.traceback[-1].name == "fail"
    steps = 0 if hook == "on_training_begin" else 50
    saved = trainer._checkpoints.saved_checkpoints()[-1]
    assert int(saved.name) == steps and f"continues from the last checkpoint, {saved.name}" in capsys.readouterr().out
    resumed = Trainer(preset(), tmp_path / "run", RUN, resume=True, callbacks=[ActInHook()], quiet=True)
    assert resumed.counters.env_steps == steps
    resumed.run()
    for ours, theirs in zip(resumed.agent.variables, uninterrupted.agent.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=ours.name)
    for name in ("env_steps", "loss/q1", "training/return_mean", "evaluation/return_mean"):
        expected = [row[name] for row in tiny.rows(uninterrupted.directory.path)]
        assert [row[name] for row in tiny.rows(tmp_path / "run")] == expected


def test_exit_in_a_hook_saves_the_run(tmp_path):
    trainer = Trainer(preset(), tmp_path / "run", RUN, callbacks=[ActInHook("on_step", lambda trainer: sys.exit())])
    with pytest.raises(SystemExit):
        trainer.run()
    assert checkpoint_names(trainer)[-1] == "000000050"


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["on_training_begin", "on_training_end"])
def test_run_can_be_stopped_in_hooks(tmp_path, hook):
    stopping = ActInHook(hook, lambda trainer: trainer.stop("enough"))
    trainer = Trainer(preset(), tmp_path / "run", RUN, callbacks=[stopping], quiet=True)
    result = trainer.run()
    assert result.reason == "enough" and result.signal is None
    assert result.counters.env_steps == {"on_training_begin": 0, "on_training_end": 70}[hook]
    assert int(checkpoint_names(trainer)[-1]) == result.counters.env_steps


@pytest.mark.slow
def test_on_training_end_is_called_once_with_the_error(tmp_path):
    watching, other = ActInHook(), ActInHook("on_training_end", fail)
    other.metric_names = ()
    trainer = Trainer(preset(), tmp_path / "a", RUN, callbacks=[other, watching], quiet=True)
    with pytest.raises(ZeroDivisionError):
        trainer.run()
    assert watching.ends == [(None, 1)] and [row["env_steps"] for row in tiny.rows(tmp_path / "a")] == ["50", "70"]
    watching = ActInHook()
    with pytest.raises(ZeroDivisionError) as error:
        failing = ActInHook("on_training_begin", fail)
        failing.metric_names = ()
        Trainer(preset(), tmp_path / "b", RUN, callbacks=[failing, watching], quiet=True).run()
    assert watching.ends == failing.ends == [(error.value, 1)]


def test_environment_failure_is_not_masked_by_later_errors(tmp_path, capsys, monkeypatch):
    faulty = preset(environment__level="toys:Faulty-v0", environment__kwargs={"fail_at": 55, "how": "raise"})
    watching, failing = ActInHook(), ActInHook("on_training_end", fail)
    failing.metric_names = ()
    trainer = Trainer(faulty, tmp_path / "run", callbacks=[failing, watching])
    monkeypatch.setattr(trainer._checkpoints, "checkpoint", type("Full", (), {"write": disk_full}))
    with pytest.raises(EnvironmentFailure, match="simulator fell over") as error:
        trainer.run()
    assert watching.ends == [(error.value, 0)]
    printed = capsys.readouterr().out
    assert "could not be saved" in printed and "ZeroDivisionError in on_training_end of ActInHook" in printed


class StepMetrics(Callback):
    metric_names = ("mine/steps", "mine/missing")

    def metrics(self, trainer):
        return {"mine/steps": np.float32(trainer.counters.env_steps)}


@pytest.mark.slow
def test_callback_adds_metrics_to_every_line(tmp_path, capsys):
    Trainer(preset(), tmp_path / "run", RUN, callbacks=[StepMetrics()]).run()
    rows = tiny.rows(tmp_path / "run")
    assert [(row["mine/steps"], row["mine/missing"]) for row in rows] == [("50.0", ""), ("70.0", "")]
    printed = [line.split()[-2:] for line in capsys.readouterr().out.splitlines()]
    assert ["mine/steps", "mine/missing"] in printed and printed.count(["50", "-"]) == printed.count(["70", "-"]) == 1


@pytest.mark.parametrize(
    ("metrics", "error_type"),
    [({"mine/steps": None}, TypeError), ({"mine_steps": 1.0}, KeyError)],
    ids=["None", "name"],
)
def test_invalid_metric_leaves_its_cell_empty(metrics, error_type, tmp_path):
    callback = StepMetrics()
    callback.metrics = lambda trainer: metrics
    with pytest.raises(error_type) as error:
        Trainer(preset(), tmp_path / "run", RUN, callbacks=[callback], quiet=True).run()
    assert error.value.__notes__ == ["in metrics of the callback StepMetrics"]
    assert tiny.rows(tmp_path / "run")[0]["mine/steps"] == ""


@pytest.mark.slow
def test_failed_update_reports_checkpoint_to_resume_from(tmp_path, capsys):
    run = RunParameters(checkpoint_save_steps=20, updates_between_diagnostics=1)
    trainer = Trainer(preset(), tmp_path / "run", run)
    update = trainer.agent.update

    def fail_at_step_45(batch):
        if trainer.counters.env_steps == 45:
            raise MemoryError("9 GiB")
        return update(batch)

    trainer.agent.update = fail_at_step_45
    with pytest.raises(MemoryError):
        trainer.run()
    assert "continues from the last checkpoint, 000000040" in capsys.readouterr().out
    assert checkpoint_names(trainer) == ["000000020", "000000040"]


@pytest.mark.usefixtures("no_tracing")
def test_memory_larger_than_ram_is_rejected_before_writing(tmp_path):
    large = override(preset(), {"agent.memory.max_size": 10**12})
    with pytest.raises(TfsacError, match="RAM"):
        Trainer(large, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_failing_logger_saves_and_closes_run(tmp_path, capsys):
    class FillDisk(Callback):
        def on_step(self, trainer):
            if trainer.counters.env_steps == 45:
                trainer._reporter.loggers[-1].write = disk_full

    trainer = Trainer(preset(), tmp_path / "run", RUN, callbacks=[FillDisk()])
    with pytest.raises(OSError, match="No space"):
        trainer.run()
    assert trainer._evaluator.best_step == 50
    assert "continues from the last checkpoint" in capsys.readouterr().out
    Trainer(preset(), tmp_path / "run", RunParameters(), resume=True, quiet=True).close()  # the lock was released


@pytest.mark.acceptance
def test_callbacks_page_runs(tmp_path):
    from pages import ROOT, run_page

    shorter = {
        'tfsac.load_preset("pendulum_sac")': (
            'tfsac.override(tfsac.load_preset("pendulum_sac"), {"schedule.heatup_steps": 130, '
            '"schedule.improve_steps": 120, "schedule.steps_between_evaluation_periods": 60, '
            '"schedule.evaluation_steps": 1, "environment.max_episode_steps": 20})'
        ),
        "patience=5": "patience=1",
    }
    page = run_page(ROOT / "docs" / "callbacks.md", tmp_path, shorter)
    assert page["result"].reason in ("no improvement in 1 evaluations", "finished")
    assert [float(row["memory/fill"]) for row in tiny.rows(tmp_path / "runs" / "fill")] == pytest.approx(
        [n / 1e5 for n in (60, 120, 180, 240, 250)]
    )
    assert len((tmp_path / "runs" / "json" / "metrics.jsonl").read_text().splitlines()) == 5
    assert page["trainer"].counters.env_steps == 250 and page["policy"].act([1.0, 0.0, 0.0]).shape == (1,)
    last = float(tiny.rows(tmp_path / "runs" / "by_hand")[-1]["evaluation/return_mean"])
    assert last == page["row"]["evaluation/return_mean"]
