"""`tfsac check` and `check_environment`: problems, warnings and exit status."""

import random

import gymnasium as gym
import numpy as np
import pytest
from environment_tools import DropTruncation

import tfsac
from tfsac import cli
from tfsac.errors import TfsacError

Box = gym.spaces.Box


class Plain(gym.Env):
    """A valid environment, except for `changes` of its steps."""

    def __init__(self, action=None, space=None, **changes):
        self.action_space = action or Box(-1.0, 1.0, (1,), np.float32)
        self.observation_space = space or Box(-10.0, 10.0, (2,), np.float32)
        self.changes = changes

    def sample(self):
        return np.resize(self.np_random.normal(size=2).astype(np.float32), self.observation_space.shape)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.last = 0, self.np_random.integers(6, 9)
        return self.sample(), {}

    def step(self, action):
        self.steps += 1
        parts = {
            "observation": self.sample(),
            "reward": 1.0,
            "terminated": self.steps == self.last,
            "truncated": False,
            "info": {},
        }
        return tuple({**parts, **self.changes}.values())


class TerminatesAtTimeLimit(Plain):
    """Reports its time limit of 6 steps as a termination."""

    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.steps == 6, truncated, info


def image(shape, high, dtype):
    return Plain(space=Box(0, high, shape, dtype), observation=np.zeros(shape, dtype))


class Bits(Plain):
    def __init__(self):
        super().__init__(space=Box(0, 1, (16, 16, 3), np.uint8))

    def sample(self):
        return self.np_random.integers(2, size=(16, 16, 3), dtype=np.uint8)


class Unseeded(Plain):
    def sample(self):
        return np.float32([np.random.normal(), random.random()])


class KeepsState(Plain):
    count = 0

    def sample(self):
        self.count += 1
        return np.float32([self.count / 1000, 0])


class SharesSimulator(Plain):
    """Has its state in a simulator."""

    def __init__(self, simulator):
        super().__init__()
        self.simulator = simulator

    def reset(self, **kwargs):
        self.simulator.clear()
        return super().reset(**kwargs)

    def sample(self):
        self.simulator.setdefault("place", self.np_random.normal())
        return np.float32([self.simulator["place"], 0])


SIMULATOR = {}


class Masking(Plain):
    """Has action masks like sb3-contrib and like Gymnasium's Taxi."""

    def action_masks(self):
        return np.ones(1, bool)

    def step(self, action):
        return *super().step(action)[:4], {"action_mask": np.ones(1, np.int8)}


gym.register("Plain-v0", entry_point=Plain)
PLAIN = f"{__name__}:Plain-v0"


def test_valid_environment_has_no_problems_or_warnings():
    report = tfsac.check_environment(Plain, num_steps=50)
    assert report.usable and report.problems == report.warnings == []
    episodes = "ended episodes: 7 (7 terminated, 0 truncated), after 7 steps on average, with a mean return of 6.857"
    assert episodes in str(report)
    assert "same seed and actions give the same trajectory" in str(report)
    assert str(report).startswith("Plain:\n") and str(report).endswith("\nusable")
    report = tfsac.check_environment(lambda: gym.wrappers.TimeLimit(Plain(), 5), num_steps=20)
    assert "ended episodes: 4 (0 terminated, 4 truncated), after 5 steps" in str(report)


def test_errors_of_training_are_problems():
    (problem,) = tfsac.check_environment(Plain(observation=np.float32([0, np.nan])), num_steps=20).problems
    assert "must be finite" in problem


class Picky(Plain):
    """Has float64 actions, and rejects seeds above a limit."""

    def __init__(self, largest_seed=2**31):
        super().__init__(Box(-2.0, 2.0, (1,), np.float64))
        self.largest_seed = largest_seed

    def reset(self, *, seed=None, options=None):
        if seed > self.largest_seed:
            raise ValueError("seed too large")
        return super().reset(seed=seed, options=options)


def test_check_creates_and_resets_environments_like_training():
    assert not tfsac.check_environment(Picky, num_steps=50).problems
    (problem,) = tfsac.check_environment(lambda: Picky(2**16), num_steps=50).problems
    assert "seed too large" in problem
    shared = Plain()
    (problem,) = tfsac.check_environment(lambda: shared, num_steps=20).problems
    assert "2 environments at once" in problem


@pytest.mark.parametrize(
    "make_env, words",
    [
        (Unseeded, "self.np_random"),
        (Masking, "action_masks() is not read"),
        (Masking, "info['action_mask'] is not read"),
        (KeepsState, "reset everything else"),
        (lambda: Plain(terminated=False), "no time limit known"),
        (lambda: DropTruncation(gym.wrappers.TimeLimit(Plain(terminated=False), 15)), "though the time limit is 15"),
        (TerminatesAtTimeLimit, "terminated after exactly 6 steps"),
        (lambda: Plain(observation=np.float32([0, 9e5])), "observation_normalization"),
        (lambda: Plain(reward=-2e4), "reward_rescale_factor"),
        (lambda: Plain(reward=0.02), "too small for critics"),
        (lambda: Plain(Box(-1e6, 1e6, (1,))), "as large as 1e+06"),
        (lambda: image((3, 84, 84), 255, np.uint8), "channels last"),
        (lambda: image((16, 16, 3), 1, np.float32), "not uint8"),
        (lambda: image((9, 84, 84), 255, np.uint8), "channels last"),
        (Bits, "divide by 255"),
        (lambda: SharesSimulator(SIMULATOR), "second environment"),
    ],
)
def test_suspicious_behaviour_is_a_warning(make_env, words):
    report = tfsac.check_environment(make_env, num_steps=20)
    assert any(words in text for text in report.warnings), report


def test_command_builds_configured_agent(capsys):
    scheme = "--set=agent.networks.q.input_embedders_parameters.observation.scheme="
    assert cli.run(["check", "--preset=pendulum_twin_sac", "--num_steps=20", f"{scheme}[16]"]) == 0
    capsys.readouterr()
    convolution = '[{"num_filters": 4, "kernel_size": 3, "stride": 1}]'
    assert cli.run(["check", "--preset=pendulum_twin_sac", "--num_steps=20", f"{scheme}{convolution}"]) == 1
    assert "image" in capsys.readouterr().out


def test_command_prints_report_and_sets_exit_status(capsys):
    def status(*flags):
        return cli.run(["check", "--num_steps=20", *flags])

    assert status(f"--level={PLAIN}") == 0
    assert "\nusable\n" in capsys.readouterr().out
    assert status("--level=toys:DiscreteIdentity-v0", "--set=environment.kwargs.masked=true") == 0
    capsys.readouterr()
    assert status(f"--level={PLAIN}", "--set=environment.kwargs.reward=one") == 1
    assert "\nnot usable\n" in capsys.readouterr().out
    assert status("--preset=pendulum_sac", "--level=CartPole-v1") == 1  # wrong agent for the action space
    assert status("--preset=pendulum_sac", "--set=environment.visible_entries=[9]") == 1
    with pytest.raises(TfsacError, match="Pendulum"):
        status("--level=Pendulun-v1")
