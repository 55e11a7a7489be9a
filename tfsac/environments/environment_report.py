"""A report on an environment: everything that hinders training or will surprise, from random steps. No TensorFlow."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac import argument_checks
from tfsac.environments.check import (
    SPACES,
    EnvironmentFailure,
    longest_episode,
    problems_of_spaces,
    takes_render_mode,
)
from tfsac.environments.checked_returns import CheckedReturns, as_array
from tfsac.environments.env_fn import name_of_environment
from tfsac.environments.findings import OK, PROBLEM, WARNING, EnvironmentReport, Finding
from tfsac.environments.make import Maker, maker
from tfsac.environments.ranges import Range
from tfsac.environments.repeats import same, trajectory, why_not_repeated
from tfsac.environments.spaces import spaces_by_key, spec_of
from tfsac.environments.teams import Team
from tfsac.environments.vector_rewards import has_vector_rewards
from tfsac.environments.vectorize import Environments
from tfsac.parameters import EnvironmentParameters
from tfsac.types import ACTION_MASK, AGENT_STATE, DiscreteSpec
from tfsac.user_code import UserCodeError

REPEATED = 100  # steps that are played twice from the same seed
LARGE_BOUND, LARGE_OBSERVATION, LARGE_REWARD = 1e3, 1e2, 1e3
MEDIUM_SIDE = 36  # pixels that the convolutions of the scheme Medium need


def check_environment(env: gym.Env | Callable[[], gym.Env], num_steps: int = 1000, seed: int = 0) -> EnvironmentReport:
    """Plays random steps in an environment, as training makes it, and reports everything that hinders training or may
    surprise.

    Args:
        env: a function that makes an environment at each call; training makes two. Or an environment, which is not
            closed.
        num_steps: how many, at least one.
        seed: of the episodes and the actions.

    Raises:
        TypeError: neither an environment nor a function that makes one, or no whole numbers.
        ValueError: fewer than one step, or a negative seed.

    Example:
        >>> report = tfsac.check_environment(MyEnv)
        >>> print(report)
        >>> assert report.usable
    """
    num_steps, seed = argument_checks.whole("num_steps", num_steps, 1), argument_checks.whole("seed", seed, 0)
    parameters = EnvironmentParameters(getattr(env, "__name__", "env_fn"))
    if isinstance(env, gym.Env):
        return _Inspection(Maker(lambda: env, None), parameters, alone=True).report(num_steps, seed)
    return check_environments(parameters, num_steps, seed, env)


def check_environments(
    parameters: EnvironmentParameters, num_steps: int, seed: int, env_fn: Callable[[], gym.Env] | None = None
) -> EnvironmentReport:
    """Returns the report of `check_environment` on a level's environments, or those that a function makes.

    Raises:
        ValueError, ImportError: there is no such level.
    """
    try:
        inspection = _Inspection(maker(parameters, env_fn), parameters)
    except UserCodeError as error:
        return EnvironmentReport(parameters.level, (Finding(PROBLEM, str(error)),))
    return inspection.report(num_steps, seed)


class _Watched(gym.Wrapper):
    """Shows an inspection what an environment is given and returns.

    Attributes:
        seed, actions: of the first episode.
    """

    def __init__(self, env: gym.Env, inspection: _Inspection):
        super().__init__(env)
        self.inspection, self.seen, self.total, self.length, self.episodes = inspection, None, 0.0, 0, 0
        self.actions: list[Any] = []
        self.seed: int | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        with self.inspection.finding_problems():
            result = self.env.reset(seed=seed, options=options)
        self.seed = seed if self.seed is None else self.seed
        self.seen, self.total, self.length, self.episodes = result[0], 0.0, 0, self.episodes + 1
        self.inspection.look_at(self.seen, f"the reset before step {self.inspection.steps + 1}")
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        inspection, kept, given = self.inspection, copy.deepcopy(self.seen), copy.deepcopy(action)
        if self.episodes == 1 and len(self.actions) < REPEATED:
            self.actions.append(given)
        with inspection.finding_problems():
            result = self.env.step(action)
        inspection.steps += 1
        inspection.reused |= not same(kept, self.seen)
        inspection.changed |= not same(given, action)
        self.seen, reward = result[0], float(result[1])
        self.total, self.length = self.total + reward, self.length + 1
        inspection.look_at(self.seen, f"step {inspection.steps}")
        inspection.rewards.add(reward)
        inspection.largest_reward = max(inspection.largest_reward, abs(reward))
        if result[2] or result[3]:
            inspection.returns.append(self.total)
            inspection.lengths.append(self.length)
            inspection.terminated += bool(result[2])
        return result


class _Inspection:
    """Looks at the environments of a run and collects what it finds; each finding is told once. One that is `alone` is
    the user's own, the same at each call, and stays open.
    """

    def __init__(self, one: Maker, parameters: EnvironmentParameters, alone: bool = False):
        self.one, self.parameters, self.alone, self.env = one, parameters, alone, one.unchecked()
        self.name, self.findings = name_of_environment(self.env), dict[str, Finding]()
        one.notes.write = functools.partial(self.find, WARNING)
        self.images = set[str]()  # keys of observations
        self.ranges: dict[str, Range] = {}  # by key of the observation
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.terminated = 0  # episodes
        self.largest_reward, self.steps, self.seconds = 0.0, 0, 0.0
        self.failed, self.reused, self.changed = False, False, False
        self.rewards = set[float]()

    def find(self, kind: str, text: str, about: str | None = None) -> None:
        # What names a step is told for the first one alone.
        told = text.removeprefix(f"{self.parameters.name}: ").removeprefix(f"{self.name}: ")
        self.findings.setdefault(about or text, Finding(kind, told))

    @contextlib.contextmanager
    def finding_problems(self) -> Iterator[None]:
        try:
            yield
        except EnvironmentFailure as error:
            self.failed = True
            for text in error.problems:
                self.find(PROBLEM, text)
            raise

    def report(self, num_steps: int, seed: int) -> EnvironmentReport:
        problems = problems_of_spaces(self.env)
        for text in problems:
            self.find(PROBLEM, text)
        if not problems:
            try:
                self.env = self.one.check(self.env)
            except ValueError as error:  # of visible entries
                self.find(PROBLEM, str(error))
        usable = not self.findings
        if all(isinstance(getattr(self.env, name, None), gym.Space) for name in SPACES):
            self._look_at_spaces()
            self._look_at_render_modes()
            if usable:
                self._train(num_steps, seed)
            elif problems:
                checked = CheckedReturns(self.env, has_vector_rewards(self.env), self.one.notes)
                with contextlib.suppress(EnvironmentFailure), self.finding_problems():
                    checked.reset(seed=seed)
                    checked.step(self.env.action_space.sample())
        if not self.alone:
            with contextlib.suppress(Exception):  # of one whose spaces cannot be used; others write a note
                self.env.close()
        return EnvironmentReport(self.name, tuple(self.findings.values()))

    # -- spaces --------------------------------------------------------------------------------------------------------

    def _look_at_spaces(self) -> None:
        action, observation = self.env.action_space, self.env.observation_space
        if not self.findings:
            self.find(OK, f"actions: {action}")
            self.find(OK, f"observations: {observation}")
        if isinstance(action, gym.spaces.Box):
            bound = np.abs([action.low, action.high]).max(initial=0.0)
            if np.isfinite(bound) and bound > LARGE_BOUND:
                self.find(
                    WARNING,
                    f"the bounds of the actions are as large as {bound:g}, and policies first try all of them; "
                    "if useful actions are smaller, narrow the space: "
                    "gymnasium.wrappers.TransformAction(env, lambda action: action, gymnasium.spaces.Box(low, high))",
                )
        spaces = spaces_by_key(observation)
        for key, space in spaces.items():
            if not isinstance(space, gym.spaces.Box) or key == ACTION_MASK:
                continue
            image = len(space.shape) == 3 and min(space.shape[:2]) >= 3  # convolutions need as many pixels
            if image and space.dtype == np.uint8 and space.shape[0] <= 4 < min(space.shape[1:]):
                self.find(
                    WARNING,
                    f"observation {key!r} has its channels first, and convolutions read them last; "
                    "gymnasium.wrappers.TransformObservation moves them, see docs/images_and_atari.md",
                )
            elif image and space.dtype == np.uint8:
                medium = min(space.shape[:2]) >= MEDIUM_SIDE
                convolutions = "the convolutions of the scheme Medium" if medium else "convolutions with a stride of 2"
                self.find(
                    OK,
                    f"observation {key!r} is an image, [height, width, channels] in bytes: presets for vectors give it "
                    f"{convolutions}; to choose others, give its embedder a "
                    "scheme=[...], see docs/images_and_atari.md",
                )
            elif image and space.shape[-1] in (1, 3, 4):
                self.find(
                    WARNING,
                    f"observation {key!r} has the shape of an image but dtype {space.dtype}; "
                    "only uint8 is kept as an image",
                )
            elif not image and len(space.shape) != 1 and AGENT_STATE not in spaces:
                flattened = json.dumps({key: {"scheme": [256], "flatten": True}})
                alone = f"--set='agent.networks.*.input_embedders_parameters={flattened}'"
                how = alone if len(spaces) == 1 else "docs/parameters.md#observations-that-a-preset-does-not-describe"
                unlike = f"observation {key!r} has the shape {space.shape}, neither a vector nor an image"
                self.find(WARNING, f"{unlike}. To flatten it: {how}")
            elif space.dtype == np.float64:
                self.find(OK, f"observation {key!r} is float64; agents see float32")
        if AGENT_STATE not in spaces and len(spaces.keys() - {ACTION_MASK}) > 1:
            self.find(OK, f"networks read all keys of the dict: {', '.join(sorted(spaces.keys() - {ACTION_MASK}))}")

    def _look_at_render_modes(self) -> None:
        bare, modes = self.env.unwrapped, [mode for mode in (self.env.metadata or {}).get("render_modes", ()) if mode]
        if modes and not takes_render_mode(type(bare)) and not isinstance(bare, Team):
            self.find(
                WARNING,
                f"metadata names the render modes {', '.join(map(str, modes))}, but the constructor takes no "
                f"render_mode, so nothing can be drawn: def __init__(self, ..., render_mode=None) of "
                f"{type(bare).__name__}",
            )

    # -- random steps --------------------------------------------------------------------------------------------------

    def _train(self, num_steps: int, seed: int) -> None:
        """Makes all environments of a run and steps those of training; `self.env` is that of evaluations."""
        self.images = {key for key, array in spec_of(self.env).observation.items() if array.dtype == "uint8"}
        parameters = dataclasses.replace(self.parameters, vectorization="sync", step_timeout_seconds=None)
        watched: list[_Watched] = []

        def watch() -> gym.Env:
            watched.append(_Watched(self.one(), self))
            return watched[-1]

        one = Maker(watch, None)
        one.notes = self.one.notes
        only = parameters.evaluation != "separate"
        if only:  # the environment of evaluations is one of them
            self.one.made.append(self.env)
        try:
            environments = Environments(parameters, seed, one)
            rng, began = np.random.default_rng(seed), time.perf_counter()
            try:
                while self.steps < num_steps:
                    environments.step(_random_action(environments, rng))
                self.seconds = time.perf_counter() - began
                self._look_at_play()
                self._repeat(watched[0])
            finally:
                if not self.alone:
                    environments.close()
                    self.alone = only  # which is closed now
        except EnvironmentFailure as error:
            if not self.failed:
                self.find(PROBLEM, str(error))
        except (TypeError, ValueError, ImportError, UserCodeError) as error:
            number = parameters.num_envs + (not only)
            hint = "" if number == 1 else ' (environment.evaluation="shared" makes one)'
            self.find(PROBLEM, f"training makes {number} environments at once{hint}: {error}")

    def look_at(self, observation: Any, place: str) -> None:
        for key, space in spaces_by_key(self.env.observation_space).items():
            if key == ACTION_MASK or key in self.images or not isinstance(space, gym.spaces.Box):
                continue
            part = as_array(observation[key] if isinstance(observation, dict) else observation)
            if part.dtype != space.dtype:
                text = f"observation {key!r} is returned as {part.dtype} and becomes {space.dtype}, as its space says"
                self.find(WARNING, text)
            self.ranges.setdefault(key, Range(part)).add(part)
            with np.errstate(over="ignore"):
                seen = part.astype(space.dtype)
            outside = np.argwhere(np.isfinite(part) & ((seen < space.low) | (seen > space.high)))
            if outside.size:
                i = tuple(map(int, outside[0]))
                bound = space.low[i] if seen[i] < space.low[i] else space.high[i]
                leaves = f"observation {key!r} leaves the bounds of its space"
                self.find(
                    WARNING,
                    f"{leaves}: entry {i[0] if len(i) == 1 else i} was {seen[i]!s} at {place}, its bound {bound!s}; "
                    "training does not mind, other libraries may",
                    leaves,
                )

    def _look_at_play(self) -> None:
        limit = longest_episode(self.env)
        rate = self.steps / max(self.seconds, 1e-9)
        self.find(OK, f"{self.steps} random steps, {rate:.0f} a second with these checks")
        if self.reused:
            self.find(
                WARNING,
                "a step writes into the array of the observation before; tfsac copies observations, but other code "
                "that keeps them will see them change: return a copy",
            )
        if self.changed:
            self.find(
                WARNING,
                "step writes into the action that it is given, which other code may use again: change a copy, "
                "as in a = a * 2 instead of a *= 2",
            )
        if self.returns:
            mean = np.mean(self.returns)
            self.find(
                OK,
                f"ended episodes: {len(self.returns)} ({self.terminated} terminated, "
                f"{len(self.returns) - self.terminated} truncated), after {np.mean(self.lengths):.0f} steps on "
                "average" + (f", with a mean return of {mean:.4g}" if np.isfinite(mean) else ""),
            )
            if 2 < len(self.returns) == self.terminated and 1 < min(self.lengths) == max(self.lengths):
                self.find(
                    WARNING,
                    f"every episode was terminated after exactly {self.lengths[0]} steps: if that is a time limit, "
                    "return truncated=True; terminated says that no reward would follow",
                )
            if limit is None:
                self.find(OK, "no time limit is known: if an episode may never end, set environment.max_episode_steps")
        elif limit is not None and self.steps <= limit:
            self.find(OK, "no episode ended yet, but there is a time limit")
        elif limit is not None:
            said = f"an episode was played for {self.steps} steps, though its time limit is {limit}"
            self.find(
                WARNING, f"{said}: does a wrapper drop truncated? Evaluations cut such an episode off after 100000"
            )
        else:
            self.find(
                WARNING,
                f"no episode ended within {self.steps} steps, and there is no time limit known; "
                "without ends there are no training returns, and an evaluation episode is cut off after 100000 steps: "
                "set environment.max_episode_steps if episodes may never end",
            )
        for key, seen in self.ranges.items():
            if told := seen.lost_in_float32():
                self.find(WARNING, f"observation {key!r}: {told}")
            elif seen.largest > LARGE_OBSERVATION:
                self.find(
                    WARNING,
                    f"observation {key!r} is as large as {seen.largest:.4g}; "
                    "see environment.filters.observation_normalization",
                )
        if self.steps >= REPEATED and len(self.rewards) == 1 and not self.terminated:
            self.find(
                WARNING,
                f"every reward was {min(self.rewards):.4g}, and no episode was terminated: random actions meet nothing "
                "to learn from",
            )
        if self.largest_reward > LARGE_REWARD:
            self.find(
                WARNING,
                f"rewards are as large as {self.largest_reward:.4g}; see environment.filters.reward_rescale_factor",
            )

    # -- seeds ---------------------------------------------------------------------------------------------------------

    def _repeat(self, watched: Any) -> None:
        """Plays the first episode again, twice, in the environment of evaluations."""
        actions, seed = watched.actions, watched.seed
        try:
            with contextlib.nullcontext() if self.alone else self.finding_problems():
                first = trajectory(self.env, actions, seed)
            cause = why_not_repeated(first, self.env, actions, seed)
        except EnvironmentFailure as error:  # some environments are only reset once their episode is over
            if not self.failed:
                self.find(WARNING, f"whether the same seed gives the same trajectory is not known: {error}")
            return
        if cause is None:
            self.find(OK, "the same seed and actions give the same trajectory")
        else:
            self.find(
                WARNING,
                "the same seed and actions give different trajectories, "
                f"so runs cannot be repeated and a resume is not exact; {cause}",
            )


def _random_action(environments: Environments, rng: np.random.Generator) -> np.ndarray:
    """Returns random actions `[E, ...]` as a policy gives them, valid ones where there is a mask."""
    action = environments.spec.action
    shape = (environments.num_envs, *action.shape)
    if isinstance(action, DiscreteSpec):
        valid = environments.observation.get(ACTION_MASK, np.ones((*shape, action.num_actions), bool))
        return (valid + rng.random(valid.shape)).argmax(-1)
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32)
