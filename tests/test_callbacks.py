"""Callbacks: what happens when one raises, and the metrics that they add."""

import csv
import signal

import numpy as np
import pytest
import tensorflow as tf

from tfsac.distributed.ray_environments import ActorsLost
from tfsac.environments import EnvironmentFailure
from tfsac.parameters import ParameterError, RunParameters, override
from tfsac.testing import tiny_preset
from tfsac.training import Callback, Trainer
from tfsac.user_code import UserCodeError

HOOKS = ("on_training_begin", "on_step", "on_updates", "on_evaluation", "metrics", "on_training_end")
SHORT = {"schedule__heatup_steps": 40, "schedule__improve_steps": 30, "schedule__steps_between_evaluation_periods": 50}
RUN = RunParameters(updates_between_diagnostics=1)  # one graph is traced where there would be two


def preset(**changes):
    return tiny_preset(**{**SHORT, **changes})


def rows(run_dir):
    with (run_dir / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


class Failing(Callback):
    """Does something in one hook when the run is far enough."""

    metric_names = ("mine",)

    def __init__(self, hook, act):
        self.calls = dict.fromkeys(HOOKS, 0)
        for name in HOOKS:
            setattr(self, name, self.watched(name, act if name == hook else None))

    def watched(self, name, act):
        def hook(trainer, *arguments):
            self.calls[name] += 1
            if act and (trainer.counters.env_steps >= 50 or name == "on_training_begin"):
                act(trainer)
            return {}

        return hook


def fail(trainer):
    raise ZeroDivisionError("no such number")


def weights(trainer):
    return {
        f"{name}{i}": v.numpy()
        for name, n in trainer.agent.networks.items()
        for i, v in enumerate(n.trainable_variables)
    }


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    trainer = Trainer(
        preset(), tmp_path_factory.mktemp("whole") / "run", RUN, callbacks=[Failing("", None)], quiet=True
    )
    trainer.run()
    return trainer


@pytest.mark.slow
@pytest.mark.parametrize(
    "hook",
    [
        hook if hook in ("on_step", "on_evaluation") else pytest.param(hook, marks=pytest.mark.acceptance)
        for hook in HOOKS
    ],
)
def test_a_hook_that_raises_ends_the_run_which_resumes_exactly(tmp_path, capsys, uninterrupted, hook):
    trainer = Trainer(preset(), tmp_path / "run", RUN, callbacks=[Failing(hook, fail)])
    text = rf"^The callback Failing in {hook} raised\. Received: ZeroDivisionError: no such number \(.*test_callbacks\.py, line \d+, in fail\)$"
    with pytest.raises(UserCodeError, match=text):
        trainer.run()
    steps = {"on_training_begin": 0, "on_training_end": 70}.get(hook, 50)
    saved = trainer.checkpoints.places()[-1]
    assert (
        int(saved.name) == steps
        and f"A callback failed; the state before is saved in {saved}" in capsys.readouterr().out
    )
    resumed = Trainer(preset(), tmp_path / "run", RUN, resume=True, callbacks=[Failing("", None)], quiet=True)
    assert resumed.counters.env_steps == steps
    resumed.run()
    for name, value in weights(uninterrupted).items():
        np.testing.assert_array_equal(value, weights(resumed)[name], err_msg=name)
    assert [row["env_steps"] for row in rows(tmp_path / "run")] == ["50", "70"]
    for name in ("loss/q1", "training/return_mean", "evaluation/return_mean"):
        assert [row[name] for row in rows(tmp_path / "run")] == [
            row[name] for row in rows(uninterrupted.directory.path)
        ]


@pytest.mark.slow
def test_the_final_evaluation_is_kept_when_on_training_end_raises_and_others_are_still_called(tmp_path):
    other = Failing("", None)
    other.metric_names = ()
    trainer = Trainer(preset(), tmp_path / "run", RUN, callbacks=[Failing("on_training_end", fail), other], quiet=True)
    with pytest.raises(UserCodeError):
        trainer.run()
    assert [row["env_steps"] for row in rows(tmp_path / "run")] == ["50", "70"] and other.calls["on_training_end"] == 1
    assert trainer.reporter.tensorboard.writer._writer.closed


@pytest.mark.slow
@pytest.mark.parametrize("hook", HOOKS)
def test_a_run_can_be_stopped_in_every_hook(tmp_path, hook):
    trainer = Trainer(
        preset(), tmp_path / "run", RUN, callbacks=[Failing(hook, lambda trainer: trainer.stop("enough"))], quiet=True
    )
    result = trainer.run()
    assert result.reason == "enough" and result.signal is None
    assert result.counters.env_steps == {"on_training_begin": 0, "on_training_end": 70}.get(hook, 50)
    assert int(trainer.checkpoints.places()[-1].name) == result.counters.env_steps


def test_a_hook_that_returns_false_is_told_how_to_stop(tmp_path):
    class Stopping(Callback):
        def on_step(self, trainer):
            return False

    with pytest.raises(ParameterError, match=r"Stopping in on_step ends the run by trainer.stop\('why'\). Received: F"):
        Trainer(preset(), tmp_path / "run", RUN, callbacks=[Stopping()], quiet=True).run()


def interrupt(trainer):
    raise KeyboardInterrupt


def test_an_interrupt_inside_a_callback_saves_and_stops(tmp_path):
    trainer = Trainer(preset(), tmp_path / "run", RUN, callbacks=[Failing("on_step", interrupt)], quiet=True)
    result = trainer.run()
    assert (result.signal, result.reason, result.counters.env_steps) == (signal.SIGINT, "SIGINT", 50)
    with pytest.raises(RuntimeError, match=r"A trainer runs once .* resume=True\. Received: a second run in "):
        trainer.run()
    assert [path.name for path in trainer.checkpoints.places()] == ["000000050"]


def test_a_callback_that_ends_the_program_is_an_error(tmp_path):
    trainer = Trainer(
        preset(), tmp_path / "run", RUN, callbacks=[Failing("on_step", lambda trainer: exit())], quiet=True
    )
    with pytest.raises(UserCodeError, match=r"Failing in on_step raised\. Received: SystemExit: "):
        trainer.run()
    assert [path.name for path in trainer.checkpoints.places()] == ["000000050"]


class Ending(BaseException):
    """Is no Exception, so that few catch it."""


@pytest.mark.slow
@pytest.mark.parametrize("error", [GeneratorExit("enough"), Ending("enough")])
def test_whatever_a_callback_raises_the_run_is_saved(tmp_path, error):
    def act(trainer):
        raise error

    trainer = Trainer(preset(), tmp_path / "run", RUN, callbacks=[Failing("on_step", act)], quiet=True)
    with pytest.raises(UserCodeError, match=r"Failing in on_step raised\. Received: \w+: enough \("):
        trainer.run()
    assert [path.name for path in trainer.checkpoints.places()] == ["000000050"]


class Told(Callback):
    """Keeps what it was told of the end."""

    def __init__(self):
        self.ends = []

    def on_training_end(self, trainer):
        self.ends.append((trainer.error, len(trainer.checkpoints.places())))


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["on_step", "on_evaluation"])
def test_callbacks_are_told_once_how_a_run_ended(tmp_path, hook):
    told = Told()
    Trainer(preset(), tmp_path / "whole", RUN, callbacks=[told], quiet=True).run()
    assert told.ends == [(None, 1)]
    told = Told()
    with pytest.raises(UserCodeError) as error:
        Trainer(preset(), tmp_path / "failed", RUN, callbacks=[Failing(hook, fail), told], quiet=True).run()
    assert told.ends == [(error.value, 1)]


def test_callbacks_are_told_of_the_failure_of_an_environment_which_none_of_them_hides(tmp_path, capsys):
    faulty = preset(environment__level="tfsac.testing:Faulty-v0", environment__kwargs={"fail_at": 55, "how": "raise"})
    told = Told()
    trainer = Trainer(faulty, tmp_path / "run", callbacks=[Failing("on_training_end", fail), told])
    with pytest.raises(EnvironmentFailure, match="simulator fell over") as error:
        trainer.run()
    assert told.ends == [(error.value, 1)]
    assert (
        "The callback Failing in on_training_end raised. Received: ZeroDivisionError: no such number ("
        in capsys.readouterr().out
    )


def test_a_callback_that_could_not_begin_is_not_told_of_the_end(tmp_path):
    failing, told = Failing("on_training_begin", fail), Told()
    trainer = Trainer(preset(), tmp_path / "run", RUN, callbacks=[failing, told], quiet=True)
    with pytest.raises(UserCodeError):
        trainer.run()
    assert failing.calls["on_training_end"] == 0 and told.ends == [(trainer.error, 1)]


def test_a_run_that_loses_its_cluster_does_not_blame_an_environment(tmp_path, capsys):
    trainer = Trainer(preset(), tmp_path / "run", RUN)

    def lost(*arguments):
        raise ActorsLost("The Ray cluster is lost: its head is gone. Received: 'there'")

    trainer.collector.step = lost
    with pytest.raises(ActorsLost):
        trainer.run()
    assert "The Ray cluster, or an actor on it, was lost; the state before is saved in " in capsys.readouterr().out


class Length(Callback):
    metric_names = ("mine/steps", "mine/rest")

    def metrics(self, trainer):
        return {"mine/steps": np.float32(trainer.counters.env_steps)}


@pytest.mark.slow
def test_a_callback_adds_metrics_to_every_row(tmp_path, capsys):
    Trainer(preset(), tmp_path / "run", RUN, callbacks=[Length()]).run()
    assert [(row["mine/steps"], row["mine/rest"]) for row in rows(tmp_path / "run")] == [("50.0", ""), ("70.0", "")]
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    header = next(line for line in printed if line[:1] == ["steps"])
    assert header[-2:] == ["mine/steps", "mine/rest"]
    assert [line[-2:] for line in printed if line[:1] in (["50"], ["70"])] == [["50", "-"], ["70", "-"]]
    events = [
        (value.tag, event.step, float(tf.make_ndarray(value.tensor)))
        for path in (tmp_path / "run" / "events").iterdir()
        for event in map(tf.compat.v1.Event.FromString, tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "scalars"
    ]
    assert [event for event in events if event[0].startswith("mine")] == [
        ("mine/steps", 50, 50.0),
        ("mine/steps", 70, 70.0),
    ]
    with pytest.raises(
        ValueError,
        match=r"a resumed run keeps .* the metrics of its callbacks.*differing columns \['mine/rest', 'mine/steps'\]$",
    ):
        Trainer(preset(), tmp_path / "run", RUN, resume=True, quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "returned", "text"),
    [
        (("a",), {"b": 1.0}, r"in metrics returns a dict with its metric_names a\. Received: \{'b': 1\.0\}$"),
        (("a",), None, r"in metrics returns a dict with its metric_names a\. Received: None$"),
        (("a",), {"a": "high"}, r"in metrics returns a number for each name\. Received: \{'a': 'high'\}$"),
        (("a", "a"), {}, r"Each metric of a callback has a name of its own\. Received: 'a' twice$"),
        (
            ("loss/q1",),
            {},
            r"Each metric of a callback has a name of its own\. Received: 'loss/q1', which every run has$",
        ),
        ("loss", {}, r"metric_names is a list or tuple of names\. Received: 'loss'$"),
        ((1,), {}, r"metric_names is a list or tuple of names\. Received: \(1,\)$"),
        (None, {}, r"metric_names is a list or tuple of names\. Received: None$"),
    ],
)
def test_metrics_that_cannot_be_written_are_refused(tmp_path, names, returned, text):
    callback = Callback()
    callback.metric_names, callback.metrics = names, lambda trainer: returned
    with pytest.raises((ParameterError, UserCodeError), match=text):
        Trainer(preset(), tmp_path / "run", RUN, callbacks=[callback], quiet=True).run()
    assert (tmp_path / "run").exists() == (names == ("a",))


def hook_of(name, function):
    return type("Own", (Callback,), {name: function})()


async def later(self, trainer):
    pass


def yielding(self, trainer):
    yield


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize(
    ("callback", "text"),
    [
        (
            hook_of("on_train_begin", lambda self, trainer: None),
            r"no such hook\. Did you mean 'on_training_begin'\?.*Received: Own\.on_train_begin$",
        ),
        (
            hook_of("_on_step", lambda self: True),
            r"_on_step is a hook of Stable-Baselines3; here it is on_step\(trainer\).*Received: Own\._on_step$",
        ),
        (
            hook_of("on_epoch_end", lambda self, trainer: None),
            r"no such hook\..*A callback has on_training_begin, .*Received: Own\.on_epoch_end$",
        ),
        (
            hook_of("on_step", lambda self: None),
            r"on_step is a method with the arguments trainer after self\. Received: Own\.on_step\(\)$",
        ),
        (
            hook_of("on_evaluation", lambda self, trainer: None),
            r"with the arguments trainer, row after self\. Received: Own\.on_evaluation\(trainer\)$",
        ),
        (hook_of("on_step", None), r"Received: Own\.on_step = None$"),
        (hook_of("on_step", later), r"without async and yield\. Received: Own\.on_step$"),
        (hook_of("on_step", yielding), r"without async and yield\. Received: Own\.on_step$"),
        (
            hook_of("metric_names", ["a"]),
            r"metrics returns the values of metric_names\. Received: Own with metric_names \['a'\] and no metrics$",
        ),
    ],
)
def test_hooks_that_would_never_work_are_refused_at_once(tmp_path, callback, text):
    with pytest.raises(ParameterError, match=text):
        Trainer(preset(), tmp_path / "run", RUN, callbacks=[callback], quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("untraced")
def test_a_callback_may_have_attributes_of_any_other_name(tmp_path):
    callback = Callback()
    callback.metrics, callback.columns = [], 3
    Trainer(preset(), tmp_path / "run", RUN, callbacks=[callback], quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["preset", "memory", "counters"])
def test_a_callback_must_not_replace_a_part_of_the_run(tmp_path, part):
    """It would have no effect, or none that can be resumed."""
    trainer = Trainer(
        preset(),
        tmp_path / "run",
        RUN,
        callbacks=[Failing("on_step", lambda trainer: setattr(trainer, part, None))],
        quiet=True,
    )
    with pytest.raises(
        UserCodeError,
        match=rf"in on_step raised\. Received: AttributeError: trainer\.{part} is a part of the run, which cannot be "
        rf"replaced \(",
    ):
        trainer.run()
    assert getattr(trainer, part) is not None and trainer.checkpoints.places()


@pytest.mark.slow
@pytest.mark.parametrize("reason", ["", None, 3])
def test_a_run_is_stopped_with_a_reason(tmp_path, reason):
    trainer = Trainer(
        preset(),
        tmp_path / "run",
        RUN,
        callbacks=[Failing("on_step", lambda trainer: trainer.stop(reason))],
        quiet=True,
    )
    with pytest.raises(ParameterError, match="stop is told why the run ends"):
        trainer.run()
    assert [path.name for path in trainer.checkpoints.places()] == ["000000050"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 9 GiB"),
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating\nmore lines"),
    ],
)
def test_memory_that_runs_out_names_the_checkpoint_to_resume_from(tmp_path, error):
    trainer = Trainer(
        preset(), tmp_path / "run", RunParameters(checkpoint_save_steps=20, updates_between_diagnostics=1), quiet=True
    )
    update = trainer.agent.update

    def exhausted(batch):
        if trainer.counters.env_steps == 45:
            raise error
        return update(batch)

    trainer.agent.update = exhausted
    text = r"^Memory ran out at environment step 45\. .*resume=True.* continues from the last checkpoint, 000000040\. Received: \w+Error: [^\n]*$"
    with pytest.raises(RuntimeError, match=text):
        trainer.run()


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("memory", ["transitions", "prioritized"])
def test_a_memory_larger_than_ram_is_refused_before_anything_is_written(tmp_path, memory):
    small = {"kind": "prioritized"} if memory == "prioritized" else {}
    large = override(preset(), {"agent.memory": {**small, "max_size": 10**12}})
    text = r"does not fit into RAM: \d{14} bytes of RAM are needed.*smaller agent\.memory\.max_size.*memory_on_disk=True.*Received: agent\.memory\.max_size=1000000000000$"
    with pytest.raises(ParameterError, match=text):
        Trainer(large, tmp_path / "run", quiet=True)
    with pytest.raises(OSError, match=r"needs \d{14} bytes of the disk.*Received: "):
        Trainer(large, tmp_path / "run", RunParameters(memory_on_disk=True), quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("part", "method", "step"), [("csv", "write", 50), ("tensorboard", "write_points", 30)])
def test_a_full_disk_names_the_folder_and_the_checkpoint(tmp_path, part, method, step):
    trainer = Trainer(
        preset(), tmp_path / "run", RunParameters(checkpoint_save_steps=20, updates_between_diagnostics=1), quiet=True
    )

    def full(*arguments):
        raise OSError(28, "No space left on device")

    class Fill(Callback):
        def on_training_begin(self, trainer):
            setattr(getattr(trainer.reporter, part), method, full)

    trainer.hooks.callbacks.append(Fill())
    text = rf"run cannot be written at environment step {step}\. .*resume=True.* continues from the last checkpoint.*Received: OSError: \[Errno 28\] No space left on device$"
    with pytest.raises(OSError, match=text):
        trainer.run()


def test_a_disk_that_is_full_to_the_end_is_explained_and_everything_is_closed(tmp_path):
    class Fill(Callback):
        def on_step(self, trainer):
            if trainer.counters.env_steps == 30:
                trainer.reporter.tensorboard.write_points = trainer.reporter.csv.close = full

    def full(*arguments):
        raise OSError(28, "No space left on device")

    trainer = Trainer(
        preset(), tmp_path / "run", RunParameters(checkpoint_save_steps=20), callbacks=[Fill()], quiet=True
    )
    with pytest.raises(OSError, match=r"cannot be written at environment step .*resume=True, callbacks=.* continues"):
        trainer.run()
    resumed = Trainer(preset(), tmp_path / "run", RunParameters(), resume=True, quiet=True)  # nobody has its lock
    resumed.close()


def test_a_full_disk_does_not_hide_why_the_run_failed(tmp_path, capsys, monkeypatch):
    faulty = preset(environment__level="tfsac.testing:Faulty-v0", environment__kwargs={"fail_at": 45, "how": "raise"})
    trainer = Trainer(faulty, tmp_path / "run")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trainer.checkpoints, "checkpoint", type("Full", (), {"write": full}))
    with pytest.raises(EnvironmentFailure, match="simulator fell over"):
        trainer.run()
    assert "An environment failed, and its state could not be saved: CheckpointError" in capsys.readouterr().out


@pytest.mark.slow
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
    assert [float(row["memory/fill"]) for row in rows(tmp_path / "runs" / "fill")] == pytest.approx(
        [n / 1e5 for n in (60, 120, 180, 240, 250)]
    )
    assert len((tmp_path / "runs" / "json" / "metrics.jsonl").read_text().splitlines()) == 5
    assert page["trainer"].counters.env_steps == 250 and page["policy"].act([1.0, 0.0, 0.0]).shape == (1,)
    assert (
        float(rows(tmp_path / "runs" / "by_hand")[-1]["evaluation/return_mean"])
        == page["row"]["evaluation/return_mean"]
    )
