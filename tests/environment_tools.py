"""Environments that other processes make without TensorFlow: one that goes wrong in every way, one that says things in
its infos, one with two rewards.
"""

import multiprocessing
import os
import signal
import threading
import time

import gymnasium as gym
import numpy as np

Box, Dict = gym.spaces.Box, gym.spaces.Dict
ZEROS = np.zeros(2, np.float32)
EPISODE = 5  # steps of `Telling`
GOOD = {"observation": ZEROS, "reward": 1.0, "terminated": False, "truncated": False, "info": {}}


def nothing(space):
    if isinstance(space, Dict):
        return {key: nothing(part) for key, part in space.items()}
    return np.zeros(space.shape, space.dtype)


class Odd(gym.Env):
    """Returns what it is told from the second step on, or does something else then.

    Args:
        wrong: parts of what a step returns, by name, or the whole as "step".
        reset: what reset returns.
        action: "raise", "kill", "leave" or "hang"; "reset" or "constructor" to fail there, "hang in reset".
        space: of observations.
    """

    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, wrong=None, reset=None, action="", space=None):
        self.wrong, self.returned, self.action = wrong or {}, reset, action
        self.observation_space = space or Box(-1.0, 1.0, (2,), np.float32)
        if action == "constructor":
            self.model = {}["model"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        if self.action == "reset":
            raise ValueError("no\nscene")
        if self.action == "hang in reset":
            time.sleep(600)
        return (nothing(self.observation_space), {}) if self.returned is None else self.returned

    def step(self, action):
        self.steps += 1
        parts = {**GOOD, "observation": nothing(self.observation_space)}
        if self.steps == 2:
            parts |= self.wrong
            if self.action == "raise":
                raise KeyError("gear")
            if self.action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.action == "leave":
                os._exit(3)
            if self.action == "hang":
                time.sleep(600)
        return parts["step"] if "step" in parts else tuple(parts.values())


class Simulator(Odd):
    """Has a process of its own."""

    def __init__(self):
        super().__init__()
        self.process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
        self.process.start()

    def close(self):
        self.process.kill()
        self.process.join()


class Continuing(gym.Wrapper):
    """Drops the end that a time limit makes."""

    def step(self, action):
        observation, reward, terminated, _, info = self.env.step(action)
        return observation, reward, terminated, False, info


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


gym.register("Odd-v0", Odd)
gym.register("TfsacTelling-v0", Telling)
gym.register("TwoRewards-v0", TwoRewards)
ODD, TWO = f"{__name__}:Odd-v0", f"{__name__}:TwoRewards-v0"  # with the module's name, so that processes make them too
