"""Making environments from a level or from a function of the user."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from tfsac.environments.actions import SEVERAL, flat_mask, hybrid_spec
from tfsac.environments.checked_env import CheckedEnv, check, time_limit_of
from tfsac.environments.pettingzoo_team import Team
from tfsac.environments.spaces import FrameStack, name_of_environment, spaces_by_key
from tfsac.errors import TfsacError
from tfsac.parameters import AtariPreprocessingParameters, EnvironmentParameters
from tfsac.types import ACTION_MASK

ATARI, PETTINGZOO = "ALE/", "pettingzoo:"  # the beginning of these levels
LEVELS = "a level of your own is MODULE:ID; pip install 'tfsac[EXTRA]' brings packages of others (atari, mujoco, ...)"


class Maker:
    """Makes and checks environments that have the same spaces, also where it was sent to another process.

    Args:
        parameters: of the environments.
        env_fn: makes them instead of the level; only the time limit is added to it, and entries are hidden.
        to_play: a trained policy acts in it: what env_fn makes in place of a level keeps its own time limit.

    Attributes:
        prepared: environments that were made already, returned before others are made.
    """

    def __init__(
        self, parameters: EnvironmentParameters, env_fn: Callable[[], gym.Env] | None = None, to_play: bool = False
    ):
        self.parameters, self.env_fn, self.to_play = parameters, env_fn, to_play
        self.spaces: dict[str, gym.Space[Any]] = {}  # of the first one
        self.prepared: list[gym.Env] = []
        self.newest: gym.Env | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Maker, (self.parameters, self.env_fn, self.to_play), {"spaces": self.spaces}

    def unchecked(self) -> gym.Env:
        """Makes one environment, without checks."""
        parameters = self.parameters
        if self.env_fn is None:
            return _make_level(parameters, parameters.kwargs)
        env = self.env_fn()
        keeps_own_limit = self.to_play and not parameters.by_env_fn and time_limit_of(env) is not None
        return env if keeps_own_limit else _limited(env, parameters.max_episode_steps)

    def __call__(self) -> gym.Env:
        """Makes one environment.

        Raises:
            TfsacError: as `make`; or it is the same one again, or has other spaces than the first.
        """
        if self.prepared:
            return self.prepared.pop()
        env = self.unchecked()
        one_at_a_time = self.parameters.evaluation != "separate" and self.parameters.num_envs == 1
        if env.unwrapped is self.newest and not one_at_a_time:
            raise TfsacError(
                "env_fn must return a new environment at each call, got the same one twice; environment.evaluation is "
                '"shared" or "none" for one that exists once'
            )
        self.newest = env.unwrapped
        env = checked(env, self.parameters.visible_entries)
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


def _make_level(parameters: EnvironmentParameters, kwargs: dict[str, Any]) -> gym.Env:
    level, atari, max_episode_steps = parameters.level, parameters.atari, parameters.max_episode_steps
    if parameters.by_env_fn:
        raise TfsacError(
            f"the environment {parameters.name} was made by a Python function: pass it again as env_fn=..., or "
            "register the environment with Gymnasium and train with --level=MODULE:ID"
        )
    if atari is not None and not level.startswith(ATARI):
        raise TfsacError(f"`atari` preprocesses Atari games, whose levels begin with {ATARI!r}, got {level!r}")
    try:
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
        raise TfsacError(f"{level} cannot be made: {str(error).rstrip('.?')}; {LEVELS}") from error


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
    space, action = env.observation_space, env.action_space
    mask = spaces_by_key(space).get(ACTION_MASK)
    if not isinstance(mask, gym.spaces.Dict | gym.spaces.Tuple) or not isinstance(action, SEVERAL):
        return env
    spec, flat = hybrid_spec(action), gym.spaces.MultiBinary(gym.spaces.flatdim(mask))
    changed = gym.spaces.Dict({**spaces_by_key(space), ACTION_MASK: flat})
    return gym.wrappers.TransformObservation(
        env, lambda x: {**x, ACTION_MASK: flat_mask(x[ACTION_MASK], spec).astype(np.int8)}, changed
    )


def _limited(env: gym.Env, max_episode_steps: int | None) -> gym.Env:
    return env if max_episode_steps is None else gym.wrappers.TimeLimit(env, max_episode_steps)
