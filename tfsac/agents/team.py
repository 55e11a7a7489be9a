"""Several agents that share one policy: their axis `[B, N, ...]` is folded into the batch, `[B * N, ...]`, and unfolded again."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.types import Transition


def fold(tree: Any) -> Any:
    """Returns arrays or tensors `[B, N, ...]` as `[B * N, ...]`."""
    return tf.nest.map_structure(lambda x: _reshape(x, (-1, *x.shape[2:])), tree)


def unfold(tree: Any, num_agents: int | tf.Tensor) -> Any:
    """Returns arrays or tensors `[B * N, ...]` as `[B, N, ...]`."""
    return tf.nest.map_structure(lambda x: _reshape(x, (-1, num_agents, *x.shape[1:])), tree)


def fold_batch(batch: Transition, num_agents: int) -> Transition:
    """Returns a batch of teams as a batch of agents: what is told of a team `[B, ...]` counts for each of its agents."""

    def of_each(x: tf.Tensor) -> tf.Tensor:
        return tf.repeat(x, num_agents, axis=0)

    return Transition(
        observation=fold(batch.observation),
        action=fold(batch.action),
        reward=of_each(batch.reward),
        discount=of_each(batch.discount),
        next_observation=fold(batch.next_observation),
        weight=tf.nest.map_structure(of_each, batch.weight),
        extras=tf.nest.map_structure(of_each, batch.extras),
    )


def _reshape(x: Any, shape: tuple[Any, ...]) -> Any:
    return tf.reshape(x, shape) if tf.is_tensor(x) else np.reshape(x, shape)
