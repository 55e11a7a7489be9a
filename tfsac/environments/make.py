"""Making one environment from its level, with errors that say what to type."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.environments import atari as games
from tfsac.environments import teams
from tfsac.environments.check import SPACES, CheckedMasks, CheckedStacks, check, time_limit_of
from tfsac.environments.checked_returns import CheckedReturns, Notes
from tfsac.environments.env_fn import making, name_of_environment
from tfsac.environments.levels import ATARI, check_render_mode, check_version, import_module_of, why_not_made
from tfsac.environments.spaces import has_frame_stacks, spaces_by_key
from tfsac.environments.vector_rewards import VectorRewards, has_vector_rewards
from tfsac.parameters import BY_ENV_FN, AtariPreprocessingParameters, EnvironmentParameters
from tfsac.types import ACTION_MASK
from tfsac.user_code import message_of


class Maker:
    """Makes and checks environments that have the same spaces, also where it was sent to another process.

    Args:
        unchecked, visible_entries: make one; see `make`.

    Attributes:
        notes: what is said once of all these environments.
        made: environments that were made already, returned before others are made.
    """

    def __init__(self, unchecked: Callable[[], gym.Env], visible_entries: Sequence[int] | None):
        self.unchecked, self.visible_entries, self.notes = unchecked, visible_entries, Notes()
        self.spaces: dict[str, gym.Space[Any]] = {}  # of the first one
        self.made: list[gym.Env] = []

    def __call__(self) -> gym.Env:
        """Makes one environment; raises as `make` does, and ValueError for other spaces than those of the first."""
        return self.made.pop() if self.made else self.check(self.unchecked())

    def check(self, env: gym.Env) -> gym.Env:
        """Returns what `unchecked` made as training steps it; see `checked`."""
        env = checked(env, self.visible_entries, self.notes)
        for name in SPACES:
            space = getattr(env, name)
            if self.spaces.setdefault(name, space) != space:
                env.close()
                raise ValueError(
                    f"{name_of_environment(env)}: the environments of a run are stepped together and have the same "
                    f"{name}, here {self.spaces[name]}. Received: {space}"
                )
        return env


def maker(
    parameters: EnvironmentParameters, env_fn: Callable[[], gym.Env] | None = None, to_play: bool = False
) -> Maker:
    """Returns what makes and checks environments.

    Args:
        parameters: their level, time limit, arguments, preprocessing and visible entries.
        env_fn: makes them instead of the level; only the time limit is added to it, and entries are hidden.
        to_play: whether a trained policy plays in it. What env_fn makes may then end its episodes earlier, and in place
            of a level it keeps its own time limit.
    """
    limit, visible = parameters.max_episode_steps, parameters.visible_entries
    if env_fn is None:
        level = functools.partial(make_unchecked, parameters.level, limit, parameters.atari, **parameters.kwargs)
        return Maker(level, visible)

    new = making(env_fn, parameters.evaluation != "separate" and parameters.num_envs == 1)

    def one() -> gym.Env:
        env = new()
        own = time_limit_of(env)
        if limit is not None and own is not None and own < limit and not to_play:
            env.close()
            raise ValueError(
                "What env_fn makes ends its episodes earlier than environment.max_episode_steps; lengthen it there, as "
                f"gymnasium.make(..., max_episode_steps={limit}) does. Received: max_episode_steps={limit}, and a "
                f"TimeLimit of {own}"
            )
        keeps_own = to_play and own is not None and not parameters.by_env_fn
        return env if keeps_own else _limited(env, limit)

    return Maker(one, visible)


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
        ValueError: no such level (naming the nearest), arguments that it does not take, spaces that the agents cannot
            use, or visible entries that the observation does not have.
        ImportError: a module or a package is missing; the message has where it was searched for, or what installs it.
        UserCodeError: the environment's module or its constructor raised; the message has file and line.
    """
    return checked(make_unchecked(level, max_episode_steps, atari, **kwargs), visible_entries)


def make_unchecked(
    level: str,
    /,
    max_episode_steps: int | None = None,
    atari: AtariPreprocessingParameters | None = None,
    **kwargs: Any,
) -> gym.Env:
    """Makes one environment as `make` does, whether its spaces can be used or not."""
    if level.startswith(BY_ENV_FN):
        raise ValueError(
            f"The environment {level.removeprefix(BY_ENV_FN)} was made by a Python function, which no file holds. "
            "In Python, pass the function again as env_fn=... "
            "For the command line, register the environment with Gymnasium and train with --level=module:Id. "
            f"Received: {level!r}"
        )
    if atari is not None and not level.startswith(ATARI):
        raise ValueError(
            f"`atari` preprocesses Atari games, levels that begin with {ATARI!r}. For images of your own take "
            "the preset cart_pole_discrete_sac, or pendulum_twin_sac where actions are continuous; see "
            f"docs/images_and_atari.md. Received: {level!r}"
        )
    mode = kwargs.get("render_mode")
    if not isinstance(mode, str | None):
        raise ValueError(f"{level}: render_mode is a text, such as 'rgb_array'. Received: render_mode={mode!r}")
    try:
        if level.startswith(teams.PREFIX):
            env: gym.Env = _limited(teams.make_team(level, **kwargs), max_episode_steps)
        elif level.startswith(ATARI):
            env = _limited(games.make_atari(level, atari, **kwargs), max_episode_steps)
        else:
            if ":" in level:
                import_module_of(level)
            check_version(level)
            # The bounds are checked once, in `check`; gymnasium's checker would warn about every unbounded observation.
            env = gym.make(level, max_episode_steps=max_episode_steps, disable_env_checker=True, **kwargs)
        check_render_mode(env, level, mode)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if "Received: " in message_of(error):
            raise
        raise why_not_made(level, kwargs, error) from error
    return env


def checked(env: gym.Env, visible_entries: Sequence[int] | None = None, notes: Notes | None = None) -> gym.Env:
    """Returns an environment whose spaces can be used, which checks its action masks and stacks of frames, and sums
    several rewards a step.

    Args:
        env: as it was made.
        visible_entries: as in `make`.
        notes: says what the environment returns in another form than training takes; None for its own.

    Raises:
        ValueError: they cannot; the environment is closed.
    """
    try:
        check(env)
        several_rewards = has_vector_rewards(env)
        env = CheckedReturns(env, several_rewards, notes)
        if visible_entries is not None:
            env = _showing(env, visible_entries)
            check(env)
    except ValueError:
        with contextlib.suppress(Exception):  # it may not be whole
            env.close()
        raise
    if several_rewards:
        env = VectorRewards(env)
    if has_frame_stacks(env.observation_space):
        env = CheckedStacks(env)
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
