"""Heads: the last layers of policies, V and twin Q."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import keras
import numpy as np

from tfsac.networks.bfloat16 import ValueLayer
from tfsac.networks.embedders import dense_layers
from tfsac.networks.initializers import Initializers, SideBySide, uniform
from tfsac.parameters import (
    LOG_STD_BOUNDS,
    CategoricalPolicyHeadParameters,
    ClassParameters,
    DiscreteQHeadParameters,
    GaussianPolicyHeadParameters,
    QHeadParameters,
    SACPolicyHeadParameters,
    SACQHeadParameters,
    TrajectoryQHeadParameters,
    TwinQHeadParameters,
    VHeadParameters,
)
from tfsac.types import DiscreteSpec, Spec


def action_size(spec: Spec) -> int:
    """Returns the number of discrete actions, or of the dimensions of a continuous one."""
    return spec.action.num_actions if isinstance(spec.action, DiscreteSpec) else spec.action.shape[0]


class Head:
    """The last layers of a network, which it makes once and connects more than once.

    Args:
        parameters: of the head.
        spec: what the network reads, and the actions.
        hidden: initialisers of hidden layers.
        seeds: of the initialisers of the output layers.

    Attributes:
        judges_actions: whether it also reads an action `[B, A]`.
        outputs: the output layers of a policy's head.
    """

    judges_actions: ClassVar[bool] = False
    outputs: Sequence[keras.Layer] = ()
    __call__: Callable[..., Any]

    def __init__(self, parameters: ClassParameters, spec: Spec, hidden: Initializers, seeds: np.random.Generator):
        pass


class PolicyHead(Head):
    """Location and log standard deviation of a squashed Gaussian: features `[B, F]` to two `[B, A]`, in one product of
    matrices.

    Attributes:
        output: the layer of both, `[B, 2 A]`, whose first weights are those of two layers.
    """

    def __init__(
        self, parameters: SACPolicyHeadParameters, spec: Spec, hidden: Initializers, seeds: np.random.Generator
    ):
        kernels, size = Initializers(parameters.initializer, seeds), action_size(spec)
        if parameters.init_w is None:
            kernel, bias = SideBySide([kernels.next(), kernels.next()]), keras.initializers.Zeros()
        else:
            kernel, bias = uniform(parameters.init_w, seeds), uniform(parameters.init_w, seeds)
        self.output = keras.layers.Dense(
            2 * size, kernel_initializer=kernel, bias_initializer=bias, name="mean_and_log_std"
        )
        self.outputs = [self.output]
        self.log_std, self.log_std_bounds = parameters.log_std, parameters.log_std_bounds

    def __call__(self, features: keras.KerasTensor) -> list[keras.KerasTensor]:
        """Connects the head."""
        mean, log_std = keras.ops.split(self.output(features), 2, axis=-1)
        return [mean, self.bounded(log_std, keras.ops)]

    def bounded(self, log_std: Any, functions: Any) -> Any:
        """Returns the log standard deviation inside its bounds, computed with the functions of `keras.ops` or NumPy."""
        low, high = self.log_std_bounds
        if self.log_std == "tanh":
            return low + 0.5 * (high - low) * (1.0 + functions.tanh(log_std))
        if (low, high) == LOG_STD_BOUNDS:  # where the distribution clips
            return log_std
        return functions.clip(log_std, low, high)


class CategoricalHead(Head):
    """Logits of discrete actions: features `[B, F]` to `[B, A]`."""

    def __init__(
        self, parameters: CategoricalPolicyHeadParameters, spec: Spec, hidden: Initializers, seeds: np.random.Generator
    ):
        initializer = Initializers(parameters.initializer, seeds).next()
        self.logits = keras.layers.Dense(action_size(spec), kernel_initializer=initializer, name="logits")
        self.outputs = [self.logits]

    def __call__(self, features: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        return self.logits(features)


class GaussianHead(Head):
    """Mean of a Gaussian `[B, A]`, and its variances before they are made positive: `[B, A]`, or `[B, 1]` for one
    of all.
    """

    def __init__(
        self, parameters: GaussianPolicyHeadParameters, spec: Spec, hidden: Initializers, seeds: np.random.Generator
    ):
        output, size = Initializers(parameters.initializer, seeds), action_size(spec)
        activation = "tanh" if parameters.bound_mean else "linear"
        variances = size if parameters.covariance == "diagonal" else 1
        self.mean = keras.layers.Dense(size, activation=activation, kernel_initializer=output.next(), name="mean")
        self.variance = keras.layers.Dense(variances, kernel_initializer=output.next(), name="variance")
        self.outputs = [self.mean, self.variance]

    def __call__(self, features: keras.KerasTensor) -> list[keras.KerasTensor]:
        """Connects the head."""
        return [self.mean(features), self.variance(features)]


class FeaturesHead(Head):
    """Passes the features on, for other networks to read."""

    def __call__(self, features: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        return features


class VHead(Head):
    """One state value: features `[B, F]` to `[B]`."""

    def __init__(self, parameters: VHeadParameters, spec: Spec, hidden: Initializers, seeds: np.random.Generator):
        self.out = ValueLayer(1, kernel_initializer=Initializers(parameters.initializer, seeds).next(), name="v")

    def __call__(self, features: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        return keras.layers.Reshape(())(self.out(features))


class QHead(Head):
    """N independent Q functions, two or one: features `[B, F]` and action `[B, A]` to `[B, N]`."""

    judges_actions: ClassVar[bool] = True

    def __init__(self, parameters: SACQHeadParameters, spec: Spec, hidden: Initializers, seeds: np.random.Generator):
        self.critics = _twin_critics(parameters, 1, hidden, seeds)

    def __call__(self, features: keras.KerasTensor, action: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        outputs = _connect(self.critics, keras.layers.Concatenate()([features, action]))
        return keras.layers.Concatenate()(outputs) if len(outputs) > 1 else outputs[0]


class DiscreteQHead(Head):
    """N independent Q functions, two or one, of all actions at once: features `[B, F]` to `[B, N, A]`."""

    def __init__(
        self, parameters: DiscreteQHeadParameters, spec: Spec, hidden: Initializers, seeds: np.random.Generator
    ):
        self.critics = _twin_critics(parameters, action_size(spec), hidden, seeds)

    def __call__(self, features: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        return keras.ops.stack(_connect(self.critics, features), axis=1)


class TrajectoryQHead(Head):
    """N independent Q functions of D rewards: features `[B, F]` and a trajectory's fields `[B, K]` to `[B, N, D]`."""

    judges_actions: ClassVar[bool] = True

    def __init__(
        self, parameters: TrajectoryQHeadParameters, spec: Spec, hidden: Initializers, seeds: np.random.Generator
    ):
        def output(name: str) -> keras.layers.Dense:
            kernel, bias = uniform(parameters.init_w, seeds), uniform(parameters.init_w, seeds)
            return ValueLayer(spec.num_rewards or 1, kernel_initializer=kernel, bias_initializer=bias, name=name)

        self.critics = _critics(parameters, parameters.num_critics, output, hidden)

    def __call__(self, features: keras.KerasTensor, trajectory: keras.KerasTensor) -> keras.KerasTensor:
        """Connects the head."""
        return keras.ops.stack(_connect(self.critics, keras.layers.Concatenate()([features, trajectory])), axis=1)


def _twin_critics(
    parameters: TwinQHeadParameters, size: int, hidden: Initializers, seeds: np.random.Generator
) -> list[list[keras.layers.Dense]]:
    initializer = Initializers(parameters.initializer, seeds)

    def output(name: str) -> keras.layers.Dense:
        return ValueLayer(size, kernel_initializer=initializer.next(), name=name)

    return _critics(parameters, parameters.num_critics, output, hidden)


def _critics(
    parameters: QHeadParameters, count: int, output: Callable[[str], keras.layers.Dense], hidden: Initializers
) -> list[list[keras.layers.Dense]]:
    """Returns the layers of each Q function."""
    return [
        [*dense_layers(parameters.network_layers_sizes, parameters.activation_function, hidden), output(f"q{i + 1}")]
        for i in range(count)
    ]


def _connect(critics: list[list[keras.layers.Dense]], inputs: keras.KerasTensor) -> list[keras.KerasTensor]:
    outputs = []
    for layers in critics:
        x = inputs
        for layer in layers:
            x = layer(x)
        outputs.append(x)
    return outputs
