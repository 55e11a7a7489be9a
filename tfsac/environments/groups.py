"""Stepping environments on several cores, with the processes of gymnasium's `AsyncVectorEnv`.

Each process steps a group of environments as if they were one, and so does this process meanwhile: with a process for each environment
the messages cost more than the stepping gains where there are fewer cores than environments.
"""

from __future__ import annotations

import functools
import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.async_vector_env import _async_worker

from tfsac.environments.vector_rewards import VECTOR_REWARD

AWAKE = 0.001  # seconds


class FewInfos(gym.Wrapper):
    """Drops the infos that nobody reads: merging those of MuJoCo's levels took as long as stepping them."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        return self.env.reset(seed=seed, options=options)[0], {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Makes a step; its info has the rewards where they are several."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, {key: info[key] for key in (VECTOR_REWARD,) if key in info}


def with_few_infos(one: Callable[[], gym.Env]) -> gym.Env:
    """Makes an environment."""
    return FewInfos(one())


class Group(gym.Env):
    """G environments, stepped one after the other; everything has a leading dimension G.

    Args:
        makers: of each environment.
    """

    def __init__(self, makers: Sequence[Callable[[], gym.Env]]):
        self.vector = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.DISABLED)
        self.metadata = self.vector.metadata
        self.observation_space, self.action_space = self.vector.observation_space, self.vector.action_space
        self.seen: Any = None  # the newest observations

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in each environment that has a seed, one or None for each of them."""
        began = np.array([one is not None for one in seed])
        if began.any():
            self.seen, _ = self.vector.reset(seed=seed, options=None if began.all() else {"reset_mask": began})
        return self.seen, {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps all environments."""
        self.seen, reward, terminated, truncated, info = self.vector.step(action)
        return self.seen, reward, terminated, truncated, {key: info[key] for key in (VECTOR_REWARD,) if key in info}

    def close(self) -> None:
        """Ends the environments."""
        self.vector.close()


def group_of(makers: Sequence[Callable[[], gym.Env]]) -> Group:
    """Makes a group; Ctrl-C does not reach a process that is its own, because the run ends as it sees fit."""
    if multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return Group(makers)


class WakefulPipe:
    """A pipe whose reader stays awake for a moment where messages follow each other closely: waking a core takes as long as a step.

    Args:
        pipe: to read from and to write to.
    """

    def __init__(self, pipe: Connection):
        self.pipe, self.close_by = pipe, False

    def recv(self) -> Any:
        """Returns the next message."""
        began = time.perf_counter()
        while self.close_by and not self.pipe.poll() and time.perf_counter() - began < AWAKE:
            pass
        message = self.pipe.recv()
        self.close_by = time.perf_counter() - began < AWAKE
        return message

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pipe, name)


def work(index: int, make: Callable[[], gym.Env], pipe: Connection, *others: Any) -> None:
    """Does what `AsyncVectorEnv` asks its process for."""
    wakeful: Any = WakefulPipe(pipe)
    _async_worker(index, make, wakeful, *others)


class Groups:
    """E environments in groups of equal size, one of them (the last, which may be smaller) in this process.

    Args:
        one: makes one environment.
        num_envs: E.
        cores: most groups.
    """

    def __init__(self, one: Callable[[], gym.Env], num_envs: int, cores: int):
        size = -(-num_envs // cores)
        self.others = (num_envs - 1) // size  # groups in processes of their own
        self.beside = self.others * size  # environments in these
        self.here = Group([one] * (num_envs - self.beside))
        self.processes: AsyncVectorEnv | None = None
        if self.others:
            make = functools.partial(group_of, [one] * size)
            # Forking a process in which TensorFlow runs threads can hang.
            mode = AutoresetMode.DISABLED
            self.processes = AsyncVectorEnv([make] * self.others, copy=False, context="spawn", worker=work, autoreset_mode=mode)
            pipes: Any = [WakefulPipe(pipe) for pipe in self.processes.parent_pipes]
            self.processes.parent_pipes = pipes

    def reset(self, seeds: list[int | None]) -> Any:
        """Begins an episode in each environment that has a seed, and returns the observations of all."""
        if self.processes is None:
            return self.here.reset(seed=seeds)[0]
        groups = [seeds[i : i + self.beside // self.others] for i in range(0, self.beside, self.beside // self.others)]
        begin = np.array([any(seed is not None for seed in group) for group in groups])
        if begin.any():
            self.processes.reset_async(seed=groups, options=None if begin.all() else {"reset_mask": begin})  # type: ignore[arg-type]
        try:
            own, _ = self.here.reset(seed=seeds[self.beside :])
        finally:
            if begin.any():
                self.processes.reset_wait()
        return _joined(self.processes.observations, own)

    def step(self, action: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all environments with actions `[E, ...]`; returns what a vector environment does."""
        if self.processes is None:
            return self.here.step(action)
        self.processes.step_async(action[: self.beside].reshape(self.others, -1, *action.shape[1:]))
        try:
            own = self.here.step(action[self.beside :])
        finally:
            theirs = self.processes.step_wait()
        info = {key: _joined(theirs[4][key], value) for key, value in own[4].items()}
        return *(_joined(their, ours) for their, ours in zip(theirs[:4], own[:4], strict=True)), info

    def close(self) -> None:
        """Ends the environments and the processes."""
        self.here.close()
        if self.processes:
            self.processes.close()


def _joined(theirs: Any, own: Any) -> Any:
    """Returns arrays `[P, G, ...]` of processes and `[H, ...]` of this one as `[P * G + H, ...]`, also in dicts."""
    if isinstance(own, dict):
        return {key: _joined(theirs[key], value) for key, value in own.items()}
    return np.concatenate([np.asarray(theirs).reshape(-1, *np.shape(own)[1:]), own])
