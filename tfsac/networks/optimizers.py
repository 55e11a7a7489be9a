"""Optimizers from NetworkParameters, and their steps: on one device or on several replicas together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from tfsac.errors import TfsacError
from tfsac.parameters import OPTIMIZERS, LearnedAlphaParameters, NetworkParameters

LearningRate: TypeAlias = float | Callable[..., Any]
DEFAULT_WEIGHT_DECAY = 0.004  # Keras's, of AdamW


def learning_rate_of(
    parameters: NetworkParameters | LearnedAlphaParameters, updates: tf.Variable | None = None
) -> LearningRate:
    """Returns a constant learning rate, or one that falls with `updates` (if None, with the optimizer's steps)."""
    rate, steps = parameters.learning_rate, parameters.learning_rate_decay_steps
    if isinstance(steps, str):
        raise TfsacError(f"learning_rate_decay_steps must be a number outside of a run, got {steps!r}")
    if not steps:
        return rate
    schedules, kind = keras.optimizers.schedules, parameters.learning_rate_decay_type
    if kind == "linear":
        schedule = schedules.PolynomialDecay(rate, steps, end_learning_rate=parameters.learning_rate_end)
    elif kind == "cosine":
        schedule = schedules.CosineDecay(rate, steps, alpha=parameters.learning_rate_end / rate)
    else:
        schedule = schedules.ExponentialDecay(rate, steps, parameters.learning_rate_decay_rate, staircase=True)
    return schedule if updates is None else lambda *_: schedule(tf.convert_to_tensor(updates))


def build_optimizer(
    parameters: NetworkParameters, variables: list[keras.Variable], updates: tf.Variable | None = None
) -> keras.optimizers.Optimizer:
    """Returns an optimizer with its slots built, so that a checkpoint can be restored into them.

    Raises:
        TfsacError: arguments that Keras's class does not accept.
    """
    name, fields = parameters.optimizer_type, OPTIMIZERS[parameters.optimizer_type]
    arguments = {argument: getattr(parameters, field) for field, argument in fields.items()}
    if parameters.weight_decay is not None:
        arguments["weight_decay"] = parameters.weight_decay
    optimizer_class: Any = getattr(keras.optimizers, "RMSprop" if name == "RMSProp" else name)
    if name in ("Adam", "AdamW") and not any(parameters.optimizer_kwargs.values()):
        optimizer_class = FusedAdam
        arguments.setdefault("weight_decay", DEFAULT_WEIGHT_DECAY if name == "AdamW" else 0.0)
    else:
        arguments |= parameters.optimizer_kwargs
    rate = learning_rate_of(parameters, updates)
    try:
        optimizer = optimizer_class(rate, **arguments)
    except (TypeError, ValueError) as error:
        raise TfsacError(f"optimizer_kwargs of {name}: {error}") from error
    optimizer.build(variables)
    return optimizer


class FusedAdam(keras.optimizers.Optimizer):
    """Adam, and AdamW, with each variable's step in one kernel instead of a dozen passes over its memory.

    The formula is Keras's: `lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)`; before it, the variable
    shrinks by the fraction `lr * weight_decay` (arXiv 1711.05101).
    """

    def __init__(
        self,
        learning_rate: LearningRate,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(learning_rate, weight_decay=weight_decay, name="adam")
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates the moments."""
        super().build(variables)
        self.momentums, self.velocities = self.add_optimizer_variables(variables, ["momentum", "velocity"])
        self.stepped = list(variables)

    def apply(self, grads: list[tf.Tensor], trainable_variables: list[keras.Variable] | None = None) -> None:
        """Takes one step; values that depend only on the step number are computed once for all variables."""
        t, rate = tf.cast(self.iterations + 1, tf.float32), tf.cast(self.learning_rate, tf.float32)
        powers = tf.pow(self.beta_1, t), tf.pow(self.beta_2, t)
        strategy = tf.distribute.get_strategy()
        for gradient, variable, *moments in zip(grads, self.stepped, self.momentums, self.velocities, strict=True):
            slots = [moment.value for moment in moments]
            strategy.extended.update(variable.value, self._step, args=(gradient, *slots, rate, *powers), group=False)
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable))
        self.iterations.assign_add(1)

    def _step(self, variable: Any, gradient: Any, m: Any, v: Any, rate: Any, power1: Any, power2: Any) -> None:
        if self.weight_decay:
            variable.assign_sub(rate * self.weight_decay * variable)
        slots = {"var": variable.handle, "m": m.handle, "v": v.handle}
        constants = {"beta1": self.beta_1, "beta2": self.beta_2, "epsilon": self.epsilon}
        powers = {"beta1_power": power1, "beta2_power": power2}
        tf.raw_ops.ResourceApplyAdam(**slots, **powers, **constants, lr=rate, grad=gradient)


def clip_gradients(gradients: list[tf.Tensor], bound: float, method: str, global_norm: tf.Tensor) -> list[tf.Tensor]:
    """Clips gradients by their global norm, each by its own norm, or each entry; see `NetworkParameters`."""
    if method == "global_norm":
        return tf.clip_by_global_norm(gradients, bound, use_norm=global_norm)[0]
    if method == "norm":
        return [tf.clip_by_norm(gradient, bound) for gradient in gradients]
    return [tf.clip_by_value(gradient, -bound, bound) for gradient in gradients]


def apply_on_replicas(
    optimizer: keras.optimizers.Optimizer, gradients: list[tf.Tensor], variables: list[keras.Variable]
) -> None:
    """Takes one step on all replicas with gradients that are equal on each: agents average them before clipping."""

    def of_all(strategy: tf.distribute.Strategy, *gradients: Any) -> None:
        if isinstance(optimizer, FusedAdam):
            optimizer.apply(list(gradients), variables)
            return
        rate, decay = optimizer.learning_rate, optimizer.weight_decay

        # Keras's `apply` would add the gradients of the replicas up.
        def step(variable: tf.Variable, gradient: tf.Tensor, rate: tf.Tensor) -> None:
            if decay:
                variable.assign_sub(rate * decay * variable)
            optimizer.update_step(gradient, variable, rate)

        def constrain(variable: tf.Variable, constraint: Any) -> None:
            variable.assign(constraint(variable))

        for gradient, variable in zip(gradients, variables, strict=True):
            strategy.extended.update(variable.value, step, args=(gradient, rate), group=False)
        for variable in variables:
            if variable.constraint is not None:  # from a custom model
                strategy.extended.update(variable.value, constrain, args=(variable.constraint,))
        optimizer.iterations.assign_add(1)

    tf.distribute.get_replica_context().merge_call(of_all, args=tuple(gradients))


def assign(pairs: list[tuple[tf.Variable, tf.Tensor]]) -> None:
    """Assigns values, equal on every replica, to variables, given as pairs of variable and value."""
    if tf.distribute.get_strategy().num_replicas_in_sync == 1 or tf.distribute.in_cross_replica_context():
        for variable, value in pairs:
            variable.assign(value)
        return

    def assign_all(strategy: tf.distribute.Strategy, *values: Any) -> None:
        for (variable, _), value in zip(pairs, values, strict=True):
            strategy.extended.update(variable, lambda v, value: v.assign(value), args=(value,))

    tf.distribute.get_replica_context().merge_call(assign_all, args=tuple(value for _, value in pairs))


def move_towards(pairs: list[tuple[tf.Variable, tf.Variable]], rate: float | tf.Tensor) -> None:
    """Moves the first variable of each pair towards the second: `first <- first - rate * (first - second)`."""
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        assign([(first, first - tf.cast(rate, first.dtype) * (first - second)) for first, second in pairs])
        return
    for first, second in pairs:
        alpha = tf.cast(rate, first.dtype)
        tf.raw_ops.ResourceApplyGradientDescent(var=first.handle, alpha=alpha, delta=first - second)
