"""Steps that several replicas take together: of optimizers, of target networks, and other assignments."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfsac.networks.optimizer_steps import FusedAdam


def apply_on_replicas(
    optimizer: keras.optimizers.Optimizer, gradients: list[tf.Tensor], variables: list[keras.Variable]
) -> None:
    """Takes one step of all replicas with gradients that are the same on each, as agents average them before clipping.

    Args:
        optimizer: that was built for the variables.
        gradients: one for each variable.
        variables: to be changed.
    """

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
            if variable.constraint is not None:  # of a custom model
                strategy.extended.update(variable.value, constrain, args=(variable.constraint,))
        optimizer.iterations.assign_add(1)

    tf.distribute.get_replica_context().merge_call(of_all, args=tuple(gradients))


def polyak_average_on_replicas(pairs: list[tuple[tf.Variable, tf.Variable]], rate: Any) -> None:
    """Moves target variables of all replicas: `target <- (1 - rate) * target + rate * online`, for pairs of both."""

    def average(target: tf.Variable, online: tf.Variable, rate: Any) -> None:
        target.assign_sub(rate * (target - online))

    def of_all(strategy: tf.distribute.Strategy, rate: Any) -> None:
        for target, online in pairs:
            strategy.extended.update(target, average, args=(online, rate))

    tf.distribute.get_replica_context().merge_call(of_all, args=(rate,))


def assign(pairs: list[tuple[keras.Variable, tf.Tensor]]) -> None:
    """Gives variables values that are the same on every replica, for pairs of both."""
    if tf.distribute.get_strategy().num_replicas_in_sync == 1 or tf.distribute.in_cross_replica_context():
        for variable, value in pairs:
            variable.assign(value)
        return

    def set_value(variable: tf.Variable, value: tf.Tensor) -> None:
        variable.assign(value)

    def of_all(strategy: tf.distribute.Strategy, *values: Any) -> None:
        for (variable, _), value in zip(pairs, values, strict=True):
            strategy.extended.update(variable.value, set_value, args=(value,))

    tf.distribute.get_replica_context().merge_call(of_all, args=tuple(value for _, value in pairs))
