"""The check of an environment: spaces, random steps as training makes them, scales, episode ends and seeds."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.utils.passive_env_checker import env_reset_passive_checker, env_step_passive_checker

from tfsac.environments.check import EnvironmentFailure, format_error, longest_episode, space_problems
from tfsac.environments.make import Maker, maker
from tfsac.environments.spaces import name_of_environment, spaces_by_key
from tfsac.environments.vectorize import TRAINING, Environments, episode_seed
from tfsac.errors import TfsacError
from tfsac.parameters import EnvironmentParameters
from tfsac.types import ACTION_MASK, AGENT_STATE, DiscreteSpec

OK, WARNING, PROBLEM = "ok", "warning", "problem"
REPEATED_STEPS = 100
LARGE_BOUND, LARGE_OBSERVATION, LARGE_REWARD = 1e3, 1e2, 1e3
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # in Gymnasium's warnings


class Finding(NamedTuple):
    """One line of a report: "ok", "warning" or "problem", and what it is about."""

    kind: str
    text: str


class EnvironmentReport(NamedTuple):
    """What `check_environment` found; printed, a line for each finding.

    Attributes:
        name: of the environment.
        findings: in the order in which they were looked for.
    """

    name: str
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> list[str]:
        """What hinders training."""
        return [text for kind, text in self.findings if kind == PROBLEM]

    @property
    def warnings(self) -> list[str]:
        """What may be intended."""
        return [text for kind, text in self.findings if kind == WARNING]

    @property
    def usable(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    def __str__(self) -> str:
        lines = [f"  {kind:<8} {text}" for kind, text in self.findings]
        found = {PROBLEM: len(self.problems), WARNING: len(self.warnings)}
        counts = ", ".join(f"{n} {kind}{'s' * (n != 1)}" for kind, n in found.items() if n)
        verdict = "usable" if self.usable else "not usable"
        return "\n".join([f"{self.name}:", *lines, f"{verdict}: {counts}" if counts else verdict])


def check_environment(env: gym.Env | Callable[[], gym.Env], num_steps: int = 1000, seed: int = 0) -> EnvironmentReport:
    """Makes random steps in an environment, as training does, and reports everything that hinders training or may
    surprise.

    Args:
        env: a function that makes an environment at each call; training makes two. Or an environment, which is not
            closed.
        num_steps: how many, at least one.
        seed: of the episodes and the actions.

    Example:
        >>> report = tfsac.check_environment(MyEnv)
        >>> print(report)
        >>> assert report.usable
    """
    parameters = EnvironmentParameters(getattr(env, "__name__", "env_fn"))
    if not isinstance(env, gym.Env):
        return check_environments(parameters, num_steps, seed, env)
    parameters = dataclasses.replace(parameters, evaluation="none")  # there is this one alone
    return check_environments(parameters, num_steps, seed, lambda: env, keep_open=True)


def check_environments(
    parameters: EnvironmentParameters,
    num_steps: int,
    seed: int,
    env_fn: Callable[[], gym.Env] | None = None,
    keep_open: bool = False,
) -> EnvironmentReport:
    """Returns the report of `check_environment` on a level's environments, or those that a function makes."""
    return _Inspection(parameters, maker(parameters, env_fn), keep_open).report(num_steps, seed)


class _Watched(gym.Wrapper):
    """Has Gymnasium's passive checks, and stays open where it is the user's own."""

    keeps_observations = True

    def __init__(self, env: gym.Env, keep_open: bool):
        super().__init__(env)
        self.keep_open = keep_open

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return env_reset_passive_checker(self.env, seed=seed, options=options)

    def step(self, action: Any) -> Any:
        return env_step_passive_checker(self.env, action)

    def close(self) -> None:
        if not self.keep_open:
            self.env.close()


class _Inspection:
    """Makes the environments of a run, steps those of training, and collects what it finds."""

    def __init__(self, parameters: EnvironmentParameters, make_env: Maker, keep_open: bool):
        self.parameters = dataclasses.replace(parameters, vectorization="sync", step_timeout_seconds=None)
        self.make_env, self.name, self.keep_open = make_env, parameters.name, keep_open
        self.findings: dict[str, Finding] = {}  # by text

    def report(self, num_steps: int, seed: int) -> EnvironmentReport:
        first = self.make_env.unchecked()
        self.name = name_of_environment(first)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for problem in space_problems(first):
                self.find(PROBLEM, problem)
            if not self.findings:
                self._look_at_spaces(first)
                self._train(first, num_steps, seed)
        for each in caught:
            if not issubclass(each.category, DeprecationWarning | ResourceWarning):
                self.find(WARNING, COLOURS.sub("", str(each.message)).removeprefix("WARN: "))
        return EnvironmentReport(self.name, tuple(self.findings.values()))

    def find(self, kind: str, text: str) -> None:
        for name in (self.parameters.name, self.name):
            text = text.removeprefix(f"{name}: ")
        self.findings.setdefault(text, Finding(kind, text))

    def _look_at_spaces(self, env: gym.Env) -> None:
        action, spaces = env.action_space, spaces_by_key(env.observation_space)
        self.find(OK, f"actions: {action}")
        self.find(OK, f"observations: {env.observation_space}")
        if isinstance(action, gym.spaces.Box) and (bound := np.abs([action.low, action.high]).max()) > LARGE_BOUND:
            narrow = "gymnasium.wrappers.TransformAction(env, lambda action: action, gymnasium.spaces.Box(low, high))"
            text = f"actions are as large as {bound:g}, and policies first try all of them; to narrow them: {narrow}"
            self.find(WARNING, text)
        for key, space in spaces.items():
            shape = space.shape or ()
            if key == ACTION_MASK or len(shape) < 2 or AGENT_STATE in spaces:
                continue
            if len(shape) == 3 and shape[0] <= 4 < min(shape[1:]):
                self.find(WARNING, f"observation {key!r} of the shape {shape}: convolutions read channels last")
            elif len(shape) == 2 or min(shape[:2]) < 3:  # convolutions need as many pixels
                self.find(WARNING, f"observation {key!r} of the shape {shape} is no vector and no image: flatten it")
            elif space.dtype != np.uint8 and shape[-1] in (1, 3, 4):
                self.find(WARNING, f"observation {key!r} looks like an image, but {space.dtype} is not uint8")

    def _train(self, first: gym.Env, num_steps: int, seed: int) -> None:
        """Makes all environments of a run and steps those of training."""
        raw = [first]

        def watch() -> gym.Env:
            return _Watched(raw.pop() if raw else self.make_env.unchecked(), self.keep_open)

        watching = Maker(watch, self.make_env.visible_entries, self.make_env.one_at_a_time)
        separate = self.parameters.evaluation == "separate"
        try:
            evaluation_env = watching() if separate else None
            with contextlib.closing(Environments(self.parameters, seed, watching)) as environments:
                actions = self._step(environments, num_steps, np.random.default_rng(seed), longest_episode(first))
                assert environments.local_group is not None
                env = evaluation_env or environments.local_group.envs[0]
                self._repeat(env, actions, episode_seed(seed, TRAINING, 0, 0))
            if evaluation_env is not None:
                evaluation_env.close()
        except EnvironmentFailure as error:
            self.find(PROBLEM, str(error))
        except Exception as error:  # of the constructor
            number, text = self.parameters.num_envs + separate, str(error)
            text = text if isinstance(error, TfsacError) else format_error(error)
            shared = ' (environment.evaluation="shared" makes one)' if number == 2 else ""
            self.find(PROBLEM, text if number == 1 else f"training makes {number} environments at once{shared}: {text}")

    def _step(
        self, environments: Environments, num_steps: int, rng: np.random.Generator, limit: int | None
    ) -> list[np.ndarray]:
        """Makes random steps; returns the actions of the first environment in its own units."""
        actions, rewards, episodes = list[np.ndarray](), list[np.ndarray](), list[tuple[float, int, bool]]()
        largest, total = dict.fromkeys(environments.spec.observation, 0.0), np.zeros(environments.num_envs)
        began = time.perf_counter()
        while environments.steps < num_steps:
            action = _random_action(environments, rng)
            actions.append(environments.action_map(action)[0])
            step = environments.step(action)
            rewards.append(step.reward)
            total += step.reward.reshape(len(total), -1).sum(1)
            for key, value in step.next_observation.items():
                if value.dtype == np.float32:  # no image, no mask
                    largest[key] = max(largest[key], float(np.abs(value).max()))
            for i in np.flatnonzero(step.terminated | step.truncated):
                episodes.append((total[i], step.length[i], bool(step.terminated[i])))
                total[i] = 0.0
        rate = environments.steps / (time.perf_counter() - began)
        self.find(OK, f"{environments.steps} random steps, {rate:.0f} a second with these checks")
        self._look_at_episodes(episodes, environments.steps, limit)
        filters = "environment.filters."
        for key, bound in largest.items():
            if bound > LARGE_OBSERVATION:
                advice = f"{filters}observation_normalization=true divides it by its deviation"
                self.find(WARNING, f"observation {key!r} is as large as {bound:.4g}; {advice}")
        if (bound := np.abs(rewards).max()) > LARGE_REWARD:
            advice = f"{filters}reward_rescale_factor makes them smaller"
            self.find(WARNING, f"rewards are as large as {bound:.4g}; {advice}")
        if environments.steps >= REPEATED_STEPS and np.ptp(rewards) == 0 and not any(end for _, _, end in episodes):
            every = f"every reward was {rewards[0].flat[0]:.4g}, and no episode was terminated"
            self.find(WARNING, f"{every}: random actions meet nothing to learn from")
        return actions

    def _look_at_episodes(self, episodes: list[tuple[float, int, bool]], steps: int, limit: int | None) -> None:
        if episodes:
            returns, lengths, terminated = (np.array(x) for x in zip(*episodes, strict=True))
            ends = f"{len(returns)} ({terminated.sum()} terminated, {(~terminated).sum()} truncated)"
            means = f"after {lengths.mean():.0f} steps on average, with a mean return of {returns.mean():.4g}"
            self.find(OK, f"ended episodes: {ends}, {means}")
            if len(returns) > 2 and terminated.all() and 1 < lengths.min() == lengths.max():
                every = f"every episode was terminated after exactly {lengths[0]} steps"
                self.find(WARNING, f"{every}: for a time limit return truncated=True, so that values go on beyond it")
        elif limit is None or steps > limit * self.parameters.num_envs:
            known = "there is no time limit known" if limit is None else f"though the time limit is {limit}"
            advice = "set environment.max_episode_steps, or let truncated through, because evaluations wait for an end"
            self.find(WARNING, f"no episode ended within {steps} steps, {known}; {advice}")

    def _repeat(self, env: gym.Env, actions: list[np.ndarray], seed: int) -> None:
        """Plays the first episode of training again, twice."""
        try:
            once, again = (_trajectory(env, actions[:REPEATED_STEPS], seed) for _ in range(2))
        except Exception as error:  # some environments are only reset once their episode is over
            self.find(WARNING, f"whether seeds reproduce a trajectory is not known: {format_error(error)}")
            return
        if data_equivalence(once, again, exact=True):
            self.find(OK, "the same seed and actions give the same trajectory")
        else:
            self.find(
                WARNING,
                "the same seed and actions give different trajectories, so no resume is exact: draw random numbers "
                "from self.np_random, which super().reset(seed=seed) seeds, and reset everything else",
            )


def _trajectory(env: gym.Env, actions: list[Any], seed: int | None) -> tuple[Any, ...]:
    steps = [(copy.deepcopy(env.reset(seed=seed)[0]), 0.0, False)]
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(copy.deepcopy(action))
        steps.append((copy.deepcopy(observation), float(reward), bool(terminated or truncated)))
        if steps[-1][2]:
            break
    return tuple(steps)


def _random_action(environments: Environments, rng: np.random.Generator) -> np.ndarray:
    """Returns random actions `[E, ...]` as a policy gives them, valid ones where there is a mask."""
    action = environments.spec.action
    shape = (environments.num_envs, *action.shape)
    if isinstance(action, DiscreteSpec):
        valid = environments.observation.get(ACTION_MASK, np.ones((*shape, action.num_actions), bool))
        return (valid + rng.random(valid.shape)).argmax(-1)
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32)
