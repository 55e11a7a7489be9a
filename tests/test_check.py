"""`tfsac check` and `check_environment` report everything about an environment at once."""

import random

import gymnasium as gym
import numpy as np
import pytest
from environment_tools import Continuing

import tfsac
from tfsac import cli
from tfsac.errors import TfsacError

Box = gym.spaces.Box
ZEROS = np.zeros(2, np.float32)


class Plain(gym.Env):
    """Is fine, but for what a test changes."""

    def __init__(self, action=None, space=None, **changes):
        self.action_space = action or Box(-1.0, 1.0, (1,), np.float32)
        self.observation_space = space or Box(-10.0, 10.0, (2,), np.float32)
        self.changes = changes

    def drawn(self):
        return np.resize(self.np_random.normal(size=2).astype(np.float32), self.observation_space.shape)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.last = 0, self.np_random.integers(6, 9)
        return self.drawn(), {}

    def step(self, action):
        self.steps += 1
        parts = {
            "observation": self.drawn(),
            "reward": 1.0,
            "terminated": self.steps == self.last,
            "truncated": False,
            "info": {},
        }
        return tuple({**parts, **self.changes}.values())


class Lasting(Plain):
    """Returns its time limit of 6 steps as an end of the task."""

    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.steps == 6, truncated, info


class Unseeded(Plain):
    def drawn(self):
        return np.float32([np.random.normal(), random.random()])


class Outliving(Plain):
    count = 0

    def drawn(self):
        self.count += 1
        return np.float32([self.count / 1000, 0])


class Masking(Plain):
    """Has the masks of sb3-contrib, and those of Gymnasium's Taxi."""

    def action_masks(self):
        return np.ones(1, bool)

    def step(self, action):
        return *super().step(action)[:4], {"action_mask": np.ones(1, np.int8)}


gym.register("Plain-v0", entry_point=Plain)
PLAIN = f"{__name__}:Plain-v0"


def test_a_good_environment_has_neither_problems_nor_warnings():
    report = tfsac.check_environment(Plain, num_steps=50)
    assert report.usable and report.problems == report.warnings == []
    assert (
        "ended episodes: 7 (7 terminated, 0 truncated), after 7 steps on average, with a mean return of 6.857"
        in str(report)
    )
    assert "same seed and actions give the same trajectory" in str(report)
    assert str(report).startswith("Plain:\n") and str(report).endswith("\nusable")
    report = tfsac.check_environment(lambda: gym.wrappers.TimeLimit(Plain(), 5), num_steps=20)
    assert "ended episodes: 4 (0 terminated, 4 truncated), after 5 steps" in str(report)


def test_what_training_refuses_is_a_problem():
    (problem,) = tfsac.check_environment(Plain(observation=np.float32([0, np.nan])), num_steps=20).problems
    assert "must be finite" in problem


class Picky(Plain):
    """Takes only what training gives it: float64 actions, and seeds of episodes below 2^31."""

    def __init__(self, largest_seed=2**31):
        super().__init__(Box(-2.0, 2.0, (1,), np.float64))
        self.largest_seed = largest_seed

    def reset(self, *, seed=None, options=None):
        if seed > self.largest_seed:
            raise ValueError("seed too large")
        return super().reset(seed=seed, options=options)


def test_the_check_makes_and_resets_environments_as_training_does():
    assert not tfsac.check_environment(Picky, num_steps=50).problems
    (problem,) = tfsac.check_environment(lambda: Picky(2**16), num_steps=50).problems
    assert "seed too large" in problem
    one = Plain()
    (problem,) = tfsac.check_environment(lambda: one, num_steps=20).problems
    assert "2 environments at once" in problem


@pytest.mark.parametrize(
    "make_env, words",
    [
        (Unseeded, "self.np_random"),
        (Masking, "action_masks() is not read"),
        (Masking, "info['action_mask'] is not read"),
        (Outliving, "reset everything else"),
        (lambda: Plain(terminated=False), "no time limit known"),
        (lambda: Continuing(gym.wrappers.TimeLimit(Plain(terminated=False), 15)), "though the time limit is 15"),
        (Lasting, "terminated after exactly 6 steps"),
        (lambda: Plain(observation=np.float32([0, 9e5])), "observation_normalization"),
        (lambda: Plain(reward=-2e4), "reward_rescale_factor"),
        (lambda: Plain(reward=0.02), "too small for critics"),
        (lambda: Plain(Box(-1e6, 1e6, (1,))), "as large as 1e+06"),
        (
            lambda: Plain(space=Box(0, 255, (3, 84, 84), np.uint8), observation=np.zeros((3, 84, 84), np.uint8)),
            "channels last",
        ),
        (
            lambda: Plain(space=Box(0.0, 1.0, (16, 16, 3)), observation=np.zeros((16, 16, 3), np.float32)),
            "not uint8",
        ),
    ],
)
def test_what_may_be_intended_is_a_warning(make_env, words):
    report = tfsac.check_environment(make_env, num_steps=20)
    assert any(words in text for text in report.warnings), report


def test_the_command_builds_the_agent_that_is_set(capsys):
    scheme = "--set=agent.networks.q.input_embedders_parameters.observation.scheme="
    assert cli.run(["check", "--preset=pendulum_twin_sac", "--num_steps=20", f"{scheme}[16]"]) == 0
    capsys.readouterr()
    convolution = '[{"num_filters": 4, "kernel_size": 3, "stride": 1}]'
    assert cli.run(["check", "--preset=pendulum_twin_sac", "--num_steps=20", f"{scheme}{convolution}"]) == 1
    assert "image" in capsys.readouterr().out


def test_the_command_prints_the_report_and_its_status_says_whether_it_is_usable(capsys):
    def status(*flags):
        return cli.run(["check", "--num_steps=20", *flags])

    assert status(f"--level={PLAIN}") == 0
    assert "\nusable\n" in capsys.readouterr().out
    assert status("--level=toys:DiscreteIdentity-v0", "--set=environment.kwargs.masked=true") == 0
    capsys.readouterr()
    assert status(f"--level={PLAIN}", "--set=environment.kwargs.reward=one") == 1
    assert "\nnot usable\n" in capsys.readouterr().out
    assert status("--preset=pendulum_sac", "--level=CartPole-v1") == 1  # the agent does not fit
    assert status("--preset=pendulum_sac", "--set=environment.visible_entries=[9]") == 1
    with pytest.raises(TfsacError, match="Pendulum"):
        status("--level=Pendulun-v1")
