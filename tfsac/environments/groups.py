"""Environments that are stepped one after another, in this process or in one of their own."""

from __future__ import annotations

import functools
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from tfsac.environments.spaces import as_arrays, spec_of
from tfsac.environments.vector_rewards import VECTOR_REWARD

SECONDS_TO_CLOSE = 5.0


class Played(NamedTuple):
    """What one step of the G environments of a group returned.

    Attributes:
        observation: `[G, ...]` by key, after the step.
        reward: `[G]`, or `[G, D]`.
        terminated, truncated: `[G]`.
    """

    observation: dict[str, np.ndarray]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


class Group:
    """Environments that are stepped one after another, here.

    Args:
        makers: of each of them.

    Attributes:
        spec: of one environment.
    """

    def __init__(self, makers: Sequence[Callable[[], gym.Env]]):
        self.envs = [one() for one in makers]
        self.spec = spec_of(self.envs[0])

    def reset(self, seeds: Sequence[int | None]) -> dict[str, np.ndarray]:
        """Begins an episode in each environment that gets a seed, and returns the observations of these, by key."""
        return self._stack([env.reset(seed=seed)[0] for env, seed in zip(self.envs, seeds, strict=True) if seed is not None])

    def step(self, actions: np.ndarray) -> Played:
        """Steps all environments with actions `[G, ...]` in their units."""
        played = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        observation, reward, terminated, truncated, info = zip(*played, strict=True)
        if self.spec.num_rewards is not None:
            reward = tuple(each[VECTOR_REWARD] for each in info)
        ends = np.array(terminated, bool), np.array(truncated, bool)
        return Played(self._stack(observation), np.array(reward, np.float32), *ends)

    def _stack(self, observations: Sequence[Any]) -> dict[str, np.ndarray]:
        arrays = [as_arrays(observation, self.spec) for observation in observations]
        return {key: np.stack([array[key] for array in arrays]) for key in self.spec.observation if arrays}

    def order(self, name: str, argument: Any) -> None:
        """Calls one of the methods above."""
        self.answered = getattr(self, name)(argument)

    def answer(self) -> Any:
        """Returns what the method returned that was ordered last."""
        return self.answered

    def close(self) -> None:
        """Ends the environments."""
        for env in self.envs:
            env.close()


class ProcessFailure(RuntimeError):
    """A process of environments ended by itself, or one of them raised in it."""


class GroupProcess:
    """A group in a process of its own, which works while this one goes on.

    Args:
        makers: of each environment.
    """

    def __init__(self, makers: Sequence[Callable[[], gym.Env]]):
        # Forking a process in which TensorFlow runs threads can hang.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, CloudpickleWrapper(functools.partial(Group, makers))), daemon=True)
        self.process.start()
        theirs.close()

    def order(self, name: str, argument: Any) -> None:
        """Has a method of `Group` called there."""
        try:
            self.connection.send((name, argument))
        except OSError as error:
            raise ProcessFailure(self._ended()) from error

    def answer(self) -> Any:
        """Waits for what was ordered last and returns it.

        Raises:
            ProcessFailure: an environment raised, or the process ended.
        """
        try:
            done, value = self.connection.recv()
        except (EOFError, OSError) as error:
            raise ProcessFailure(self._ended()) from error
        if not done:
            raise ProcessFailure(value)
        return value

    def _ended(self) -> str:
        self.process.join(SECONDS_TO_CLOSE)
        return f"the process of these environments ended with exit code {self.process.exitcode}"

    def close(self) -> None:
        """Ends the environments and the process."""
        self.connection.close()
        self.process.join(SECONDS_TO_CLOSE)
        self.process.kill()


def _serve(connection: Connection, make: Callable[[], Group]) -> None:
    """Carries out orders until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the run ends as it sees fit
    group = None
    while True:
        try:
            name, argument = connection.recv()
        except EOFError:
            break
        try:
            group = group or make()
            group.order(name, argument)
            connection.send((True, group.answer()))
        except Exception as error:
            connection.send((False, described(error)))
    if group:
        group.close()


def described(error: Exception) -> str:
    """Returns what an environment raised, as errors show it."""
    return str(error) if isinstance(error, ProcessFailure) else f"{type(error).__name__}: {error}"
