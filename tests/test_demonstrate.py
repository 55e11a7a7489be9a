"""`tfsac.demonstrate` records the steps of any policy."""

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
    """Observes its step count, always in the same array."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (2,))
    action_space = gym.spaces.Discrete(2, start=5)

    def __init__(self):
        self.observation = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation[:] = 0
        return self.observation, {}

    def step(self, action):
        self.observation += 1
        return self.observation, float(action), self.observation[0] == 3, False, {}


def test_observations_are_copied_from_reused_arrays():
    demonstrations = tfsac.demonstrate(lambda observation: 5 + int(observation[0]) % 2, Reused(), episodes=2)
    np.testing.assert_array_equal(demonstrations.records[OBSERVATION + "observation"][:, 0], [0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(demonstrations.records[NEXT + "observation"][:, 0], [1, 2, 3, 1, 2, 3])
    np.testing.assert_array_equal(demonstrations.records["action"], [0, 1, 0, 0, 1, 0])  # counted from 0
    np.testing.assert_array_equal(demonstrations.records["terminated"], [False, False, True] * 2)
    np.testing.assert_array_equal(demonstrations.returns, [16.0, 16.0])
    assert demonstrations.level == "Reused"


class Scaling(Reused):
    """Modifies its action in place."""

    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def step(self, action):
        action *= 20.0
        return super().step(action[0])


class Narrow(Reused):
    """Has a narrow range of large actions, so that rounding errors are large in [-1, 1]."""

    action_space = gym.spaces.Box(1000.0, 1001.0, (1,))

    def step(self, action):
        return super().step(action[0])


@pytest.mark.parametrize(
    ("env", "action", "recorded", "episode_return"),
    [(Scaling(), np.float32([0.75]), 0.75, 3 * 15.0), (Narrow(), np.array([1001.0005]), 1.0, 3 * 1001.0)],
    ids=["modified in place", "rounded beyond the bound"],
)
def test_actions_are_copied_and_clipped(env, action, recorded, episode_return):
    demonstrations = tfsac.demonstrate(lambda observation: action.copy(), env, episodes=1)
    np.testing.assert_array_equal(demonstrations.records["action"], np.full((3, 1), recorded, np.float32))
    assert demonstrations.returns[0] == episode_return


def test_seed_determines_episodes():
    env = make("CartPole-v1")
    demonstrations, again = (
        tfsac.demonstrate(lambda observation: int(observation[2] + observation[3] > 0), env, episodes=3, seed=4)
        for _ in range(2)
    )
    assert demonstrations.returns.sum() == len(demonstrations.records) > 200  # one point per step
    np.testing.assert_array_equal(again.records, demonstrations.records)


def test_demonstrations_with_other_action_bounds_are_rejected(tmp_path):
    """Actions are stored in [-1, 1], where other bounds would change their meaning."""
    low = np.array([-1.0, -2.0], np.float32)

    class Bounded(Reused):
        action_space = gym.spaces.Box(low, -low)

        def step(self, action):
            return super().step(action[0])

    class Stronger(Bounded):
        action_space = gym.spaces.Box(low, -5.0 * low)

    demonstrations = tfsac.demonstrate(lambda observation: low / 2.0, Bounded(), episodes=1)
    assert demonstrations.action_bounds == ([-1.0, -2.0], [1.0, 2.0])
    tfsac.save_demonstrations(tmp_path / "arm.npz", demonstrations)
    assert load_demonstrations(tmp_path / "arm.npz", spec_of(Bounded())).action_bounds == demonstrations.action_bounds
    with pytest.raises(TfsacError, match="bounds of actions"):
        load_demonstrations(tmp_path / "arm.npz", spec_of(Stronger()))
    tfsac.save_demonstrations(tmp_path / "unknown.npz", demonstrations._replace(action_bounds=None))
    assert load_demonstrations(tmp_path / "unknown.npz", spec_of(Stronger())).action_bounds is None
