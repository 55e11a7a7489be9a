"""Check an environment: spaces, random steps as in training, scales, episode ends and seeds."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import warnings
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.utils.passive_env_checker import env_reset_passive_checker, env_step_passive_checker
from gymnasium.vector import VectorEnv

from tfsac.environments.checked_env import EnvironmentFailure, check, format_error, time_limit_of
from tfsac.environments.goals import GoalFunctions
from tfsac.environments.make import EnvFn, Maker, checked
from tfsac.environments.spaces import name_of_environment, spaces_by_key
from tfsac.environments.vector_env import FirstEnvironment, VectorEnvironments
from tfsac.environments.vectorize import Environments
from tfsac.errors import TfsacError
from tfsac.parameters import EnvironmentParameters
from tfsac.types import (
    ACHIEVED_GOAL,
    ACTION_MASK,
    AGENT_STATE,
    DESIRED_GOAL,
    DiscreteSpec,
    HybridSpec,
    map_action,
)

LARGE_BOUND, LARGE_OBSERVATION, LARGE_REWARD, SMALL_REWARD = 1e3, 1e2, 1e3, 0.05
DARK = 64  # an image without a byte as large is reported
MASK_NOT_READ = f"is not read: masks are the key {ACTION_MASK!r} of a Dict observation"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # in Gymnasium's warnings


class EnvironmentReport(NamedTuple):
    """The findings of `check_environment`; `print` shows one per line.

    Attributes:
        name: name of the environment.
        facts: properties and behaviour of the environment.
        warnings: findings that may be intended.
        problems: findings that prevent training.
    """

    name: str
    facts: list[str]
    warnings: list[str]
    problems: list[str]

    @property
    def usable(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def __str__(self) -> str:
        kinds = {"ok": self.facts, "warning": self.warnings, "problem": self.problems}
        lines = [f"  {kind:<8} {text}" for kind, texts in kinds.items() for text in dict.fromkeys(texts)]
        return "\n".join([f"{self.name}:", *lines, "usable" if self.usable else "not usable"])


def check_environment(
    env: gym.Env | VectorEnv | EnvFn | EnvironmentParameters, num_steps: int = 1000, seed: int = 0
) -> EnvironmentReport:
    """Makes random steps in an environment, as training does, and reports everything that prevents training or may be
    unexpected.

    Args:
        env: a function that creates an environment; its parameters; or an environment, which is not closed. All
            environments of a `VectorEnv` make the steps.
        num_steps: number of steps, at least one.
        seed: seed of the episodes and the actions.

    Example:
        >>> report = tfsac.check_environment(MyEnv)
        >>> print(report)
        >>> assert report.usable
    """
    if isinstance(env, EnvironmentParameters):
        maker = Maker(env)
    else:
        name = EnvironmentParameters(getattr(env, "__name__", "env_fn"))
        made = isinstance(env, gym.Env | VectorEnv)
        maker = Maker(name, (lambda: env) if made else env)  # type: ignore[arg-type, return-value]
    unwatched = [first := maker.unchecked(maker.parameters.num_envs if maker.env_fn is None else None)]

    def watched() -> gym.Env:
        return _Watched(unwatched.pop() if unwatched else maker.unchecked(), keep_open=first is env)

    parameters = dataclasses.replace(
        maker.parameters, num_envs=1, vectorization="sync", step_timeout_seconds=None, evaluation="none"
    )
    report = EnvironmentReport(name_of_environment(first), [], [], [])
    with warnings.catch_warnings(record=True) as caught, contextlib.ExitStack() as closing:
        warnings.simplefilter("always")
        try:
            environments: Environments | VectorEnvironments
            if isinstance(first, VectorEnv):
                closing.callback((lambda: None) if first is env else first.close)
                check(single := FirstEnvironment(first))
                environments = VectorEnvironments(first, seed, maker.parameters.logged_keys)
                report.facts.append(f"AutoresetMode.{environments.mode.name}")
            else:
                environments, single = Environments(parameters, seed, watched, begin=False), first
                closing.callback(environments.close)
            _look_at_spaces(single, report)
            _look_at_goals(single, report)
            another = None
            if maker.parameters.evaluation == "separate" and first is not env:
                closing.callback((another := _make_another(maker, first)).close)
            _step(environments, num_steps, np.random.default_rng(seed), time_limit_of(first), report, another)
        except Exception as error:
            text = format_error(error).removeprefix(f"{parameters.name}: ").removeprefix(f"{report.name}: ")
            report.problems.append(text)
    for warning in caught:
        if not issubclass(warning.category, DeprecationWarning | ResourceWarning):
            report.warnings.append(COLOURS.sub("", str(warning.message)).removeprefix("WARN: "))
    return report


def _make_another(maker: Maker, first: gym.Env) -> gym.Env:
    """Returns a second environment while the first exists, as training does for evaluations."""
    twice = 'training makes 2 environments at once (environment.evaluation="shared" makes one)'
    try:
        another = maker.unchecked()
    except Exception as error:
        raise TfsacError(f"{twice}: {format_error(error)}") from error
    if another.unwrapped is first.unwrapped:
        raise TfsacError(f"{twice}, got the same one")
    return checked(FirstEnvironment(another) if isinstance(another, VectorEnv) else another)


class _Watched(gym.Wrapper):
    """Adds Gymnasium's passive checks, and does not close the user's own environment."""

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


def _look_at_spaces(env: gym.Env, report: EnvironmentReport) -> None:
    action, spaces = env.action_space, spaces_by_key(env.observation_space)
    report.facts.extend([f"actions: {action}", f"observations: {env.observation_space}"])
    if isinstance(action, gym.spaces.Box) and (bound := np.abs([action.low, action.high]).max()) > LARGE_BOUND:
        advice = "untrained policies try the whole range; gymnasium.wrappers.TransformAction narrows it"
        report.warnings.append(f"actions are as large as {bound:g}, and {advice}")
    if ACTION_MASK not in spaces and env.has_wrapper_attr("action_masks"):
        report.warnings.append(f"action_masks() {MASK_NOT_READ}")
    for key, space in spaces.items():
        shape = space.shape or ()
        if key == ACTION_MASK or len(shape) == 1 or AGENT_STATE in spaces:
            continue
        if len(shape) != 3 or min(shape[:2]) < 3 or shape[0] <= 4 < min(shape[1:]) or shape[0] < shape[1] == shape[2]:
            kinds = "neither a vector (flatten it) nor an image with channels last"
            report.warnings.append(f"observation {key!r} of the shape {shape} is {kinds}")
        elif space.dtype != np.uint8 and shape[-1] in (1, 3, 4):
            report.warnings.append(f"observation {key!r} looks like an image, but {space.dtype} is not uint8")


def _look_at_goals(env: gym.Env, report: EnvironmentReport) -> None:
    """Reports whether the rewards of a goal environment can be computed for other goals."""
    if {ACHIEVED_GOAL, DESIRED_GOAL} <= spaces_by_key(env.observation_space).keys():
        try:
            report.facts.extend(["hindsight replay can compute rewards for other goals", *GoalFunctions(env).notes])
        except TfsacError as error:
            report.warnings.append(str(error))


def _step(
    environments: Environments | VectorEnvironments,
    num_steps: int,
    rng: np.random.Generator,
    limit: int | None,
    report: EnvironmentReport,
    another: gym.Env | None,
) -> None:
    """Makes random steps in all environments."""
    running, largest_reward = np.zeros(environments.num_envs), 0.0
    largest, episodes = dict.fromkeys(environments.spec.observation, 0.0), list[tuple[np.ndarray, ...]]()
    single, logged = isinstance(environments, Environments), {"is_success"}
    brightest = dict[str, int]()
    steps = list[Any]()  # of the running episode: actions and the observations before them
    if isinstance(environments, Environments):
        environments.start_episodes()
    before = environments.state(), steps, environments.observation
    for _ in range(num_steps):
        steps = [] if environments.is_first[0] else steps
        action = _random_action(environments, rng)
        steps += [(action, environments.observation)] if single else []
        step = environments.step(action)
        running += step.reward.reshape(len(running), -1).sum(axis=1)
        largest_reward = max(largest_reward, float(np.abs(step.reward).max()))
        for key, value in step.next_observation.items():
            if value.dtype == np.float32:  # not an image or a mask
                largest[key] = max(largest[key], float(np.abs(value).max()))
            elif value.dtype == np.uint8 and value.ndim == 4:
                brightest[key] = max(brightest.get(key, 0), int(value.max()))
        if (ended := step.ended).any():
            episodes.append((running[ended], step.length[ended], step.terminated[ended]))
            running[ended] = 0.0
            logged |= {key for key, values in step.logged.items() if not np.isnan(values).all()}
        if single and not ended[0]:
            before = environments.state(), steps, environments.observation
    if ACTION_MASK not in environments.spec.observation and ACTION_MASK in (step.info[0] if single else step.info):
        report.warnings.append(f"info[{ACTION_MASK!r}] {MASK_NOT_READ}")
    report.facts.append(f"{num_steps} random steps{'' if single else f' of {len(running)} environments'}")
    if episodes:
        returns, lengths, terminated = map(np.concatenate, zip(*episodes, strict=True))
        ends = f"{len(returns)} ({terminated.sum()} terminated, {(~terminated).sum()} truncated)"
        means = f"after {lengths.mean():.0f} steps on average, with a mean return of {returns.mean():.4g}"
        report.facts.append(f"ended episodes: {ends}, {means}")
        for key in environments.nothing_logged.keys() - logged:
            report.warnings.append(f"environment.logged_info: no episode ended with a number in info[{key!r}]")
        if len(returns) > 2 and terminated.all() and 1 < lengths.min() == lengths.max():
            every = f"every episode was terminated after exactly {lengths[0]} steps"
            report.warnings.append(f"{every}: for a time limit return truncated=True, so that values bootstrap there")
    elif limit is None or num_steps > limit:
        limit_text = "there is no time limit known" if limit is None else f"although the time limit is {limit}"
        advice = "set environment.max_episode_steps, or return truncated, because evaluations need episodes to end"
        report.warnings.append(f"no episode ended within {num_steps} steps, {limit_text}; {advice}")
    for key, bound in largest.items():
        if bound > LARGE_OBSERVATION:
            advice = "environment.filters.observation_normalization=true divides it by its standard deviation"
            report.warnings.append(f"observation {key!r} is as large as {bound:.4g}; {advice}")
    for key, byte in brightest.items():
        if byte < DARK:
            advice = "networks divide by 255, so multiply them, or observe floats"
            report.warnings.append(f"the bytes of image {key!r} are at most {byte}; {advice}")
    if largest_reward > LARGE_REWARD:
        advice = "decrease environment.filters.reward_rescale_factor"
        report.warnings.append(f"rewards are as large as {largest_reward:.4g}; {advice}")
    if 0 < largest_reward < SMALL_REWARD:
        advice = "if good actions earn no more, increase environment.filters.reward_rescale_factor"
        report.warnings.append(f"rewards are at most {largest_reward:.2g}, too small for critics; {advice}")
    if isinstance(environments, Environments):
        _replay(environments, before, report, another)


def _replay(
    environments: Environments, before: tuple[Any, ...], report: EnvironmentReport, another: gym.Env | None
) -> None:
    """Replays the steps of the newest unfinished episode, then once more with a reset of `another` environment."""
    state, steps, observation = before
    steps = steps[: state["length"][0]]
    actions = [map_action(lambda x: x[0], action) for action, _ in steps]
    seen = {key: [each[key][0] for _, each in steps] for key in observation}
    try:
        reproduced = environments.restore(state, (actions, seen), observation)
    except EnvironmentFailure as error:  # it can only be reset once its episode is over
        report.warnings.append(f"cannot check whether seeds reproduce a trajectory: {error}")
        return
    if reproduced:
        report.facts.append("the same seed and actions give the same trajectory")
        half = len(steps) // 2
        beginning = actions[:half], {key: values[:half] for key, values in seen.items()}
        if (
            another is not None
            and steps
            and environments.restore({**state, "length": [half]}, beginning, steps[half][1])
        ):
            another.reset(seed=0)
            for action, _ in steps[half:]:
                environments.step(action)
            if any((environments.observation[key] != value).any() for key, value in observation.items()):
                advice = 'create a simulator for each environment, or set environment.evaluation="shared"'
                report.warnings.append(f"resetting a second environment changed the first one: {advice}")
    else:
        advice = "self.np_random, which super().reset(seed=seed) seeds, and reset everything else"
        different = "the same seed and actions give different trajectories, so resuming is not exact"
        report.warnings.append(f"{different}: draw random numbers from {advice}")


def _random_action(environments: Environments | VectorEnvironments, rng: np.random.Generator) -> Any:
    """Returns random actions `[E, ...]` in the form of a policy's actions; they respect the mask, if any."""
    action, rows = environments.spec.action, environments.num_envs
    if isinstance(action, HybridSpec):
        score = rng.random((rows, sum(action.sizes))) + environments.observation.get(ACTION_MASK, 0)
        continuous = rng.uniform(-1.0, 1.0, (rows, action.action_size)).astype(np.float32)
        return action.whole(action.best(score), continuous)
    shape = (rows, *action.shape)
    if isinstance(action, DiscreteSpec):
        valid = environments.observation.get(ACTION_MASK, np.ones((*shape, action.num_actions), bool))
        return (valid + rng.random(valid.shape)).argmax(-1)
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32)
