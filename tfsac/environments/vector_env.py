"""Gymnasium vector environments, which step all their environments in one call, in any autoreset mode."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv

from tfsac.environments.actions import action_map, flat_mask
from tfsac.environments.checked_env import EnvironmentFailure, close, placed, time_limit_of
from tfsac.environments.spaces import name_of_environment, spec_of, with_flat_mask
from tfsac.errors import TfsacError
from tfsac.random_streams import TRAINING, episode_seed
from tfsac.types import ACTION_MASK, HybridSpec, Step, map_action, some_valid


class VectorEnvironments:
    """The E environments of a `VectorEnv`, with the interface of `Environments`, stepped without a loop.

    Args:
        env: a `VectorEnv` in any autoreset mode. It starts and seeds new episodes itself; with
            `AutoresetMode.DISABLED` this class resets them.
        seed: seed of the run, which determines the seed of the first reset.
        logged_keys: keys of `info`; see `EnvironmentParameters`.
        begin: whether to start the first episodes; if not, `restore` starts those after a checkpoint.

    Attributes:
        spec: spec of one environment.
        mode: the autoreset mode.
        next_step: whether the mode is `NEXT_STEP`, in which a step may only start an episode.
        observation: `[E, ...]` by key, to act on next.
        is_first: `[E]`, whether an episode has just started.
        autoreset: `[E]`, whether the next step will only start an episode.

    Raises:
        TfsacError: a missing or unknown autoreset mode.
        EnvironmentFailure: the environment raised, or returned arrays with wrong shapes or non-finite values.
    """

    def __init__(self, env: VectorEnv, seed: int = 0, logged_keys: tuple[str, ...] = (), begin: bool = True):
        self.env, self.seed, self.num_envs = env, seed, env.num_envs
        self.level, self.spec = name_of_environment(env), spec_of(FirstEnvironment(env))
        mode = (env.metadata or {}).get("autoreset_mode")
        try:
            self.mode = AutoresetMode(mode)
        except ValueError as error:
            modes = ", ".join(f"AutoresetMode.{known.name}" for known in AutoresetMode)
            requirement = f"metadata['autoreset_mode'] must be one of {modes}, got {mode!r}"
            raise TfsacError(f"{self.level}: {requirement}") from error
        self.next_step = self.mode is AutoresetMode.NEXT_STEP
        self.several_keys = isinstance(env.single_observation_space, gym.spaces.Dict)
        self.action_map = action_map(self.spec)
        self.nothing_logged = {key: np.full(self.num_envs, np.nan) for key in logged_keys}
        self.steps, self.episode = 0, np.zeros(self.num_envs, np.int64)
        self.length = np.zeros(self.num_envs, np.int64)
        self.observation: dict[str, np.ndarray] = {}
        if begin:
            self.reset(episode_seed(seed, TRAINING, 0))

    def reset(self, seed: int | None) -> None:
        """Starts an episode in all environments."""
        self.is_first, self.length = np.ones(self.num_envs, bool), np.zeros(self.num_envs, np.int64)
        self.autoreset = np.zeros(self.num_envs, bool)
        self.observation = self._call(self._reset, {"seed": seed}, self.autoreset)

    def step(self, action: Any) -> Step:
        """Steps all environments with an agent's actions `[E, ...]`; starts the next episode where one ended."""
        return self.step_as_given(self.action_map(action))._replace(action=action)

    def step_as_given(self, action: Any) -> Step:
        """Steps all environments with their own actions `[E, ...]`; see `step`."""
        before, autoreset = self.observation, self.autoreset
        last, reward, terminated, truncated, infos = self._call(self._step, action)
        done, logged = terminated | truncated, self.nothing_logged
        if done.any():
            logged = {key: last_numbers(infos, key, done) for key in logged}
        length = np.where(autoreset, 0, self.length + 1)
        self.steps, self.episode = self.steps + self.num_envs, self.episode + done
        self.length, self.is_first = np.where(done, 0, length), autoreset if self.next_step else done
        following = self.observation, logged, infos, autoreset if self.next_step else ()
        return Step(before, action, reward, terminated, truncated, last, {}, length, *following)

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            environment = getattr(error, "environment", None)
            which = "" if environment is None else f"environment {environment}, "
            raise placed(error, self.level, f"{which}step {self.steps}") from error

    def _reset(self, arguments: dict[str, Any], running: np.ndarray) -> dict[str, np.ndarray]:
        return self._arrays(self._by_key(self.env.reset(**arguments)[0]), running)

    def _step(self, action: Any) -> tuple[Any, ...]:
        """Returns observations `[E, ...]` by key (an ended episode's last observation), rewards, terminated and
        truncated `[E]`, and infos.
        """
        observation, *outcome, infos = self.env.step(action)
        reward, terminated, truncated = map(self._per_environment, outcome, (np.float32, bool, bool))
        if not np.isfinite(reward).all():
            raise _not_finite("rewards", reward)
        done, same_step = terminated | truncated, self.mode is AutoresetMode.SAME_STEP
        following = last = self._arrays(self._by_key(observation), np.zeros_like(done) if same_step else terminated)
        if self.next_step:
            if (done & self.autoreset).any():
                raise EnvironmentFailure("AutoresetMode.NEXT_STEP: the step that begins an episode must not end it")
            reward[self.autoreset], self.autoreset = 0.0, done
            if ACTION_MASK in last:  # allow any action where the next step ignores it
                mask = last[ACTION_MASK]
                following = {**last, ACTION_MASK: mask | done.reshape(-1, *[1] * (mask.ndim - 1))}
        elif done.any() and same_step:
            last = _replaced(following, done, self._final(infos, done, terminated[done]))
        elif done.any():
            started = self._reset({"options": {"reset_mask": done.copy()}}, ~done)
            following = _replaced(last, done, {key: array[done] for key, array in started.items()})
        self.observation = following
        return last, reward, terminated, truncated, infos

    def _final(self, infos: Mapping[str, Any], done: np.ndarray, terminated: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the last observations `[K, ...]` of the episodes that ended in a step that also reset them."""
        final = infos.get("final_obs")
        if final is None or not np.asarray(infos.get("_final_obs", done))[done].all():
            raise EnvironmentFailure("AutoresetMode.SAME_STEP: infos['final_obs'] must have the last observations")
        if not isinstance(final, np.ndarray) or final.dtype != object:
            return self._arrays({key: as_numpy(part)[done] for key, part in self._by_key(final).items()}, terminated)
        parts = [self._by_key(part) for part in final[done]]
        stacked = {key: np.stack([as_numpy(part[key]) for part in parts]) for key in self.spec.observation}
        return self._arrays(stacked, terminated)

    def _by_key(self, observation: Any) -> Mapping[str, Any]:
        if not self.several_keys:
            return {"observation": observation}
        mask = observation.get(ACTION_MASK)
        if not isinstance(mask, dict | tuple) or not isinstance(self.spec.action, HybridSpec):
            return observation
        return {**observation, ACTION_MASK: flat_mask(map_action(as_numpy, mask), self.spec.action)}

    def _per_environment(self, values: Any, dtype: type) -> np.ndarray:
        array: np.ndarray = np.array(as_numpy(values), dtype)
        if array.shape != (self.num_envs,):
            raise EnvironmentFailure(f"rewards, terminated and truncated must be ({self.num_envs},), got {array.shape}")
        return array

    def _arrays(self, by_key: Mapping[str, Any], terminated: np.ndarray) -> dict[str, np.ndarray]:
        """Returns copies of observations `[K, ...]`, because the environment may reuse its arrays. An action mask may
        be empty if the episode `[K]` was terminated.
        """
        arrays: dict[str, np.ndarray] = {}
        for key, array in self.spec.observation.items():
            part, expected = as_numpy(by_key[key]), (len(terminated), *array.shape)
            fits = part.dtype == np.uint8 if array.dtype == "uint8" else part.dtype.kind in "biuf"
            if part.shape != expected or not fits:
                needs = f"must be {array.dtype} of the shape {expected}"
                raise EnvironmentFailure(f"observations {key!r} {needs}, got {part.dtype} {part.shape}")
            with np.errstate(over="ignore"):  # values too large for float32 become infinite
                arrays[key] = np.array(part, array.dtype)
            if array.dtype == "float32" and not np.isfinite(arrays[key]).all():
                raise _not_finite(f"observations {key!r}", arrays[key])
            if key != ACTION_MASK:
                continue
            valid = some_valid(arrays[key], self.spec.action).reshape(len(part), -1).all(-1)
            if not (valid | terminated).all():
                raise EnvironmentFailure(f"{ACTION_MASK!r} allows no action; end the episode instead")
        return arrays

    def state(self) -> dict[str, Any]:
        """Returns the position of each environment as plain numbers."""
        return {"episode": self.episode.tolist(), "length": self.length.tolist(), "steps": self.steps}

    def restore(self, state: dict[str, Any], *running: Any) -> bool:
        """Starts the episodes after those of a checkpoint; returns False, as running episodes do not continue."""
        self.episode = np.array(state["episode"], np.int64) + (np.array(state["length"]) > 0)
        self.steps = state["steps"]
        self.reset(episode_seed(self.seed, TRAINING, self.steps))
        return False

    def close(self) -> None:
        """Closes the environments."""
        close(self.env)


class FirstEnvironment(gym.Env):
    """The first environment of a `VectorEnv` as a single environment, for evaluations. All environments of the
    `VectorEnv` take the same actions. It cannot be rendered.
    """

    def __init__(self, env: VectorEnv):
        self.vector_env = env
        self.action_space = env.single_action_space
        self.observation_space = with_flat_mask(env.single_observation_space, self.action_space)
        self.spec = EnvSpec(name_of_environment(env), max_episode_steps=time_limit_of(env))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in all environments; ignores options."""
        self.environments = VectorEnvironments(self.vector_env, begin=False)
        self.environments.reset(seed)
        return self._first(self.environments.observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Makes a step; only the info of an episode's last step has entries, its numbers."""
        envs = self.vector_env.num_envs
        step = self.environments.step_as_given(
            map_action(lambda x: np.repeat(np.asarray(x)[None], envs, axis=0), action)
        )
        info: dict[str, float] = {}
        for key in {*step.info, *step.info.get("final_info", ())} if step.ended[0] else ():
            number = last_numbers(step.info, key, step.ended)[0]
            if number == number and not key.startswith(("_", "final_")):
                info[key] = number
        ends = bool(step.terminated[0]), bool(step.truncated[0])
        return self._first(step.next_observation), float(step.reward[0]), *ends, info

    def _first(self, observation: dict[str, np.ndarray]) -> Any:
        first = {key: array[0] for key, array in observation.items()}
        return first if isinstance(self.observation_space, gym.spaces.Dict) else first["observation"]

    def close(self) -> None:
        """Closes all environments."""
        self.vector_env.close()


def last_numbers(infos: Mapping[str, Any], key: str, ended: np.ndarray) -> np.ndarray:
    """Returns the finite numbers `[E]` in a `VectorEnv`'s infos for the last step of the episodes in `ended` `[E]`, NaN
    elsewhere.
    """
    numbers, final = np.full(len(ended), np.nan), infos.get("final_info")
    for part in (infos, final if isinstance(final, Mapping) else {}):  # infos may belong to a reset in the same step
        with contextlib.suppress(Exception):  # infos may contain anything
            array = as_numpy(part[key])
            present = ended & np.asarray(part.get(f"_{key}", True))
            values = array[present].astype(np.float64)
            numbers[present] = np.where(np.isfinite(values), values, np.nan)
    return numbers


def as_numpy(values: Any) -> np.ndarray:
    """Converts an array of any library to NumPy, without a copy if it is on the CPU, else copied from the GPU."""
    if not isinstance(values, np.ndarray) and hasattr(values, "__dlpack__"):
        with contextlib.suppress(BufferError, RuntimeError, TypeError):  # on a GPU, or a dtype that NumPy lacks
            return np.from_dlpack(values)
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values)  # PyTorch copies from a GPU only when asked


def _replaced(arrays: dict[str, np.ndarray], mask: np.ndarray, parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns copies of arrays `[E, ...]` with the K entries in the mask replaced by `parts` `[K, ...]`."""
    copies = {key: array.copy() for key, array in arrays.items()}
    for key, array in copies.items():
        array[mask] = parts[key]
    return copies


def _not_finite(name: str, array: np.ndarray) -> EnvironmentFailure:
    place = np.argwhere(~np.isfinite(array))[0]
    return EnvironmentFailure(f"{name} must be finite in float32, got {array[tuple(place)]}", int(place[0]))
