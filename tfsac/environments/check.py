"""Which environments can be trained in, and a check of everything that they return."""

from __future__ import annotations

import keyword
import pathlib
import re
import traceback
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.environments.spaces import NUM_REWARDS, FrameStack, float32_bound, name_of_environment, spaces_by_key
from tfsac.errors import TfsacError
from tfsac.types import ACTION_MASK, AGENT_STATE, input_name

SPACES = ("observation_space", "action_space")
VECTOR_REWARD = "vector_reward"  # key of the info of a step
# Keys of info with the last observation of an episode, and wrappers that do not change observations.
FINAL_OBSERVATIONS = ("final_observation", "final_obs", "terminal_observation")
KEEP_OBSERVATIONS = (
    gym.ActionWrapper,
    gym.RewardWrapper,
    gym.wrappers.TimeLimit,
    gym.wrappers.OrderEnforcing,
    gym.wrappers.PassiveEnvChecker,  # which gymnasium.make adds
    gym.wrappers.RecordEpisodeStatistics,
)
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
RESERVED = ("action", "noise", "self")  # other inputs of exported policies, and of Python's methods


class EnvironmentFailure(TfsacError, RuntimeError):
    """An environment raised, or returned something that cannot be learned from.

    Args:
        message: what is wrong.
        environment: number of the one among several, where it is known.
    """

    def __init__(self, message: str, environment: int | None = None):
        super().__init__(message)
        self.environment = environment


def format_error(error: BaseException) -> str:
    """Returns an error in one line; one that an environment's own code raised with its type, and with file and line
    outside tfsac and installed packages where there is such a place.
    """
    if isinstance(error, EnvironmentFailure):
        return str(error)
    message = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    frames = traceback.extract_tb(error.__traceback__)
    libraries = ("site-packages", str(pathlib.Path(__file__).parents[1]))
    own = [frame for frame in frames if not any(folder in frame.filename for folder in libraries)]
    return f"{message} ({(own or frames)[-1].filename}, line {(own or frames)[-1].lineno})" if frames else message


def placed(error: Exception, level: str, place: str) -> EnvironmentFailure:
    """Returns a failure that also names the level and the place, such as "environment 1, step 640"."""
    return EnvironmentFailure(f"{level}: {format_error(error)} ({place})")


# -- spaces ------------------------------------------------------------------------------------------------------------


def check(env: gym.Env) -> None:
    """Refuses environments whose spaces the agents cannot use, with the first of `space_problems`."""
    for problem in space_problems(env):
        raise TfsacError(f"{name_of_environment(env)}: {problem}")


def space_problems(env: gym.Env) -> Iterator[str]:
    """Yields why an environment cannot be used: unbounded actions, observations that are not boxes, a mask or a team
    whose shapes do not fit, and wrappers that normalise with running statistics.
    """
    for name in SPACES:
        if not isinstance(getattr(env, name, None), gym.Space):
            yield f"an environment needs the attribute {name}, one of gymnasium.spaces"
            return
    yield from _running_statistics(env)
    action, spaces = env.action_space, dict(spaces_by_key(env.observation_space))
    state = spaces.get(AGENT_STATE)
    if state is not None and (not isinstance(state, gym.spaces.Box) or len(state.shape) < 2):
        yield f"'agent_state' must be a Box (P, ...) with the observations of P agents, got {state}"
    team = () if state is None else (state.shape or ())[:1]
    yield from _action_problems(action, team)
    mask = spaces.pop(ACTION_MASK, None)
    if mask is not None:
        yield from _mask_problems(mask, action, team)
    if not spaces:
        yield f"an observation needs more than its action mask, got {env.observation_space}"
    for key, space in spaces.items():
        if not isinstance(space, gym.spaces.Box):
            yield f"observation {key!r} must be a Box, got {space}; gymnasium.wrappers.FlattenObservation makes one"
        elif team and (len(space.shape) < 2 or space.shape[:1] != team):
            yield f"observation {key!r} of a team must have the shape ({team[0]}, ...), got {space}"
    names = [input_name(key).lower() if isinstance(key, str) and KEY.fullmatch(key) else "self" for key in spaces]
    if len({*names, ACTION_MASK}) <= len(names) or any(name in RESERVED or keyword.iskeyword(name) for name in names):
        yield (
            "keys of observations become names in exported policies, distinct in letters, digits and '_', and not "
            f"{', '.join(RESERVED)} or a keyword; rename {list(spaces)} with gymnasium.wrappers.TransformObservation"
        )


def _running_statistics(env: gym.Env) -> Iterator[str]:
    while isinstance(env, gym.Wrapper):
        for wrapper, filter_name in (("Observation", "observation"), ("Reward", "reward")):
            kind = getattr(gym.wrappers, f"Normalize{wrapper}")
            if isinstance(env, kind) and env.update_running_mean:
                instead = f"environment.filters.{filter_name}_normalization=true"
                yield f"exports lack the running statistics of {kind.__name__}; remove it and set {instead}"
        env = env.env


def _action_problems(action: gym.Space[Any], team: tuple[int, ...]) -> Iterator[str]:
    if isinstance(action, gym.spaces.Box):
        if len(action.shape) != len(team) + 1 or action.shape[:-1] != team or action.shape[-1] == 0:
            yield f"actions must be a Box of the shape ({', '.join(map(str, (*team, 'A')))}), got {action}"
        elif not np.issubdtype(action.dtype, np.floating):
            yield f"actions must be floats, such as Box(low, high, dtype=np.float32), or Discrete, got {action}"
        else:
            low, high = float32_bound(action.low, 1), float32_bound(action.high, -1)
            wrong = np.argwhere(~(np.isfinite(action.low) & np.isfinite(action.high) & (low < high)))
            if wrong.size:
                i = tuple(map(int, wrong[0]))
                found = (
                    f"{action.low[i]} and {action.high[i]} at {list(i)}; gymnasium.wrappers.TransformAction sets others"
                )
                yield f"actions need finite bounds with low < high, got {found}"
    elif isinstance(action, gym.spaces.MultiDiscrete) and team:
        if action.shape != team or len(set(action.nvec)) > 1 or len(set(action.start)) > 1:
            yield f"a team of {team[0]} agents needs a MultiDiscrete of as many equal sizes and starts, got {action}"
    elif not isinstance(action, gym.spaces.Discrete) or team:
        yield (
            "actions must be a Box (A,) of floats or a Discrete; for a team of P agents, with the key 'agent_state', a "
            f"Box (P, A) or a MultiDiscrete of P equal sizes, got {action}"
        )
    elif int(action.start) + int(action.n) > 2**31:
        yield f"discrete actions must fit into int32, as exports number them, got {action}"


def _mask_problems(mask: Any, action: Any, team: tuple[int, ...]) -> Iterator[str]:
    if not isinstance(action, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        yield f"'action_mask' needs discrete actions, got {action}"
        return
    expected = (*team, int(action.n if isinstance(action, gym.spaces.Discrete) else action.nvec[0]))
    if mask.shape != expected:
        yield f"'action_mask' must have an entry for each action, shape {expected}, got {mask}"


def time_limit_of(env: gym.Env) -> int | None:
    """Returns the steps of the shortest `TimeLimit` around an environment."""
    limits = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            limits.append(env._max_episode_steps)
        env = env.env
    return min(limits, default=None)


def longest_episode(env: gym.Env) -> int | None:
    """Returns the steps after which an environment's registration or one of its wrappers ends its episodes, or None."""
    return (env.spec and env.spec.max_episode_steps) or time_limit_of(env)


# -- what reset and step return ----------------------------------------------------------------------------------------


class CheckedEnv(gym.Wrapper):
    """Refuses observations, masks and stacks of frames that arrays would take in silence; makes rewards floats.

    Of D rewards a step the sum is the reward, and float32 `info["vector_reward"]` `[D]` has them all. Where an
    environment resets itself in the last step of an episode, the last observation comes from info.

    Args:
        env: whose spaces `check` accepts.
    """

    def __init__(self, env: gym.Env):
        super().__init__(env)
        spaces = spaces_by_key(env.observation_space)
        self.several_keys = isinstance(env.observation_space, gym.spaces.Dict)
        self.parts: dict[str, tuple[Any, Any]] = {key: (space.shape, space.dtype) for key, space in spaces.items()}
        self.stacks = [key for key, space in spaces.items() if isinstance(space, FrameStack)]
        self.frames: dict[str, np.ndarray] = {}  # the stacks before this step
        self.final: Any = None  # the last observation of an episode that info had in the step before
        self.rewards_shape = _rewards_shape(env)
        if self.rewards_shape:
            self.metadata = {**(env.metadata or {}), NUM_REWARDS: self.rewards_shape[0]}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; raises EnvironmentFailure for an observation that does not fit its space."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.frames.clear()
        self._check(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Makes a step; raises EnvironmentFailure also for a reward that is not one number."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        terminated, truncated = bool(terminated), bool(truncated)
        info = dict(info)  # the environment may change its own later
        earlier, self.final = self.final, None
        for key in FINAL_OBSERVATIONS:
            if (value := info.pop(key, None)) is not None:
                self.final = value
                if (terminated or truncated) and value is not earlier:  # else it is of an episode before
                    observation = self._taken_from_info(key, value)
        self._check(observation)
        if self.rewards_shape or type(reward) is not float:
            array = np.array(reward, np.float32 if self.rewards_shape else np.float64)
            if array.shape != self.rewards_shape if self.rewards_shape else array.size != 1:
                expected = f"of the shape {self.rewards_shape}" if self.rewards_shape else "one number"
                raise EnvironmentFailure(f"the reward must be {expected}, got the shape {array.shape}")
            if self.rewards_shape:
                info[VECTOR_REWARD] = array
            reward = float(array.sum())
        return observation, reward, terminated, truncated, info

    def _taken_from_info(self, key: str, value: Any) -> Any:
        layer = self.env
        while isinstance(layer, gym.Wrapper):
            if not (isinstance(layer, KEEP_OBSERVATIONS) or hasattr(layer, "keeps_observations")):
                wrapper = f"the wrapper {type(layer).__name__} has not seen the last observation, info[{key!r}]"
                raise EnvironmentFailure(f"{wrapper}: step must return it, and leave the reset to tfsac")
            layer = layer.env
        warnings.warn(f"the last observation of an episode is taken from info[{key!r}]", RuntimeWarning, stacklevel=3)
        return value.item() if isinstance(value, np.ndarray) and value.dtype == object else value

    def _check(self, observation: Any) -> None:
        given = observation if self.several_keys else {"observation": observation}
        if not isinstance(given, dict) or given.keys() != self.parts.keys():
            keys = sorted(given) if isinstance(given, dict) else type(given).__name__
            raise EnvironmentFailure(f"an observation must be a dict with the keys {sorted(self.parts)}, got {keys}")
        for key, (shape, dtype) in self.parts.items():
            part = given[key]
            if type(part) is not np.ndarray or part.dtype != dtype or part.shape != shape:
                part = np.asarray(part)
                if part.shape != shape or not np.can_cast(part.dtype, dtype, "same_kind"):
                    found = f"got {part.shape} and {part.dtype}"
                    raise EnvironmentFailure(
                        f"observation {key!r} must have the shape {shape} and dtype {dtype}, {found}"
                    )
                if dtype.kind in "iu" and (part.astype(dtype) != part).any():  # it would wrap around
                    raise EnvironmentFailure(f"observation {key!r} has numbers that its dtype {dtype} cannot hold")
            if key == ACTION_MASK and not ((part == 0) | (part == 1)).all():
                raise EnvironmentFailure(f"'action_mask' must contain 0 and 1, got {part}")
        for key in self.stacks:
            new, old = np.array(given[key]), self.frames.get(key)
            if not ((new == new[..., -1:]).all() if old is None else np.array_equal(new[..., :-1], old[..., 1:])):
                rule = "a reset must repeat its frame, and a step must drop the first frame and add one last"
                raise EnvironmentFailure(f"observation {key!r} is no FrameStack: {rule}")
            self.frames[key] = new


def _rewards_shape(env: gym.Env) -> tuple[int, ...]:
    """Returns `(D,)` where a step returns D rewards, as MO-Gymnasium's do, else `()`."""
    if NUM_REWARDS in (env.metadata or {}) or not env.has_wrapper_attr("reward_space"):  # summed already, or one
        return ()
    space = env.get_wrapper_attr("reward_space")
    return space.shape if isinstance(space, gym.spaces.Box) and len(space.shape) == 1 else ()


def check_finite(observation: Any, reward: Any) -> None:
    """Raises EnvironmentFailure for NaN or infinity in observations (`[E, ...]`, perhaps by key) and rewards."""
    parts = observation if isinstance(observation, Mapping) else {"observation": observation}
    for name, value in (("the reward", reward), *((f"observation {key!r}", part) for key, part in parts.items())):
        array = np.asarray(value)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            i = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
            raise EnvironmentFailure(f"{name} must be finite, got {array[i]}", i[0] if i else None)


def check_masks(observation: Mapping[str, np.ndarray], ended: np.ndarray | bool = False) -> None:
    """Raises EnvironmentFailure for observations `[E, ...]` whose mask allows no action, but where they `ended`."""
    stuck = ~observation[ACTION_MASK].any(-1)
    stuck &= ~np.reshape(ended, (-1,) + (1,) * (stuck.ndim - 1))
    for environment, *agent in np.argwhere(stuck).tolist():
        of_agent = f" of agent {agent[0]}" if agent else ""
        raise EnvironmentFailure(f"'action_mask'{of_agent} allows no action; end the episode instead", environment)
