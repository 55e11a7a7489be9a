"""Environments that other processes can make without TensorFlow: broken ones, one with infos, one with two rewards."""

import multiprocessing
import os
import signal
import sys
import threading
import time

import gymnasium as gym
import numpy as np

Box, Dict = gym.spaces.Box, gym.spaces.Dict
ZEROS = np.zeros(2, np.float32)
EPISODE_LENGTH = 5  # steps of `InfoEnv`
VALID_STEP = {"observation": ZEROS, "reward": 1.0, "terminated": False, "truncated": False, "info": {}}


def zero_observation(space):
    if isinstance(space, Dict):
        return {key: zero_observation(part) for key, part in space.items()}
    return np.zeros(space.shape, space.dtype)


class BrokenEnv(gym.Env):
    """Returns invalid values, or fails, in its second step.

    Args:
        wrong: replaced parts of the step's result, by name, or the whole result as "step".
        reset: the result of reset.
        action: "raise", "exit", "kill", "leave" or "hang" in the step, "reset" or "constructor" to fail there, or
            "hang in reset".
        space: the observation space.
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
        return (zero_observation(self.observation_space), {}) if self.returned is None else self.returned

    def step(self, action):
        self.steps += 1
        parts = {**VALID_STEP, "observation": zero_observation(self.observation_space)}
        if self.steps == 2:
            parts |= self.wrong
            if self.action == "raise":
                raise KeyError("gear")
            if self.action == "exit":
                sys.exit()
            if self.action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.action == "leave":
                os._exit(3)
            if self.action == "hang":
                time.sleep(600)
        return parts["step"] if "step" in parts else tuple(parts.values())


class EnvWithSubprocess(BrokenEnv):
    """Starts a subprocess."""

    def __init__(self):
        super().__init__()
        self.process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
        self.process.start()

    def close(self):
        self.process.kill()
        self.process.join()


class DropTruncation(gym.Wrapper):
    """Ignores the truncation by a time limit."""

    def step(self, action):
        observation, reward, terminated, _, info = self.env.step(action)
        return observation, reward, terminated, False, info


class InfoEnv(gym.Env):
    """Reports `is_success`, a value that depends on the seed, and other things in its infos."""

    observation_space = gym.spaces.Box(-10.0, 100.0, (2,), np.float32)
    action_space = gym.spaces.Box(-2.0, 4.0, (1,), np.float32)

    def __init__(self):
        self.info = {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.info.clear()  # the same dict in every step
        self.value, self.steps = seed % 7, 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        observation = np.float32([self.value, self.steps])
        self.info |= {"action": action.copy(), "seen": observation, "lock": threading.Lock()}
        if self.steps == EPISODE_LENGTH:
            self.info |= {"is_success": np.bool_(self.value % 2), "number": np.array(self.value), "words": "far"}
            if self.value == 3:
                self.info["three"] = [3]
        return observation, 1.0, self.steps == EPISODE_LENGTH, False, self.info


class TwoRewards(gym.Env):
    """Rewards are minus the squared action, and ten times the step count; an episode ends after three steps.

    An action of 1 causes the fault named by `trouble`.
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


gym.register("BrokenEnv-v0", BrokenEnv)
gym.register("TfsacInfo-v0", InfoEnv)
gym.register("TwoRewards-v0", TwoRewards)
# With the module's name, so that other processes can make them.
BROKEN, TWO_REWARDS = f"{__name__}:BrokenEnv-v0", f"{__name__}:TwoRewards-v0"
