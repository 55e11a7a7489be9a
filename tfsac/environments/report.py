"""The check of an environment: spaces, random steps as training makes them, scales, episode ends and seeds."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
import warnings
from collections.abc import Callable, Iterator
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


Finding = tuple[str, str]  # "ok", "warning" or "problem", and what it is about


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
        return "\n".join([f"{self.name}:", *lines, "usable" if self.usable else "not usable"])


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
    parameters = dataclasses.replace(parameters, vectorization="sync", step_timeout_seconds=None)
    make_env = maker(parameters, env_fn)
    env = make_env.unchecked()
    names = (parameters.name, name_of_environment(env))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        findings = [(PROBLEM, problem) for problem in space_problems(env)]
        if not findings:
            findings += _look_at_spaces(env)
            findings += _train(parameters, make_env, env, num_steps, seed, keep_open)
    for each in caught:
        if not issubclass(each.category, DeprecationWarning | ResourceWarning):
            findings.append((WARNING, COLOURS.sub("", str(each.message)).removeprefix("WARN: ")))
    for name in names:
        findings = [(kind, text.removeprefix(f"{name}: ")) for kind, text in findings]
    return EnvironmentReport(names[1], tuple(dict.fromkeys(findings)))


class _Watched(gym.Wrapper):
    """Has Gymnasium's passive checks, and stays open where it is the user's own."""

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


def _look_at_spaces(env: gym.Env) -> Iterator[Finding]:
    action, spaces = env.action_space, spaces_by_key(env.observation_space)
    yield (OK, f"actions: {action}")
    yield (OK, f"observations: {env.observation_space}")
    if isinstance(action, gym.spaces.Box) and (bound := np.abs([action.low, action.high]).max()) > LARGE_BOUND:
        advice = "policies first try all of them; gymnasium.wrappers.TransformAction narrows them"
        yield (WARNING, f"actions are as large as {bound:g}, and {advice}")
    for key, space in spaces.items():
        shape = space.shape or ()
        if key == ACTION_MASK or len(shape) < 2 or AGENT_STATE in spaces:
            continue
        if len(shape) == 3 and shape[0] <= 4 < min(shape[1:]):
            yield (WARNING, f"observation {key!r} of the shape {shape}: convolutions read channels last")
        elif len(shape) == 2 or min(shape[:2]) < 3:  # convolutions need as many pixels
            yield (WARNING, f"observation {key!r} of the shape {shape} is no vector and no image: flatten it")
        elif space.dtype != np.uint8 and shape[-1] in (1, 3, 4):
            yield (WARNING, f"observation {key!r} looks like an image, but {space.dtype} is not uint8")


def _train(
    parameters: EnvironmentParameters, make_env: Maker, first: gym.Env, num_steps: int, seed: int, keep_open: bool
) -> Iterator[Finding]:
    """Makes all environments of a run, the first of which is there, and steps those of training."""
    unwatched = [first]

    def watch() -> gym.Env:
        return _Watched(unwatched.pop() if unwatched else make_env.unchecked(), keep_open)

    watching = Maker(watch, make_env.visible_entries, make_env.one_at_a_time)
    number = parameters.num_envs + (parameters.evaluation == "separate")
    try:
        with contextlib.ExitStack() as closing:
            if parameters.evaluation == "separate":
                env = closing.enter_context(contextlib.closing(watching()))
            environments = closing.enter_context(contextlib.closing(Environments(parameters, seed, watching)))
            actions, rewards, episodes, observed = _random_steps(environments, num_steps, np.random.default_rng(seed))
            yield from _look_at_steps(environments, rewards, episodes, observed, longest_episode(first))
            if parameters.evaluation != "separate":
                assert environments.local_group is not None
                env = environments.local_group.envs[0]
            yield _reproducibility(env, actions[:REPEATED_STEPS], episode_seed(seed, TRAINING, 0, 0))
    except EnvironmentFailure as error:
        yield (PROBLEM, str(error))
    except Exception as error:  # of the constructor
        text = str(error) if isinstance(error, TfsacError) else format_error(error)
        shared = ' (environment.evaluation="shared" makes one)' if number == 2 else ""
        many = "" if number == 1 else f"training makes {number} environments at once{shared}: "
        yield (PROBLEM, many + text)


def _random_steps(environments: Environments, num_steps: int, rng: np.random.Generator) -> tuple[Any, ...]:
    """Makes random steps; returns the actions of the first environment in its own units, all rewards, of each episode
    return, length and whether it was terminated, and the largest numbers observed by key.
    """
    actions, rewards, episodes = list[np.ndarray](), list[np.ndarray](), list[tuple[float, int, bool]]()
    largest, total = dict.fromkeys(environments.spec.observation, 0.0), np.zeros(environments.num_envs)
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
    return actions, rewards, episodes, largest


def _look_at_steps(
    environments: Environments,
    rewards: list[np.ndarray],
    episodes: list[tuple[float, int, bool]],
    largest: dict[str, float],
    limit: int | None,
) -> Iterator[Finding]:
    steps = environments.steps
    yield (OK, f"{steps} random steps")
    if episodes:
        returns, lengths, terminated = (np.array(x) for x in zip(*episodes, strict=True))
        ends = f"{len(returns)} ({terminated.sum()} terminated, {(~terminated).sum()} truncated)"
        means = f"after {lengths.mean():.0f} steps on average, with a mean return of {returns.mean():.4g}"
        yield (OK, f"ended episodes: {ends}, {means}")
        if len(returns) > 2 and terminated.all() and 1 < lengths.min() == lengths.max():
            every = f"every episode was terminated after exactly {lengths[0]} steps"
            yield (WARNING, f"{every}: for a time limit return truncated=True, so that values go on beyond it")
    elif limit is None or steps > limit * environments.num_envs:
        known = "there is no time limit known" if limit is None else f"though the time limit is {limit}"
        advice = "set environment.max_episode_steps, or let truncated through, because evaluations wait for an end"
        yield (WARNING, f"no episode ended within {steps} steps, {known}; {advice}")
    for key, bound in largest.items():
        if bound > LARGE_OBSERVATION:
            advice = "environment.filters.observation_normalization=true divides it by its deviation"
            yield (WARNING, f"observation {key!r} is as large as {bound:.4g}; {advice}")
    if (bound := np.abs(rewards).max()) > LARGE_REWARD:
        advice = "environment.filters.reward_rescale_factor makes them smaller"
        yield (WARNING, f"rewards are as large as {bound:.4g}; {advice}")
    if steps >= REPEATED_STEPS and np.ptp(rewards) == 0 and not any(terminated for *_, terminated in episodes):
        every = f"every reward was {rewards[0].flat[0]:.4g}, and no episode was terminated"
        yield (WARNING, f"{every}: random actions meet nothing to learn from")


def _reproducibility(env: gym.Env, actions: list[np.ndarray], seed: int) -> Finding:
    """Plays the begin of the first episode of training again, twice."""

    def trajectory() -> tuple[Any, ...]:
        steps: list[Any] = [copy.deepcopy(env.reset(seed=seed)[0])]
        for action in actions:
            steps.append(copy.deepcopy(env.step(copy.deepcopy(action))[:4]))
            if steps[-1][2] or steps[-1][3]:
                break
        return tuple(steps)

    try:
        same = data_equivalence(trajectory(), trajectory(), exact=True)
    except Exception as error:  # some environments are only reset once their episode is over
        return (WARNING, f"whether seeds reproduce a trajectory is not known: {format_error(error)}")
    if same:
        return (OK, "the same seed and actions give the same trajectory")
    advice = "self.np_random, which super().reset(seed=seed) seeds, and reset everything else"
    different = "the same seed and actions give different trajectories, so no resume is exact"
    return (WARNING, f"{different}: draw random numbers from {advice}")


def _random_action(environments: Environments, rng: np.random.Generator) -> np.ndarray:
    """Returns random actions `[E, ...]` as a policy gives them, valid ones where there is a mask."""
    action = environments.spec.action
    shape = (environments.num_envs, *action.shape)
    if isinstance(action, DiscreteSpec):
        valid = environments.observation.get(ACTION_MASK, np.ones((*shape, action.num_actions), bool))
        return (valid + rng.random(valid.shape)).argmax(-1)
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32)
