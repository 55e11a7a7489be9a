"""Batch normalisation and renormalisation, over the batch entries of all replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfsac.networks.initializers import registered
from tfsac.networks.layers import INFERENCE, BodyLayer, ForwardMode, Value

EPSILON, FLASH_EPSILON = 1e-3, 1e-5
MOMENTUM = 0.99
LARGEST_RATIO, LARGEST_DISTANCE = 3.0, 5.0  # limits of renormalisation
WARM_UP = 100_000  # calls before it starts


@registered
class BatchNormalization(BodyLayer):
    """Normalises each unit by its mean and standard deviation, then scales and shifts it (arXiv 1502.03167).

    The statistics are those of the global batch with the mode's `batch_statistics`, otherwise the running ones. With
    `renorm` they are corrected towards the running ones, within `bounds`, after `warm_up` updates of these (arXiv
    1702.03275, algorithm 1). With `unbiased` the running variance is the sample's, `n / (n - 1)` times the batch's.
    """

    def __init__(
        self,
        name: str,
        critics: int | None = None,
        renorm: bool = False,
        epsilon: float = EPSILON,
        unbiased: bool = False,
    ):
        super().__init__(name, critics)
        self.renorm, self.epsilon, self.unbiased = renorm, epsilon, unbiased
        self.momentum, self.warm_up, self.bounds = MOMENTUM, WARM_UP, (LARGEST_RATIO, LARGEST_DISTANCE)

    def build(self, shape: Any) -> None:
        """Creates weights and running statistics."""
        self.scale, self.bias = self.weight("scale", (shape[-1],), "ones"), self.weight("bias", (shape[-1],), "zeros")
        self.mean = self.weight("mean", (shape[-1],), "zeros", trainable=False)
        self.variance = self.weight("variance", (shape[-1],), "ones", trainable=False)
        if self.renorm:
            self.steps = self.add_weight(name="steps", initializer="zeros", trainable=False)

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns normalised units."""
        if not mode.batch_statistics:
            factor = value(self.scale) * (value(self.variance) + self.epsilon) ** -0.5
            return (x - value(self.mean)) * factor + value(self.bias)
        inputs = tf.stop_gradient(x)
        mean = over_rows(inputs)
        centred = inputs - mean
        variance = over_rows(tf.square(centred))
        if mode.moments is not None:
            mode.moments.setdefault(self, []).append((mean, variance * self._unbiased_factor(x)))
        deviation = tf.sqrt(variance + self.epsilon)
        scale, bias = value(self.scale), value(self.bias)
        if self.renorm:
            ratio, distance = self._correction(mean, deviation, value)
            scale, bias = scale * ratio, bias + scale * distance
        return normalized(x, centred, deviation, scale, bias)

    def _unbiased_factor(self, x: tf.Tensor) -> float:
        rows = x.shape[-2] * tf.distribute.get_strategy().num_replicas_in_sync
        return rows / (rows - 1) if self.unbiased else 1.0

    def _correction(self, mean: tf.Tensor, deviation: tf.Tensor, value: Value) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns r and d of batch renormalisation; 1 and 0 during the warm-up."""
        largest_ratio, largest_distance = self.bounds
        running = tf.sqrt(value(self.variance) + self.epsilon)
        ratio = tf.clip_by_value(deviation / running, 1.0 / largest_ratio, largest_ratio)
        distance = tf.clip_by_value((mean - value(self.mean)) / running, -largest_distance, largest_distance)
        warm = tf.cast(self.steps.value >= self.warm_up, ratio.dtype)
        return 1.0 + warm * (ratio - 1.0), warm * distance

    def update_statistics(self, moments: list[tuple[tf.Tensor, tf.Tensor]]) -> None:
        """Moves the running statistics towards those of a batch: mean and variance `[1, F]` per critic, or `[N, 1, F]`
        for all critics.
        """
        for variable, batch_moments in zip((self.mean, self.variance), zip(*moments, strict=True), strict=True):
            # One row if the critics share an input.
            rows = tf.concat([tf.reshape(x, [-1, x.shape[-1]]) for x in batch_moments], axis=0)
            rows = tf.broadcast_to(tf.stop_gradient(rows), [self.critics or 1, rows.shape[-1]])
            batch = tf.reshape(rows, variable.shape)
            variable.assign(self.momentum * variable.value + (1.0 - self.momentum) * batch)
        if self.renorm:
            self.steps.assign(self.steps.value + 1.0)


@tf.custom_gradient  # type: ignore[untyped-decorator]
def normalized(
    x: tf.Tensor, centred: tf.Tensor, deviation: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor | None, ...]]]:
    """Returns the normalised units, scaled and shifted.

    The gradient of x includes the paths through its mean and deviation; `centred` (x minus its mean) and `deviation`
    get none. It is written by hand, like that of `standardized`.
    """
    factor = scale / deviation

    def gradient(dy: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        mean_dy, mean_dy_centred = (tf.reduce_mean(tensor, axis=-2, keepdims=True) for tensor in (dy, dy * centred))
        slope = over_replicas(mean_dy_centred) / tf.square(deviation)
        dx = factor * (dy - over_replicas(mean_dy) - centred * slope)
        if dx.shape.rank > x.shape.rank:  # an input that all critics of a stack share
            dx = tf.reduce_sum(dx, axis=0)
        rows = x.shape[-2]
        scale_gradient = tf.reshape(rows * mean_dy_centred / deviation, scale.shape)
        bias_gradient = tf.reshape(rows * mean_dy, bias.shape)
        return dx, None, None, scale_gradient, bias_gradient

    return centred * factor + bias, gradient


def over_replicas(x: tf.Tensor) -> tf.Tensor:
    """Returns the mean of a tensor over the replicas."""
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return x
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, x)


def over_rows(x: tf.Tensor) -> tf.Tensor:
    """Returns the mean of each unit over the entries of the global batch, `[1, F]`."""
    return over_replicas(tf.reduce_mean(x, axis=-2, keepdims=True))
