"""What TensorBoard gets while a run trains."""

import numpy as np
import tensorflow as tf
from toys import tiny_preset

from tfsac.parameters import RunParameters
from tfsac.training import Callback, Trainer, reporting
from tfsac.training.loggers import RunInfo, TensorBoardLogger

SHORT = {"schedule__heatup_steps": 40, "schedule__improve_steps": 60, "schedule__steps_between_evaluation_periods": 100}


def events(folder):
    """Returns the events of a folder in the order in which TensorBoard reads its files."""
    paths = sorted((folder / "events").iterdir())
    return [
        tf.compat.v1.Event.FromString(record)
        for path in paths
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    ]


def scalars(found, tag):
    return [
        (event.step, float(tf.make_ndarray(value.tensor)))
        for event in found
        for value in event.summary.value
        if value.tag == tag
    ]


def test_episodes_and_losses_are_written_between_evaluations(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "STEPS_BETWEEN_CURVES", 20)
    seen = []

    class Watch(Callback):
        def on_updates(self, trainer, metrics):
            seen.append(metrics[:, trainer.update_metrics.index("loss/q1")])

    run = RunParameters(updates_between_diagnostics=1, histograms=True)
    Trainer(tiny_preset(**SHORT), tmp_path / "run", run, callbacks=[Watch()], quiet=True).run()
    found, losses = events(tmp_path / "run"), np.concatenate(seen)
    assert any(
        value.tag.startswith("policy/") and "kernel" in value.tag for event in found for value in event.summary.value
    )
    assert [step for step, _ in scalars(found, "training/episode_return")] == [30, 60, 90]
    assert [value for _, value in scalars(found, "training/episode_length")] == [30, 30, 30]
    steps, values = zip(*scalars(found, "loss/q1"), strict=True)
    assert steps == (60, 80, 100)
    np.testing.assert_allclose(values, losses.reshape(3, 20).mean(axis=1), rtol=1e-5)
    assert [step for step, _ in scalars(found, "evaluation/return_mean")] == [100]


def test_a_resumed_run_drops_what_was_written_after_its_checkpoint(tmp_path):
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
    shown = EventAccumulator(str(tmp_path / "events")).Reload()
    points = [
        (point.step, float(tf.make_ndarray(point.tensor_proto))) for point in shown.Tensors("training/episode_return")
    ]
    assert points == [(10, 1.0), (20, 1.0), (25, 2.0)]
