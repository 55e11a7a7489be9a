"""`info` of environments: logged metrics, and `trainer.last_step` in callbacks."""

import signal

import numpy as np
import pytest
import tiny
from environment_tools import EPISODE_LENGTH
from toys import tiny_preset

from tfsac.environments import Environments, check_environment
from tfsac.environments.subprocesses import convert
from tfsac.environments.vectorize import number
from tfsac.parameters import EnvironmentParameters, ParameterError, RunParameters
from tfsac.random_streams import EVALUATION, TRAINING, episode_seed
from tfsac.training import Callback, Trainer

LEVEL = "environment_tools:TfsacInfo-v0"
RUN = RunParameters(updates_between_diagnostics=1)  # traces one graph instead of two


def preset(**changes):
    short = {"heatup_steps": 40, "improve_steps": 30, "steps_between_evaluation_periods": 50}
    changes = {"environment__logged_info": ["number", "three", "words"], **changes}
    evaluation = {"schedule__evaluation_steps": "EnvironmentEpisodes(3)"}
    return tiny_preset(LEVEL, **{f"schedule__{name}": steps for name, steps in short.items()}, **evaluation, **changes)


def expected_numbers(purpose, *all_indices):
    return np.array([episode_seed(0, purpose, *indices) % 7 for indices in all_indices])


class RecordSteps(Callback):
    def __init__(self):
        self.steps = []

    def on_training_begin(self, trainer):
        assert trainer.last_step is None

    def on_step(self, trainer):
        self.steps.append(trainer.last_step)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run_dir, recorder = tmp_path_factory.mktemp("info") / "run", RecordSteps()
    Trainer(preset(), run_dir, RUN, callbacks=[recorder], quiet=True).run()
    return run_dir, recorder


def test_logged_info_is_checked():
    report = check_environment(EnvironmentParameters(LEVEL, logged_info=("number", "words")))
    assert [warning for warning in report.warnings if "logged_info" in warning and "'words'" in warning]
    assert not [warning for warning in report.warnings if "'number'" in warning]
    with pytest.raises(ParameterError, match="return_mean"):
        EnvironmentParameters(LEVEL, logged_info=("return_mean",))


def test_convert_keeps_finite_scalars():
    info = {"a": np.bool_(True), "b": np.array(2), "c": [3.0], "d": [1, 2], "e": "far", "f": None, "g": np.inf, "h": 4}
    assert convert(info, number) == {"a": 1.0, "b": 2.0, "c": 3.0, "h": 4.0}


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_step_has_infos_and_logged_numbers(vectorization):
    parameters = EnvironmentParameters(LEVEL, num_envs=3, vectorization=vectorization, logged_info=("number", "three"))
    environments = Environments(parameters, seed=0)
    try:
        for step in range(1, EPISODE_LENGTH + 1):
            result = environments.step(np.zeros((3, 1), np.float32))
            assert [info["seen"].tolist() for info in result.info] == result.next_observation["observation"].tolist()
            assert all(np.isnan(values).all() for values in result.logged.values()) == (step < EPISODE_LENGTH)
    finally:
        environments.close()
    expected = expected_numbers(TRAINING, (0, 0), (1, 0), (2, 0))
    np.testing.assert_array_equal(result.logged["number"], expected)
    np.testing.assert_array_equal(result.logged["is_success"], expected % 2)
    np.testing.assert_array_equal(result.logged["three"], np.where(expected == 3, 3, np.nan))


def test_logged_info_columns(trained):
    rows = tiny.rows(trained[0])
    episodes = expected_numbers(TRAINING, *((0, i) for i in range(14)))
    for row, part, step in zip(rows, (episodes[:10], episodes[10:]), (50, 70), strict=True):
        evaluated = expected_numbers(EVALUATION, *((step, i) for i in range(3)))
        for kind, values in (("training", part), ("evaluation", evaluated)):
            assert float(row[f"{kind}/number"]) == pytest.approx(values.mean())
            assert float(row[f"{kind}/is_success"]) == pytest.approx((values % 2).mean())
            assert f"{kind}/action" not in row  # not in environment.logged_info
            assert row.get(f"{kind}/three", "") == ("3.0" if 3 in values else "") and not row.get(f"{kind}/words")


def test_logged_info_after_resume(trained, tmp_path):
    class Interrupt(Callback):
        def on_step(self, trainer):
            if trainer.counters.env_steps == 57:
                trainer._signals.received = signal.SIGTERM

    Trainer(preset(), tmp_path / "run", RUN, callbacks=[Interrupt()], quiet=True).run()
    Trainer(preset(), tmp_path / "run", RUN, resume=True, quiet=True).run()
    for row, expected in zip(tiny.rows(tmp_path / "run"), tiny.rows(trained[0]), strict=True):
        assert list(row) == list(expected)
        assert all(row[name] == value for name, value in expected.items() if "second" not in name)


def test_last_step_in_callbacks(trained):
    steps = trained[1].steps
    assert len(steps) == 70
    for step in steps:
        (info,) = step.info
        np.testing.assert_array_equal(step.action[0], info["action"])
        np.testing.assert_array_equal(step.next_observation["observation"][0], info["seen"])
        assert step.reward.tolist() == [1.0] and step.truncated.tolist() == [False]
        assert step.terminated.tolist() == ["is_success" in info]
    assert any(abs(step.action[0, 0]) > 1 for step in steps)
    first, second = (step.observation["observation"][0].tolist() for step in steps[:2])
    assert first == [0.0, 0.0] and second == steps[0].next_observation["observation"][0].tolist()
