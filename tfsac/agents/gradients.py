"""What a step hands to the optimizer."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf


class Gradients(NamedTuple):
    """Gradients of one network's weights: by variable, and their global norm."""

    name: str
    values: list[tf.Tensor]
    norm: tf.Tensor


def no_gradients(name: str) -> Gradients:
    """Returns what stands for the gradients of a step that is left out."""
    return Gradients(name, [], tf.zeros([]))
