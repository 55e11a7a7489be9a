"""Create environments from a level or a user's function."""

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

EnvFn = Callable[..., gym.Env | VectorEnv]  # an env_fn: called without arguments, or with num_envs if it accepts it
ATARI, PETTINGZOO = "ALE/", "pettingzoo:"  # prefixes of these levels
LEVELS = "for a custom level use MODULE:ID; pip install 'tfsac[EXTRA]' installs other packages (robotics, atari, ...)"


class Maker:
    """Creates and checks environments, which must all have the same spaces, including those in other processes.

    Args:
        parameters: parameters of the environments.
        env_fn: creates the environments instead of the level; only the time limit and `visible_entries` are applied. It
            may return a `VectorEnv`, and take the number of its environments as `num_envs`.
        to_play: for acting with a trained policy: an env_fn in place of the level keeps its own time limit.

    Attributes:
        prepared: environments that already exist and are returned before new ones are created.
    """

    def __init__(self, parameters: EnvironmentParameters, env_fn: EnvFn | None = None, to_play: bool = False):
        self.parameters, self.env_fn, self.to_play = parameters, env_fn, to_play
        self.spaces: dict[str, gym.Space[Any]] = {}  # spaces of the first environment
        self.prepared: list[gym.Env] = []
        self.newest: gym.Env | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Maker, (self.parameters, self.env_fn, self.to_play), {"spaces": self.spaces}

    def unchecked(self, num_envs: int | None = 1) -> Any:
        """Creates one environment, or a `VectorEnv` of `num_envs`, without checks; None leaves the number to `env_fn`.

        Raises:
            TfsacError: parameters that a `VectorEnv` would ignore.
        """
        parameters = self.parameters
        if self.env_fn is None:
            # A copy, because an environment may modify its arguments.
            env: Any = _make_level(parameters, copy.deepcopy(parameters.kwargs), num_envs or 1)
        else:
            argument = inspect.signature(self.env_fn).parameters.get("num_envs")
            given = argument is not None and (num_envs or argument.default is argument.empty)
            env = self.env_fn(num_envs=num_envs or 1) if given else self.env_fn()
        is_vector = isinstance(env, VectorEnv)
        for name in ("atari", "visible_entries", *(["max_episode_steps"] if self.env_fn else [])):
            if is_vector and getattr(parameters, name) is not None:
                env.close()
                raise TfsacError(f"environment.{name} is not for a VectorEnv, which must implement it itself")
        if self.env_fn is None or is_vector:
            return env
        keeps_own_limit = self.to_play and not parameters.by_env_fn and time_limit_of(env) is not None
        return env if keeps_own_limit else _limited(env, parameters.max_episode_steps)

    def __call__(self) -> gym.Env:
        """Creates one environment.

        Raises:
            TfsacError: see `make`; also if `env_fn` returns the same environment again, or if its spaces differ.
        """
        return self.prepared.pop() if self.prepared else self._checked(self.unchecked())

    def vector_env(self) -> VectorEnv | None:
        """Creates the `VectorEnv` for training, or returns None; an environment from `env_fn` is then in `prepared`.

        Raises:
            TfsacError: see `make`; also for parameters that do not fit the result of `env_fn`.
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
                "env_fn must return a new environment at each call, got the same one twice; for a single environment "
                'set environment.evaluation to "shared" or "none"'
            )
        self.newest = env.unwrapped
        env = checked(FirstEnvironment(env) if isinstance(env, VectorEnv) else env, self.parameters.visible_entries)
        for name in ("observation_space", "action_space"):
            space = getattr(env, name)
            if self.spaces.setdefault(name, space) != space:
                env.close()
                raise TfsacError(f"environments must have the same {name}, got {self.spaces[name]} and {space}")
        return env


maker = Maker  # alias: `maker(parameters)` returns a factory of environments


def make(
    level: str,
    /,
    max_episode_steps: int | None = None,
    atari: AtariPreprocessingParameters | None = None,
    visible_entries: Sequence[int] | None = None,
    **kwargs: Any,
) -> gym.Env:
    """Creates and checks one environment.

    Args:
        level: see `EnvironmentParameters`; such as "Pendulum-v1", or "my_env:MyEnv-v0", which imports the module that
            registers the id.
        max_episode_steps: time limit in steps instead of the level's own. Built-in limits of Atari games (in frames)
            and PettingZoo environments still apply.
        atari, visible_entries: see `EnvironmentParameters`.
        **kwargs: passed to `gymnasium.make`, or to the PettingZoo environment.

    Raises:
        TfsacError: unknown level, missing package, unsupported arguments, spaces that the agents cannot use, or
            visible entries that the observation does not have.
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
        raise TfsacError(f"`atari` preprocesses Atari games, whose levels start with {ATARI!r}, got {level!r}")
    advice = LEVELS
    try:
        if parameters.vectorization == "vector":
            advice = 'environment.vectorization="sync" steps its environments one by one'
            limit: dict[str, Any] = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
            return gym.make_vec(level, num_envs, "vector_entry_point", **limit, **kwargs)
        if level.startswith(PETTINGZOO):
            module = importlib.import_module(level.removeprefix(PETTINGZOO))
            team = Team(module.parallel_env(**kwargs))
            team.spec = EnvSpec(level)  # provides the name for messages
            return _limited(team, max_episode_steps)
        if level.startswith(ATARI):
            return _limited(_make_atari(level, atari, **kwargs), max_episode_steps)
        # `check` verifies the bounds; Gymnasium's checker would warn about every unbounded observation.
        return gym.make(level, max_episode_steps=max_episode_steps, disable_env_checker=True, **kwargs)
    except (gym.error.Error, ImportError, TypeError) as error:
        if isinstance(error, TypeError) and not kwargs:  # an error in the environment's own code
            raise
        raise TfsacError(f"{level} cannot be created: {str(error).rstrip('.?')}; {advice}") from error


def _make_atari(level: str, atari: AtariPreprocessingParameters | None, **kwargs: Any) -> gym.Env:
    """Creates an Atari game. Preprocessed screens are `[screen, screen, frames]` bytes, with the newest frame last; raw
    screens are `[210, 160, 3]`.
    """
    ale = importlib.import_module("ale_py")  # registers the levels with Gymnasium
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)  # suppresses a banner for every game
    skipping = {} if atari is None else {"frameskip": 1}  # the wrapper skips frames
    env = gym.make(level, disable_env_checker=True, **{**skipping, **kwargs})
    if atari is None:
        return env
    env = gym.wrappers.AtariPreprocessing(env, atari.noop_max, atari.frame_skip, atari.screen_size)
    env = gym.wrappers.FrameStackObservation(env, atari.num_stacked_frames)
    space = FrameStack(atari.screen_size, atari.screen_size, atari.num_stacked_frames)
    return gym.wrappers.TransformObservation(env, lambda frames: np.moveaxis(frames, 0, -1), space)


def checked(env: gym.Env, visible_entries: Sequence[int] | None = None) -> gym.Env:
    """Returns a `CheckedEnv` of an environment, with a flat mask for several actions. Closes the environment and raises
    TfsacError if its spaces cannot be used.
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
    """Returns an environment in which a mask with the structure of the action becomes one array."""
    space = with_flat_mask(env.observation_space, env.action_space)
    if space is env.observation_space:
        return env
    spec = hybrid_spec(env.action_space)
    return gym.wrappers.TransformObservation(
        env, lambda x: {**x, ACTION_MASK: flat_mask(x[ACTION_MASK], spec).astype(np.int8)}, space
    )


def _limited(env: gym.Env, max_episode_steps: int | None) -> gym.Env:
    return env if max_episode_steps is None else gym.wrappers.TimeLimit(env, max_episode_steps)
