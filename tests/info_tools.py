"""An environment that says things in its infos, in a module of its own: other processes start faster with it."""

import threading

import gymnasium as gym
import numpy as np

EPISODE = 5  # steps


class Telling(gym.Env):
    """Has a number for each seed, and says it and other things in its infos; the last step says `is_success`."""

    observation_space = gym.spaces.Box(-10.0, 100.0, (2,), np.float32)
    action_space = gym.spaces.Box(-2.0, 4.0, (1,), np.float32)

    def __init__(self):
        self.info = {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.info.clear()  # as an environment may that has one dict for all its steps
        self.number, self.steps = seed % 7, 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        observation = np.float32([self.number, self.steps])
        self.info |= {"action": action.copy(), "seen": observation, "lock": threading.Lock()}
        if self.steps == EPISODE:
            self.info |= {"is_success": np.bool_(self.number % 2), "number": np.array(self.number), "words": "far"}
            if self.number == 3:
                self.info["three"] = [3]
        return observation, 1.0, self.steps == EPISODE, False, self.info


gym.register("TfsacTelling-v0", Telling)
