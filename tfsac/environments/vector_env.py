"""Gymnasium's vector environments, which step all their environments in one call, in any of its autoreset modes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv

from tfsac.environments.checked_env import EnvironmentFailure, time_limit_of
from tfsac.environments.spaces import name_of_environment, spec_of
from tfsac.errors import TfsacError
from tfsac.types import ACTION_MASK


class VectorGroup:
    """The E environments of a `VectorEnv`, with the last observations of their episodes.

    Args:
        env: of any autoreset mode. It begins new episodes itself; with `AutoresetMode.DISABLED` this resets them.

    Attributes:
        spec: of one environment.
        mode: the autoreset mode.
        observation: `[E, ...]` by key, to act on next.
        autoreset: `[E]`, where the next step will begin an episode and ignore its action, as with `NEXT_STEP`.

    Raises:
        TfsacError: an autoreset mode that Gymnasium does not know, or none.
    """

    def __init__(self, env: VectorEnv):
        self.env, self.spec, self.num_envs = env, spec_of(FirstEnvironment(env)), env.num_envs
        mode = (env.metadata or {}).get("autoreset_mode")
        try:
            self.mode = AutoresetMode(mode)
        except ValueError as error:
            modes = ", ".join(f"AutoresetMode.{known.name}" for known in AutoresetMode)
            requirement = f"metadata['autoreset_mode'] must be one of {modes}, got {mode!r}"
            raise TfsacError(f"{name_of_environment(env)}: {requirement}") from error
        self.several_keys = isinstance(env.single_observation_space, gym.spaces.Dict)
        self.observation: dict[str, np.ndarray] = {}
        self.autoreset = np.zeros(self.num_envs, bool)

    def reset(self, seed: int | None) -> None:
        """Starts an episode everywhere; later ones are seeded by the environment itself."""
        self.autoreset = np.zeros(self.num_envs, bool)
        self.observation = self._arrays(self.env.reset(seed=seed)[0], self.autoreset)

    def step(
        self, action: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all with their own actions `[E, ...]`; where an episode ended, the next one begins.

        Returns:
            observations `[E, ...]` by key, the last one where an episode ended; rewards, terminated and truncated,
            `[E]`; infos, arrays `[E]` by key.

        Raises:
            EnvironmentFailure: arrays of other shapes than `[E, ...]`, or what is not finite.
        """
        observation, *outcome, infos = self.env.step(action)
        reward, terminated, truncated = map(self._per_environment, outcome, (np.float32, bool, bool))
        if not np.isfinite(reward).all():
            raise _not_finite("rewards", reward)
        done, began = terminated | truncated, self.autoreset
        same_step = self.mode is AutoresetMode.SAME_STEP
        following = last = self._arrays(observation, np.zeros_like(done) if same_step else terminated)
        if self.mode is AutoresetMode.NEXT_STEP:
            if (done & began).any():
                raise EnvironmentFailure("AutoresetMode.NEXT_STEP: the step that begins an episode must not end it")
            reward[began], self.autoreset = 0.0, done
            if ACTION_MASK in following:  # an action that will be ignored may be any
                mask = last[ACTION_MASK]
                following = {**last, ACTION_MASK: mask | done.reshape(-1, *[1] * (mask.ndim - 1))}
        elif done.any() and same_step:
            last = _replaced(following, done, self._final(infos, done, terminated[done]))
        elif done.any():
            started = self._arrays(self.env.reset(options={"reset_mask": done.copy()})[0], ~done)
            following = _replaced(last, done, {key: array[done] for key, array in started.items()})
        self.observation = following
        return last, reward, terminated, truncated, infos

    def _per_environment(self, values: Any, dtype: type) -> np.ndarray:
        array: np.ndarray = np.array(as_numpy(values), dtype)
        if array.shape != (self.num_envs,):
            raise EnvironmentFailure(f"rewards, terminated and truncated must be ({self.num_envs},), got {array.shape}")
        return array

    def _final(self, infos: Mapping[str, Any], done: np.ndarray, terminated: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the last observations `[K, ...]` of the episodes that ended in a step that also began others."""
        final = infos.get("final_obs")
        if final is None or not np.asarray(infos.get("_final_obs", done))[done].all():
            raise EnvironmentFailure("AutoresetMode.SAME_STEP: infos['final_obs'] must have the last observations")
        if not isinstance(final, np.ndarray) or final.dtype != object:
            final = {key: as_numpy(array)[done] for key, array in self._by_key(final).items()}
        elif self.several_keys:
            final = {key: np.stack([as_numpy(part[key]) for part in final[done]]) for key in self.spec.observation}
        else:
            final = {"observation": np.stack([as_numpy(part) for part in final[done]])}
        return self._arrays(final if self.several_keys else final["observation"], terminated)

    def _by_key(self, observation: Any) -> Mapping[str, Any]:
        by_key = observation if self.several_keys else {"observation": observation}
        if not isinstance(by_key, Mapping) or not self.spec.observation.keys() <= by_key.keys():
            raise EnvironmentFailure(f"observations must be a dict with the keys {[*self.spec.observation]}")
        return by_key

    def _arrays(self, observation: Any, terminated: np.ndarray) -> dict[str, np.ndarray]:
        """Returns copies of observations `[K, ...]` by key, because the environment may write into its arrays again; a
        mask of actions may be empty where the episode `[K]` was terminated.
        """
        by_key, arrays = self._by_key(observation), dict[str, np.ndarray]()
        for key, array in self.spec.observation.items():
            part, expected = as_numpy(by_key[key]), (len(terminated), *array.shape)
            fits = part.dtype == np.uint8 if array.dtype == "uint8" else part.dtype.kind in "biuf"
            if part.shape != expected or not fits:
                needs = f"must be {array.dtype} of the shape {expected}"
                raise EnvironmentFailure(f"observations {key!r} {needs}, got {part.dtype} {part.shape}")
            with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite
                arrays[key] = np.array(part, array.dtype)
            if array.dtype == "float32" and not np.isfinite(arrays[key]).all():
                raise _not_finite(f"observations {key!r}", arrays[key])
            if key == ACTION_MASK and not (arrays[key].any(-1).reshape(len(part), -1).all(-1) | terminated).all():
                raise EnvironmentFailure(f"{ACTION_MASK!r} allows no action; end the episode instead")
        return arrays


class FirstEnvironment(gym.Env):
    """The first environment of a `VectorEnv` as one of its own, such as for evaluations: the others make the same
    actions, which costs nothing where E is 1. It has no `render`.
    """

    def __init__(self, env: VectorEnv):
        self.vector_env = env
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self.metadata = {key: value for key, value in (env.metadata or {}).items() if key != "autoreset_mode"}
        self.spec = EnvSpec(name_of_environment(env), max_episode_steps=time_limit_of(env))
        self.group: VectorGroup | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in all environments; takes no options."""
        self.group = self.group or VectorGroup(self.vector_env)
        self.group.reset(seed)
        return self._first(self.group.observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Makes a step; the info of an episode's last one has its numbers alone."""
        assert self.group, "reset first"
        actions = np.repeat(np.asarray(action)[None], self.group.num_envs, axis=0)
        observation, reward, terminated, truncated, infos = self.group.step(actions)
        ended = terminated | truncated
        keys = {*infos, *infos.get("final_info", ())} if ended[0] else ()
        numbers = {key: last_numbers(infos, key, ended)[0] for key in keys if not key.startswith(("_", "final_"))}
        info = {key: value for key, value in numbers.items() if value == value}
        return self._first(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def _first(self, observation: dict[str, np.ndarray]) -> Any:
        first = {key: array[0] for key, array in observation.items()}
        return first if isinstance(self.observation_space, gym.spaces.Dict) else first["observation"]

    def close(self) -> None:
        """Closes all environments."""
        self.vector_env.close()


def last_numbers(infos: Mapping[str, Any], key: str, ended: np.ndarray) -> np.ndarray:
    """Returns the finite numbers `[E]` that a `VectorEnv`'s infos have for the last step of the episodes that ended
    `[E]`, NaN elsewhere.
    """
    numbers, final = np.full(len(ended), np.nan), infos.get("final_info")
    for part in (infos, final if isinstance(final, Mapping) else {}):  # beside the last step's may be those of a reset
        with contextlib.suppress(Exception):  # anything may be in there
            present = ended & np.asarray(part.get(f"_{key}", True))
            numbers[present] = as_numpy(part[key])[present].astype(np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def as_numpy(values: Any) -> np.ndarray:
    """Returns an array of any library as NumPy's, where it lies on the CPU without a copy."""
    if not isinstance(values, np.ndarray) and hasattr(values, "__dlpack__"):
        with contextlib.suppress(BufferError, RuntimeError, TypeError):  # elsewhere, or of a dtype that NumPy lacks
            return np.from_dlpack(values)
    return np.asarray(values)


def _replaced(arrays: dict[str, np.ndarray], mask: np.ndarray, parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns copies of arrays `[E, ...]` with others `[K, ...]` in the K places of a mask."""
    copies = {key: array.copy() for key, array in arrays.items()}
    for key, array in copies.items():
        array[mask] = parts[key]
    return copies


def _not_finite(name: str, array: np.ndarray) -> EnvironmentFailure:
    place = np.argwhere(~np.isfinite(array))[0]
    return EnvironmentFailure(f"{name} must be finite in float32, got {array[tuple(place)]}", int(place[0]))
