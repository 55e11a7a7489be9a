"""Specs of action spaces, and the conversion between an agent's actions and the environment's.

No other module knows the structure of a space of several actions; agents see the flat form of `HybridSpec`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from tfsac.errors import TfsacError
from tfsac.types import ActionSpec, ArraySpec, DiscreteSpec, FactorsSpec, HybridSpec, map_action

SEVERAL = (gym.spaces.Dict, gym.spaces.Tuple, gym.spaces.MultiDiscrete)  # spaces of several actions


def action_spec(space: Any, team: bool = False) -> ActionSpec:
    """Returns the spec of an action space that `check` accepts, for one agent or a team."""
    if isinstance(space, SEVERAL) and not team:
        return hybrid_spec(space)
    if not isinstance(space, gym.spaces.Box):
        size, start = (space.nvec[0], space.start[0]) if space.shape else (space.n, space.start)
        return DiscreteSpec(int(size), space.shape, int(start), native_dtype=np.dtype(space.dtype).name)
    return ArraySpec(space.shape, "float32", float32_bound(space.low, 1), float32_bound(space.high, -1))


def hybrid_spec(space: gym.Space[Any]) -> HybridSpec:
    """Returns the spec of a MultiDiscrete, or of a Dict or Tuple of Box, Discrete and MultiDiscrete spaces."""
    leaves: dict[str, FactorsSpec | ArraySpec] = {}
    for name, leaf in named_leaves(space):
        dtype = np.dtype(leaf.dtype).name
        if isinstance(leaf, gym.spaces.Box):
            leaves[name] = ArraySpec(leaf.shape, dtype, float32_bound(leaf.low, 1), float32_bound(leaf.high, -1))
            continue
        numbers: Any = leaf
        sizes = np.ravel(numbers.nvec if isinstance(leaf, gym.spaces.MultiDiscrete) else numbers.n)
        starts = np.ravel(numbers.start)
        leaves[name] = FactorsSpec(tuple(sizes.tolist()), tuple(starts.tolist()), leaf.shape or (), dtype)
    names = iter(leaves)

    def structure(part: gym.Space[Any]) -> Any:
        if isinstance(part, gym.spaces.Dict):
            return {key: structure(inner) for key, inner in part.spaces.items()}
        return tuple(map(structure, part.spaces)) if isinstance(part, gym.spaces.Tuple) else next(names)

    return HybridSpec(leaves, structure(space))


def named_leaves(space: gym.Space[Any], name: str = "") -> Iterator[tuple[str, gym.Space[Any]]]:
    """Yields the spaces inside a Dict or Tuple in order, or the space itself, with their names in `HybridSpec`."""
    if isinstance(space, gym.spaces.Dict):
        for key, part in space.spaces.items():
            yield from named_leaves(part, f"{name}_{key}" if name else str(key))
    elif isinstance(space, gym.spaces.Tuple):
        for i, part in enumerate(space.spaces):
            yield from named_leaves(part, f"{name or 'action'}_{i}")
    else:
        yield name or "action", space


def float32_bound(bound: np.ndarray, inwards: int) -> np.ndarray:
    """Returns a bound in float32, rounded inwards (1 up, -1 down), so that the space still contains it."""
    rounded = bound.astype(np.float32)
    beyond = rounded < bound if inwards > 0 else rounded > bound
    return np.where(beyond, np.nextafter(rounded, np.float32(inwards * np.inf)), rounded)


def checked_action(
    subject: str, action: Any, of: ActionSpec | FactorsSpec, leading: tuple[int, ...] | None = (), mask: Any = None
) -> Any:
    """Returns actions in the form that an environment's `step` takes, or raises TfsacError.

    Args:
        subject: start of the error message, such as "act returns".
        action: `[*leading, *of.shape]` in the environment's units.
        of: the spec of one action.
        leading: leading dimensions before those of one action, or None for any.
        mask: `[*of.shape, n]`, which of n discrete actions are allowed, or `[S]` for all factors; None allows all.
    """
    if isinstance(of, HybridSpec):
        return _checked_leaves(subject, action, of, leading, mask)
    array = np.asarray(action)
    if leading is None:
        leading = array.shape[: max(array.ndim - len(of.shape), 0)]
    shape = (*leading, *of.shape)
    low: Any
    high: Any
    if not isinstance(of, ArraySpec):
        kind, (low, high) = "integers", numbers_of(of)
        if array.dtype.kind in "iub" and array.shape == shape and ((low <= array) & (array <= high)).all():
            index = (array.astype(np.int64) - low)[..., None]
            if isinstance(of, FactorsSpec):
                index = index.reshape(*leading, -1) + np.cumsum([0, *of.sizes[:-1]])
            if mask is None or np.take_along_axis(np.asarray(mask, bool), index, -1).all():
                return array.astype(of.native_dtype)[()]
    else:
        kind, low, high = "floats", of.low, of.high
        if array.dtype.kind in "iuf" and array.shape == shape:
            array = array.astype(np.float32)
            clipped = np.clip(array, low, high)
            # Bounds of another dtype may round to another float32 than the spec's, which are rounded inwards.
            if np.allclose(array, clipped, rtol=1e-6, atol=0.0):
                return clipped
    allowed = "" if mask is None else f" that the mask {np.asarray(mask, int).tolist()} allows"
    raise TfsacError(f"{subject} {kind} of the shape {shape} from {low} to {high}{allowed}, got {action!r}")


def _checked_leaves(subject: str, action: Any, of: HybridSpec, leading: tuple[int, ...] | None, mask: Any) -> Any:
    try:
        leaves = of.leaves_in(action)
    except (LookupError, TypeError, ValueError):
        structure = map_action(str, of.structure)
        raise TfsacError(f"{subject} actions of the structure {structure}, got {action!r}") from None
    checked, begin = {}, 0
    for name, leaf in of.leaves.items():
        size = sum(leaf.sizes) if isinstance(leaf, FactorsSpec) else 0
        part = None if mask is None or not size else np.asarray(mask)[..., begin : begin + size]
        checked[name] = checked_action(f"{subject} in {name!r}", leaves[name], leaf, leading, part)
        begin += size
    return of.structured(checked)


def numbers_of(action: DiscreteSpec | FactorsSpec) -> tuple[Any, Any]:
    """Returns the environment's first and last number of a discrete action, or of every factor."""
    if isinstance(action, DiscreteSpec):
        return action.start, action.start + action.num_actions - 1
    starts = np.reshape(action.starts, action.shape)
    return starts, starts + np.reshape(action.sizes, action.shape) - 1


class ActionMap:
    """Converts an agent's actions into the environment's: from [-1, 1] to `[low, high]` per dimension, or from numbers
    starting at 0 to the environment's own numbers.

    Args:
        action: the spec of one action, of a single agent or a team.
    """

    def __init__(self, action: ArraySpec | DiscreteSpec | FactorsSpec):
        self.action = action
        if isinstance(action, ArraySpec):
            assert action.low is not None and action.high is not None
            self.low, self.high, self.scale = action.low, action.high, 0.5 * (action.high - action.low)
        else:
            self.start = numbers_of(action)[0]

    def __call__(self, action: np.ndarray) -> np.ndarray:
        """Converts an agent's actions, with any leading dimensions, into the environment's, clipped to the bounds."""
        if not isinstance(self.action, ArraySpec):
            return (np.asarray(action, np.int64) + self.start).astype(self.action.native_dtype, copy=False)
        scaled = self.low + (action + 1.0) * self.scale
        inside = np.minimum(np.maximum(scaled, self.low), self.high)  # takes half the time of np.clip
        return inside.astype(self.action.dtype, copy=False)

    def inverse(self, action: np.ndarray) -> np.ndarray:
        """Converts the environment's actions, with any leading dimensions, into the agent's."""
        if not isinstance(self.action, ArraySpec):
            return (np.asarray(action, np.int64) - self.start).astype(np.int32)
        return (action - self.low) / self.scale - 1.0


class HybridActionMap:
    """Converts an agent's hybrid actions into the structure of the environment's action space.

    Args:
        action: the spec of one action.
    """

    def __init__(self, action: HybridSpec):
        self.action, self.maps = action, {name: ActionMap(leaf) for name, leaf in action.leaves.items()}

    def __call__(self, action: Any) -> Any:
        """Converts an agent's actions, with any leading dimensions, into the environment's; see `ActionMap`."""
        leaves = self.action.split(action, np.reshape)
        return self.action.structured({name: self.maps[name](x) for name, x in leaves.items()})

    def inverse(self, action: Any) -> Any:
        """Converts the environment's actions, with any leading dimensions, into the agent's."""
        parts: dict[bool, list[np.ndarray]] = {False: [], True: []}
        for name, x in self.action.leaves_in(action).items():
            leaf, array = self.action.leaves[name], np.asarray(x)
            is_array = isinstance(leaf, ArraySpec)
            numbers = self.maps[name].inverse(array).astype(np.float32 if is_array else np.int32, copy=False)
            parts[is_array].append(numbers.reshape(*array.shape[: array.ndim - len(leaf.shape)], -1))
        return self.action.whole(*(np.concatenate(part, axis=-1) if part else None for part in parts.values()))


def action_map(spec: Any) -> Any:
    """Returns the map from an agent's actions to the environment's; `inverse` maps them back."""
    return HybridActionMap(spec.action) if isinstance(spec.action, HybridSpec) else ActionMap(spec.action)


# -- masks of several actions ------------------------------------------------------------------------------------------


def flat_mask(mask: Any, action: HybridSpec) -> np.ndarray:
    """Flattens a mask in the structure of the action, as `gymnasium.Space.sample` takes it, to booleans `[..., S]`: the
    valid values of all factors, concatenated. The parts of Boxes are None or missing.

    Raises:
        TfsacError: a mask with wrong parts or sizes.
    """
    parts = [np.asarray(part) for part in _parts_of(mask, action.structure)]
    if tuple(part.shape[-1] if part.ndim else 0 for part in parts) != action.sizes:
        received = [part.shape for part in parts]
        raise TfsacError(f"a mask must have an array for each factor, of the sizes {action.sizes}, got {received}")
    return np.concatenate(parts, axis=-1).astype(bool)


def _parts_of(mask: Any, keys: Iterable[str] = ()) -> Iterator[Any]:
    """Yields the arrays of a mask; those of a dict in the order of the keys."""
    if isinstance(mask, dict):
        mask = tuple(mask.get(key) for key in keys or mask)
    if isinstance(mask, tuple) or (isinstance(mask, list) and not all(map(np.isscalar, mask))):  # of a Tuple
        for part in mask:
            yield from _parts_of(part)
    elif mask is not None:
        yield mask


def nested_mask(mask: Any, action: HybridSpec) -> Any:
    """Converts a mask `[S]` to the form that `gymnasium.Space.sample` takes: int8 arrays in the structure of the
    action, a tuple of them for a MultiDiscrete, and None for a Box.
    """
    factors = iter(np.split(np.asarray(mask, np.int8), action.offsets[1:]) if action.sizes else ())

    def nested(shape: tuple[int, ...]) -> Any:
        return tuple(nested(shape[1:]) for _ in range(shape[0])) if shape else next(factors)

    return action.structured(
        {name: nested(leaf.shape) if isinstance(leaf, FactorsSpec) else None for name, leaf in action.leaves.items()}
    )
