"""Demonstrations of any policy: what is recorded is what happened, and what comes of it is a file to learn from."""

import gymnasium as gym
import numpy as np
import pytest

import tfsac
from tfsac.environments import make, spec_of
from tfsac.errors import TfsacError
from tfsac.memories import load_demonstrations
from tfsac.memories.transitions import NEXT
from tfsac.types import OBSERVATION


class Reused(gym.Env):
    """Counts its steps in one array that it gives away again and again."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (2,))
    action_space = gym.spaces.Discrete(2, start=5)

    def __init__(self):
        self.seen = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen[:] = 0
        return self.seen, {}

    def step(self, action):
        self.seen += 1
        return self.seen, float(action), self.seen[0] == 3, False, {}


def test_every_step_has_its_own_observations_though_the_environment_reuses_its_array():
    shown = tfsac.demonstrate(lambda observation: 5 + int(observation[0]) % 2, Reused(), episodes=2)
    np.testing.assert_array_equal(shown.records[OBSERVATION + "observation"][:, 0], [0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(shown.records[NEXT + "observation"][:, 0], [1, 2, 3, 1, 2, 3])
    np.testing.assert_array_equal(shown.records["action"], [0, 1, 0, 0, 1, 0])  # numbers from 0
    np.testing.assert_array_equal(shown.records["terminated"], [False, False, True] * 2)
    np.testing.assert_array_equal(shown.returns, [16.0, 16.0])
    assert shown.level == "Reused"


class Scaling(Reused):
    """Scales the action that it is given where it lies."""

    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def step(self, action):
        action *= 20.0
        return super().step(action[0])


def test_actions_are_recorded_as_they_were_taken_though_the_environment_changes_them():
    shown = tfsac.demonstrate(lambda observation: np.array([0.75], np.float32), Scaling(), episodes=1)
    np.testing.assert_array_equal(shown.records["action"], np.full((3, 1), 0.75, np.float32))
    assert shown.returns[0] == 3 * 15.0


class Narrow(Reused):
    """Its actions are narrow beside their size, so a rounding there is much in [-1, 1]."""

    action_space = gym.spaces.Box(1000.0, 1001.0, (1,))

    def step(self, action):
        return super().step(action[0])


def test_an_action_that_rounding_took_beyond_its_bound_is_recorded_at_the_bound():
    shown = tfsac.demonstrate(lambda observation: np.array([1001.0005]), Narrow(), episodes=1)
    np.testing.assert_array_equal(shown.records["action"], np.ones((3, 1), np.float32))


def test_the_seed_decides_the_episodes_of_a_script():
    env = make("CartPole-v1")
    shown, again = (
        tfsac.demonstrate(lambda observation: int(observation[2] + observation[3] > 0), env, episodes=3, seed=4)
        for _ in range(2)
    )
    assert shown.returns.sum() == len(shown.records) > 200  # a point for every step, and it balances a while
    np.testing.assert_array_equal(again.records, shown.records)


def test_demonstrations_of_other_bounds_are_refused(tmp_path):
    """They are stored in [-1, 1], which stands for other actions there."""
    low = np.array([-1.0, -2.0], np.float32)

    class Bounded(Reused):
        action_space = gym.spaces.Box(low, -low)

        def step(self, action):
            return super().step(action[0])

    class Stronger(Bounded):
        action_space = gym.spaces.Box(low, -5.0 * low)

    shown = tfsac.demonstrate(lambda observation: low / 2.0, Bounded(), episodes=1)
    assert shown.action_bounds == ([-1.0, -2.0], [1.0, 2.0])
    tfsac.save_demonstrations(tmp_path / "arm.npz", shown)
    assert load_demonstrations(tmp_path / "arm.npz", spec_of(Bounded())).action_bounds == shown.action_bounds
    with pytest.raises(TfsacError, match="bounds of actions"):
        load_demonstrations(tmp_path / "arm.npz", spec_of(Stronger()))
    tfsac.save_demonstrations(tmp_path / "unknown.npz", shown._replace(action_bounds=None))
    assert load_demonstrations(tmp_path / "unknown.npz", spec_of(Stronger())).action_bounds is None
