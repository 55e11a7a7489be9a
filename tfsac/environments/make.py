"""Making environments from a level or from a function of the user."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from tfsac.environments.actions import flat_mask, hybrid_spec
from tfsac.environments.checked_env import CheckedEnv, check, time_limit_of
from tfsac.environments.pettingzoo_team import Team
from tfsac.environments.spaces import FrameStack, name_of_environment, with_flat_mask
from tfsac.environments.vector_env import FirstEnvironment
from tfsac.errors import TfsacError
from tfsac.parameters import AtariPreprocessingParameters, EnvironmentParameters
from tfsac.types import ACTION_MASK

EnvFn = Callable[..., gym.Env | VectorEnv]  # an env_fn: called without arguments, or with num_envs if it takes it
ATARI, PETTINGZOO = "ALE/", "pettingzoo:"  # the beginning of these levels
LEVELS = "a level of your own is MODULE:ID; pip install 'tfsac[EXTRA]' brings packages of others (robotics, atari, ...)"


class Maker:
    """Makes and checks environments that have the same spaces, also where it was sent to another process.

    Args:
        parameters: of the environments.
        env_fn: makes them instead of the level; only the time limit is added to it, and entries are hidden. It may
            return a `VectorEnv`, and take the number of its environments as `num_envs`.
        to_play: a trained policy acts in it: what env_fn makes in place of a level keeps its own time limit.

    Attributes:
        prepared: environments that were made already, returned before others are made.
    """

    def __init__(self, parameters: EnvironmentParameters, env_fn: EnvFn | None = None, to_play: bool = False):
        self.parameters, self.env_fn, self.to_play = parameters, env_fn, to_play
        self.spaces: dict[str, gym.Space[Any]] = {}  # of the first one
        self.prepared: list[gym.Env] = []
        self.newest: gym.Env | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Maker, (self.parameters, self.env_fn, self.to_play), {"spaces": self.spaces}

    def unchecked(self, num_envs: int | None = 1) -> Any:
        """Makes one environment, or a `VectorEnv` of `num_envs`, without checks; None is for as many as `env_fn` likes.

        Raises:
            TfsacError: parameters that a `VectorEnv` would ignore.
        """
        parameters = self.parameters
        if self.env_fn is None:
            # A copy, because an environment may change its arguments.
            env: Any = _make_level(parameters, copy.deepcopy(parameters.kwargs), num_envs or 1)
        else:
            argument = inspect.signature(self.env_fn).parameters.get("num_envs")
            given = argument is not None and (num_envs or argument.default is argument.empty)
            env = self.env_fn(num_envs=num_envs or 1) if given else self.env_fn()
        is_vector = isinstance(env, VectorEnv)
        for name in ("atari", "visible_entries", *(["max_episode_steps"] if self.env_fn else [])):
            if is_vector and getattr(parameters, name) is not None:
                env.close()
                raise TfsacError(f"environment.{name} is not for a VectorEnv, which has to do it itself")
        if self.env_fn is None or is_vector:
            return env
        keeps_own_limit = self.to_play and not parameters.by_env_fn and time_limit_of(env) is not None
        return env if keeps_own_limit else _limited(env, parameters.max_episode_steps)

    def __call__(self) -> gym.Env:
        """Makes one environment.

        Raises:
            TfsacError: as `make`; or it is the same one again, or has other spaces than the first.
        """
        return self.prepared.pop() if self.prepared else self._checked(self.unchecked())

    def vector_env(self) -> VectorEnv | None:
        """Makes the `VectorEnv` to train in; None where environments are made one by one, of which there is one now.

        Raises:
            TfsacError: as `make`, or parameters that do not fit what `env_fn` returns.
        """
        parameters = self.parameters
        if self.env_fn is None and parameters.vectorization != "vector":
            return None
        env = self.unchecked(parameters.num_envs if parameters.num_envs > 1 else None)
        single, problem = self._checked(env), ""
        if not isinstance(env, VectorEnv):
            self.prepared.append(single)
            if parameters.vectorization == "vector":
                problem = f'environment.vectorization="vector" needs an env_fn that returns a VectorEnv, got {env}'
        elif parameters.vectorization == "subprocess":
            problem = 'environment.vectorization="subprocess" is not for a VectorEnv, which steps its environments'
        elif parameters.num_envs not in (1, env.num_envs):
            problem = f"environment.num_envs must be the VectorEnv's {env.num_envs}, got {parameters.num_envs}"
        if problem:
            env.close()
            raise TfsacError(problem)
        return env if isinstance(env, VectorEnv) else None

    def _checked(self, env: Any) -> gym.Env:
        one_at_a_time = self.parameters.evaluation != "separate" and self.parameters.num_envs == 1
        if env.unwrapped is self.newest and not one_at_a_time:
            raise TfsacError(
                "env_fn must return a new environment at each call, got the same one twice; environment.evaluation is "
                '"shared" or "none" for one that exists once'
            )
        self.newest = env.unwrapped
        env = checked(FirstEnvironment(env) if isinstance(env, VectorEnv) else env, self.parameters.visible_entries)
        for name in ("observation_space", "action_space"):
            space = getattr(env, name)
            if self.spaces.setdefault(name, space) != space:
                env.close()
                raise TfsacError(f"environments must have the same {name}, got {self.spaces[name]} and {space}")
        return env


maker = Maker  # what it returns makes environments


def make(
    level: str,
    /,
    max_episode_steps: int | None = None,
    atari: AtariPreprocessingParameters | None = None,
    visible_entries: Sequence[int] | None = None,
    **kwargs: Any,
) -> gym.Env:
    """Makes and checks one environment.

    Args:
        level: as `EnvironmentParameters` has it, such as "Pendulum-v1", or "my_env:MyEnv-v0", whose module is imported
            and registers the id.
        max_episode_steps: time limit in steps instead of the level's own; those that Atari games (in frames) and
            PettingZoo environments keep themselves stay as well.
        atari, visible_entries: see `EnvironmentParameters`.
        **kwargs: passed to `gymnasium.make`, or to the PettingZoo environment.

    Raises:
        TfsacError: no such level, a package is missing, arguments that it does not take, spaces that the agents
            cannot use, or visible entries that the observation does not have.
    """
    parameters = EnvironmentParameters(level, max_episode_steps=max_episode_steps, atari=atari)
    return checked(_make_level(parameters, kwargs), visible_entries)


def _make_level(parameters: EnvironmentParameters, kwargs: dict[str, Any], num_envs: int = 1) -> Any:
    level, atari, max_episode_steps = parameters.level, parameters.atari, parameters.max_episode_steps
    if parameters.by_env_fn:
        raise TfsacError(
            f"the environment {parameters.name} was made by a Python function: pass it again as env_fn=..., or "
            "register the environment with Gymnasium and train with --level=MODULE:ID"
        )
    if atari is not None and not level.startswith(ATARI):
        raise TfsacError(f"`atari` preprocesses Atari games, whose levels begin with {ATARI!r}, got {level!r}")
    advice = LEVELS
    try:
        if parameters.vectorization == "vector":
            advice = 'environment.vectorization="sync" steps its environments one by one'
            limit: dict[str, Any] = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
            return gym.make_vec(level, num_envs, "vector_entry_point", **limit, **kwargs)
        if level.startswith(PETTINGZOO):
            module = importlib.import_module(level.removeprefix(PETTINGZOO))
            team = Team(module.parallel_env(**kwargs))
            team.spec = EnvSpec(level)  # its name in messages
            return _limited(team, max_episode_steps)
        if level.startswith(ATARI):
            return _limited(_make_atari(level, atari, **kwargs), max_episode_steps)
        # `check` looks at the bounds; Gymnasium's checker would warn about every unbounded observation.
        return gym.make(level, max_episode_steps=max_episode_steps, disable_env_checker=True, **kwargs)
    except (gym.error.Error, ImportError, TypeError) as error:
        if isinstance(error, TypeError) and not kwargs:  # of its own code
            raise
        raise TfsacError(f"{level} cannot be made: {str(error).rstrip('.?')}; {advice}") from error


def _make_atari(level: str, atari: AtariPreprocessingParameters | None, **kwargs: Any) -> gym.Env:
    """Makes a game; preprocessed screens are `[screen, screen, frames]` bytes, the newest frame last, and raw ones
    `[210, 160, 3]`.
    """
    ale = importlib.import_module("ale_py")  # makes the levels known to gymnasium
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)  # its banner would be printed for every game
    skipping = {} if atari is None else {"frameskip": 1}  # the wrapper skips frames
    env = gym.make(level, disable_env_checker=True, **{**skipping, **kwargs})
    if atari is None:
        return env
    env = gym.wrappers.AtariPreprocessing(env, atari.noop_max, atari.frame_skip, atari.screen_size)
    env = gym.wrappers.FrameStackObservation(env, atari.num_stacked_frames)
    space = FrameStack(atari.screen_size, atari.screen_size, atari.num_stacked_frames)
    return gym.wrappers.TransformObservation(env, lambda frames: np.moveaxis(frames, 0, -1), space)


def checked(env: gym.Env, visible_entries: Sequence[int] | None = None) -> gym.Env:
    """Returns a `CheckedEnv` of an environment, with a flat mask of several actions; one whose spaces cannot be used is
    closed, with TfsacError.
    """
    try:
        env = _with_flat_mask(env)
        check(env)
        env = CheckedEnv(env)
        if visible_entries is None:
            return env
        space, indices = env.observation_space, list(visible_entries)
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1 or {*indices} - {*range(space.shape[0])}:
            requirement = f"must be indices of a vector observation, got {visible_entries} of {space}"
            raise TfsacError(f"{name_of_environment(env)}: visible_entries {requirement}")
    except TfsacError:
        with contextlib.suppress(Exception):  # it may not be complete
            env.close()
        raise
    visible = gym.spaces.Box(space.low[indices], space.high[indices], dtype=space.dtype)
    return gym.wrappers.TransformObservation(env, lambda observation: np.asarray(observation)[indices], visible)


def _with_flat_mask(env: gym.Env) -> gym.Env:
    """Returns an environment whose mask, if it has the structure of the action, is one array instead."""
    space = with_flat_mask(env.observation_space, env.action_space)
    if space is env.observation_space:
        return env
    spec = hybrid_spec(env.action_space)
    return gym.wrappers.TransformObservation(
        env, lambda x: {**x, ACTION_MASK: flat_mask(x[ACTION_MASK], spec).astype(np.int8)}, space
    )


def _limited(env: gym.Env, max_episode_steps: int | None) -> gym.Env:
    return env if max_episode_steps is None else gym.wrappers.TimeLimit(env, max_episode_steps)
