"""Heads: the last layers of policies, V and Q."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import keras
from numpy.random import Generator

from tfsac.networks.bodies import body_layers
from tfsac.networks.initializers import Initializers, Parts
from tfsac.networks.layers import CriticEnsemble, Float32Dense, Float32Linear, LayerCall, functions_of
from tfsac.parameters import (
    LOG_STD_BOUNDS,
    CategoricalPolicyHeadParameters,
    ClassParameters,
    GaussianPolicyHeadParameters,
    HybridPolicyHeadParameters,
    QHeadParameters,
    SACPolicyHeadParameters,
    VHeadParameters,
)
from tfsac.types import DiscreteSpec, HybridSpec, Spec


def action_size(spec: Spec) -> int:
    """Returns the number of discrete actions, or of dimensions of a continuous action (or part)."""
    if isinstance(spec.action, HybridSpec):
        return spec.action.action_size
    return spec.action.num_actions if isinstance(spec.action, DiscreteSpec) else spec.action.shape[0]


def judges_actions(spec: Spec) -> bool:
    """Returns whether Q reads actions: continuous ones, or the continuous part of hybrid ones."""
    return not isinstance(spec.action, DiscreteSpec) and action_size(spec) > 0


class Head:
    """The last layers of a network, created once and connected several times.

    Args:
        parameters, spec: parameters of the head; spec of the network's inputs and the actions.
        hidden, seeds: initialisers of hidden layers, and seeds of the output layers' initialisers.

    Attributes:
        judges_actions: whether it also reads an action `[B, A]`.
        outputs: the output layers.
    """

    judges_actions: bool = False
    outputs: Sequence[keras.Layer] = ()

    def __init__(self, parameters: ClassParameters, spec: Spec, hidden: Initializers, seeds: Generator):
        pass

    def __call__(self, features: Any, action: Any = None, call: LayerCall = operator.call) -> Any:
        """Connects the head: returns the outputs for features `[B, F]` (and actions `[B, A]`).

        Only tfsac's own heads need `call`, which computes a layer, in NumPy if features are an array.
        """
        outputs = [call(layer, features) for layer in self.outputs]
        return outputs if len(outputs) > 1 else outputs[0]


class PolicyHead(Head):
    """Location and log standard deviation of a squashed Gaussian: features `[B, F]` to two `[B, A]`, in one matrix
    product; its initial weights are those of two layers.
    """

    def __init__(self, parameters: SACPolicyHeadParameters, spec: Spec, hidden: Initializers, seeds: Generator):
        size, output = 2 * action_size(spec), Initializers(parameters.initializer, seeds, parameters.init_w)
        kernel, bias = output.next(), output.next()
        if parameters.init_w is None:  # these are the kernels of two layers
            kernel, bias = Parts([kernel, bias], stacked=False), keras.initializers.Zeros()
        self.output = keras.layers.Dense(
            size, kernel_initializer=kernel, bias_initializer=bias, name="mean_and_log_std"
        )
        self.outputs = [self.output]
        self.log_std, self.log_std_bounds = parameters.log_std, parameters.log_std_bounds

    def __call__(self, features: Any, action: Any = None, call: LayerCall = operator.call) -> list[Any]:
        """Connects the head; the log standard deviation is inside its bounds."""
        both, (low, high) = call(self.output, features), self.log_std_bounds
        functions = functions_of(both)
        mean, log_std = functions.split(both, 2, axis=-1)
        if self.log_std == "tanh":
            log_std = low + 0.5 * (high - low) * (1.0 + functions.tanh(log_std))
        elif (low, high) != LOG_STD_BOUNDS:  # otherwise the distribution clips
            log_std = functions.clip(log_std, low, high)
        return [mean, log_std]


class CategoricalHead(Head):
    """Logits of discrete actions: features `[B, F]` to `[B, A]`."""

    def __init__(self, parameters: CategoricalPolicyHeadParameters, spec: Spec, hidden: Initializers, seeds: Generator):
        initializer = Initializers(parameters.initializer, seeds).next()
        self.logits = Float32Dense(action_size(spec), kernel_initializer=initializer, name="logits")
        self.outputs = [self.logits]


class HybridHead(Head):
    """Features `[B, F]` to the logits of all factors, side by side, `[B, S]`, and to location and log standard
    deviation of the continuous part, two `[B, A]`; if the action lacks one part, only to the other.
    """

    def __init__(self, parameters: HybridPolicyHeadParameters, spec: Spec, hidden: Initializers, seeds: Generator):
        action: Any = spec.action
        self.parts: list[Head] = []
        if action.sizes:
            logits = CategoricalPolicyHeadParameters(initializer=parameters.initializer)
            self.parts += [
                CategoricalHead(logits, spec._replace(action=DiscreteSpec(sum(action.sizes))), hidden, seeds)
            ]
        if action.action_size:
            gaussian = SACPolicyHeadParameters(
                initializer=parameters.initializer, log_std_bounds=parameters.log_std_bounds, log_std=parameters.log_std
            )
            self.parts += [PolicyHead(gaussian, spec, hidden, seeds)]
        self.outputs = [layer for part in self.parts for layer in part.outputs]

    def __call__(self, features: Any, action: Any = None, call: LayerCall = operator.call) -> list[Any]:
        """Connects the head."""
        outputs = [part(features, call=call) for part in self.parts]
        return [x for output in outputs for x in (output if isinstance(output, list) else [output])]


class GaussianHead(Head):
    """Mean `[B, A]` of a Gaussian, and its variances before they are made positive: `[B, A]`, or `[B, 1]` if shared."""

    def __init__(self, parameters: GaussianPolicyHeadParameters, spec: Spec, hidden: Initializers, seeds: Generator):
        output, size = Initializers(parameters.initializer, seeds), action_size(spec)
        activation = "tanh" if parameters.bound_mean else "linear"
        variances = size if parameters.covariance == "diagonal" else 1
        self.mean = keras.layers.Dense(size, activation=activation, kernel_initializer=output.next(), name="mean")
        self.variance = keras.layers.Dense(variances, kernel_initializer=output.next(), name="variance")
        self.outputs = [self.mean, self.variance]


class FeaturesHead(Head):
    """Passes the features on, for other networks to read."""

    def __call__(self, features: Any, action: Any = None, call: LayerCall = operator.call) -> Any:
        """Returns the features."""
        return features


class VHead(Head):
    """One state value: features `[B, F]` to `[B]`."""

    def __init__(self, parameters: VHeadParameters, spec: Spec, hidden: Initializers, seeds: Generator):
        self.out = Float32Dense(1, kernel_initializer=Initializers(parameters.initializer, seeds).next(), name="v")

    def __call__(self, features: Any, action: Any = None, call: LayerCall = operator.call) -> Any:
        """Connects the head."""
        return keras.layers.Reshape(())(call(self.out, features))


class QHead(Head):
    """N independent Q functions of features `[B, F]` and of continuous actions `[B, A]`, if any.

    They return Q `[B, N]`; return distributions `[B, N, K]`; Q of all discrete actions `[B, N, A]`, or of all
    combinations of factors `[B, N, K]`; or Q of D rewards `[B, N, D]`. Subclasses put other layers into `critics` in
    their `__init__`: updates compute those.
    """

    def __init__(self, parameters: QHeadParameters, spec: Spec, hidden: Initializers, seeds: Generator):
        critics, size = parameters.num_critics, outputs_of_critic(parameters, spec)
        self.judges_actions = judges_actions(spec)
        layers = body_layers(parameters.body, hidden, critics)
        output, uniform = Initializers(parameters.initializer, seeds, parameters.init_w), parameters.init_w is not None
        kernel = output.next(critics=None if uniform else critics)
        bias = output.next() if uniform else keras.initializers.Zeros()
        last = Float32Linear("out", size[0] if size else 1, kernel, critics, bias_initializer=bias)
        self.critics = CriticEnsemble(layers, last, scalar=not size)

    def __init_subclass__(cls) -> None:
        if "__call__" in vars(cls):
            raise TypeError(
                f"{cls.__name__} must put its layers into self.critics instead of defining __call__; a head that "
                "computes something else is a subclass of tfsac.networks.Head"
            )
        super().__init_subclass__()

    def __call__(self, features: Any, action: Any = None, call: LayerCall = operator.call) -> Any:
        """Connects the head."""
        x = features if action is None else functions_of(action).concatenate([features, action], axis=-1)
        return call(self.critics, x)


def outputs_of_critic(parameters: QHeadParameters, spec: Spec) -> tuple[int, ...]:
    """Returns the shape of each critic's output for one entry, `()` for a single Q."""
    if isinstance(spec.action, DiscreteSpec):
        return (spec.action.num_actions,)
    if isinstance(spec.action, HybridSpec):
        return (spec.action.num_joint_actions,)
    if spec.num_rewards is not None:
        return (spec.num_rewards,)
    distribution: Any = parameters.distribution
    if distribution is None:
        return ()
    return (distribution.num_atoms if distribution.kind == "categorical" else distribution.num_quantiles,)
