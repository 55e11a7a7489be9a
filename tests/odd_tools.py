"""An environment that goes wrong in every way; other processes make it without TensorFlow."""

import multiprocessing
import os
import signal
import time

import gymnasium as gym
import numpy as np

Box, Dict = gym.spaces.Box, gym.spaces.Dict
ZEROS = np.zeros(2, np.float32)
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
        action: "raise", "kill", "leave" or "hang"; "reset" or "constructor" to fail there.
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


gym.register("Odd-v0", entry_point=Odd)
ODD = f"{__name__}:Odd-v0"
