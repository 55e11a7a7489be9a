"""From Gymnasium's spaces to the package's `Spec`, and from an agent's actions to an environment's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from tfsac.errors import TfsacError
from tfsac.types import ACTION_MASK, AGENT_STATE, ArraySpec, DiscreteSpec, Spec

NUM_REWARDS = "num_rewards"  # key of an environment's metadata: the number of rewards a step
ONE_SEQUENCE = "a policy with a state takes one observation, or those of E environments, got {} of them"


class FrameStack(gym.spaces.Box):
    """Images `[H, W, k]` of bytes, the last k frames of an episode, one after each step, the newest last.

    The first observation of an episode repeats its frame. Replay memories store each frame once.

    Args:
        height, width: H and W, in pixels.
        num_frames: k.
    """

    def __init__(self, height: int, width: int, num_frames: int):
        super().__init__(0, 255, (height, width, num_frames), np.uint8)


def name_of_environment(env: gym.Env | VectorEnv) -> str:
    """Returns an environment's own name: its id in Gymnasium, or else the name of its class."""
    return env.spec.id if env.spec else type(env.unwrapped).__name__


def spaces_by_key(observation: gym.Space[Any]) -> Mapping[str, gym.Space[Any]]:
    """Returns the spaces of an observation by key; anything but a Dict has the one key "observation"."""
    return observation.spaces if isinstance(observation, gym.spaces.Dict) else {"observation": observation}


def spec_of(env: gym.Env) -> Spec:
    """Returns the spec of an environment that `check` accepts.

    Only environments from `make` and `maker` have several rewards a step.
    """
    spaces = spaces_by_key(env.observation_space)
    num_agents = spaces[AGENT_STATE].shape[0] if AGENT_STATE in spaces else None  # type: ignore[index]
    return Spec(
        observation={key: _array_spec(key, space, num_agents) for key, space in spaces.items()},
        action=_action_spec(env.action_space),
        num_agents=num_agents,
        num_rewards=(env.metadata or {}).get(NUM_REWARDS),
    )


def _action_spec(action: Any) -> ArraySpec | DiscreteSpec:
    if not isinstance(action, gym.spaces.Box):
        size, start = (action.nvec[0], action.start[0]) if action.shape else (action.n, action.start)
        return DiscreteSpec(int(size), action.shape, int(start), native_dtype=np.dtype(action.dtype).name)
    return ArraySpec(action.shape, "float32", float32_bound(action.low, 1), float32_bound(action.high, -1))


def float32_bound(bound: np.ndarray, inwards: int) -> np.ndarray:
    """Returns a bound in float32, rounded inwards: 1 is up, -1 down. Outwards, the space would not contain it."""
    rounded = bound.astype(np.float32)
    beyond = rounded < bound if inwards > 0 else rounded > bound
    return np.where(beyond, np.nextafter(rounded, np.float32(inwards * np.inf)), rounded)


def _array_spec(key: str, space: Any, num_agents: int | None) -> ArraySpec:
    if key == ACTION_MASK:
        return ArraySpec(tuple(space.shape), "bool")
    # Only images keep their bytes; any other dtype (float64, integers) is learned from as float32.
    image = space.dtype == np.uint8 and len(space.shape) == (3 if num_agents is None else 4)
    stacked = image and isinstance(space, FrameStack)
    return ArraySpec(tuple(space.shape), "uint8" if image else "float32", stacked=stacked)


def as_arrays(observation: Any, spec: Spec) -> dict[str, np.ndarray]:
    """Returns observations (an array or a dict of arrays) as a dict of arrays with the dtypes of the spec.

    Raises:
        TfsacError: keys or shapes (after any leading dimensions) that are not the spec's, or images of other numbers.
    """
    by_key = observation if isinstance(observation, dict) else {"observation": observation}
    if by_key.keys() != spec.observation.keys():
        raise TfsacError(f"observations must have the keys {sorted(spec.observation)}, got {sorted(by_key)}")
    arrays, leading = {}, set()
    for key, array in spec.observation.items():
        raw = np.asarray(by_key[key])
        with np.errstate(over="ignore", invalid="ignore"):  # what is too large for float32 becomes infinite
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
    """Returns raw observations, without the keys that a spec lacks, as arrays `[N, ...]` by key, and the leading
    dimensions that N is the product of. Raises TfsacError for what no policy can act on.
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
    if ACTION_MASK in arrays and not arrays[ACTION_MASK].any(axis=-1).all():
        raise TfsacError(f"{ACTION_MASK!r} must allow an action, got {arrays[ACTION_MASK].astype(int)}")
    return arrays, leading


def unflattened(values: np.ndarray, leading: tuple[int, ...]) -> np.ndarray:
    """Returns values `[N, ...]` with the leading dimensions that `batched` returned; one value where there are none."""
    return values.reshape(*leading, *values.shape[1:]) if leading else values[0]


def checked_action(
    subject: str, action: Any, of: ArraySpec | DiscreteSpec, leading: tuple[int, ...] = (), mask: Any = None
) -> np.ndarray:
    """Returns actions as an environment's `step` takes them, or raises TfsacError.

    Args:
        subject: begins the message, such as "act returns".
        action: `[*leading, *of.shape]` in the environment's units.
        of: the spec of one action.
        leading: dimensions before those of one action.
        mask: `[*of.shape, n]`, which of n discrete actions are allowed; None allows all.
    """
    shape, array = (*leading, *of.shape), np.asarray(action)
    if isinstance(of, DiscreteSpec):
        kind, low, high = "integers", of.start, of.start + of.num_actions - 1
        if array.dtype.kind in "iub" and array.shape == shape and ((low <= array) & (array <= high)).all():
            index = array.astype(np.int64)[..., None] - of.start
            if mask is None or np.take_along_axis(np.asarray(mask, bool), index, -1).all():
                return array.astype(of.native_dtype)[()]
    else:
        kind, low, high = "floats", of.low, of.high  # type: ignore[assignment]
        if array.dtype.kind in "iuf" and array.shape == shape:
            array = array.astype(np.float32)
            clipped = np.clip(array, low, high)
            # A bound of another dtype is another float32 than the spec's, which is rounded inwards.
            if np.allclose(array, clipped, rtol=1e-6, atol=0.0):
                return clipped
    allowed = "" if mask is None else f" that the mask {np.asarray(mask, int).tolist()} allows"
    raise TfsacError(f"{subject} {kind} of the shape {shape} from {low} to {high}{allowed}, got {action!r}")


class ActionMap:
    """Turns an agent's actions into an environment's: [-1, 1] into `[low, high]`, each dimension on its own, or numbers
    from 0 into its own numbers.

    Args:
        action: the spec of one action, of one agent or of P.
    """

    def __init__(self, action: ArraySpec | DiscreteSpec):
        self.action = action
        if isinstance(action, ArraySpec):
            assert action.low is not None and action.high is not None
            self.low, self.high, self.scale = action.low, action.high, 0.5 * (action.high - action.low)

    def __call__(self, action: np.ndarray) -> np.ndarray:
        """Returns the environment's actions for an agent's with any leading dimensions, clipped to the bounds."""
        if isinstance(self.action, DiscreteSpec):
            return (np.asarray(action, np.int64) + self.action.start).astype(self.action.native_dtype, copy=False)
        scaled = self.low + (action + 1.0) * self.scale
        return np.minimum(np.maximum(scaled, self.low), self.high)  # in half the time of np.clip

    def inverse(self, action: np.ndarray) -> np.ndarray:
        """Returns the agent's actions for an environment's with any leading dimensions."""
        if isinstance(self.action, DiscreteSpec):
            return (np.asarray(action, np.int64) - self.action.start).astype(np.int32)
        return (action - self.low) / self.scale - 1.0


def action_map(spec: Spec) -> ActionMap:
    """Returns what turns an agent's actions into an environment's."""
    return ActionMap(spec.action)
