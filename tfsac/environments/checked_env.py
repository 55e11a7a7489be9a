"""Check which environments can be used for training, and validate everything that they return."""

from __future__ import annotations

import keyword
import pathlib
import re
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import VectorEnv

from tfsac.environments.actions import SEVERAL, action_spec, float32_bound, hybrid_spec, named_leaves
from tfsac.environments.spaces import NUM_REWARDS, FrameStack, name_of_environment, spaces_by_key, spec_of
from tfsac.errors import TfsacError
from tfsac.types import ACTION_MASK, AGENT_STATE, HybridSpec, input_name, some_valid

VECTOR_REWARD = "vector_reward"  # key in the info of a step
FINAL_OBSERVATIONS = ("final_observation", "final_obs", "terminal_observation")  # info keys of self-resetting envs
RESERVED = ("action", "noise", "self")  # names of other inputs of exported policies and Python methods
MAX_JOINT_ACTIONS = 4096
LARGEST = np.finfo(np.float32).max  # `x <= LARGEST` is also False for NaN


class EnvironmentFailure(TfsacError, RuntimeError):
    """An environment raised, or returned values that cannot be used for training.

    Args:
        message: what is wrong.
        environment: index of the environment among several, if known.
    """

    def __init__(self, message: str, environment: int | None = None):
        super().__init__(message)
        self.environment = environment


def format_error(error: BaseException) -> str:
    """Returns an error in one line, with its type and, if possible, file and line in the user's code."""
    if isinstance(error, TfsacError):
        return str(error)
    message = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    frames = [*traceback.extract_tb(error.__traceback__)]
    libraries = ("site-packages", str(pathlib.Path(__file__).parents[1]))
    frames = [frame for frame in frames if not any(folder in frame.filename for folder in libraries)] or frames
    return f"{message} ({frames[-1].filename}, line {frames[-1].lineno})" if frames else message


def placed(error: BaseException, level: str, location: str) -> EnvironmentFailure:
    """Returns a failure that names the level and the location, such as "environment 1, step 640"."""
    return EnvironmentFailure(f"{level}: {format_error(error)} ({location})")


def close(env: gym.Env | VectorEnv) -> None:
    """Closes an environment; an error is a warning, because it must not hide an earlier one or lose a result."""
    try:
        env.close()
    except (Exception, SystemExit) as error:
        text = f"{name_of_environment(env)}: close() raised {format_error(error)}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def check(env: gym.Env) -> None:
    """Rejects unusable environments: unbounded actions, observations that are not boxes, a mask or a team with
    mismatched shapes, and wrappers that normalise with running statistics.
    """
    for problem in _problems(env):
        raise TfsacError(f"{name_of_environment(env)}: {problem}")


def _problems(env: gym.Env) -> Iterator[str]:
    yield from _running_statistics(env)
    action: Any = env.action_space
    spaces = dict(spaces_by_key(env.observation_space))
    team = (spaces[AGENT_STATE].shape or ())[:1] if AGENT_STATE in spaces else ()
    yield from _action_problems(action, team)
    mask = spaces.pop(ACTION_MASK, None)
    if mask is not None:
        of = action_spec(action, bool(team))
        number = sum(of.sizes) if isinstance(of, HybridSpec) else getattr(of, "num_actions", 0)
        if not number:
            yield f"'action_mask' needs discrete actions, got {action}"
        elif mask.shape != (*team, number):
            entry, advice = "action", ""
            if isinstance(of, HybridSpec):
                entry = f"value of the discrete actions, whose sizes are {of.sizes}"
                combinations = mask.shape == (of.num_joint_actions,)
                advice = "; a mask of combinations needs a Discrete of all" if combinations else ""
            yield f"'action_mask' must have an entry for each {entry}, shape {(*team, number)}, got {mask}{advice}"
    for key, space in spaces.items():
        if not isinstance(space, gym.spaces.Box):
            yield f"observation {key!r} must be a Box, got {space}; use gymnasium.wrappers.FlattenObservation"
        elif AGENT_STATE in spaces and (len(space.shape) < 2 or space.shape[:1] != team):
            yield f"observation {key!r} of a team of P agents, as in 'agent_state', must be (P, ...), got {space}"
    names = [input_name(key).lower() if re.fullmatch(r"\w[\w.-]*", key, re.ASCII) else "self" for key in spaces]
    if len({*names, ACTION_MASK}) <= len(names) or any(name in RESERVED or keyword.iskeyword(name) for name in names):
        yield (
            "keys of observations become names in exported policies, distinct in letters, digits and '_', and not "
            f"{', '.join(RESERVED)} or a keyword; rename {list(spaces)} with gymnasium.wrappers.TransformObservation"
        )


def _running_statistics(env: gym.Env) -> Iterator[str]:
    single, vector = gym.wrappers, gym.wrappers.vector
    wrapper: Any = getattr(env, "vector_env", env)
    while isinstance(wrapper, gym.Wrapper | gym.vector.VectorWrapper):
        of_observations = isinstance(wrapper, single.NormalizeObservation | vector.NormalizeObservation)
        if of_observations or isinstance(wrapper, single.NormalizeReward | vector.NormalizeReward):
            kind = "observation" if of_observations else "reward"
            if wrapper.update_running_mean:  # type: ignore[union-attr]
                instead = f"environment.filters.{kind}_normalization=true"
                yield f"exports lack the running statistics of {type(wrapper).__name__}; remove it and set {instead}"
        wrapper = wrapper.env
    if isinstance(wrapper, gym.vector.SyncVectorEnv | gym.vector.AsyncVectorEnv):
        for kind, statistics in (("observation", "obs_rms"), ("reward", "return_rms")):
            if any(wrapper.call("has_wrapper_attr", statistics)) and any(wrapper.get_attr("update_running_mean")):
                instead = f"environment.filters.{kind}_normalization=true"
                yield f"each environment of the vector has its own running statistics; set {instead} instead"


def _action_problems(action: gym.Space[Any], team: tuple[int, ...]) -> Iterator[str]:
    if isinstance(action, gym.spaces.Box):
        floats = np.issubdtype(action.dtype, np.floating)
        if not floats or len(action.shape) != len(team) + 1 or action.shape[:-1] != team or not action.shape[-1]:
            yield f"actions must be a Box of floats ({', '.join(map(str, (*team, 'A')))}), or discrete, got {action}"
            return
        yield from _bounds_problems(action)
    elif isinstance(action, SEVERAL) and not team:
        yield from _several_problems(action)
    elif isinstance(action, gym.spaces.MultiDiscrete) and team:
        if action.shape != team or len(set(action.nvec)) > 1 or len(set(action.start)) > 1:
            yield f"a team of {team[0]} agents needs a MultiDiscrete of as many equal sizes and starts, got {action}"
    elif not isinstance(action, gym.spaces.Discrete) or team:
        yield (
            "actions must be a Box (A,) of floats, Discrete, MultiDiscrete, or a Dict or Tuple of these; for a team "
            "of P agents, with the key 'agent_state', a Box (P, A) or a MultiDiscrete of P equal sizes, got "
            f"{action}{_instead_of_bits(action)}"
        )


def _bounds_problems(action: gym.spaces.Box) -> Iterator[str]:
    low, high = float32_bound(action.low, 1), float32_bound(action.high, -1)
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(action.low) & np.isfinite(action.high) & np.isfinite(high - low)
    if not (finite & (low < high)).all():
        bounds = f"{action.low.tolist()} and {action.high.tolist()}; gymnasium.wrappers.TransformAction sets others"
        yield f"actions need finite bounds with low < high, got {bounds}"


def _several_problems(action: gym.Space[Any]) -> Iterator[str]:
    """Yields the problems of a MultiDiscrete, Dict or Tuple of actions."""
    names = []
    for name, leaf in named_leaves(action):
        names.append(name)
        if isinstance(leaf, gym.spaces.Box):
            if not np.issubdtype(leaf.dtype, np.floating) or not np.prod(leaf.shape):
                yield f"the action {name!r} must be a Box of floats, or discrete, got {leaf}"
            yield from _bounds_problems(leaf)
        elif not isinstance(leaf, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
            kinds = "a Box, a Discrete or a MultiDiscrete"
            yield f"the action {name!r} must be {kinds}, got {leaf}{_instead_of_bits(leaf)}"
    plain = all(re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) and not keyword.iskeyword(name) for name in names)
    reserved = isinstance(action, gym.spaces.Dict) and any(re.fullmatch(r"action(_\d+)*", name) for name in names)
    if not plain or reserved or len({name.lower() for name in names}) < len(names):
        rule = "letters, digits and '_' after a letter, distinct, and neither 'action' nor 'action_0'"
        yield f"keys of actions become names in exported policies: {rule}, got {names}"
    spec = hybrid_spec(action)
    if (num := spec.num_joint_actions) > MAX_JOINT_ACTIONS:
        combinations = f"{num} for the sizes {spec.sizes}: critics have one value per combination"
        yield f"discrete actions must have at most {MAX_JOINT_ACTIONS} combinations, got {combinations}"
    if num == 1 and not spec.action_size:
        yield f"there must be more than one action, got {action}"


def _instead_of_bits(space: gym.Space[Any]) -> str:
    return "; use a MultiDiscrete of twos instead" if isinstance(space, gym.spaces.MultiBinary) else ""


def time_limit_of(env: gym.Env | VectorEnv) -> int | None:
    """Returns the time limit in steps from an environment's registration or one of its wrappers, or None."""
    limits = [env.spec.max_episode_steps if env.spec else None]
    while isinstance(env, gym.Wrapper):
        limits.append(env._max_episode_steps if isinstance(env, gym.wrappers.TimeLimit) else None)
        env = env.env
    return min((limit for limit in limits if limit), default=None)


class CheckedEnv(gym.Wrapper):
    """Rejects values that cannot be used for training or that arrays would silently change; makes rewards floats.

    With D rewards per step, the reward is their sum, and `info["vector_reward"]`, float32 `[D]`, has all of them.

    Args:
        env: an environment with spaces that `check` accepts.
    """

    def __init__(self, env: gym.Env):
        super().__init__(env)
        spaces = spaces_by_key(env.observation_space)
        self.action = spec_of(env).action
        self.several_keys = isinstance(env.observation_space, gym.spaces.Dict)
        self.parts: dict[str, tuple[Any, Any]] = {key: (space.shape, space.dtype) for key, space in spaces.items()}
        self.stacks = [key for key, space in spaces.items() if isinstance(space, FrameStack)]
        self.frames: dict[str, np.ndarray] = {}  # the stacks before this step
        self.rewards_shape: tuple[int, ...] = ()  # (D,) for D rewards per step, as in MO-Gymnasium's environments
        rewards = env.get_wrapper_attr("reward_space") if env.has_wrapper_attr("reward_space") else None
        summed = NUM_REWARDS in (env.metadata or {})
        if isinstance(rewards, gym.spaces.Box) and len(rewards.shape) == 1 and not summed:
            self.rewards_shape = rewards.shape
            self.metadata = {**(env.metadata or {}), NUM_REWARDS: rewards.shape[0]}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; raises EnvironmentFailure for an observation that does not fit its space."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.frames.clear()
        for problem in self._problems(observation, False, {}):
            raise EnvironmentFailure(problem)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Makes a step; raises EnvironmentFailure also if the reward is not one finite number."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        terminated, truncated = bool(terminated), bool(truncated)
        info = dict(info)  # the environment may modify its own dict later
        for problem in self._problems(observation, terminated, info if terminated or truncated else {}):
            raise EnvironmentFailure(problem)
        returned = reward
        if self.rewards_shape or type(reward) is not float:
            array = np.array(reward, np.float32 if self.rewards_shape else np.float64)
            fits = array.shape == self.rewards_shape if self.rewards_shape else array.size == 1
            info |= {VECTOR_REWARD: array} if self.rewards_shape else {}
            reward = float(array.sum()) if fits else np.nan
        if not abs(reward) <= LARGEST:
            expected = f" and of the shape {self.rewards_shape}" if self.rewards_shape else ", one number"
            raise EnvironmentFailure(f"the reward must be finite in float32{expected}, got {returned}")
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Closes the environment; see `close`."""
        close(self.env)

    def _problems(self, observation: Any, terminated: bool, last_info: dict[str, Any]) -> Iterator[str]:
        by_key = observation if self.several_keys else {"observation": observation}
        if not isinstance(by_key, dict) or by_key.keys() != self.parts.keys():
            yield f"an observation must be a dict with the keys {[*self.parts]}, got {by_key}"
        for key, (shape, dtype) in self.parts.items():
            part = by_key[key]
            if type(part) is not np.ndarray or part.dtype != dtype or part.shape != shape:
                part = np.asarray(part)
                fits = part.shape == shape and part.dtype.kind in "biuf"
                if not fits or (dtype.kind in "biu" and (part.astype(dtype) != part).any()):  # it would wrap around
                    expected = f"have the shape {shape} and dtype {dtype}, or numbers that it can hold"
                    yield f"observation {key!r} must {expected}, got {part.shape} and {part.dtype}"
            if dtype.kind == "f" and not np.abs(part).max(initial=0.0) <= LARGEST:
                invalid = part[~(np.abs(part) <= LARGEST)]
                yield f"observation {key!r} must be finite in float32, got {invalid[0]}"
            if key == ACTION_MASK and not terminated and not some_valid(np.asarray(part), self.action).all():
                mask = part.astype(int).tolist()
                yield f"'action_mask' allows no action; end the episode instead, got {mask}"
        for key in self.stacks:
            new, old = np.array(by_key[key]), self.frames.get(key)
            if not ((new == new[..., -1:]).all() if old is None else np.array_equal(new[..., :-1], old[..., 1:])):
                rule = "a reset must repeat its frame, and a step must drop the first frame and add one last"
                yield f"observation {key!r} is not a FrameStack: {rule}"
            self.frames[key] = new
        for key in FINAL_OBSERVATIONS if last_info else ():
            if last_info.get(key) is not None and not data_equivalence(last_info[key], observation):
                advice = "step must return the last observation of an episode, and leave the reset to tfsac"
                yield f"info[{key!r}] differs from the returned observation: {advice}"
