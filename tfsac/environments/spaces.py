"""Convert Gymnasium spaces to a `Spec`, and observations to arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from tfsac.environments.actions import SEVERAL, action_spec, flat_mask
from tfsac.errors import TfsacError
from tfsac.types import ACTION_MASK, AGENT_STATE, ArraySpec, HybridSpec, Spec, map_action, some_valid

NUM_REWARDS = "num_rewards"  # key in an environment's metadata: the number of rewards per step
ONE_SEQUENCE = "a policy with a state takes one observation, or those of E environments, got {} of them"


class FrameStack(gym.spaces.Box):
    """Images `[H, W, k]` of bytes with the last k frames of an episode; each step adds a frame at the end.

    The first observation of an episode repeats its frame. Replay memories store each frame only once.

    Args:
        height, width: H and W, in pixels.
        num_frames: k.
    """

    def __init__(self, height: int, width: int, num_frames: int):
        super().__init__(0, 255, (height, width, num_frames), np.uint8)


def name_of_environment(env: gym.Env | VectorEnv) -> str:
    """Returns an environment's name: its Gymnasium id, or else its class name."""
    return env.spec.id if env.spec else type(env.unwrapped).__name__


def spaces_by_key(observation: gym.Space[Any]) -> Mapping[str, gym.Space[Any]]:
    """Returns the spaces of an observation by key; a space other than a Dict has the key "observation"."""
    return observation.spaces if isinstance(observation, gym.spaces.Dict) else {"observation": observation}


def with_flat_mask(space: gym.Space[Any], action: gym.Space[Any]) -> gym.Space[Any]:
    """Returns an observation space in which a mask with the structure of several actions becomes one array."""
    spaces = spaces_by_key(space)
    mask = spaces.get(ACTION_MASK)
    if not isinstance(mask, gym.spaces.Dict | gym.spaces.Tuple) or not isinstance(action, SEVERAL):
        return space
    return gym.spaces.Dict({**spaces, ACTION_MASK: gym.spaces.MultiBinary(gym.spaces.flatdim(mask))})


def spec_of(env: gym.Env) -> Spec:
    """Returns the spec of an environment that `check` accepts.

    Only environments from `make` and `maker` can have several rewards per step.
    """
    spaces = spaces_by_key(env.observation_space)
    num_agents = spaces[AGENT_STATE].shape[0] if AGENT_STATE in spaces else None  # type: ignore[index]
    return Spec(
        observation={key: _array_spec(key, space, num_agents) for key, space in spaces.items()},
        action=action_spec(env.action_space, team=num_agents is not None),
        num_agents=num_agents,
        num_rewards=(env.metadata or {}).get(NUM_REWARDS),
    )


def _array_spec(key: str, space: Any, num_agents: int | None) -> ArraySpec:
    if key == ACTION_MASK:
        return ArraySpec(tuple(space.shape), "bool")
    # Only images keep their bytes; any other dtype (float64, integers) becomes float32.
    image = space.dtype == np.uint8 and len(space.shape) == (3 if num_agents is None else 4)
    stacked = image and isinstance(space, FrameStack)
    return ArraySpec(tuple(space.shape), "uint8" if image else "float32", stacked=stacked)


def as_arrays(observation: Any, spec: Spec) -> dict[str, np.ndarray]:
    """Returns observations (an array or a dict of arrays) as a dict of arrays with the dtypes of the spec.

    Raises:
        TfsacError: keys or shapes (after any leading dimensions) that differ from the spec, or wrong image values.
    """
    by_key = observation if isinstance(observation, dict) else {"observation": observation}
    if by_key.keys() != spec.observation.keys():
        raise TfsacError(f"observations must have the keys {sorted(spec.observation)}, got {sorted(by_key)}")
    arrays, leading = {}, set()
    for key, array in spec.observation.items():
        raw = by_key[key]
        if key == ACTION_MASK and isinstance(raw, dict | tuple) and isinstance(spec.action, HybridSpec):
            raw = flat_mask(raw, spec.action)
        raw = np.asarray(raw)
        with np.errstate(over="ignore", invalid="ignore"):  # values too large for float32 become infinite
            part = arrays[key] = np.asarray(raw, array.dtype)
        if array.dtype == "uint8" and raw.dtype != array.dtype and not np.array_equal(part, raw):
            raise TfsacError(f"the image {key!r} must contain integers from 0 to 255, got {raw.dtype}")
        split = max(part.ndim - len(array.shape), 0)
        leading.add(part.shape[:split])
        if part.shape[split:] != array.shape or len(leading) > 1:
            shapes = f"end in the shape {array.shape}, after the same leading dimensions as other keys"
            raise TfsacError(f"observation {key!r} must {shapes}, got {part.shape}")
    return arrays


def batched(observation: Any, spec: Spec) -> tuple[dict[str, np.ndarray], tuple[int, ...]]:
    """Returns raw observations as arrays `[N, ...]` by key, without keys that the spec lacks, and the leading
    dimensions, whose product is N. Raises TfsacError for observations that no policy can act on.
    """
    if isinstance(observation, dict) and spec.observation.keys() <= observation.keys():
        observation = {key: observation[key] for key in spec.observation}
    arrays = as_arrays(observation, spec)
    for key, array in arrays.items():
        if array.dtype == np.float32 and not np.isfinite(array).all():
            raise TfsacError(f"observation {key!r} must be finite, got {array}")
    key, array = next(iter(arrays.items()))
    leading = array.shape[: array.ndim - len(spec.observation[key].shape)]
    arrays = {key: value.reshape(-1, *value.shape[len(leading) :]) for key, value in arrays.items()}
    if ACTION_MASK in arrays and not np.all(some_valid(arrays[ACTION_MASK], spec.action)):
        raise TfsacError(f"{ACTION_MASK!r} must allow an action, got {arrays[ACTION_MASK].astype(int)}")
    return arrays, leading


def unflattened(values: Any, leading: tuple[int, ...]) -> Any:
    """Returns values `[N, ...]`, or an action's arrays, with the leading dimensions from `batched`, or a single value
    if there are none.
    """
    return map_action(lambda x: x.reshape(*leading, *x.shape[1:]) if leading else x[0], values)
