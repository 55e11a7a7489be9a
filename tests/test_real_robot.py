"""A single environment, such as a robot: `evaluation="shared"` or `"none"`, resuming, and the docs page."""

import itertools

import gymnasium as gym
import numpy as np
import pages
import pytest
import resume_tools
import tiny
from toys import tiny_preset

import tfsac
from tfsac.environments import EnvironmentFailure
from tfsac.errors import TfsacError
from tfsac.parameters import RunParameters, override
from tfsac.training import Trainer

LENGTH = 12  # steps of an episode


class Robot(gym.Env):
    """Adds the action to its position. Only one instance may exist, and resets are allowed only between episodes."""

    observation_space, action_space = gym.spaces.Box(-99, 99, (1,)), gym.spaces.Box(-1, 1, (1,))
    users, made, resets = 0, 0, 0

    def __init__(self):
        assert not Robot.users, "a second one"
        Robot.users, Robot.made, self.steps = 1, Robot.made + 1, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        assert self.steps in (0, LENGTH), "in the middle of an episode"
        Robot.resets, self.steps, self.position = Robot.resets + 1, 0, self.np_random.normal()
        return np.array([self.position], np.float32), {}

    def step(self, action):
        self.steps, self.position = self.steps + 1, self.position + float(action[0])
        return np.array([self.position], np.float32), -abs(self.position), False, self.steps == LENGTH, {}

    def close(self):
        assert Robot.users, "closed twice"
        Robot.users = 0


@pytest.fixture(autouse=True)
def reset_counters():
    Robot.users = Robot.made = Robot.resets = 0


def preset(evaluation, **changes):
    shorter = {
        "environment__evaluation": evaluation,
        "environment__max_episode_steps": None,
        "environment__filters__observation_normalization": True,
        "schedule__heatup_steps": 40,
        "schedule__improve_steps": "EnvironmentEpisodes(6)",
        "schedule__evaluation_steps": 2,
        "schedule__steps_between_evaluation_periods": 20,
    }
    return tiny_preset(**{**shorter, **changes})


def check_stored_steps(memory):
    """Checks that the stored steps are consecutive steps of the robot."""
    row = memory.ring[: len(memory), 0]
    before, after = row["observation/observation"][:, 0], row["next_observation/observation"][:, 0]
    ends = row["terminated"] | row["truncated"]
    np.testing.assert_allclose(before + row["action"][:, 0], after, atol=1e-5)
    np.testing.assert_array_equal(after[:-1][~ends[:-1]], before[1:][~ends[:-1]])
    np.testing.assert_array_equal(np.flatnonzero(ends), np.arange(LENGTH - 1, len(row), LENGTH))


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory):
    """Returns the trainer of a finished run with shared evaluations."""
    Robot.users = Robot.made = Robot.resets = 0
    trainer = Trainer(preset("shared"), tmp_path_factory.mktemp("shared") / "run", quiet=True, env_fn=Robot)
    trainer.run()
    check_shared_run(trainer)
    Robot.users = Robot.made = Robot.resets = 0
    return trainer


def check_shared_run(trainer):
    check_stored_steps(trainer.memory)
    assert (Robot.made, Robot.users) == (1, 0)
    # Evaluation periods end at 20, 40, ... steps, and episodes at 12, 24, ...
    evaluated = [int(row["env_steps"]) for row in tiny.rows(trainer.directory.path)]
    assert evaluated == [24, 48, 60, 84, 108]
    # Each evaluation has two episodes. The first one uses the reset of the next training episode.
    assert Robot.resets == 1 + trainer.counters.episodes + 2 * len(evaluated) - 1


@pytest.mark.acceptance
def test_asynchronous_collection_with_shared_environment(tmp_path):
    run = RunParameters(asynchronous_collection=True)
    trainer = Trainer(preset("shared"), tmp_path / "run", run, quiet=True, env_fn=Robot)
    trainer.run()
    check_shared_run(trainer)


class Stuck(Robot):
    """Raises `error` at one reset or step."""

    error, at = RuntimeError("not at home"), ("", 0)

    def fail_at(self, method, count):
        if (method, count) == Stuck.at:
            Stuck.at = ("", 0)
            raise Stuck.error

    def reset(self, *, seed=None, options=None):
        self.fail_at("reset", Robot.resets + 1)
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.fail_at("step", LENGTH * (Robot.resets - 1) + self.steps + 1)
        return super().step(action)


# The fifth reset begins training after the first evaluation.
@pytest.mark.usefixtures("no_export_or_plot")
@pytest.mark.slow
@pytest.mark.parametrize(
    "at, error",
    [
        (("reset", 5), RuntimeError("not at home")),
        (("step", 100), KeyboardInterrupt()),  # as raised by a signal handler of the robot's software
        pytest.param(("reset", 4), KeyboardInterrupt(), marks=pytest.mark.acceptance),
    ],
)
def test_resume_after_failure_is_exact(shared_run, tmp_path, monkeypatch, at, error):
    monkeypatch.setattr(Stuck, "error", error)
    monkeypatch.setattr(Stuck, "at", at)
    trainer = Trainer(preset("shared"), tmp_path / "run", quiet=True, env_fn=Stuck)
    if isinstance(error, KeyboardInterrupt):
        assert trainer.run().reason == "SIGINT"
    else:
        with pytest.raises(EnvironmentFailure, match=str(error)):
            trainer.run()
    assert (Robot.made, Robot.users, len(trainer._checkpoints.saved_checkpoints())) == (1, 0, 1)
    resumed = Trainer(preset("shared"), tmp_path / "run", quiet=True, env_fn=Stuck, resume=True)
    resumed.run()
    resume_tools.assert_same_run(resumed, shared_run)


@pytest.mark.usefixtures("no_export_or_plot")
@pytest.mark.slow
def test_shared_evaluations_do_not_change_training(shared_run, tmp_path):
    trainer = Trainer(preset("none"), tmp_path / "run", quiet=True, env_fn=Robot)
    trainer.run()
    np.testing.assert_array_equal(trainer.memory.ring, shared_run.memory.ring)
    assert trainer.filters.state() == shared_run.filters.state()
    np.testing.assert_equal(resume_tools.weights(trainer), resume_tools.weights(shared_run))


@pytest.mark.usefixtures("no_export_or_plot")
@pytest.mark.slow
# While an evaluation waits for the end of the episode; right after an evaluation.
@pytest.mark.parametrize("step", [58, pytest.param(60, marks=pytest.mark.acceptance)])
def test_resume_with_shared_environment_is_exact(shared_run, tmp_path, step):
    class Interrupted(tfsac.Callback):
        def on_step(self, trainer):
            if trainer.counters.env_steps == step:
                trainer._signals.received = 2

    Trainer(preset("shared"), tmp_path / "run", quiet=True, env_fn=Robot, callbacks=[Interrupted()]).run()
    resumed = Trainer(preset("shared"), tmp_path / "run", quiet=True, env_fn=Robot, resume=True)
    resumed.run()
    resume_tools.assert_same_run(resumed, shared_run)


def test_policy_loads_without_a_second_environment(shared_run):
    robot, made = Robot(), Robot.made
    policy = tfsac.load_policy(shared_run.directory.path, env_fn=Robot)
    assert Robot.made == made and policy.act(robot.reset()[0]).shape == (1,)
    robot.close()
    assert tfsac.evaluate(shared_run.directory.path, 2, env_fn=Robot).lengths.tolist() == [LENGTH] * 2


@pytest.mark.usefixtures("no_export_or_plot")
@pytest.mark.slow
def test_best_policy_without_evaluations(tmp_path):
    changes = {"schedule__improve_steps": "EnvironmentEpisodes(16)", "validation__min_reward_threshold": -1e6}
    changes["environment__level"] = "Robot"  # the threshold applies to this level
    trainer = Trainer(preset("none", **changes), tmp_path / "run", quiet=True, env_fn=Robot)
    result = trainer.run()
    rewards = trainer.memory.ring["reward"][: len(trainer.memory), 0].reshape(-1, LENGTH).astype(np.float64)
    returns, means = rewards.sum(axis=1), {}
    for row in tiny.rows(tmp_path / "run"):
        step, mean = int(row["env_steps"]), row["training/recent_return_mean"]
        ended = step // LENGTH
        assert bool(mean) == (ended - 3 >= 10)  # three episodes ended during the heat-up
        if mean:
            means[step] = float(mean)
            assert means[step] == pytest.approx(returns[ended - 10 : ended].mean(), rel=1e-5)
        assert not any(name.startswith("evaluation/") for name in row)
    assert result.best_return == max(means.values()) and means[result.best_step] == result.best_return
    assert result.accepted is True
    steps, values = tfsac.experiments.plots.read_curve(tmp_path / "run")
    assert dict(zip(steps.tolist(), values.tolist(), strict=True)) == means


def test_run_without_episode_end_exports_and_resumes(tmp_path):
    class Endless(Robot):
        def step(self, action):
            return *super().step(action)[:3], False, {}

    short_preset, run_dir = preset("none", schedule__improve_steps=20), tmp_path / "run"
    tfsac.train(short_preset, run_dir, env_fn=Endless, quiet=True)
    assert tfsac.load_exported(run_dir / "policy")([0.0]).shape == (1,)
    with pytest.raises(TfsacError, match="env_fn"):
        tfsac.train(short_preset, run_dir, resume=True, quiet=True)


@pytest.mark.usefixtures("no_export_or_plot")
@pytest.mark.slow
@pytest.mark.parametrize("homed, replayed", [(False, 0), (True, 1)])
def test_resume_replays_no_action_after_another_observation(homed, replayed, tmp_path):
    places = itertools.count()

    class Real(Robot):
        actions = 0

        def reset(self, **kwargs):
            self.steps = 0
            observation, info = super().reset(**kwargs)
            self.position = observation[0] + (0 if homed else next(places))
            return observation + np.float32(self.position - observation[0]), info

        def step(self, action):
            Real.actions += 1
            self.position += next(places) if homed else 0
            return super().step(action)

    short_preset = override(preset("none"), {"schedule.improve_steps": "EnvironmentSteps(5)"})
    Trainer(short_preset, tmp_path / "run", quiet=True, env_fn=Real).run()
    made = Real.actions
    longer = override(short_preset, {"schedule.improve_steps": 20})
    resumed = Trainer(longer, tmp_path / "run", quiet=True, env_fn=Real, resume=True)
    assert Real.actions == made + replayed and resumed.environments.length.tolist() == [0]
    assert resumed.memory.ring["truncated"][made - 1, 0]
    resumed.close()


@pytest.mark.slow
def test_robot_docs_page_runs(tmp_path):
    page = pages.ROOT / "docs" / "own_environments.md"
    shorter = {f"EnvironmentEpisodes({n})": f"EnvironmentEpisodes({few})" for n, few in ((30, 10), (32, 11))}
    pages.run_page(page, tmp_path, shorter, ["--notensorboard"], "A real robot")
    assert len(tiny.rows(tmp_path / "runs" / "motor")) >= 1
