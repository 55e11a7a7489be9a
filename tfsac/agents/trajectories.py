"""Trajectories of actions: what a temporally abstract policy goes on with, or replaces (arXiv 2104.06521, section 4).

A trajectory is a dict of arrays or tensors `[..., A]` in [-1, 1] by field: the action `tau_a`, its change in a step `tau_v` in units of
the range 2, and the change of that `tau_u`. The functions compute with NumPy or TensorFlow, whichever they are given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import tensorflow as tf

A, V, U = "tau_a", "tau_v", "tau_u"
Tau = dict[str, Any]


def _clip(x: Any) -> Any:
    return tf.clip_by_value(x, -1.0, 1.0) if tf.is_tensor(x) else np.clip(x, -1.0, 1.0)


class Trajectory(ABC):
    """A kind of trajectory.

    Attributes:
        fields: names of its fields; the first is the action.
    """

    fields: tuple[str, ...]

    @abstractmethod
    def step(self, tau: Tau) -> Tau:
        """Returns where a trajectory is one step later."""

    @abstractmethod
    def plan(self, action: Any, previous: Tau) -> Tau:
        """Returns the new trajectory for the policy's proposal `[..., A]` and the trajectory before."""


class ConstantTrajectory(Trajectory):
    """TAAC: the action is repeated."""

    fields = (A,)

    def step(self, tau: Tau) -> Tau:
        """Leaves the action as it is."""
        return tau

    def plan(self, action: Any, previous: Tau) -> Tau:
        """Takes the proposed action."""
        return {A: action}


class LinearTrajectory(Trajectory):
    """TaacL: the action changes by the same amount in each step, until it is at a bound.

    Args:
        inverse: the proposal is the new action, otherwise its change.
    """

    fields = (A, V)

    def __init__(self, inverse: bool):
        self.inverse = inverse

    def step(self, tau: Tau) -> Tau:
        """Moves the action by `2 v`."""
        return {A: _clip(tau[A] + 2.0 * tau[V]), V: tau[V]}

    def plan(self, action: Any, previous: Tau) -> Tau:
        """Takes the proposed action and infers the change, or takes the proposed change and makes a step."""
        if self.inverse:
            return {A: action, V: (action - previous[A]) / 2.0}
        return self.step({A: previous[A], V: action})


class QuadraticTrajectory(Trajectory):
    """TaacQ: the change of the action changes by the same amount in each step.

    Args:
        inverse: the proposal is the new action, otherwise the change of its change.
    """

    fields = (A, V, U)

    def __init__(self, inverse: bool):
        self.inverse = inverse

    def step(self, tau: Tau) -> Tau:
        """Moves the change by `2 u`, then the action by twice the new change."""
        v = _clip(tau[V] + 2.0 * tau[U])
        return {A: _clip(tau[A] + 2.0 * v), V: v, U: tau[U]}

    def plan(self, action: Any, previous: Tau) -> Tau:
        """Begins with a change of zero, and infers `v` and `u` from the action or takes the proposal as `u`."""
        if self.inverse:
            v = (action - previous[A]) / 2.0
            return {A: action, V: v, U: v / 2.0}
        return self.step({A: previous[A], V: 0.0 * previous[V], U: action})


def make_trajectory(kind: str, inverse: bool) -> Trajectory:
    """Returns the trajectory "constant", "linear" or "quadratic"."""
    if kind == "constant":
        return ConstantTrajectory()
    return {"linear": LinearTrajectory, "quadratic": QuadraticTrajectory}[kind](inverse)
