"""Moving slow copies of networks, also under a distribution strategy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf


def follow(slow: Iterable[keras.Variable], online: Iterable[keras.Variable], rate: Any) -> None:
    """Moves slow variables: `slow <- (1 - rate) * slow + rate * online`.

    Args:
        slow, online: in the same order.
        rate: a number or a scalar tensor.
    """
    pairs = [(variable.value, fast.value) for variable, fast in zip(slow, online, strict=True)]

    def assign(slow: tf.Variable, fast: tf.Variable, rate: Any) -> None:
        slow.assign_sub(rate * (slow - fast))

    def assign_everywhere(strategy: tf.distribute.Strategy, rate: Any) -> None:
        for slow, fast in pairs:
            strategy.extended.update(slow, assign, args=(fast, rate))

    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        for slow_value, fast_value in pairs:
            assign(slow_value, fast_value, rate)
    else:
        tf.distribute.get_replica_context().merge_call(assign_everywhere, args=(rate,))
