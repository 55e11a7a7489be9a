"""Several environments side by side, each episode with a seed of its own and its true last observation."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tfsac.environments.check import EnvironmentFailure, check_finite, check_masks
from tfsac.environments.groups import Group, GroupProcess, Played, described
from tfsac.environments.make import maker
from tfsac.environments.spaces import action_map, spec_of
from tfsac.parameters import EnvironmentParameters

TRAINING, EVALUATION = 0, 1


def episode_seed(seed: int, purpose: int, *where: int) -> int:
    """Returns the seed of one episode, independent of every other (run seed, purpose, environment, episode, ...)."""
    return int(np.random.SeedSequence([seed, purpose, *where]).generate_state(1)[0])


class StepResult(NamedTuple):
    """One step of all E environments.

    Attributes:
        next_observation: `[E, ...]` by key; where an episode ended, its last observation.
        reward: `[E]`, or `[E, D]` of environments with D rewards a step; a team has one.
        terminated, truncated: `[E]`.
        length: `[E]`, steps of the episode so far, this one included.
        observation: `[E, ...]` to act on next; where an episode ended, the first of the next one.
    """

    next_observation: dict[str, np.ndarray]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    length: np.ndarray
    observation: dict[str, np.ndarray]


class Environments:
    """E copies of one level, stepped together with actions in [-1, 1] or numbers of choices from 0.

    Args:
        parameters: level, number, vectorisation.
        seed: of the run; the seed of each episode derives from it, the environment's index and the episode's.
        one: makes one environment, instead of the parameters' level.
        first: index of the first of them in the run, where others step environments too.

    Attributes:
        spec: of one environment.
        observation: `[E, ...]` by key, to act on next.
        is_first: `[E]`, whether an episode just began.

    Raises:
        ValueError, ImportError: from `make`.
        EnvironmentFailure: an environment raised or returned numbers that are not finite, or masks without a
            valid action; the message says which.
    """

    def __init__(
        self, parameters: EnvironmentParameters, seed: int, one: Callable[[], gym.Env] | None = None, first: int = 0
    ):
        one = one or maker(parameters)
        self.groups: list[Group | GroupProcess]
        if parameters.vectorization == "subprocess":
            env = one()  # errors of a wrong level are clearer from this process
            self.spec = spec_of(env)
            env.close()
            shares = np.array_split(np.arange(parameters.num_envs), min(parameters.num_envs, os.cpu_count() or 1))
            self.groups = [GroupProcess([one] * len(share)) for share in shares]
        else:
            group, shares = Group([one] * parameters.num_envs), [np.arange(parameters.num_envs)]
            self.spec, self.groups = group.spec, [group]
        self.shares = [slice(share[0], share[-1] + 1) for share in shares]  # the environments of each group
        self.level, self.seed, self.num_envs, self.first = parameters.level, seed, parameters.num_envs, first
        self.action_map = action_map(self.spec)
        self.episode = np.zeros(self.num_envs, np.int64)  # index of the running episode, by environment
        self.length = np.zeros(self.num_envs, np.int64)  # steps of the running episode, by environment
        self.steps = 0
        self.is_first = np.ones(self.num_envs, bool)
        try:
            self.observation = self._reset(np.ones(self.num_envs, bool))
        except EnvironmentFailure:
            self.close()
            raise

    def _reset(self, mask: np.ndarray, before: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Begins episodes where the mask says; elsewhere the observations before stay."""
        seeds = [
            episode_seed(self.seed, TRAINING, self.first + i, int(self.episode[i])) if mask[i] else None
            for i in range(self.num_envs)
        ]
        self.length[mask] = 0
        first = self._call("reset", [seeds[share] for share in self.shares])
        began = {key: np.concatenate([each[key] for each in first if each]) for key in self.spec.observation}
        observation = began if before is None else {key: value.copy() for key, value in before.items()}
        if before is not None:
            for key, value in began.items():
                observation[key][mask] = value
        check_finite(observation, np.zeros(self.num_envs), self.level, self.steps)
        check_masks(observation, self.level, self.steps)
        return observation

    def _call(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """Calls a method of every group, side by side, each with its argument; a failure is raised when all have answered."""
        answers, failure = [], None
        try:
            for group, argument in zip(self.groups, arguments, strict=True):
                group.order(name, argument)
        except Exception as error:
            failure = error
        for group in self.groups if failure is None else ():
            try:
                answers.append(group.answer())
            except Exception as error:
                failure = failure or error
        if failure is None:
            return answers
        raise EnvironmentFailure(
            f"{self.level} raised at step {self.steps} (steps of the running episodes: {self.length.tolist()}). "
            f"Received: {described(failure)}"
        ) from failure

    def _step(self, action: np.ndarray) -> Played:
        """Steps all environments, and begins nothing anew."""
        actions = self.action_map(action)
        played = self._call("step", [actions[share] for share in self.shares])
        if len(played) == 1:
            return played[0]
        observation = {key: np.concatenate([each.observation[key] for each in played]) for key in self.spec.observation}
        return Played(observation, *(np.concatenate([each[i] for each in played]) for i in range(1, 4)))

    def step(self, action: np.ndarray) -> StepResult:
        """Steps all environments with actions `[E, ...]` and begins new episodes where one ended."""
        next_observation, reward, terminated, truncated = self._step(action)
        check_finite(next_observation, reward, self.level, self.steps + self.num_envs)
        check_masks(next_observation, self.level, self.steps + self.num_envs, ended=terminated)
        before = self.steps, self.length.copy(), self.episode.copy()
        self.steps += self.num_envs
        self.length += 1
        done, length, following = terminated | truncated, self.length.copy(), next_observation
        if done.any():
            self.episode[done] += 1
            try:
                following = self._reset(done, next_observation)
            except EnvironmentFailure:  # a step that nobody stores was not made
                self.steps, self.length, self.episode = before
                raise
        self.observation, self.is_first = following, done
        return StepResult(next_observation, reward, terminated, truncated, length, self.observation)

    def state(self) -> dict[str, Any]:
        """Returns where each environment is, as plain numbers."""
        return {"episode": self.episode.tolist(), "length": self.length.tolist(), "steps": self.steps}

    def restore(self, state: dict[str, Any], actions: np.ndarray | None, observation: dict[str, np.ndarray]) -> bool:
        """Goes back to where a checkpoint was taken.

        One environment plays the running episode's actions again from its seed, which brings it to the same state.
        Several environments, and one that does not come back to the same observation, begin new episodes.

        Args:
            state: what `state` returned.
            actions: `[length, ...]` of the running episode, as given to `step`, or None where they are not known any more.
            observation: `[E, ...]` by key, the observation at the checkpoint, or nothing where it is not known.

        Returns:
            Whether the environments are exactly where they were.
        """
        self.episode, length = np.array(state["episode"], np.int64), np.array(state["length"], np.int64)
        self.steps = state["steps"]
        everywhere = np.ones(self.num_envs, bool)
        self.observation, self.is_first = self._reset(everywhere), everywhere
        for action in actions if actions is not None and self.num_envs == 1 else ():
            played = self._step(action[None])
            self.observation, self.is_first = played.observation, ~everywhere
            self.length += 1
            if played.terminated[0] or played.truncated[0]:
                break
        same = bool(observation) and all(np.array_equal(self.observation[key], observation[key]) for key in observation)
        if same and np.array_equal(self.length, length):
            return True
        self.episode += length > 0  # an episode that had not begun keeps its seed
        self.observation, self.is_first = self._reset(everywhere), everywhere
        return False

    def close(self) -> None:
        """Ends the environments and their processes."""
        for group in self.groups:
            group.close()
