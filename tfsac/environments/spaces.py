"""From Gymnasium's spaces to the package's `Spec`, and from [-1, 1] to an environment's own action bounds."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tfsac.types import ArraySpec, Spec


def spec_of(env: gym.Env | gym.vector.VectorEnv) -> Spec:
    """Returns the spec of one environment (of each, for a vector environment)."""
    if isinstance(env, gym.vector.VectorEnv):
        observation, action = env.single_observation_space, env.single_action_space
    else:
        observation, action = env.observation_space, env.action_space
    assert isinstance(action, gym.spaces.Box)
    boxes = observation.spaces if isinstance(observation, gym.spaces.Dict) else {"observation": observation}
    return Spec(
        observation={key: _array_spec(box) for key, box in boxes.items()},
        action=ArraySpec(action.shape, "float32", action.low.astype(np.float32), action.high.astype(np.float32)),
    )


def _array_spec(box: Any) -> ArraySpec:
    # Only images keep their bytes; any other dtype (float64, integers) is learned from as float32.
    image = box.dtype == np.uint8 and len(box.shape) == 3
    return ArraySpec(tuple(box.shape), "uint8" if image else "float32")


def as_arrays(observation: Any, spec: Spec) -> dict[str, np.ndarray]:
    """Returns observations (an array or a dict of arrays) as a dict of arrays with the dtypes of the spec.

    Raises:
        ValueError: keys or shapes (after any leading dimensions) that are not the spec's.
    """
    given = observation if isinstance(observation, dict) else {"observation": observation}
    if given.keys() != spec.observation.keys():
        raise ValueError(f"Observations have the keys {sorted(spec.observation)}. Received: {sorted(given)}")
    arrays = {key: np.asarray(given[key], array.dtype) for key, array in spec.observation.items()}
    for key, array in spec.observation.items():
        rank = len(array.shape)
        if arrays[key].shape[arrays[key].ndim - rank :] != array.shape:
            raise ValueError(f"Observation {key!r} ends in the shape {array.shape}. Received: {arrays[key].shape}")
    return arrays


class ActionRescaling(NamedTuple):
    """Maps [-1, 1] to `[low, high]`, each dimension on its own.

    Attributes:
        low, high: bounds `[A]`.
    """

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, spec: Spec) -> ActionRescaling:
        """Returns the rescaling to the bounds of a spec.

        Raises:
            ValueError: its actions have no bounds.
        """
        low, high = spec.action.low, spec.action.high
        if low is None or high is None:
            raise ValueError(f"Actions are rescaled to bounds. Received: {spec.action}")
        return cls(low, high)

    def inverse(self, action: np.ndarray) -> np.ndarray:
        """Returns actions `[..., A]` in [-1, 1] for actions in the environment's units."""
        return (action - self.low) / (0.5 * (self.high - self.low)) - 1.0

    def __call__(self, action: np.ndarray) -> np.ndarray:
        """Returns actions `[..., A]` in the environment's units, clipped to its bounds."""
        return np.clip(self.low + (action + 1.0) * (0.5 * (self.high - self.low)), self.low, self.high)
