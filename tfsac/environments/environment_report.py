"""A report on an environment: everything that hinders training or will surprise, from random steps. No TensorFlow."""

from __future__ import annotations

import copy
import functools
import json
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac import argument_checks
from tfsac.environments.check import (
    EnvironmentFailure,
    check_mask,
    longest_episode,
    problems_of_spaces,
    takes_render_mode,
)
from tfsac.environments.checked_returns import CheckedReturns, as_array, failure, placed, refuse_non_finite
from tfsac.environments.env_fn import making, name_of_environment
from tfsac.environments.findings import OK, PROBLEM, WARNING, EnvironmentReport, Finding
from tfsac.environments.ranges import Range
from tfsac.environments.repeats import same, why_not_repeated
from tfsac.environments.spaces import STACKING, other_frames, spaces_by_key
from tfsac.environments.teams import Team
from tfsac.environments.vector_rewards import has_vector_rewards
from tfsac.types import ACTION_MASK, AGENT_STATE
from tfsac.user_code import UserCodeError

FLOAT32 = float(np.finfo(np.float32).max)
REPEATED = 100  # steps that are played twice from the same seed
LARGE_BOUND, LARGE_OBSERVATION, LARGE_REWARD = 1e3, 1e2, 1e3
MEDIUM_SIDE = 36  # pixels that the convolutions of the scheme Medium need


def check_environment(env: gym.Env | Callable[[], gym.Env], num_steps: int = 1000, seed: int = 0) -> EnvironmentReport:
    """Plays random steps in an environment and reports everything at once that hinders training or may surprise.

    Args:
        env: an environment, which is closed at the end only if a function made it; or a function that makes one.
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
    if isinstance(env, gym.Env):
        return _Inspection(env).report(num_steps, seed)
    new = making(env)
    try:
        made = new()
    except UserCodeError as error:
        return EnvironmentReport(getattr(env, "__name__", "env_fn"), (Finding(PROBLEM, str(error)),))
    report = _Inspection(made).report(num_steps, seed)
    try:
        made.close()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return report._replace(findings=(*report.findings, Finding(WARNING, str(failure("close", error)))))
    return report


class _Inspection:
    """Looks at one environment and collects what it finds; each finding is told once."""

    def __init__(self, env: gym.Env):
        self.env, self.name, self.findings = env, name_of_environment(env), dict[str, Finding]()
        self.checked: CheckedReturns | None = None
        self.ranges: dict[str, Range] = {}  # by key of the observation
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.terminated = 0  # episodes
        self.largest_reward, self.steps, self.failed = 0.0, 0, False
        self.rewards: set[float] = set()  # two of them at most

    def find(self, kind: str, text: str, about: str | None = None) -> None:
        # What names a step is told for the first one alone.
        self.findings.setdefault(about or text, Finding(kind, text.removeprefix(f"{self.name}: ")))

    def report(self, num_steps: int, seed: int) -> EnvironmentReport:
        missing = [
            name
            for name in ("action_space", "observation_space")
            if not isinstance(getattr(self.env, name, None), gym.Space)
        ]
        for text in problems_of_spaces(self.env):
            self.find(PROBLEM, text)
        if not missing:
            self._look_at_spaces()
            self._look_at_render_modes()
            self.checked = CheckedReturns(self.env, has_vector_rewards(self.env))
            self.env.action_space.seed(seed)
            self._play(num_steps, seed)
            if not self.failed:
                self._look_at_play(num_steps)
                self._repeat(min(num_steps, REPEATED), seed)
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
            if len(space.shape) == 3 and space.dtype == np.uint8 and space.shape[0] <= 4 < min(space.shape[1:]):
                self.find(
                    WARNING,
                    f"observation {key!r} has its channels first, and convolutions read them last; "
                    "gymnasium.wrappers.TransformObservation moves them, see docs/images_and_atari.md",
                )
            elif len(space.shape) == 3 and space.dtype == np.uint8:
                medium = min(space.shape[:2]) >= MEDIUM_SIDE
                convolutions = "the convolutions of the scheme Medium" if medium else "convolutions with a stride of 2"
                self.find(
                    OK,
                    f"observation {key!r} is an image, [height, width, channels] in bytes: presets for vectors give it "
                    f"{convolutions}; to choose others, give its embedder a "
                    "scheme=[...], see docs/images_and_atari.md",
                )
            elif len(space.shape) == 3 and space.shape[-1] in (1, 3, 4):
                self.find(
                    WARNING,
                    f"observation {key!r} has the shape of an image but dtype {space.dtype}; "
                    "only uint8 is kept as an image",
                )
            elif len(space.shape) not in (1, 3) and AGENT_STATE not in spaces:
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

    def _action(self, observation: Any) -> Any:
        space = self.env.action_space
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        if mask is not None and isinstance(space, gym.spaces.Discrete):
            return space.sample(mask=np.asarray(mask, np.int8))
        if mask is not None and isinstance(space, gym.spaces.MultiDiscrete):
            return space.sample(mask=tuple(np.asarray(row, np.int8) for row in mask))
        return space.sample()

    def _returned(self, method: str, call: Callable[[], Any], before: Any = None) -> Any:
        """Returns what a call of `reset` or `step` returned; notes what is wrong with it, and whether nothing more
        can be played.
        """
        assert self.checked is not None
        try:
            result = call()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.find(PROBLEM, str(failure(method, error)))
            self.failed = True
            return None
        found = list(self.checked.problems(method, result))
        for text in found:
            self.find(PROBLEM, text)
        self.failed = bool(found)
        if not self.failed:
            self._look_at_mask(result[0], ended=method == "step" and bool(result[2]))
        if not self.failed:
            place = f"step {self.steps + 1}" if method == "step" else f"the reset before step {self.steps + 1}"
            self._look_at(result[0], place)
            self._look_at_numbers(result[0], float(np.sum(result[1])) if method == "step" else 0.0, place)
            self._look_at_frames(before, result[0], place)
        return result

    def _play(self, num_steps: int, seed: int) -> None:
        result = self._returned("reset", functools.partial(self.env.reset, seed=seed, options=None))
        began, total, length, reused, changed = time.perf_counter(), 0.0, 0, False, False
        while not self.failed and self.steps < num_steps:
            observation = result[0]
            kept, action = copy.deepcopy(observation), self._action(observation)
            given = copy.deepcopy(action)
            result = self._returned("step", functools.partial(self.env.step, action), kept)
            if self.failed:
                break
            self.steps += 1
            reused, changed = reused or not same(kept, observation), changed or not same(given, action)
            reward = float(np.sum(result[1]))
            if len(self.rewards) < 2:
                self.rewards.add(reward)
            total, length = total + reward, length + 1
            if result[2] or result[3]:
                self.returns.append(total)
                self.lengths.append(length)
                self.terminated += bool(result[2])
                total, length = 0.0, 0
                result = self._returned("reset", self.env.reset)
        self.seconds = time.perf_counter() - began
        if reused:
            self.find(
                WARNING,
                "a step writes into the array of the observation before; tfsac copies observations, but other code "
                "that keeps them will see them change: return a copy",
            )
        if changed:
            self.find(
                WARNING,
                "step writes into the action that it is given, which other code may use again: change a copy, "
                "as in a = a * 2 instead of a *= 2",
            )

    def _look_at_frames(self, before: Any, after: Any, place: str) -> None:
        if (key := other_frames(self.env.observation_space, before, after)) is not None:
            text = f"observation {key!r} is a FrameStack: {STACKING}"
            self.find(PROBLEM, f"{text}. Received: other frames at {place}", text)

    def _look_at_mask(self, observation: Any, ended: bool) -> None:
        if isinstance(observation, dict) and ACTION_MASK in observation:
            shape = spaces_by_key(self.env.observation_space)[ACTION_MASK].shape or ()
            try:
                check_mask(observation[ACTION_MASK], shape, must_allow=not ended)
            except EnvironmentFailure as error:
                self.find(PROBLEM, str(error))
                self.failed = True

    def _look_at_numbers(self, observation: Any, reward: float, place: str) -> None:
        try:
            refuse_non_finite(observation, reward)
        except EnvironmentFailure as error:
            self.find(PROBLEM, str(placed(error, self.name, place)), str(error).partition(" Received: ")[0])
        if not np.isfinite(reward):
            return
        if abs(reward) > FLOAT32:
            limit = f"the reward must fit into a float32, below {FLOAT32:.2g}"
            self.find(PROBLEM, f"{limit} ({place}). Received: {reward:g}", limit)
        self.largest_reward = max(self.largest_reward, abs(reward))

    def _look_at(self, observation: Any, place: str) -> None:
        for key, space in spaces_by_key(self.env.observation_space).items():
            if key == ACTION_MASK or not isinstance(space, gym.spaces.Box):
                continue
            part = as_array(observation[key] if isinstance(observation, dict) else observation)
            if part.dtype != space.dtype:
                text = f"observation {key!r} is returned as {part.dtype} and becomes {space.dtype}, as its space says"
                self.find(WARNING, text)
            if space.dtype == np.uint8:
                continue
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

    def _look_at_play(self, num_steps: int) -> None:
        limit = longest_episode(self.env)
        self.find(OK, f"{num_steps} random steps, {num_steps / max(self.seconds, 1e-9):.0f} a second with these checks")
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
                f"no episode ended within {num_steps} steps, and there is no time limit known; "
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

    def _repeat(self, num_steps: int, seed: int) -> None:
        """Plays the same actions from the same seed twice."""
        actions: list[Any] = []
        try:
            observation = self.env.reset(seed=seed)[0]
            for _ in range(num_steps):
                actions.append(self._action(observation))
                observation, _, terminated, truncated, _ = self.env.step(copy.deepcopy(actions[-1]))
                if terminated or truncated:
                    break
            cause = why_not_repeated(self.env, actions, seed)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.find(PROBLEM, str(failure("step", error)))
            return
        if cause is None:
            self.find(OK, "the same seed and actions give the same trajectory")
        else:
            self.find(
                WARNING,
                "the same seed and actions give different trajectories, "
                f"so runs cannot be repeated and a resume is not exact; {cause}",
            )
