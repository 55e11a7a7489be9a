"""Several environments in parallel; each episode has its own seed and its true last observation."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.environments.actions import action_map
from tfsac.environments.checked_env import EnvironmentFailure, placed
from tfsac.environments.make import EnvFn, Maker, maker
from tfsac.environments.spaces import spec_of
from tfsac.environments.subprocesses import Group, RemoteGroup, convert
from tfsac.parameters import EnvironmentParameters
from tfsac.random_streams import TRAINING, episode_seed
from tfsac.types import Step, map_action, rows_of
from tfsac.utils.machine import usable_cores


def number(value: Any) -> float:
    """Converts a finite number, bool or one-entry array to a float; raises for anything else."""
    result = np.asarray(value, np.float64).item()
    if not np.isfinite(result):
        raise ValueError(value)
    return result


class Environments:
    """E copies of one level, stepped together with actions in [-1, 1] or discrete actions numbered from 0.

    Args:
        parameters: level, number of environments and vectorisation.
        seed: seed of the run; together with the environment's and the episode's index it determines an episode's seed.
        make_env: creates one environment, instead of the parameters' level.
        first: index of the first environment in the run, if other workers or actors step environments too.
        begin: whether to start the first episodes; if not, `restore` starts those of a checkpoint.

    Attributes:
        spec: spec of one environment.
        observation: `[E, ...]` by key, to act on next.
        is_first: `[E]`, whether an episode has just started.
        groups: groups of environments that step in parallel; the last in this process, unless there is a timeout.

    Raises:
        TfsacError: from `make`.
        EnvironmentFailure: an environment raised or returned invalid values; the message names the environment.
    """

    def __init__(
        self,
        parameters: EnvironmentParameters,
        seed: int,
        make_env: EnvFn | None = None,
        first: int = 0,
        begin: bool = True,
    ):
        self.parameters = parameters
        self.maker = make_env if isinstance(make_env, Maker) else maker(parameters, make_env)
        self.level, self.seed, self.num_envs, self.first = parameters.name, seed, parameters.num_envs, first
        self.steps = 0
        self.nothing_logged = {key: np.full(self.num_envs, np.nan) for key in parameters.logged_keys}
        self.episode = np.zeros(self.num_envs, np.int64)  # index of the running episode, by environment
        self.length = np.zeros(self.num_envs, np.int64)  # steps of the running episode, by environment
        self.observation: dict[str, np.ndarray] = {}
        self.groups: list[Group | RemoteGroup] = []
        with contextlib.ExitStack() as failed:
            failed.callback(self.close)
            self._make()
            self.action_map = action_map(self.spec)
            if begin:
                self._reset_everywhere()
            failed.pop_all()

    def _make(self) -> None:
        timeout = self.parameters.step_timeout_seconds
        cores = usable_cores() if self.parameters.vectorization == "subprocess" else 1
        parts = [part.tolist() for part in np.array_split(np.arange(self.num_envs), min(cores, self.num_envs))]
        self.groups = [Group(self.maker, parts.pop())] if timeout is None else []  # this process cannot be killed
        if not self.groups:
            (env := self.maker()).close()
        self.spec = spec_of((self.local_envs or [env])[0])
        self.groups = [*(RemoteGroup(self.maker, part, self.spec, timeout) for part in parts), *self.groups]

    def _call(self, method: str, argument: Any) -> list[Any]:
        """Calls "reset" with seeds or "step" with actions, `[E]`, in all groups; returns their results."""
        called = []
        try:
            for group in self.groups:
                part = argument[group.members[0] : group.members[-1] + 1]
                if method == "step" or any(seed is not None for seed in part):  # a reset may concern only some groups
                    group.send(method, part)
                    called.append(group)
            return [group.receive() for group in called]
        except Exception as error:
            environment = getattr(error, "environment", None)
            which = "" if environment is None else f"environment {self.first + environment}, "
            raise placed(error, self.level, f"{which}step {self.steps}") from error

    def _observation(self) -> dict[str, np.ndarray]:
        # The groups' arrays are overwritten in every step.
        return {key: np.concatenate([group.observation[key] for group in self.groups]) for key in self.spec.observation}

    @property
    def local_envs(self) -> list[gym.Env]:
        """The environments in this process."""
        return [env for group in self.groups if isinstance(group, Group) for env in group.envs]

    def _reset(self, mask: np.ndarray, episode: np.ndarray) -> dict[str, np.ndarray]:
        """Starts the episodes with these indices `[E]` in the environments of the mask."""
        seeds: list[int | None] = [None] * self.num_envs
        for i in np.flatnonzero(mask).tolist():
            seeds[i] = episode_seed(self.seed, TRAINING, self.first + i, int(episode[i]))
        self._call("reset", seeds)
        return self._observation()

    def _reset_everywhere(self) -> None:
        self.is_first, self.length = np.ones(self.num_envs, bool), np.zeros(self.num_envs, np.int64)
        self.observation = self._reset(self.is_first, self.episode)

    def _step(self, action: Any) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray, list[Any]]:
        """Steps all environments without resets; returns observations, rewards, terminated, truncated and infos."""
        steps = self._call("step", rows_of(self.action_map(action)))
        reward, terminated, truncated = (np.concatenate(parts) for parts in list(zip(*steps, strict=True))[:3])
        infos = [info for step in steps for info in step[3]]
        return self._observation(), reward.astype(np.float32), terminated, truncated, infos

    def step(self, action: Any) -> Step:
        """Steps all environments with an agent's actions `[E, ...]` and starts new episodes where one ended."""
        next_observation, reward, terminated, truncated, infos = self._step(action)
        length, episode, done = self.length + 1, self.episode, terminated | truncated
        running, following, logged = length, next_observation, self.nothing_logged
        if done.any():
            ended = [convert(info, number) if done[i] else {} for i, info in enumerate(infos)]
            logged = {key: np.array([values.get(key, np.nan) for values in ended]) for key in logged}
            running, episode = np.where(done, 0, length), episode + done
            following = self._reset(done, episode)  # if it raises, the step does not count
        self.steps, self.length, self.episode = self.steps + self.num_envs, running, episode
        before, self.observation, self.is_first = self.observation, following, done
        ends = terminated, truncated
        return Step(before, action, reward, *ends, next_observation, {}, length, following, logged, infos)

    def state(self) -> dict[str, Any]:
        """Returns the position of each environment as plain numbers."""
        return {"episode": self.episode.tolist(), "length": self.length.tolist(), "steps": self.steps}

    def restore(
        self,
        state: dict[str, Any],
        episode: tuple[Any, Mapping[str, Any]] | None,
        observation: dict[str, np.ndarray],
    ) -> bool:
        """Restores the state of a checkpoint.

        A single environment replays the running episode's actions from its seed, which restores its state. It stops at
        the first observation that differs, so that a robot is not moved blindly. It then starts a new episode, as do
        several environments, and one that fails in the replay.

        Args:
            state: a result of `state`.
            episode: actions of the running episode, as passed to `step`, and the observations before them `[T, ...]` by
                key; None if unknown.
            observation: `[E, ...]` by key, at the checkpoint, if known.

        Returns:
            Whether the environments are in exactly the same state.
        """
        self.episode, length = np.array(state["episode"], np.int64), np.array(state["length"], np.int64)
        self.steps = state["steps"]
        actions, seen = ((), {}) if self.num_envs > 1 or episode is None else episode
        if not len(actions):
            self.episode += length > 0  # an episode without steps keeps its seed
        self._begin()
        for i, action in enumerate(actions):
            if not all(np.array_equal(self.observation[key][0], values[i]) for key, values in seen.items()):
                break
            try:
                self.observation, _, terminated, truncated, _ = self._step(map_action(lambda x: x[None], action))
            except EnvironmentFailure:  # the environment has changed since this episode
                break
            self.is_first = np.zeros(self.num_envs, bool)
            self.length += 1
            if terminated[0] or truncated[0]:
                break
        same = [np.array_equal(self.observation[key], value) for key, value in observation.items()]
        if same and all(same) and np.array_equal(self.length, length):
            return True
        if len(actions):
            self.episode += 1
            self._begin()
        return False

    def start_episodes(self) -> None:
        """Starts a new episode in all environments; an episode without steps keeps its seed."""
        self.episode = self.episode + (self.length > 0)
        self._reset_everywhere()

    def _begin(self) -> None:
        try:
            self._reset_everywhere()
        except EnvironmentFailure:  # some environments can only be reset once their episode is over
            if not self.observation:  # nothing was running
                raise
            self.close()
            self._make()
            self._reset_everywhere()

    def close(self) -> None:
        """Closes the environments and ends their processes."""
        for group in self.groups:
            group.close()
