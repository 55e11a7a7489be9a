"""Making environments from a level or from a function of the user."""

from __future__ import annotations

import contextlib
import functools
import importlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.environments import pettingzoo_team
from tfsac.environments.check import SPACES, CheckedEnv, check, time_limit_of
from tfsac.environments.spaces import FrameStack, name_of_environment
from tfsac.errors import TfsacError
from tfsac.parameters import BY_ENV_FN, AtariPreprocessingParameters, EnvironmentParameters

ATARI = "ALE/"  # the beginning of these levels
LEVELS = "a level of your own is MODULE:ID; pip install 'tfsac[EXTRA]' brings packages of others (atari, mujoco, ...)"


class Maker:
    """Makes and checks environments that have the same spaces, also where it was sent to another process.

    Args:
        unchecked: makes one; see `make_unchecked`.
        visible_entries: see `make`.
        one_at_a_time: whether each is closed before the next is made, so that it may be the same one again.

    Attributes:
        prepared: environments that were made already, returned before others are made.
    """

    def __init__(
        self,
        unchecked: Callable[[], gym.Env],
        visible_entries: Sequence[int] | None = None,
        one_at_a_time: bool = False,
    ):
        self.unchecked, self.visible_entries, self.one_at_a_time = unchecked, visible_entries, one_at_a_time
        self.spaces: dict[str, gym.Space[Any]] = {}  # of the first one
        self.prepared: list[gym.Env] = []
        # By identity: environments may have an equality of their own, as dataclasses have.
        self.open_environments: weakref.WeakValueDictionary[int, gym.Env] = weakref.WeakValueDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        return Maker, (self.unchecked, self.visible_entries, self.one_at_a_time), {"spaces": self.spaces}

    def __call__(self) -> gym.Env:
        """Makes one environment.

        Raises:
            TfsacError: as `make`; or it is the same one again, or has other spaces than the first.
        """
        if self.prepared:
            return self.prepared.pop()
        env = self.unchecked()
        if self.open_environments.get(id(env.unwrapped)) is env.unwrapped and not self.one_at_a_time:
            raise TfsacError(
                "env_fn must return a new environment at each call, got the same one twice; environment.evaluation is "
                '"shared" or "none" for one that exists once'
            )
        self.open_environments[id(env.unwrapped)] = env.unwrapped
        env = checked(env, self.visible_entries)
        for name in SPACES:
            space = getattr(env, name)
            if self.spaces.setdefault(name, space) != space:
                env.close()
                raise TfsacError(f"environments must have the same {name}, got {self.spaces[name]} and {space}")
        return env


def maker(
    parameters: EnvironmentParameters, env_fn: Callable[[], gym.Env] | None = None, to_play: bool = False
) -> Maker:
    """Returns what makes and checks environments.

    Args:
        parameters: of the environments.
        env_fn: makes them instead of the level; only the time limit is added to it, and entries are hidden.
        to_play: a trained policy acts in it: what env_fn makes in place of a level keeps its own time limit.
    """
    limit = parameters.max_episode_steps
    if env_fn is None:
        make_env = functools.partial(make_unchecked, parameters.level, limit, parameters.atari, **parameters.kwargs)
    else:
        keeps_own_limit = to_play and not parameters.by_env_fn
        make_env = functools.partial(_call, env_fn, limit, keeps_own_limit)
    return Maker(make_env, parameters.visible_entries, parameters.evaluation != "separate" and parameters.num_envs == 1)


def _call(env_fn: Callable[[], gym.Env], limit: int | None, keeps_own_limit: bool) -> gym.Env:
    env = env_fn()
    return env if keeps_own_limit and time_limit_of(env) is not None else _limited(env, limit)


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
        level: a Gymnasium environment id, such as "Pendulum-v1" or "ALE/Pong-v5", MODULE:ID such as "my_env:MyEnv-v0",
            whose module is imported and registers the id, or "pettingzoo:" and a module, such as
            "pettingzoo:mpe2.simple_spread_v3".
        max_episode_steps: time limit in steps instead of the level's own; those that Atari games (in frames) and
            PettingZoo environments keep themselves stay as well.
        atari: preprocessing of an Atari game.
        visible_entries: indices of the entries of a vector observation that are shown, in this order; None shows all.
        **kwargs: passed to `gymnasium.make`, or to the PettingZoo environment.

    Raises:
        TfsacError: no such level, a package is missing, arguments that it does not take, spaces that the agents
            cannot use, or visible entries that the observation does not have.
    """
    return checked(make_unchecked(level, max_episode_steps, atari, **kwargs), visible_entries)


def make_unchecked(
    level: str,
    /,
    max_episode_steps: int | None = None,
    atari: AtariPreprocessingParameters | None = None,
    **kwargs: Any,
) -> gym.Env:
    """Makes one environment as `make` does, without checks."""
    if level.startswith(BY_ENV_FN):
        raise TfsacError(
            f"the environment {level.removeprefix(BY_ENV_FN)} was made by a Python function: pass it again as "
            "env_fn=..., or register the environment with Gymnasium and train with --level=MODULE:ID"
        )
    if atari is not None and not level.startswith(ATARI):
        raise TfsacError(f"`atari` preprocesses Atari games, whose levels begin with {ATARI!r}, got {level!r}")
    try:
        if level.startswith(pettingzoo_team.PREFIX):
            return _limited(pettingzoo_team.make_team(level, **kwargs), max_episode_steps)
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
    """Returns a `CheckedEnv` of an environment; one whose spaces cannot be used is closed, with TfsacError."""
    try:
        check(env)
        env = CheckedEnv(env)
        if visible_entries is None:
            return env
        space, indices = env.observation_space, list(visible_entries)
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1 or {*indices} - {*range(space.shape[0])}:
            wrong = f"must be indices of a vector observation, got {visible_entries} of {space}"
            raise TfsacError(f"{name_of_environment(env)}: visible_entries {wrong}")
    except TfsacError:
        with contextlib.suppress(Exception):  # it may not be complete
            env.close()
        raise
    visible = gym.spaces.Box(space.low[indices], space.high[indices], dtype=space.dtype)
    return gym.wrappers.TransformObservation(env, lambda observation: np.asarray(observation)[indices], visible)


def _limited(env: gym.Env, max_episode_steps: int | None) -> gym.Env:
    return env if max_episode_steps is None else gym.wrappers.TimeLimit(env, max_episode_steps)
