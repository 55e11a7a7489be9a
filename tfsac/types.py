"""The few structs that travel between environments, memories and agents.

They are NamedTuples, so ``tf.nest`` maps over them. This module imports nothing of tfsac and no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class ArraySpec(NamedTuple):
    """Shape, dtype and bounds of one array, without a batch dimension.

    Attributes:
        shape: sizes of the dimensions.
        dtype: name of a NumPy dtype, ``"float32"`` or ``"uint8"``.
        low: lower bounds `shape`, or None where there are none.
        high: upper bounds `shape`, or None where there are none.
    """

    shape: tuple[int, ...]
    dtype: str
    low: np.ndarray | None = None
    high: np.ndarray | None = None


class Spec(NamedTuple):
    """What an agent sees and does; every network and memory is built from it.

    Attributes:
        observation: the arrays of one observation by key; a plain box has the one key ``"observation"``.
        action: bounds are the environment's own, the agent acts in [-1, 1].
        extras: what `act` returns to be stored beside each step.
    """

    observation: dict[str, ArraySpec]
    action: ArraySpec
    extras: dict[str, ArraySpec] = {}


class Transition(NamedTuple):
    """A batch of steps; leading dimensions `[B]`, or `[U, B]` when stacked for U updates.

    Attributes:
        observation: arrays `[B, ...]` by key.
        action: `[B, A]`, in [-1, 1].
        reward: `[B]`, after the reward filters.
        discount: `[B]`, gamma^k * (1 - terminated): it is zero where the task ended and not where time ran out.
        next_observation: arrays `[B, ...]` by key.
        weight: `[B]` importance weights, or ().
        extras: arrays `[B, ...]` by name.
    """

    observation: Any
    action: Any
    reward: Any
    discount: Any
    next_observation: Any
    weight: Any = ()
    extras: Any = ()


class ActResult(NamedTuple):
    """What `Agent.act` returns: actions `[N, A]` in [-1, 1], the policy's next state, and what is stored beside the step."""

    action: np.ndarray
    state: Any = ()
    extras: Mapping[str, np.ndarray] = {}


class UpdateResult(NamedTuple):
    """What `Agent.update` returns.

    Attributes:
        metrics: `[U, M]` float32, one row an update; `Agent.metric_names` names the columns.
        priority: `[U, B]` float32, the absolute TD error of every row, mean over the critics; empty unless the agent's
            memory is prioritised.
    """

    metrics: np.ndarray
    priority: np.ndarray


Metrics = dict[str, Any]
