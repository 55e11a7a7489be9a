"""From Gymnasium's spaces to the package's `Spec`, and from an agent's actions to an environment's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tfsac.argument_checks import shown
from tfsac.types import ACTION_MASK, AGENT_STATE, ArraySpec, DiscreteSpec, Spec

# Key of an environment's metadata: the number of rewards a step. Vector environments pass metadata on, also of
# processes.
NUM_REWARDS = "num_rewards"
STACKING = "a reset repeats its frame, a step drops one and adds one last; for other stacks use a Box"
ONE_SEQUENCE = "A policy with a state takes one observation, or those of E environments. Received: {} of them"
NO_NUMBERS = "cmMSU"  # kinds of dtypes: complex numbers, dates and durations, texts


class FrameStack(gym.spaces.Box):
    """Images `[H, W, k]` of bytes, the last k frames of an episode, one after each step, the newest last.

    The first observation of an episode repeats its frame. Replay memories store each frame once.

    Args:
        height, width: H and W, in pixels.
        num_frames: k.
    """

    def __init__(self, height: int, width: int, num_frames: int):
        super().__init__(0, 255, (height, width, num_frames), np.uint8)


def has_frame_stacks(observation_space: gym.Space[Any]) -> bool:
    """Returns whether an observation is a `FrameStack` or has one."""
    return any(isinstance(space, FrameStack) for space in spaces_by_key(observation_space).values())


def other_frames(observation_space: gym.Space[Any], before: Any, after: Any) -> str | None:
    """Returns the first key of a `FrameStack` that is not as memories take it to be; None where all are.

    Args:
        observation_space: of the environment.
        before: the observation before a step, which moves the stack by one frame; None for a reset, after which the
            stack repeats one frame.
        after: the observation after it.
    """
    for key, space in spaces_by_key(observation_space).items():
        if isinstance(space, FrameStack):
            old, new = (np.asarray(x[key] if isinstance(x, dict) else x) for x in (before, after))
            if not (
                np.array_equal(new[..., :-1], old[..., 1:]) if before is not None else (new == new[..., -1:]).all()
            ):
                return key
    return None


def spaces_by_key(observation: gym.Space[Any]) -> Mapping[str, gym.Space[Any]]:
    """Returns the spaces of an observation by key; anything but a Dict has the one key "observation"."""
    return observation.spaces if isinstance(observation, gym.spaces.Dict) else {"observation": observation}


def spec_of(env: gym.Env) -> Spec:
    """Returns the spec of an environment that `check` accepts.

    Only environments from `make` and `maker` have several rewards a step; of others the number is None.
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
    if isinstance(action, gym.spaces.Discrete):
        return DiscreteSpec(int(action.n), (), int(action.start), native_dtype=np.dtype(action.dtype).name)
    if isinstance(action, gym.spaces.MultiDiscrete):
        size, start = int(action.nvec[0]), int(action.start[0])
        return DiscreteSpec(size, action.shape, start, native_dtype=np.dtype(action.dtype).name)
    return ArraySpec(action.shape, "float32", float32_bound(action.low, 1), float32_bound(action.high, -1))


def float32_bound(bound: np.ndarray, inwards: int) -> np.ndarray:
    """Returns a bound in float32, rounded inwards: 1 is up, -1 down. Outwards, the space would not have it."""
    rounded = bound.astype(np.float32)
    beyond = (rounded.astype(bound.dtype) - bound) * inwards < 0
    return np.where(beyond, np.nextafter(rounded, np.float32(inwards * np.inf)), rounded)


def _array_spec(key: str, space: Any, num_agents: int | None) -> ArraySpec:
    if key == ACTION_MASK:
        return ArraySpec(tuple(space.shape), "bool")
    # Only images keep their bytes; any other dtype (float64, integers) is learned from as float32.
    image = space.dtype == np.uint8 and len(space.shape) == (3 if num_agents is None else 4)
    return ArraySpec(
        tuple(space.shape), "uint8" if image else "float32", stacked=image and isinstance(space, FrameStack)
    )


def as_arrays(observation: Any, spec: Spec) -> dict[str, np.ndarray]:
    """Returns observations (an array or a dict of arrays) as a dict of arrays with the dtypes of the spec.

    Raises:
        ValueError: keys or shapes (after any leading dimensions) that are not the spec's.
    """
    if isinstance(observation, tuple) and observation and isinstance(observation[-1], dict):
        raise ValueError(
            "An observation is an array or a dict of arrays; reset and step return tuples: pass its first entry alone. "
            f"Received: {shown(observation)}"
        )
    given = observation if isinstance(observation, dict) else {"observation": observation}
    if given.keys() != spec.observation.keys():
        received = sorted(given) if given is observation else shown(observation)
        raise ValueError(f"Observations have the keys {sorted(spec.observation)}. Received: {received}")
    arrays = {}
    for key, array in spec.observation.items():
        try:
            arrays[key] = numbers_as(given[key], array.dtype)
        except (TypeError, ValueError, NotImplementedError) as error:  # the last from tensors inside a tf.function
            raise ValueError(
                f"Observation {key!r} must be a numeric array: {error}. Received: {shown(observation)}"
            ) from error
    leading = {}
    for key, array in spec.observation.items():
        rank = arrays[key].ndim - len(array.shape)
        leading[key] = arrays[key].shape[: max(rank, 0)]
        if arrays[key].shape[max(rank, 0) :] != array.shape:
            raise ValueError(f"Observation {key!r} ends in the shape {array.shape}. Received: {arrays[key].shape}")
    if len(set(leading.values())) > 1:
        raise ValueError(f"All parts of an observation have the same leading dimensions. Received: {leading}")
    return arrays


def batched(observation: Any, spec: Spec) -> tuple[dict[str, np.ndarray], tuple[int, ...]]:
    """Returns raw observations as arrays `[N, ...]` by key, and the leading dimensions that N is the product of.

    Args:
        observation: as the environment gives it, with any leading dimensions; other keys than those of the spec are
            left out.
        spec: of observations.

    Raises:
        ValueError: an observation that lacks a key or has another shape, or that is not finite, or a mask without any
            valid action.
    """
    if isinstance(observation, dict) and spec.observation.keys() <= observation.keys():
        observation = {key: observation[key] for key in spec.observation}
    arrays = as_arrays(observation, spec)
    for key, array in arrays.items():
        if array.dtype == np.float32 and not np.isfinite(array).all():
            raise ValueError(f"Observation {key!r} must be finite. Received: {array}")
    if ACTION_MASK in arrays and not np.array_equal(arrays[ACTION_MASK], observation[ACTION_MASK]):
        raise ValueError(f"{ACTION_MASK!r} holds 0 and 1. Received: {observation[ACTION_MASK]}")
    key, array = next(iter(arrays.items()))
    leading = array.shape[: array.ndim - len(spec.observation[key].shape)]
    if 0 in leading:
        raise ValueError(f"A policy takes at least one observation. Received: {key!r} of the shape {array.shape}")
    arrays = {key: value.reshape(-1, *value.shape[len(leading) :]) for key, value in arrays.items()}
    if ACTION_MASK in arrays and not arrays[ACTION_MASK].any(axis=-1).all():
        raise ValueError(
            f"At least one action is valid in every state. Received: {ACTION_MASK}={arrays[ACTION_MASK].astype(int)}"
        )
    return arrays, leading


def unflattened(rows: np.ndarray, leading: tuple[int, ...]) -> np.ndarray:
    """Returns rows `[N, ...]` with the leading dimensions that `batched` returned; a row alone where there are none."""
    return rows.reshape(*leading, *rows.shape[1:]) if leading else rows[0]


def numbers_as(value: Any, dtype: str) -> np.ndarray:
    """Returns a part of an observation with the dtype.

    Raises:
        TypeError, ValueError: it has parts of different shapes, or this would not keep its meaning.
    """
    if value is None:
        raise TypeError("real values, not None")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError("its parts have different shapes") from error
    if array.dtype == dtype:
        return array
    if array.dtype.kind in NO_NUMBERS:
        raise TypeError(f"real values, not {array.dtype}")
    if (
        dtype == "uint8"
        and array.dtype.kind != "b"
        and not ((array >= 0) & (array <= 255) & (array == np.floor(array))).all()
    ):
        raise ValueError("an image holds whole numbers from 0 to 255")
    with np.errstate(over="ignore"):  # what is too large for float32 is refused as infinite
        return np.asarray(array, dtype)


def checked_action(what: str, action: Any, of: ArraySpec | DiscreteSpec, leading: tuple[int, ...] = ()) -> np.ndarray:
    """Returns actions in the environment's units, as its `step` takes them, if its space has them.

    Args:
        what: takes or returns them, for the message: "act returns".
        action: `[..., *of.shape]`.
        of: the spec of one action.
        leading: dimensions before those of one action.

    Raises:
        ValueError: another shape, other numbers than the spec's, or some beyond its bounds.
    """
    shape, numbers, kinds = (*leading, *of.shape), "finite numbers", "iuf"
    if isinstance(of, DiscreteSpec):
        numbers, kinds = "whole numbers", "iub"
    try:
        given = np.asarray(action)
    except ValueError:
        given = np.asarray(action, object)  # rows of different lengths
    if given.dtype.kind == "f":
        with np.errstate(over="ignore"):
            given = given.astype(np.float32)  # as the bounds are
    if given.shape != shape or given.dtype.kind not in kinds or not np.isfinite(given).all():
        raise ValueError(f"{what} {numbers} of the shape {shape}. Received: {shown(action)} of the shape {given.shape}")
    low, high = (of.start, of.start + of.num_actions - 1) if isinstance(of, DiscreteSpec) else (of.low, of.high)
    given = given.astype(np.float32 if isinstance(of, ArraySpec) else np.int64)
    clipped = np.clip(given, low, high)
    # A bound of another dtype is another float32 than the spec's, which is rounded inwards.
    if not np.allclose(given, clipped, rtol=1e-6, atol=0.0):
        raise ValueError(f"{what} an action from {low} to {high}. Received: {shown(action)}")
    return clipped.astype(of.native_dtype)[()] if isinstance(of, DiscreteSpec) else clipped


def check_mask(what: str, action: Any, observation: Any, spec: Spec) -> None:
    """Refuses a discrete action of the environment's that the observation's mask, if there is one, does not allow.

    Args:
        what: takes or returns it, for the message: "act returns".
        action, observation: of one environment; with P agents `[P]` and a mask `[P, A]`.
        spec: of the environment.

    Raises:
        ValueError: a forbidden action.
    """
    if ACTION_MASK in spec.observation and isinstance(spec.action, DiscreteSpec):
        mask = np.asarray(observation[ACTION_MASK], bool)
        number = np.asarray(action, np.int64)[..., None] - spec.action.start
        if not np.take_along_axis(mask, number, -1).all():
            raise ValueError(
                f"{what} an action that its mask allows. Received: {shown(action)} with {ACTION_MASK}="
                f"{mask.astype(int).tolist()}"
            )


class ActionRescaling:
    """Maps [-1, 1] to `[low, high]`, each dimension on its own.

    Args:
        low, high: bounds `[A]`, or `[P, A]` of P agents.
    """

    def __init__(self, low: np.ndarray, high: np.ndarray):
        self.low: np.ndarray = low
        self.high: np.ndarray = high
        self.scale = 0.5 * (high - low)

    def inverse(self, action: np.ndarray) -> np.ndarray:
        """Returns actions `[..., A]` in [-1, 1] for actions in the environment's units."""
        return (action - self.low) / self.scale - 1.0

    def __call__(self, action: np.ndarray) -> np.ndarray:
        """Returns actions `[..., A]` in the environment's units, clipped to its bounds."""
        scaled = self.low + (action + 1.0) * self.scale
        return np.minimum(np.maximum(scaled, self.low), self.high)  # in half the time of np.clip


class ActionNumbering(NamedTuple):
    """Maps discrete actions, numbered from 0, to the environment's own numbers.

    Attributes:
        start: the environment's number of the first action.
        dtype: of the environment's numbers.
    """

    start: int
    dtype: str = "int64"

    def inverse(self, action: np.ndarray) -> np.ndarray:
        """Returns int32 numbers from 0 for the environment's numbers, of any shape."""
        return (np.asarray(action, np.int64) - self.start).astype(np.int32)

    def __call__(self, action: np.ndarray) -> np.ndarray:
        """Returns the environment's numbers of actions that are numbered from 0, of any shape."""
        return (np.asarray(action, np.int64) + self.start).astype(self.dtype, copy=False)


def action_map(spec: Spec) -> ActionRescaling | ActionNumbering:
    """Returns what turns an agent's actions into an environment's.

    Raises:
        ValueError: real actions without bounds.
    """
    action = spec.action
    if isinstance(action, DiscreteSpec):
        return ActionNumbering(action.start, action.native_dtype)
    if action.low is None or action.high is None:
        raise ValueError(f"Actions are rescaled to bounds. Received: {action}")
    return ActionRescaling(action.low, action.high)
