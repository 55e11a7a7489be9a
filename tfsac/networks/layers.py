"""Layers with batch statistics and dropout, for one network or for N critics with stacked weights.

`forward` computes with the weights that it is given, so that one formula serves a single network, each critic of a
stack, a whole stack at once, and NumPy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfsac.networks.bfloat16 import OPTION
from tfsac.networks.initializers import registered

if TYPE_CHECKING:
    from tfsac.networks.batch_normalization import BatchNormalization

EPSILON = 1e-6  # of layer and RMS normalisation

Value = Callable[[keras.Variable], Any]  # returns the value to use for a variable
Mask = Callable[[str, float, int], tf.Tensor]  # dropout factors `[N, B, F]` for a layer's name, rate and F
LayerCall = Callable[..., Any]  # computes a layer from its inputs


class NumpyFunctions:
    """NumPy's functions under the names of `keras.ops`, for formulas that acting and training share."""

    abs, concatenate, exp, log = np.abs, np.concatenate, np.exp, np.log
    maximum, minimum, ones_like, sqrt = np.maximum, np.minimum, np.ones_like, np.sqrt
    min, stack, sum, tanh, where = np.min, np.stack, np.sum, np.tanh, np.where

    @staticmethod
    def clip(x: np.ndarray, low: float, high: float) -> np.ndarray:
        """Returns x clipped to its bounds; NumPy's own function takes twice as long for one entry."""
        return np.minimum(np.maximum(x, low), high)

    @staticmethod
    def sigmoid(x: np.ndarray) -> np.ndarray:
        """Returns `1 / (1 + exp(-x))`, without overflow."""
        return 0.5 * (1.0 + np.tanh(0.5 * x))

    @staticmethod
    def softplus(x: np.ndarray) -> np.ndarray:
        """Returns `log(1 + exp(x))`, without overflow."""
        return np.logaddexp(np.zeros([], x.dtype), x)

    @staticmethod
    def split(x: np.ndarray, parts: int, axis: int = -1) -> list[np.ndarray]:
        """Returns parts of equal width; NumPy's own function takes several times as long."""
        width = x.shape[-1] // parts
        return [x[..., i * width : (i + 1) * width] for i in range(parts)]

    @staticmethod
    def stop_gradient(x: np.ndarray) -> np.ndarray:
        """Returns the array, which has no gradient."""
        return x


def functions_of(x: Any) -> Any:
    """Returns the functions to use with `x`: NumPy's for an array, otherwise `keras.ops`."""
    return NumpyFunctions if isinstance(x, np.ndarray) else keras.ops


class ForwardMode(NamedTuple):
    """Options of layers that do not always compute the same.

    Attributes:
        batch_statistics: whether batch normalisation uses the batch's statistics instead of the running ones.
        moments: collects the statistics by layer, in the order of the critics, to update the running ones; or None.
        mask: returns the dropout factors, 0 for dropped units and otherwise 1 / (1 - rate); None for no dropout.
        critic: index of the critic that computes; None for all N at once.
    """

    batch_statistics: bool = False
    moments: dict[BatchNormalization, list[tuple[tf.Tensor, tf.Tensor]]] | None = None
    mask: Mask | None = None
    critic: int | None = None


INFERENCE = ForwardMode()


class SavedLayer(keras.layers.Layer):
    """A layer that Keras can save and rebuild: every argument of its class is also an attribute."""

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments, as Keras saves them."""
        names = inspect.signature(type(self)).parameters
        return {name: keras.saving.serialize_keras_object(getattr(self, name)) for name in names}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SavedLayer:
        """Returns a layer from the result of `get_config`."""
        return cls(**keras.saving.deserialize_keras_object(config))

    def track(self, inner: list[BodyLayer]) -> None:
        """Stores layers as attributes: TensorFlow's checkpoints leave out layers that are only in a list."""
        for i, layer in enumerate(inner):
            setattr(self, f"layer_{i}", layer)


class BodyLayer(SavedLayer):
    """A layer of a body; its weights are `[N, ...]` for N critics, `[...]` for one network (`critics` is None)."""

    def __init__(self, name: str, critics: int | None = None):
        super().__init__(name=name)
        self.critics = critics

    def weight(self, name: str, shape: tuple[int, ...], initializer: Any, trainable: bool = True) -> keras.Variable:
        """Creates a weight of this shape for each critic."""
        stack = () if self.critics is None else (self.critics,)
        return self.add_weight(name=name, shape=(*stack, *shape), initializer=initializer, trainable=trainable)

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns the output for x `[B, F]`, a tensor or (in inference) an array, with a value for each variable."""
        raise NotImplementedError

    def call(self, x: Any) -> Any:
        """Returns the output of one network for x `[B, F]` in inference."""
        return self.forward(x, tensor)


def tensor(variable: keras.Variable) -> tf.Tensor:
    """Returns a variable's value."""
    return variable.value


@registered
class Linear(BodyLayer):
    """A dense layer without activation; for N critics the initialiser makes a kernel `[N, F, units]`."""

    def __init__(
        self,
        name: str,
        units: int,
        initializer: keras.initializers.Initializer,
        critics: int | None = None,
        use_bias: bool = True,
        bias_initializer: Any = "zeros",
    ):
        super().__init__(name, critics)
        self.units, self.initializer = units, initializer
        self.use_bias, self.bias_initializer = use_bias, bias_initializer

    def build(self, shape: Any) -> None:
        """Creates the weights."""
        self.kernel = self.weight("kernel", (shape[-1], self.units), self.initializer)
        self.bias = self.weight("bias", (self.units,), self.bias_initializer) if self.use_bias else None

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns `x W + b`."""
        x = x @ value(self.kernel)
        return x if self.bias is None else x + value(self.bias)


@registered
class Float32Linear(Linear):
    """The last layer of critics, in float32 even if the other layers compute in bfloat16; see `product`."""

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns `x W + b`."""
        return product(x, value(self.kernel)) + value(self.bias)


def product(x: Any, kernel: Any) -> Any:
    """Returns `x W` in float32, from which the operations that follow stay in float32.

    bfloat16 has 8 significant bits, so a Q between 512 and 1024 would be a multiple of 4, and probabilities would not
    sum to 1.
    """
    if tf.is_tensor(x) and tf.config.optimizer.get_experimental_options().get(OPTION, False):
        # The graph optimizer casts operations by their type, and does not know this one.
        return tf.raw_ops.BatchMatMulV3(x=x, y=kernel, Tout=tf.float32)
    return x @ kernel


@registered
class Float32Dense(keras.layers.Dense):
    """`Float32Linear` for V and logits; its weights are named like those of a dense layer in checkpoints."""

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Returns `x W + b`."""
        dense: Any = self
        return Float32Linear.forward(dense, inputs, tf.convert_to_tensor)


@registered
class Activation(BodyLayer):
    """An activation function, by its Keras name."""

    def __init__(self, name: str, function: str):
        super().__init__(name)
        self.function = function
        self.activation = keras.activations.get(function)

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns the activation."""
        if isinstance(x, np.ndarray):
            return NUMPY_ACTIVATIONS[self.activation.__name__](x)
        return self.activation(x)


NUMPY_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0, out=x),
    "tanh": lambda x: np.tanh(x, out=x),
}


@registered
class Dropout(BodyLayer):
    """Drops units at this rate if the mode has a mask, and scales up the others."""

    def __init__(self, name: str, rate: float):
        super().__init__(name)
        self.rate = rate

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns the remaining units."""
        if mode.mask is None:
            return x
        factors_NBF = mode.mask(self.name, self.rate, x.shape[-1])
        return x * (factors_NBF if mode.critic is None else factors_NBF[mode.critic])


@registered
class LayerNormalization(BodyLayer):
    """Normalises each entry by its mean and standard deviation, then scales and shifts it (arXiv 1607.06450)."""

    def build(self, shape: Any) -> None:
        """Creates the weights."""
        self.scale, self.bias = self.weight("scale", (shape[-1],), "ones"), self.weight("bias", (shape[-1],), "zeros")

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns normalised entries."""
        normalised = centred_and_scaled(x)[0] if isinstance(x, np.ndarray) else standardized(x)
        return normalised * value(self.scale) + value(self.bias)


@registered
class RMSNormalization(BodyLayer):
    """Divides each entry by its root mean square, then scales it (arXiv 1910.07467)."""

    def build(self, shape: Any) -> None:
        """Creates the scale."""
        self.scale = self.weight("scale", (shape[-1],), "ones")

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns normalised entries."""
        return x * (over_units(x * x) + EPSILON) ** -0.5 * value(self.scale)


def over_units(x: Any) -> Any:
    """Returns the mean over the units of each entry, `[B, 1]`."""
    return x.mean(-1, keepdims=True) if isinstance(x, np.ndarray) else tf.reduce_mean(x, axis=-1, keepdims=True)


def centred_and_scaled(x: Any) -> tuple[Any, Any]:
    """Returns the standardised entries, and one over their standard deviation, `[B, 1]`."""
    x = x - over_units(x)
    factor = (over_units(x * x) + EPSILON) ** -0.5
    return x * factor, factor


@tf.custom_gradient  # type: ignore[untyped-decorator]
def standardized(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Returns each entry minus its mean, divided by its standard deviation."""
    y, factor = centred_and_scaled(x)

    # The gradient is written by hand: TensorFlow's own makes more passes over the batch.
    def gradient(dy: tf.Tensor) -> tf.Tensor:
        return (dy - over_units(dy) - y * over_units(dy * y)) * factor

    return y, gradient


@registered
class Residual(BodyLayer):
    """`x + f(x)`, where f is a sequence of layers."""

    def __init__(self, name: str, layers: list[BodyLayer]):
        super().__init__(name)
        self.layers = layers
        self.track(layers)

    def build(self, shape: Any) -> None:
        """Creates the weights of its layers."""
        build(self.layers, shape)

    def forward(self, x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
        """Returns the sum."""
        return x + forward(self.layers, x, value, mode)


def build(layers: list[BodyLayer], shape: Any) -> Any:
    """Creates the weights of a sequence of layers on `[..., F]`, and returns the last shape."""
    for layer in layers:
        if not layer.built:
            layer.build(shape)
            layer.built = True
        shape = (*shape[:-1], layer.units) if isinstance(layer, Linear) else shape
    return shape


def forward(layers: list[BodyLayer], x: Any, value: Value, mode: ForwardMode = INFERENCE) -> Any:
    """Returns the output of a sequence of layers; see `BodyLayer.forward`."""
    for layer in layers:
        x = layer.forward(x, value, mode)
    return x


@registered
class CriticEnsemble(SavedLayer):
    """N bodies with an output layer each: `[B, F]` to `[B, N, K]`, or to `[B, N]` if `scalar`, with K = 1.

    A GPU computes a layer of all critics `at_once`. A CPU is faster with one critic after the other.
    """

    def __init__(self, body: list[BodyLayer], output_layer: Linear, scalar: bool):
        super().__init__(name="critics")
        self.body, self.output_layer, self.scalar = body, output_layer, scalar
        self.layers = [*body, output_layer]
        self.track(self.layers)
        self.at_once = bool(tf.config.list_logical_devices("GPU"))

    def build(self, shape: Any) -> None:
        """Creates the weights."""
        build(self.layers, shape)

    def call(self, x: tf.Tensor, mode: ForwardMode = INFERENCE, critic_indices: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the outputs for features and actions `[B, F]`, of the critics with these indices `[M]` or of all."""
        critics: Any = self.output_layer.critics if critic_indices is None else critic_indices.shape[0]
        weights = {
            id(variable): variable.value if critic_indices is None else tf.gather(variable.value, critic_indices)
            for variable in self.weights
            if len(variable.shape)
        }
        if self.at_once:
            y_NBK = forward(self.layers, x, aligned(lambda variable: weights[id(variable)]), mode)
            y_BNK = tf.transpose(y_NBK, [1, 0, 2])
        else:
            parts = {key: tf.unstack(weight) for key, weight in weights.items()}
            values: list[Value] = [lambda variable, i=i: parts[id(variable)][i] for i in range(critics)]  # type: ignore[misc]
            outputs = [forward(self.layers, x, value, mode._replace(critic=i)) for i, value in enumerate(values)]
            y_BNK = tf.stack(outputs, axis=1)
        return y_BNK[:, :, 0] if self.scalar else y_BNK

    def arrays(self, x: np.ndarray, value: Value) -> np.ndarray:
        """Returns the outputs in inference, with NumPy; see `BodyLayer.forward`."""
        y_BNK = np.swapaxes(forward(self.layers, x, aligned(value)), 0, 1)
        return y_BNK[:, :, 0] if self.scalar else y_BNK


def aligned(value: Value) -> Value:
    """Returns the weights of all critics in shapes for computing all at once: biases `[N, F]` as `[N, 1, F]`."""

    def of(variable: Any) -> Any:
        y = value(variable)
        return y if len(y.shape) == 3 else y[:, None]

    return of
