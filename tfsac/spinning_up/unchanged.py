"""Whether a function leaves an environment as Gymnasium makes it, by the attributes that it sets."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

Met = dict[tuple[int, int], tuple[Any, Any]]
SCALARS = int | float | complex | str | bytes | np.generic


def leaves_as_made(env_fn: Callable[[], gym.Env]) -> bool:
    """Returns whether what a function makes has the attributes of what Gymnasium makes of the same spec.

    Attributes in which two environments of Gymnasium's differ, such as a time, are not compared.

    Args:
        env_fn: makes an environment that has a spec.
    """
    made: list[gym.Env] = []
    try:
        made.append(env_fn())
        assert made[0].spec is not None
        spec = dataclasses.replace(made[0].spec, additional_wrappers=())
        made += [gym.make(spec), gym.make(spec)]
        layer: Any = made[0]
        while isinstance(layer, gym.Wrapper):
            if {"reset", "step"} & vars(layer).keys():
                return False
            layer = layer.env
        one, plain, other = vars(layer), vars(made[1].unwrapped), vars(made[2].unwrapped)
        if type(layer) is not type(made[1].unwrapped) or one.keys() != plain.keys():
            return False
        return all(_equal(one[key], plain[key]) for key in one if _equal(plain[key], other[key]))
    finally:
        for env in made:
            env.close()


def _equal(one: Any, other: Any, met: Met | None = None) -> bool:
    """Returns whether values are equal: scalars, texts, arrays, functions, and objects of these.

    Args:
        one, other: values.
        met: pairs that are being compared, so that objects may refer to each other.
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, SCALARS):
        return bool(one == other or (one != one and other != other))
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
    met = {} if met is None else met
    if (id(one), id(other)) in met:
        return True
    met[id(one), id(other)] = one, other  # kept alive, so that no other object gets their ids
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_equal(a, b, met) for a, b in zip(one, other, strict=True))
    if isinstance(one, types.FunctionType):
        return one.__code__ == other.__code__ and _equal(_values_of(one), _values_of(other), met)
    fields, others = _fields(one), _fields(other)
    return fields.keys() == others.keys() and all(_equal(fields[key], others[key], met) for key in fields)


def _values_of(function: types.FunctionType) -> list[Any]:
    """Returns what a function's code refers to outside of its arguments and globals."""
    return [function.__defaults__, function.__kwdefaults__, [c.cell_contents for c in function.__closure__ or ()]]


def _fields(value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return value
    if str(getattr(type(value), "__module__", "")).startswith("mujoco"):  # structures without a dict
        public = {name: getattr(value, name, None) for name in dir(value) if not name.startswith("_")}
        return {name: x for name, x in public.items() if isinstance(x, np.ndarray | SCALARS) or name == "opt"}
    return getattr(value, "__dict__", {})
