"""Checks of spaces and of what an environment returns."""

from __future__ import annotations

import copy
import functools
import inspect
import keyword
import re
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.environments.spaces import STACKING, float32_bound, other_frames, spaces_by_key
from tfsac.types import ACTION_MASK, AGENT_STATE, input_name

ACTIONS = (
    "actions are a Box `(A,)` of floats or a Discrete; of a team of P agents, "
    "whose observations have the key 'agent_state', a Box `(P, A)` or a MultiDiscrete of P equal sizes"
)


KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
TAKEN = ("action", "noise", "self")  # other inputs of exported policies, and of Python's methods
SPACES = ("observation_space", "action_space")


class EnvironmentFailure(RuntimeError):
    """An environment raised, or returned something that cannot be learned from.

    Args:
        message: what is wrong, and what was received.
        environment: number of the one among several, where it is known.

    Attributes:
        what: failed, in a few words.
        problems: everything that is wrong with what the environment returned; the message is the first.
    """

    what = "An environment failed"

    def __init__(self, message: str, environment: int | None = None):
        super().__init__(message)
        self.environment, self.problems = environment, [message]


def _check_has_space(env: gym.Env, name: str) -> None:
    space = getattr(env, name, None)
    if not isinstance(space, gym.Space):
        level = env.spec.id if env.spec else type(env.unwrapped).__name__
        kind = "none" if space is None else f"{type(space).__module__}.{type(space).__name__}"
        raise ValueError(f"{level}: an environment has an attribute {name}, one of gymnasium.spaces. Received: {kind}")


def check(env: gym.Env) -> None:
    """Refuses environments whose spaces the soft actor-critic agents cannot use.

    Raises:
        ValueError: actions other than a bounded box of floats or discrete actions (for each agent of a team),
            observations that are not boxes or dicts of boxes, an action mask or a team whose shapes do not fit.
    """
    for check_one in _checks(env):
        check_one()


def problems_of_spaces(env: gym.Env) -> list[str]:
    """Returns everything for which `check` refuses an environment, not only the first."""
    problems = []
    for check_one in _checks(env):
        try:
            check_one()
        except ValueError as error:
            problems.append(str(error))
    return problems


def _checks(env: gym.Env) -> Iterator[Callable[[], None]]:
    """Yields functions that each raise ValueError for one kind of problem; what others depend on comes first."""
    yield from (functools.partial(_check_has_space, env, name) for name in SPACES)
    if not all(isinstance(getattr(env, name, None), gym.Space) for name in SPACES):
        return
    name = env.spec.id if env.spec else type(env.unwrapped).__name__
    yield functools.partial(_refuse_running_statistics, name, env)
    spaces = dict(spaces_by_key(env.observation_space))
    team: tuple[int, ...] = ()  # how every shape begins
    if AGENT_STATE in spaces:
        state = spaces[AGENT_STATE]
        yield functools.partial(_check_agent_state, name, state)
        team = (state.shape or ())[:1]
    yield functools.partial(_check_action, name, env.action_space, team)
    if ACTION_MASK in spaces:
        yield functools.partial(_check_mask_space, name, spaces.pop(ACTION_MASK), env.action_space, team)
    if not spaces:
        yield functools.partial(_refuse_empty, name, env.observation_space)
    yield from (functools.partial(_check_observation, name, key, space, team) for key, space in spaces.items())
    yield functools.partial(
        _check_names, name, [key for key in spaces_by_key(env.observation_space) if isinstance(key, str) and key]
    )


def _check_agent_state(name: str, state: gym.Space[Any]) -> None:
    if not isinstance(state, gym.spaces.Box) or len(state.shape) < 2:
        raise ValueError(f"{name}: 'agent_state' is a Box `(P, ...)` of P agents' observations. Received: {state}")


def _refuse_empty(name: str, observation: Any) -> None:
    if ACTION_MASK in spaces_by_key(observation):
        raise ValueError(f"{name}: an agent must see more than its action mask. Received: {observation}")
    raise ValueError(f"{name}: the observation is empty. Received: {observation}")


def _check_action(name: str, action: gym.Space[Any], team: tuple[int, ...]) -> None:
    if isinstance(action, gym.spaces.Box):
        return _check_box(name, action, team)
    if isinstance(action, gym.spaces.Discrete) and not team:
        sizes, starts = np.array([action.n]), np.array([action.start])
    elif isinstance(action, gym.spaces.MultiDiscrete) and team:
        if action.shape != team:
            raise ValueError(
                f"{name}: a team of {team[0]} agents needs a MultiDiscrete of the shape {team}. Received: {action}"
            )
        sizes, starts = action.nvec, action.start
        if len(set(sizes)) > 1 or len(set(starts)) > 1:
            raise ValueError(f"{name}: agents that share a policy have the same discrete actions. Received: {action}")
    else:
        raise ValueError(f"{name}: {ACTIONS}. Received: {action}")
    if sizes[0] < 2:
        raise ValueError(f"{name}: discrete actions are at least two. Received: {action}")
    if not -(2**31) <= int(starts[0]) <= 2**31 - int(sizes[0]):
        raise ValueError(f"{name}: discrete actions are numbered in int32, as exports do. Received: {action}")
    return None


def _check_box(name: str, action: gym.spaces.Box, team: tuple[int, ...]) -> None:
    if len(action.shape) != len(team) + 1 or action.shape[:-1] != team or action.shape[-1] == 0:
        wanted = (
            f"{team[0]} rows, one of each agent, of at least one number" if team else "a vector of at least one number"
        )
        raise ValueError(f"{name}: actions must be {wanted}. Received: {action}")
    if not np.issubdtype(action.dtype, np.floating) or action.dtype.itemsize < 4:
        raise ValueError(
            f"{name}: actions must be floats of 32 bits or more, such as Box(low, high, dtype=np.float32), or "
            f"Discrete. Received: {action}"
        )
    for side, bounds in (("low", action.low), ("high", action.high)):
        bad = np.argwhere(~np.isfinite(bounds))
        if bad.size:
            raise ValueError(
                f"{name}: actions need finite bounds: give them to the action space, leave out ClipAction, which "
                "removes them, or wrap the environment in "
                "gymnasium.wrappers.TransformAction(env, lambda action: action, gymnasium.spaces.Box(low, high)). "
                f"Received: {side}={bounds[tuple(bad[0])]} in dimension {_place(bad[0])}"
            )
    with np.errstate(over="ignore"):
        wide = np.argwhere(~np.isfinite(np.float32(action.high) - np.float32(action.low)))
    if wide.size:
        i = tuple(wide[0])
        raise ValueError(
            f"{name}: high - low of an action must fit into a float32, below 3.4e38. "
            f"Received: low={action.low[i]}, high={action.high[i]} in dimension {_place(wide[0])}"
        )
    if team and not ((action.low == action.low[0]).all() and (action.high == action.high[0]).all()):
        raise ValueError(f"{name}: agents that share a policy have the same bounds. Received: {action}")
    empty = np.argwhere(float32_bound(action.low, 1) >= float32_bound(action.high, -1))
    if empty.size:
        i = tuple(empty[0])
        raise ValueError(
            f"{name}: each action needs low < high, also in float32. "
            f"Received: low={action.low[i]}, high={action.high[i]} in dimension {_place(empty[0])}"
        )


def _place(index: np.ndarray) -> str:
    return f"{index[-1]}" if len(index) == 1 else f"{index[-1]} of agent {index[0]}"


def _check_mask_space(name: str, mask: Any, action: Any, team: tuple[int, ...]) -> None:
    if isinstance(action, gym.spaces.Box):
        raise ValueError(f"{name}: 'action_mask' would have no effect on real actions. Received: {action}")
    if not isinstance(action, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        return  # which is refused itself
    num_actions = action.n if isinstance(action, gym.spaces.Discrete) else action.nvec[0]
    expected = (*team, int(num_actions))
    if mask.shape != expected:
        raise ValueError(
            f"{name}: 'action_mask' has an entry for each action, shape {expected}. Received: {mask.shape}, {mask}"
        )
    binary = isinstance(mask, gym.spaces.MultiBinary)
    if isinstance(mask, gym.spaces.Box):
        binary = bool((mask.low == 0).all() and (mask.high == 1).all())
    if isinstance(mask, gym.spaces.MultiDiscrete):
        binary = bool((mask.nvec == 2).all() and (mask.start == 0).all())
    if not binary:
        raise ValueError(f"{name}: 'action_mask' holds 0 and 1, such as MultiBinary({expected}). Received: {mask}")


def _check_observation(name: str, key: str, space: gym.Space[Any], team: tuple[int, ...]) -> None:
    if not isinstance(space, gym.spaces.Box):
        raise ValueError(
            f"{name}: observations must be a Box or a Dict of boxes; "
            f"gymnasium.wrappers.FlattenObservation turns others into a vector. Received: {space} for {key!r}"
        )
    if not (isinstance(key, str) and KEY.fullmatch(key)) or input_name(key).lower() in TAKEN or keyword.iskeyword(key):
        raise ValueError(
            f"{name}: TensorFlow names the inputs of a policy by the keys of its observations, "
            "so these are of letters from a to z, digits and '_', "
            "'-' or '.', begin with a letter or a digit and are not 'action', 'noise', 'self' or a keyword of Python; "
            f"rename them with gymnasium.wrappers.TransformObservation. Received: {key!r}"
        )
    if 0 in space.shape:
        raise ValueError(f"{name}: observation {key!r} has no entries. Received: {space}")
    if np.isnan(space.low).any() or np.isnan(space.high).any():
        raise ValueError(f"{name}: observation {key!r} has NaN bounds. Received: {space}")
    if team and (len(space.shape) < 2 or space.shape[:1] != team):
        raise ValueError(
            f"{name}: observation {key!r} has a row for each of the {team[0]} agents of 'agent_state', "
            f"shape ({team[0]}, ...). Received: {space}"
        )


def _check_names(name: str, keys: list[str]) -> None:
    first: dict[str, str] = {}
    for key in keys:
        other = first.setdefault(input_name(key).lower(), key)
        if other != key:
            raise ValueError(
                f"{name}: TensorFlow names the inputs of a policy by the keys of its observations, with '_' in place "
                f"of '-' and '.' and without regard to case, so {other!r} and {key!r} have the same name; rename one "
                f"with gymnasium.wrappers.TransformObservation. Received: {keys}"
            )


def _refuse_running_statistics(name: str, env: gym.Env) -> None:
    """Refuses wrappers whose statistics every environment would have for itself, and no checkpoint or export."""
    while isinstance(env, gym.Wrapper):
        kind, kinds = type(env).__name__, (gym.wrappers.NormalizeObservation, gym.wrappers.NormalizeReward)
        if isinstance(env, kinds) and env.update_running_mean:
            instead = "observation_normalization" if isinstance(env, kinds[0]) else "reward_normalization"
            raise ValueError(
                f"{name}: neither evaluations, checkpoints nor exports have the running statistics of this wrapper; "
                f"take it away and set environment.filters.{instead}=true. Received: {kind}"
            )
        env = env.env


def time_limit_of(env: gym.Env) -> int | None:
    """Returns the steps of the shortest `TimeLimit` around an environment."""
    limits = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            limits.append(env._max_episode_steps)
        env = env.env
    return min(limits, default=None)


def longest_episode(env: gym.Env) -> int | None:
    """Returns the steps after which an environment's registration or one of its wrappers ends its episodes; None
    where no such limit is known.
    """
    in_another_process: int | None = getattr(env, "time_limit", None)
    return (env.spec and env.spec.max_episode_steps) or in_another_process or time_limit_of(env)


class CheckedMasks(gym.ObservationWrapper):
    """Refuses masks of a wrong shape and entries other than 0 and 1.

    This happens beside the environment, because the buffers of vector environments broadcast and convert numbers.
    """

    def observation(self, observation: Any) -> Any:
        """Returns the observation as it is.

        Raises:
            EnvironmentFailure: its mask does not fit.
        """
        check_mask(observation[ACTION_MASK], self.observation_space[ACTION_MASK].shape)  # type: ignore[index]
        return observation


class CheckedStacks(gym.Wrapper):
    """Refuses stacks of frames that memories, which store each frame once, could not stack again."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self.before: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode.

        Raises:
            EnvironmentFailure: the frames of a stack differ.
        """
        result = self.env.reset(seed=seed, options=options)
        self.before = None
        self._check(result[0])
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Makes a step.

        Raises:
            EnvironmentFailure: a stack did not move by one frame.
        """
        result = self.env.step(action)
        self._check(result[0])
        return result

    def _check(self, observation: Any) -> None:
        if (key := other_frames(self.observation_space, self.before, observation)) is not None:
            raise EnvironmentFailure(f"observation {key!r} is a FrameStack: {STACKING}. Received: other frames")
        self.before = copy.deepcopy(observation)  # an environment may write into the same array again


def takes_render_mode(kind: type) -> bool:
    """Returns whether a class's constructor takes a render_mode; True where nothing is known of it."""
    try:
        parameters = inspect.signature(kind).parameters.values()
    except ValueError:  # of a class that is not written in Python
        return True
    return any(one.name == "render_mode" or one.kind is one.VAR_KEYWORD for one in parameters)


def check_mask(mask: Any, shape: tuple[int, ...]) -> None:
    """Refuses a mask of another shape, and entries other than 0 and 1.

    Raises:
        EnvironmentFailure: it does not fit.
    """
    array = np.asarray(mask)
    if array.shape != shape:
        raise EnvironmentFailure(f"'action_mask' must have the shape {shape}. Received: {array.shape}")
    if not np.isin(array, (0, 1)).all():
        raise EnvironmentFailure(f"'action_mask' must hold 0 and 1. Received: {array}")


def check_masks(
    observation: dict[str, np.ndarray], level: str, steps: int, ended: np.ndarray | None = None, first: int = 0
) -> None:
    """Refuses observations `[E, ...]` that are to be acted on but have a mask without a valid action.

    Args:
        observation: by key; without an "action_mask" every action is valid.
        level: of the environments.
        steps: made so far.
        ended: `[E]`, where the task ended: no action follows, so none need be valid.
        first: number of the first of these environments in the run.

    Raises:
        EnvironmentFailure: names the environment, the agent of a team and the step.
    """
    if ACTION_MASK not in observation:
        return
    mask = observation[ACTION_MASK]
    stuck = np.asarray(~mask.any(axis=-1))
    if ended is not None:
        stuck[ended] = False
    if stuck.any():
        where = np.argwhere(stuck)[0]
        agent = f", agent {where[1]}" if len(where) > 1 else ""
        raise EnvironmentFailure(
            f"{level}: 'action_mask' leaves no valid action (environment {first + where[0]}{agent}, step {steps}). "
            f"Received: {mask[tuple(where)].astype(int)}"
        )


def check_finite(observation: dict[str, Any], reward: np.ndarray, level: str, steps: int, first: int = 0) -> None:
    """Refuses observations `[E, ...]` and rewards `[E]` or `[E, D]` that are not finite.

    Args:
        observation, reward: of a step or reset.
        level, steps, first: see `check_masks`.

    Raises:
        EnvironmentFailure: names the environment and the step.
    """
    if not np.isfinite(reward).all():
        i = int(np.argwhere(~np.isfinite(reward))[0, 0])
        raise EnvironmentFailure(
            f"{level}: the reward must be finite (environment {first + i}, step {steps}). Received: {reward[i]}"
        )
    for key, value in observation.items():
        if value.dtype != np.uint8 and not np.isfinite(value).all():
            rows = value.reshape(len(value), -1)
            i, j = (int(x) for x in np.argwhere(~np.isfinite(rows))[0])
            raise EnvironmentFailure(
                f"{level}: observation {key!r} must be finite (environment {first + i}, step {steps}, entry {j}). "
                f"Received: {rows[i, j]}"
            )
