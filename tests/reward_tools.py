"""An environment with two rewards a step, which processes can make from its level."""

import gymnasium as gym
import numpy as np

Box = gym.spaces.Box


class TwoRewards(gym.Env):
    """Rewards minus the squared action, and ten times the steps so far; an episode ends after three steps.

    An action of 1 makes the trouble that `trouble` names.
    """

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)
    reward_space = Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, trouble=""):
        self.trouble = trouble

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {"vector_reward": "of another episode"}

    def step(self, action):
        self.steps += 1
        rewards = np.array([-(action[0] ** 2), 10.0 * self.steps])
        if action[0] == 1.0 and self.trouble == "nan":
            rewards[1] = np.nan
        if action[0] == 1.0 and self.trouble == "too many":
            rewards = np.zeros(3)
        if action[0] == 1.0 and self.trouble == "one":
            rewards = 1.0
        return np.float32(action), rewards, self.steps == 3, False, {"steps": self.steps}


gym.register("TwoRewards-v0", entry_point=TwoRewards)
# With the module's name the processes of a vector environment can make it too.
TWO = f"{__name__}:TwoRewards-v0"
