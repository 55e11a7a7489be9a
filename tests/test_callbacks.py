"""Callbacks: what happens when one raises, and the metrics that they add; runs that fail for other reasons."""

import functools

import numpy as np
import pytest
import tiny
from tiny import short_preset

from tfsac.environments import EnvironmentFailure
from tfsac.errors import TfsacError
from tfsac.parameters import RunParameters, override
from tfsac.training import Callback, Trainer

HOOKS = ("on_training_begin", "on_step", "on_updates", "on_evaluation", "metrics", "on_training_end")
RUN = RunParameters(updates_between_diagnostics=1)  # one graph is traced where there would be two


def preset(**changes):
    return short_preset(schedule__improve_steps=30, **changes)


def places(trainer):
    return [path.name for path in trainer._checkpoints.saved_checkpoints()]


class Acting(Callback):
    """Does something in one hook when the run is far enough."""

    metric_names = ("mine",)

    def __init__(self, hook="", act=None):
        self.ends = []
        for name in HOOKS:
            setattr(self, name, functools.partial(self.called, name, act if name == hook else None))

    def called(self, name, act, trainer, *arguments):
        if name == "on_training_end":
            self.ends.append((trainer.error, len(places(trainer))))
        if act and (trainer.counters.env_steps >= 50 or name == "on_training_begin"):
            act(trainer)
        return {}


def fail(trainer):
    raise ZeroDivisionError("no such number")


def full(*arguments):
    raise OSError(28, "No space left on device")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    trainer = Trainer(preset(), tmp_path_factory.mktemp("whole") / "run", RUN, callbacks=[Acting()], quiet=True)
    trainer.run()
    return trainer


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["on_evaluation", *(pytest.param(x, marks=pytest.mark.acceptance) for x in HOOKS[:2])])
def test_a_hook_that_raises_ends_the_run_which_resumes_exactly(tmp_path, capsys, uninterrupted, hook):
    trainer = Trainer(preset(), tmp_path / "run", RUN, callbacks=[Acting(hook, fail)])
    with pytest.raises(ZeroDivisionError) as error:
        trainer.run()
    assert error.value.__notes__ == [f"in {hook} of the callback Acting"]
    assert error.traceback[-1].name == "fail"
    steps = 0 if hook == "on_training_begin" else 50
    saved = trainer._checkpoints.saved_checkpoints()[-1]
    assert int(saved.name) == steps and f"continues from the last checkpoint, {saved.name}" in capsys.readouterr().out
    resumed = Trainer(preset(), tmp_path / "run", RUN, resume=True, callbacks=[Acting()], quiet=True)
    assert resumed.counters.env_steps == steps
    resumed.run()
    for ours, theirs in zip(resumed.agent.variables, uninterrupted.agent.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=ours.name)
    for name in ("env_steps", "loss/q1", "training/return_mean", "evaluation/return_mean"):
        expected = [row[name] for row in tiny.rows(uninterrupted.directory.path)]
        assert [row[name] for row in tiny.rows(tmp_path / "run")] == expected


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["on_training_begin", "on_training_end"])
def test_a_run_can_be_stopped_in_every_hook(tmp_path, hook):
    stopping = Acting(hook, lambda trainer: trainer.stop("enough"))
    trainer = Trainer(preset(), tmp_path / "run", RUN, callbacks=[stopping], quiet=True)
    result = trainer.run()
    assert result.reason == "enough" and result.signal is None
    assert result.counters.env_steps == {"on_training_begin": 0, "on_training_end": 70}[hook]
    assert int(places(trainer)[-1]) == result.counters.env_steps


@pytest.mark.slow
def test_callbacks_get_to_know_once_how_a_run_ended(tmp_path):
    watching, other = Acting(), Acting("on_training_end", fail)
    other.metric_names = ()
    trainer = Trainer(preset(), tmp_path / "a", RUN, callbacks=[other, watching], quiet=True)
    with pytest.raises(ZeroDivisionError):
        trainer.run()
    assert watching.ends == [(None, 1)] and [row["env_steps"] for row in tiny.rows(tmp_path / "a")] == ["50", "70"]
    watching = Acting()
    with pytest.raises(ZeroDivisionError) as error:
        failing = Acting("on_training_begin", fail)
        failing.metric_names = ()
        Trainer(preset(), tmp_path / "b", RUN, callbacks=[failing, watching], quiet=True).run()
    assert watching.ends == failing.ends == [(error.value, 1)]


def test_the_failure_of_an_environment_is_not_hidden_by_callbacks_or_a_full_disk(tmp_path, capsys, monkeypatch):
    faulty = preset(environment__level="toys:Faulty-v0", environment__kwargs={"fail_at": 55, "how": "raise"})
    watching, failing = Acting(), Acting("on_training_end", fail)
    failing.metric_names = ()
    trainer = Trainer(faulty, tmp_path / "run", callbacks=[failing, watching])
    monkeypatch.setattr(trainer._checkpoints, "checkpoint", type("Full", (), {"write": full}))
    with pytest.raises(EnvironmentFailure, match="simulator fell over") as error:
        trainer.run()
    assert watching.ends == [(error.value, 0)]
    printed = capsys.readouterr().out
    assert "could not be saved" in printed and "ZeroDivisionError in on_training_end of Acting" in printed


class Length(Callback):
    metric_names = ("mine/steps", "mine/rest")

    def metrics(self, trainer):
        return {"mine/steps": np.float32(trainer.counters.env_steps)}


@pytest.mark.slow
def test_a_callback_adds_metrics_to_every_row(tmp_path, capsys):
    Trainer(preset(), tmp_path / "run", RUN, callbacks=[Length()]).run()
    rows = tiny.rows(tmp_path / "run")
    assert [(row["mine/steps"], row["mine/rest"]) for row in rows] == [("50.0", ""), ("70.0", "")]
    printed = [line.split()[-2:] for line in capsys.readouterr().out.splitlines()]
    assert ["mine/steps", "mine/rest"] in printed and printed.count(["50", "-"]) == printed.count(["70", "-"]) == 1


@pytest.mark.slow
def test_an_update_that_fails_names_the_checkpoint_to_resume_from(tmp_path, capsys):
    run = RunParameters(checkpoint_save_steps=20, updates_between_diagnostics=1)
    trainer = Trainer(preset(), tmp_path / "run", run)
    update = trainer.agent.update

    def exhausted(batch):
        if trainer.counters.env_steps == 45:
            raise MemoryError("9 GiB")
        return update(batch)

    trainer.agent.update = exhausted
    with pytest.raises(MemoryError):
        trainer.run()
    assert "continues from the last checkpoint, 000000040" in capsys.readouterr().out
    assert places(trainer) == ["000000020", "000000040"]


@pytest.mark.usefixtures("untraced")
def test_a_memory_larger_than_ram_is_refused_before_anything_is_written(tmp_path):
    large = override(preset(), {"agent.memory.max_size": 10**12})
    with pytest.raises(TfsacError, match="RAM"):
        Trainer(large, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_logger_that_fails_ends_the_run_saved_and_everything_is_closed(tmp_path, capsys):
    class Fill(Callback):
        def on_step(self, trainer):
            if trainer.counters.env_steps == 45:
                trainer._reporter.loggers[-1].write = full

    trainer = Trainer(preset(), tmp_path / "run", RUN, callbacks=[Fill()])
    with pytest.raises(OSError, match="No space"):
        trainer.run()
    assert "continues from the last checkpoint" in capsys.readouterr().out
    Trainer(preset(), tmp_path / "run", RunParameters(), resume=True, quiet=True).close()  # nobody has its lock


@pytest.mark.acceptance
def test_the_page_about_callbacks_runs(tmp_path):
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
