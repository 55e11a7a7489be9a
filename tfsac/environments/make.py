"""Making one environment from its level, with errors that say what to type."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.environments import atari as games
from tfsac.environments import teams
from tfsac.environments.check import CheckedMasks, check
from tfsac.environments.own import making
from tfsac.environments.spaces import spaces_by_key
from tfsac.environments.vector_rewards import VectorRewards, has_vector_rewards
from tfsac.parameters import BY_ENV_FN, AtariPreprocessingParameters, EnvironmentParameters
from tfsac.parameters.base import nearest
from tfsac.types import ACTION_MASK

# Which of tfsac's extras brings a missing package.
EXTRA_OF_PACKAGE = {
    "mujoco": "mujoco",
    "imageio": "mujoco",
    "Box2D": "box2d",
    "box2d": "box2d",
    "ale_py": "atari",
    "cv2": "atari",
    "mpe2": "multi-agent",
    "pettingzoo": "multi-agent",
    "gymnasium_robotics": "robotics",
    "mo_gymnasium": "multi-objective",
}


def maker(parameters: EnvironmentParameters, env_fn: Callable[[], gym.Env] | None = None) -> Callable[[], gym.Env]:
    """Returns a function that makes and checks one environment.

    Args:
        parameters: its level, time limit, arguments, preprocessing and visible entries.
        env_fn: makes the environment instead of the level; only the time limit is added to it, and entries are hidden.
    """
    limit, visible = parameters.max_episode_steps, parameters.visible_entries
    if env_fn is None:
        return functools.partial(make, parameters.level, limit, parameters.atari, visible, **parameters.kwargs)

    new = making(env_fn)

    def one() -> gym.Env:
        return checked(_limited(new(), limit), visible)

    return one


def make(
    level: str,
    max_episode_steps: int | None = None,
    atari: AtariPreprocessingParameters | None = None,
    visible_entries: Sequence[int] | None = None,
    **kwargs: Any,
) -> gym.Env:
    """Makes and checks one environment.

    Args:
        level: a Gymnasium environment id, such as "Pendulum-v1", "ALE/Pong-v5" or "mo_gymnasium:mo-hopper-v5", or
            "pettingzoo:" and a module, such as "pettingzoo:mpe2.simple_spread_v3".
        max_episode_steps: time limit in steps instead of the level's own; those that Atari games (in frames) and PettingZoo
            environments keep themselves stay as well.
        atari: preprocessing of an Atari game.
        visible_entries: indices of the entries of a vector observation that are shown, in this order; None shows all.
        **kwargs: passed to `gymnasium.make`, or to the PettingZoo environment.

    Raises:
        ValueError: no such level (naming the nearest), arguments that it does not take, spaces that the agents cannot
            use, or visible entries that the observation does not have.
        ImportError: a package is missing; the message has the command that installs it.
    """
    if level.startswith(BY_ENV_FN):
        raise ValueError(
            f"The environment {level.removeprefix(BY_ENV_FN)} was made by a Python function, which no file holds. In Python, pass the "
            "function again as env_fn=... For the command line, register the environment with Gymnasium and train with "
            f"--level=module:Id. Received: {level!r}"
        )
    if atari is not None and not level.startswith(games.PREFIX):
        raise ValueError(f"`atari` preprocesses Atari games, levels that begin with {games.PREFIX!r}. Received: {level!r}")
    try:
        if level.startswith(teams.PREFIX):
            env: gym.Env = _limited(teams.make_team(level, **kwargs), max_episode_steps)
        elif level.startswith(games.PREFIX):
            env = _limited(games.make_atari(level, atari, **kwargs), max_episode_steps)
        else:
            # The bounds are checked once, in `check`; gymnasium's checker would warn about every unbounded observation.
            env = gym.make(level, max_episode_steps=max_episode_steps, disable_env_checker=True, **kwargs)
    except gym.error.DependencyNotInstalled as error:
        raise _missing_package(level, error) from error
    except gym.error.Error as error:  # unknown, malformed or withdrawn ids
        if level in gym.registry:
            raise ValueError(f"{level} cannot be made: {error}. Received: {kwargs}") from error
        close = difflib.get_close_matches(level, list(gym.registry), n=1, cutoff=0.4)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        if re.fullmatch(r"[a-z]\w*(\.\w+)+", level):
            hint = f" Did you mean {teams.PREFIX + level!r}?"
        raise ValueError(f"Gymnasium has no environment of this id.{hint} Received: {level!r}") from error
    except ImportError as error:
        raise _missing_package(level, error) from error
    except TypeError as error:
        raise ValueError(f"{level} does not take these arguments: {error}. Received: {kwargs}") from error
    return checked(env, visible_entries)


def checked(env: gym.Env, visible_entries: Sequence[int] | None = None) -> gym.Env:
    """Returns an environment whose spaces can be used, which checks its action masks and sums several rewards a step.

    Args:
        env: as it was made.
        visible_entries: as in `make`.

    Raises:
        ValueError: they cannot; the environment is closed.
    """
    try:
        if visible_entries is not None:
            env = _showing(env, visible_entries)
        check(env)
    except ValueError:
        env.close()
        raise
    if has_vector_rewards(env):
        env = VectorRewards(env)
    return CheckedMasks(env) if ACTION_MASK in spaces_by_key(env.observation_space) else env


def _showing(env: gym.Env, entries: Sequence[int]) -> gym.Env:
    space, shown = env.observation_space, list(entries)
    if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
        raise ValueError(f"visible_entries are of an observation that is a vector, a Box `(O,)`. Received: {space}")
    if not set(entries) <= set(range(space.shape[0])):
        raise ValueError(f"visible_entries of {space} are from 0 to {space.shape[0] - 1}. Received: {entries}")
    visible = gym.spaces.Box(space.low[shown], space.high[shown], dtype=space.dtype)
    return gym.wrappers.TransformObservation(env, lambda observation: np.asarray(observation)[shown], visible)


def _limited(env: gym.Env, max_episode_steps: int | None) -> gym.Env:
    return env if max_episode_steps is None else gym.wrappers.TimeLimit(env, max_episode_steps)


def _missing_package(level: str, error: Exception) -> ImportError:
    cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    package = getattr(cause, "name", None) or str(error).split()[0].strip("`'\"")
    known = next((p for p in EXTRA_OF_PACKAGE if p in f"{package} {error}"), None)
    command = f"pip install 'tfsac[{EXTRA_OF_PACKAGE[known]}]'" if known else f"pip install {package}"
    hint = "" if known else nearest(package, EXTRA_OF_PACKAGE)
    return ImportError(f"{level} needs a package that is not installed ({error}); type: {command}.{hint} Received: {level!r}")
