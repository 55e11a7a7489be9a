"""Hidden layers that know batch statistics and dropout, of one network or of N critics whose weights are stacked.

A layer computes with weights that it is given (`forward`), so that one formula serves one network, each critic of a
stack, all of a stack at once, and NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfsac.networks.bfloat16 import float32_product

EPSILON = 1e-6  # of layer and RMS normalisation
BATCH_EPSILON, FLASH_EPSILON = 1e-3, 1e-5
MOMENTUM = 0.99
LARGEST_RATIO, LARGEST_DISTANCE = 3.0, 5.0  # of batch renormalisation
WARM_UP = 100_000  # calls without it

Value = Callable[[keras.Variable], Any]  # what to compute with in a variable's place


class ForwardMode(NamedTuple):
    """How layers compute that do not always compute the same.

    Attributes:
        batch_statistics: batch normalisation by the statistics of the batch, else by the running ones.
        moments: takes the statistics of each layer in the order of the critics, to move the running ones; or None.
        mask: returns dropout's factors `[B, F]` for a layer's name and rate and F, 0 for units that are left out and
            1 / (1 - rate) for the others; None for no dropout.
    """

    batch_statistics: bool = False
    moments: dict[BatchNormalization, list[tuple[tf.Tensor, tf.Tensor]]] | None = None
    mask: Callable[[str, float, int], tf.Tensor] | None = None


INFERENCE = ForwardMode()


class BodyLayer(keras.layers.Layer):
    """A layer of a body.

    Args:
        name: of the layer, and the beginning of its weights' names.
        critics: N where its weights are those of N critics, `[N, ...]`; None for one network.
    """

    def __init__(self, name: str, critics: int | None = None):
        super().__init__(name=name)
        self.critics = critics

    def weight(self, name: str, shape: tuple[int, ...], initializer: Any, trainable: bool = True) -> keras.Variable:
        """Makes a weight of this shape for each critic."""
        stack = () if self.critics is None else (self.critics,)
        return self.add_weight(
            name=name,
            shape=(*stack, *shape),
            initializer=initializer,
            trainable=trainable,
        )

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns the layer of x `[B, F]`.

        Args:
            x: tensor, or array in inference.
            value: what to compute with in the place of each variable.
            mode: how.
        """
        raise NotImplementedError

    def call(self, x: Any) -> Any:
        """Returns the layer of x `[B, F]` in inference, of one network."""
        return self.forward(x, tensor)


def tensor(variable: keras.Variable) -> tf.Tensor:
    """Returns a variable's value."""
    return variable.value


class Linear(BodyLayer):
    """A dense layer without activation.

    Args:
        name, critics: see `BodyLayer`.
        units: its width.
        initializer: of the kernel; of a stack it makes `[N, F, units]`.
        use_bias: whether it adds a bias.
    """

    def __init__(
        self,
        name: str,
        units: int,
        initializer: keras.initializers.Initializer,
        critics: int | None = None,
        use_bias: bool = True,
    ):
        super().__init__(name, critics)
        self.units, self.initializer, self.use_bias = units, initializer, use_bias

    def build(self, shape: Any) -> None:
        """Makes the weights."""
        self.kernel = self.weight("kernel", (shape[-1], self.units), self.initializer)
        self.bias = self.weight("bias", (self.units,), "zeros") if self.use_bias else None

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns `x W + b`; see `BodyLayer.forward`."""
        x = self.product(x, value(self.kernel))
        return x if self.bias is None else x + value(self.bias)

    def product(self, x: Any, kernel: Any) -> Any:
        """Returns `x W`."""
        return x @ kernel


class ValueLinear(Linear):
    """The last layer of critics, in float32 whatever the others compute in."""

    def product(self, x: Any, kernel: Any) -> Any:
        """Returns `x W`."""
        return float32_product(x, kernel)


class Activation(BodyLayer):
    """An activation function.

    Args:
        name: see `BodyLayer`.
        function: Keras's name.
    """

    def __init__(self, name: str, function: str):
        super().__init__(name)
        self.activation = keras.activations.get(function)

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns the activation; see `BodyLayer.forward`."""
        if isinstance(x, np.ndarray):
            return NUMPY_ACTIVATIONS[self.activation.__name__](x)
        return self.activation(x)


NUMPY_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0, out=x),
    "tanh": lambda x: np.tanh(x, out=x),
}


class Dropout(BodyLayer):
    """Leaves out units where the mode has a mask, and scales the others up.

    Args:
        name: see `BodyLayer`.
        rate: of the units that are left out.
    """

    def __init__(self, name: str, rate: float):
        super().__init__(name)
        self.rate = rate

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns what is kept; see `BodyLayer.forward`."""
        if mode.mask is None:
            return x
        return x * mode.mask(self.name, self.rate, x.shape[-1])


class LayerNormalization(BodyLayer):
    """Each row minus its mean, divided by its deviation, times a scale, plus a bias (arXiv 1607.06450)."""

    def build(self, shape: Any) -> None:
        """Makes the weights."""
        self.scale, self.bias = self.weight("scale", (shape[-1],), "ones"), self.weight("bias", (shape[-1],), "zeros")

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns normalised rows; see `BodyLayer.forward`."""
        normalised = centred_and_scaled(x)[0] if isinstance(x, np.ndarray) else standardized(x)
        return normalised * value(self.scale) + value(self.bias)


class RMSNormalization(BodyLayer):
    """Each row divided by the root of its mean square, times a scale (arXiv 1910.07467)."""

    def build(self, shape: Any) -> None:
        """Makes the scale."""
        self.scale = self.weight("scale", (shape[-1],), "ones")

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns normalised rows; see `BodyLayer.forward`."""
        return x * (over_units(x * x) + EPSILON) ** -0.5 * value(self.scale)


def over_units(x: Any) -> Any:
    """Returns the mean of each row, `[B, 1]`."""
    return x.mean(-1, keepdims=True) if isinstance(x, np.ndarray) else tf.reduce_mean(x, axis=-1, keepdims=True)


def centred_and_scaled(x: Any) -> tuple[Any, Any]:
    """Returns each row minus its mean divided by its deviation, and one over that deviation, `[B, 1]`."""
    x = x - over_units(x)
    factor = (over_units(x * x) + EPSILON) ** -0.5
    return x * factor, factor


@tf.custom_gradient  # type: ignore[untyped-decorator]
def standardized(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Returns each row minus its mean divided by its deviation."""
    y, factor = centred_and_scaled(x)

    # The derivative by hand: TensorFlow's own has more steps, each of which passes over all rows.
    def gradient(dy: tf.Tensor) -> tf.Tensor:
        return (dy - over_units(dy) - y * over_units(dy * y)) * factor

    return y, gradient


class BatchNormalization(BodyLayer):
    """Each unit minus its mean, divided by its deviation, times a scale, plus a bias (arXiv 1502.03167).

    Mean and deviation are those of the global batch while it learns, and running ones otherwise.

    Args:
        name, critics: see `BodyLayer`.
        renorm: the batch's statistics are corrected towards the running ones, after a warm-up (arXiv 1702.03275,
            algorithm 1).
        epsilon: added to the variance.
        unbiased: the running variance is that of samples, `n / (n - 1)` times the batch's.

    Attributes:
        momentum: decay of the running statistics.
        warm_up: calls in which running statistics moved, before it renormalises.
        bounds: of the ratio of deviations and of the distance of means in deviations.
    """

    def __init__(
        self,
        name: str,
        critics: int | None = None,
        renorm: bool = False,
        epsilon: float = BATCH_EPSILON,
        unbiased: bool = False,
    ):
        super().__init__(name, critics)
        self.renorm, self.epsilon, self.unbiased = renorm, epsilon, unbiased
        self.momentum, self.warm_up, self.bounds = MOMENTUM, WARM_UP, (LARGEST_RATIO, LARGEST_DISTANCE)

    def build(self, shape: Any) -> None:
        """Makes weights and running statistics."""
        self.scale, self.bias = self.weight("scale", (shape[-1],), "ones"), self.weight("bias", (shape[-1],), "zeros")
        self.mean = self.weight("mean", (shape[-1],), "zeros", trainable=False)
        self.variance = self.weight("variance", (shape[-1],), "ones", trainable=False)
        if self.renorm:
            self.steps = self.add_weight(name="steps", initializer="zeros", trainable=False)

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns normalised units; see `BodyLayer.forward`."""
        if not mode.batch_statistics:
            factor = value(self.scale) * (value(self.variance) + self.epsilon) ** -0.5
            return (x - value(self.mean)) * factor + value(self.bias)
        known = tf.stop_gradient(x)
        mean = over_rows(known)
        centred = known - mean
        variance = over_rows(tf.square(centred))
        if mode.moments is not None:
            mode.moments.setdefault(self, []).append((mean, variance * self._of_samples(x)))
        deviation = tf.sqrt(variance + self.epsilon)
        scale, bias = value(self.scale), value(self.bias)
        if self.renorm:
            ratio, distance = self._correction(mean, deviation, value)
            scale, bias = scale * ratio, bias + scale * distance
        return normalized(x, centred, deviation, scale, bias)

    def _of_samples(self, x: tf.Tensor) -> float:
        rows = x.shape[-2] * tf.distribute.get_strategy().num_replicas_in_sync
        return rows / (rows - 1) if self.unbiased else 1.0

    def _correction(self, mean: tf.Tensor, deviation: tf.Tensor, value: Value) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns r and d of batch renormalisation; 1 and 0 in the warm-up."""
        largest_ratio, largest_distance = self.bounds
        running = tf.sqrt(value(self.variance) + self.epsilon)
        ratio = tf.clip_by_value(deviation / running, 1.0 / largest_ratio, largest_ratio)
        distance = tf.clip_by_value((mean - value(self.mean)) / running, -largest_distance, largest_distance)
        warm = tf.cast(self.steps.value >= self.warm_up, ratio.dtype)
        return 1.0 + warm * (ratio - 1.0), warm * distance

    def update_statistics(self, moments: list[tuple[tf.Tensor, tf.Tensor]]) -> None:
        """Moves the running statistics towards those of a batch.

        Args:
            moments: mean and variance `[1, F]` of each critic, or `[N, 1, F]` of all of them.
        """
        for variable, seen in zip((self.mean, self.variance), zip(*moments, strict=True), strict=True):
            batch = tf.reshape(tf.broadcast_to(tf.stop_gradient(tf.stack(seen)), self._stacked(seen)), variable.shape)
            variable.assign(self.momentum * variable.value + (1.0 - self.momentum) * batch)
        if self.renorm:
            self.steps.assign(self.steps.value + 1.0)

    def _stacked(self, seen: tuple[tf.Tensor, ...]) -> list[int]:
        return (
            [self.critics or 1, 1, seen[0].shape[-1]] if len(seen) > 1 else [1, self.critics or 1, 1, seen[0].shape[-1]]
        )


@tf.custom_gradient  # type: ignore[untyped-decorator]
def normalized(
    x: tf.Tensor, centred: tf.Tensor, deviation: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor | None, ...]]]:
    """Returns each unit minus its mean, divided by its deviation, times a scale, plus a bias.

    The gradient of x has what passes through its mean and deviation; `centred`, x minus its mean, and `deviation` get
    none. It is written by hand as that of `standardized` is.
    """
    factor = scale / deviation

    def gradient(dy: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        mean_dy = over_own_rows(dy)
        mean_dy_centred = over_own_rows(dy * centred)
        slope = over_replicas(mean_dy_centred) / tf.square(deviation)
        dx = factor * (dy - over_replicas(mean_dy) - centred * slope)
        if dx.shape.rank > x.shape.rank:  # an input that all critics of a stack share
            dx = tf.reduce_sum(dx, axis=0)
        rows = x.shape[-2]
        scale_gradient = tf.reshape(rows * mean_dy_centred / deviation, scale.shape)
        bias_gradient = tf.reshape(rows * mean_dy, bias.shape)
        return dx, None, None, scale_gradient, bias_gradient

    return centred * factor + bias, gradient


def over_own_rows(x: tf.Tensor) -> tf.Tensor:
    """Returns the mean of each unit over this replica's rows, `[1, F]`."""
    return tf.reduce_mean(x, axis=-2, keepdims=True)


def over_replicas(x: tf.Tensor) -> tf.Tensor:
    """Returns the mean of a tensor over the replicas."""
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return x
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, x)


def over_rows(x: tf.Tensor) -> tf.Tensor:
    """Returns the mean of each unit over the rows of the global batch, `[1, F]`."""
    return over_replicas(over_own_rows(x))


class Residual(BodyLayer):
    """`x + f(x)`.

    Args:
        name: see `BodyLayer`.
        layers: f, one after the other.
    """

    def __init__(self, name: str, layers: list[BodyLayer]):
        super().__init__(name)
        self.layers = layers
        track(self, layers)

    def build(self, shape: Any) -> None:
        """Makes the weights of its layers."""
        build(self.layers, shape)

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns the sum; see `BodyLayer.forward`."""
        return x + forward(self.layers, x, value, mode)


def track(layer: keras.layers.Layer, inner: list[BodyLayer]) -> None:
    """Makes layers attributes of another one: those of a list alone are not in TensorFlow's checkpoints."""
    for i, one in enumerate(inner):
        setattr(layer, f"layer_{i}", one)


def build(layers: list[BodyLayer], shape: Any) -> Any:
    """Makes the weights of layers that follow one another on `[..., F]`, and returns the last shape."""
    for layer in layers:
        if not layer.built:
            layer.build(shape)
            layer.built = True
        shape = (*shape[:-1], layer.units) if isinstance(layer, Linear) else shape
    return shape


def forward(layers: list[BodyLayer], x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
    """Returns what layers compute one after the other; see `BodyLayer.forward`."""
    for layer in layers:
        x = layer.forward(x, value, mode)
    return x
