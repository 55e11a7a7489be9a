"""Checks of what `reset` and `step` of an environment return, and errors that say where its code raised."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import re
import threading
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np

from tfsac.environments.check import SPACES, EnvironmentFailure
from tfsac.environments.spaces import spaces_by_key
from tfsac.types import ACTION_MASK
from tfsac.user_code import described, is_users, message_of

RESET, STEP = (
    "reset must return (observation, info)",
    "step must return (observation, reward, terminated, truncated, info)",
)
NUMBERS = "biuf"  # kinds of dtypes
FLOAT32 = float(np.finfo(np.float32).max)
# Keys of info that have the last observation of an episode, where an environment resets itself in its last step.
FINAL = ("final_observation", "final_obs", "terminal_observation")
TAKES = {  # arguments that Gymnasium passes
    "reset": "reset must take seed and options, as in def reset(self, *, seed=None, options=None)",
    "step": "step must take one action",
}
CALLED = re.compile(r"\b(reset|step)\(\) (?:got an unexpected keyword|takes|missing)")
UNPACKED = re.compile(r"values to unpack \(expected 5(?:, got (\d+))?\)|cannot unpack non-iterable (\w+)")


class FinalObservation:
    """Makes the last observation of an episode that is in `info` that of the step, where it first appears: below the
    wrappers of an environment, so that those that change observations change it too.

    The classes of the layers get a `step` that looks into `info` while `step` of this object runs, and otherwise does
    what it did: copies of an environment, and steps that a user makes, stay as they are.

    Attributes:
        key: of the info from which the last step's observation was taken; else "".
    """

    running = threading.local()  # whose step runs in a thread

    def __init__(self, env: gym.Env):
        self.key = ""
        self.seen: list[Any] = []  # values in the infos of this step, also where no episode ended
        self.layers: dict[int, gym.Env] = {}
        while isinstance(env, gym.Wrapper):
            env = env.env
            self.layers[id(env)] = env
            self._intercept(type(env))

    @classmethod
    def _intercept(cls, kind: type) -> None:
        step: Any = kind.step  # type: ignore[attr-defined]
        if hasattr(step, "intercepts"):
            return

        @functools.wraps(step)
        def intercepting(env: gym.Env, *args: Any, **kwargs: Any) -> Any:
            result, final = step(env, *args, **kwargs), getattr(cls.running, "final", None)
            return final.take(result) if final is not None and id(env) in final.layers else result

        intercepting.intercepts = True  # type: ignore[attr-defined]
        with contextlib.suppress(TypeError):  # of a class that is not written in Python
            kind.step = intercepting  # type: ignore[attr-defined]

    def step(self, env: gym.Env, action: Any) -> Any:
        """Returns what a step of the environment returns."""
        self.key, outer = "", getattr(self.running, "final", None)
        self.seen.clear()
        self.running.final = self
        try:
            return self.take(env.step(action))
        finally:
            self.running.final = outer
            if outer is not None:  # around this one, where the values are known now
                outer.seen += self.seen

    def take(self, result: Any) -> Any:
        """Returns what `step` of a layer returned, with the last observation that its info has first."""
        info = result[4] if isinstance(result, tuple) and len(result) == 5 else None
        if not isinstance(info, dict) or not info:
            return result
        for key in FINAL:
            value = info.get(key)
            if value is None or any(value is one for one in self.seen):
                continue
            self.seen.append(value)
            if isinstance(value, np.ndarray) and value.dtype == object and value.size == 1:  # of a vector environment
                value = value.item()
            if value is not None and (np.any(result[2]) or np.any(result[3])):
                self.key = key
                return value, *result[1:]
        return result


class Notes:
    """Says each text once; `write` does it, as a warning."""

    def __init__(self) -> None:
        self.said = set[str]()
        self.write: Callable[[str], None] = functools.partial(warnings.warn, category=RuntimeWarning, stacklevel=2)

    def __call__(self, text: str) -> None:
        """Says a text that was not said yet."""
        if text not in self.said:
            self.said.add(text)
            self.write(text)


class CheckedReturns(gym.Wrapper):
    """Refuses what an environment must not return, by name, and says in which file and line its code raised.

    A reward is one number (a NumPy scalar or an array `()` as well; one of the shape `(1,)` is made one); terminated
    and truncated are bool, NumPy's bool, 0 or 1; observations have the keys, shapes and kind of dtype of the space.
    They are passed on as they are, but for the last observation of an episode that `FinalObservation` finds in info.

    Args:
        env: whose spaces `check` accepts.
        several_rewards: `VectorRewards` checks the reward's shape.
        notes: gets a text for what is taken in another form.
    """

    def __init__(self, env: gym.Env, several_rewards: bool = False, notes: Notes | None = None):
        super().__init__(env)
        spaces = spaces_by_key(env.observation_space)
        self.several_rewards, self.keys = several_rewards, spaces.keys()
        self.notes, self.final = notes or Notes(), FinalObservation(env)
        self.spaces = {name: (getattr(env, name), copy.deepcopy(getattr(env, name))) for name in SPACES}
        self.single = not isinstance(env.observation_space, gym.spaces.Dict)
        # `CheckedMasks` knows which masks there are.
        self.parts = [
            (key, space.shape, space.dtype)
            for key, space in spaces.items()
            if key != ACTION_MASK and space.shape is not None
        ]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode.

        Raises:
            EnvironmentFailure: it raised, or returned something else than an observation of its space and a dict.
        """
        try:
            result: Any = self.env.reset(seed=seed, options=options)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise failure("reset", error) from error
        for name, (_, before) in self.spaces.items():
            self._check_space("reset", name, before)  # which may also change in place
        self._examine("reset", result)
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Makes a step.

        Raises:
            EnvironmentFailure: it raised, or returned something else than an observation of its space, a number, two
                bools and a dict.
        """
        try:
            result: Any = self.final.step(self.env, action)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise failure("step", error) from error
        self._examine("step", result)
        if self.final.key:
            self.notes(f"the last observation of an episode is taken from info[{self.final.key!r}]")
        if isinstance(result[1], float | int | np.floating) or self.several_rewards:
            return result
        return (result[0], as_array(result[1]).item(), *result[2:])

    def _examine(self, method: str, result: Any) -> None:
        """Raises `EnvironmentFailure` with everything that is wrong with what a method returned."""
        what, length = (RESET, 2) if method == "reset" else (STEP, 5)
        if not isinstance(result, tuple) or len(result) != length:
            refuse(what, kind_of(result))
        checks: list[tuple[Any, ...]] = [(_check_info, what, result[-1]), (self._check, method, result[0])]
        if method == "step":
            checks = [(self._check_reward, result[1]), (_check_end, "terminated", result[2]), *checks]
            checks.insert(2, (_check_end, "truncated", result[3]))
        for name, (space, _) in self.spaces.items():
            if getattr(self.env, name) is not space:
                checks.append((self._check_space, method, name, space))
        problems = []
        for check, *of in checks:
            try:
                check(*of)
            except EnvironmentFailure as error:
                problems.append(str(error))
        if problems:
            refused = EnvironmentFailure(problems[0])
            refused.problems = problems
            raise refused

    def render(self) -> Any:
        """Draws the environment.

        Raises:
            EnvironmentFailure: it raised.
        """
        try:
            return self.env.render()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise failure("render", error) from error

    def close(self) -> None:
        """Ends the environment; an error is a warning, because whoever closes it has what was needed."""
        try:
            self.env.close()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.notes(f"{failure('close', error)}")

    def _check_reward(self, reward: Any) -> None:
        if isinstance(reward, np.float32) or (isinstance(reward, float | int) and -FLOAT32 <= reward <= FLOAT32):
            return
        array = as_array(reward)
        if array.dtype.kind not in NUMBERS or (array.shape not in ((), (1,)) and not self.several_rewards):
            refuse(f"{STEP}, where reward is one number", kind_of(reward))
        large = np.isfinite(array) & (np.abs(array.astype(np.float64)) > FLOAT32)
        if large.any():
            refuse(f"the reward must fit into a float32, below {FLOAT32:.2g}", f"{array[large][0]:g}")
        if array.shape and not self.several_rewards:
            self.notes("the reward has the shape (1,) and is taken as a number")

    def _check_space(self, method: str, name: str, before: Any) -> None:
        if (space := getattr(self.env, name)) != before:
            refuse(f"an environment keeps its spaces, and {name} was {before}", f"{space} after {method}")

    def _check(self, method: str, observation: Any) -> None:
        if method == "step" and self.final.key:
            method = f"step, whose last observation is info[{self.final.key!r}],"
        if self.single:
            if not self.parts:  # a space that `check` refuses
                return
            _, shape, dtype = self.parts[0]
            if type(observation) is not np.ndarray or observation.dtype != dtype or observation.shape != shape:
                _check_part(method, "an observation", observation, shape, dtype)
            return
        if not isinstance(observation, dict) or observation.keys() != self.keys:
            received = (
                f"keys {sorted(map(str, observation))}" if isinstance(observation, dict) else kind_of(observation)
            )
            refuse(f"{method} must return an observation that is a dict with the keys {sorted(self.keys)}", received)
        for key, shape, dtype in self.parts:
            part = observation[key]
            if type(part) is not np.ndarray or part.dtype != dtype or part.shape != shape:
                _check_part(method, f"an observation {key!r}", part, shape, dtype)


def _check_part(method: str, name: str, value: Any, shape: Any, dtype: Any) -> None:
    array = as_array(value)
    if array.dtype.kind not in NUMBERS or array.shape != shape or not np.can_cast(array.dtype, dtype, "same_kind"):
        refuse(f"{method} must return {name} of the shape {shape} and dtype {dtype}, as its space says", kind_of(value))
    if np.dtype(dtype).kind in "iu" or dtype == np.float16:
        with np.errstate(over="ignore"):
            cast = array.astype(dtype)
        # Integers wrap around; floats that are too large become infinite, and others are rounded.
        lost = array != cast if cast.dtype.kind in "iu" else np.isinf(cast) & np.isfinite(array)
        if lost.any():
            refuse(f"{method} must return {name} whose values {dtype} can hold, as its space says", f"{array[lost][0]}")


def _check_info(what: str, info: Any) -> None:
    if not isinstance(info, dict):
        refuse(f"{what}, where info is a dict", kind_of(info))


def _check_end(name: str, value: Any) -> None:
    if value is True or value is False:
        return
    array = as_array(value)
    if array.shape == () and (array.dtype.kind == "b" or (array.dtype.kind in "iu" and array in (0, 1))):
        return
    refuse(f"{STEP}, where {name} is a bool", kind_of(value))


def refuse_non_finite(observation: Any, reward: float) -> None:
    """Refuses an observation or a sum of rewards of one environment that is not finite.

    Raises:
        EnvironmentFailure: one is not.
    """
    if not math.isfinite(reward):
        refuse("the reward must be finite", f"{reward}")
    for key, part in (observation if isinstance(observation, dict) else {"observation": observation}).items():
        array = as_array(part)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            refuse(f"observation {key!r} must be finite", f"{array[~np.isfinite(array)][0]}")


def as_array(value: Any) -> np.ndarray:
    """Returns a value as an array; of what is none, an array of objects."""
    try:
        return np.asarray(value)
    except Exception:  # lists of different lengths, objects whose conversion raises
        return np.array(None, object)


def kind_of(value: Any) -> str:
    """Returns what somebody needs to know of a wrong value, in a few words."""
    if isinstance(value, np.ndarray):
        return f"an array of the shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, tuple):
        return f"{len(value)} values, {', '.join(type(each).__name__ for each in value)}"
    text = repr(value)
    return f"{text if len(text) < 80 else text[:77] + '...'} ({type(value).__name__})"


def refuse(what: str, received: str) -> NoReturn:
    """Raises an `EnvironmentFailure`."""
    raise EnvironmentFailure(f"{what}. Received: {received}")


def failure(method: str, error: BaseException) -> EnvironmentFailure:
    """Returns an `EnvironmentFailure` for what a method of an environment raised.

    Args:
        method: its name.
        error: as it was caught; a failure stays what it is.
    """
    if isinstance(error, EnvironmentFailure):
        return error
    unpacked = UNPACKED.search(message_of(error))
    if method == "step" and unpacked and not is_users(error):  # a wrapper of gymnasium's unpacked it
        number, name = unpacked.groups()
        received = f"{number} values" if number else "more than 5 values" if name is None else name.removesuffix("Type")
        return EnvironmentFailure(f"{STEP}. Received: {received}")
    called = CALLED.search(message_of(error))
    if isinstance(error, TypeError) and called and called[1] == method:
        return EnvironmentFailure(f"{TAKES[method]}. Received: {message_of(error)}")
    return EnvironmentFailure(f"{method} raised. Received: {described(error)}")


def placed(error: BaseException, level: str, place: str) -> EnvironmentFailure:
    """Returns a failure that also names the level and the place, such as "environment 1, step 640".

    Args:
        error: a failure "what is wrong. Received: value", or another error.
        level: of the environment.
        place: where it happened.
    """
    message = str(error) if "Received: " in str(error) else f"it raised. Received: {described(error)}"
    what, _, received = message.partition(". Received: ")
    return EnvironmentFailure(f"{level}: {what} ({place}). Received: {received}")
