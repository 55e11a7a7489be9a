"""Teams that share one policy: the team axis `[B, P, ...]` is folded into the batch, `[B * P, ...]`, and unfolded
again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def fold(tree: Any) -> Any:
    """Returns arrays or tensors `[B, P, ...]` as `[B * P, ...]`."""
    return tf.nest.map_structure(lambda x: _reshape(x, (-1, *x.shape[2:])), tree)


def unfold(tree: Any, num_agents: int | tf.Tensor) -> Any:
    """Returns arrays or tensors `[B * P, ...]` as `[B, P, ...]`."""
    return tf.nest.map_structure(lambda x: _reshape(x, (-1, num_agents, *x.shape[1:])), tree)


def _reshape(x: Any, shape: tuple[Any, ...]) -> Any:
    return tf.reshape(x, shape) if tf.is_tensor(x) else np.reshape(x, shape)
