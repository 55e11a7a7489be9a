"""Optimizers and gradient clipping from NetworkParameters."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfsac.parameters import OPTIMIZERS, NetworkParameters

USUAL_DECAY = 0.004  # Keras's, of AdamW and Muon


class FusedAdam(keras.optimizers.Optimizer):
    """Adam, and AdamW, with each variable's step in one kernel instead of a dozen passes over its memory.

    The formula is Keras's: `lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)`; before it the variable loses
    `lr * weight_decay` of itself.

    Args:
        learning_rate: step size.
        beta_1, beta_2: decay of the two moments.
        epsilon: added to the root of the second moment.
        weight_decay: decoupled from the gradient (arXiv 1711.05101).

    Attributes:
        momentums, velocities: the moments, in the order of the variables.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(learning_rate, weight_decay=weight_decay, name="adam")
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, variables: list[keras.Variable]) -> None:
        """Makes the moments."""
        super().build(variables)
        self.momentums, self.velocities = self.add_optimizer_variables(variables, ["momentum", "velocity"])
        self.stepped = list(variables)

    def apply(self, grads: list[tf.Tensor], trainable_variables: list[keras.Variable] | None = None) -> None:
        """Takes one step; what depends on its number alone is computed once for all variables."""
        t, rate = tf.cast(self.iterations + 1, tf.float32), tf.cast(self.learning_rate, tf.float32)
        powers = tf.pow(self.beta_1, t), tf.pow(self.beta_2, t)
        strategy = tf.distribute.get_strategy()
        for gradient, variable, *moments in zip(grads, self.stepped, self.momentums, self.velocities, strict=True):
            slots = [moment.value for moment in moments]
            strategy.extended.update(variable.value, self._step, args=(gradient, *slots, rate, *powers), group=False)
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable))
        self.iterations.assign_add(1)

    def _step(
        self, variable: tf.Variable, gradient: tf.Tensor, m: tf.Variable, v: tf.Variable, rate: tf.Tensor, *powers: tf.Tensor
    ) -> None:
        if self.weight_decay:
            variable.assign_sub(rate * self.weight_decay * variable)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=m.handle,
            v=v.handle,
            beta1_power=powers[0],
            beta2_power=powers[1],
            lr=rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )


def take_step(optimizer: keras.optimizers.Optimizer, gradients: list[tf.Tensor], variables: list[keras.Variable]) -> None:
    """Takes one step of all replicas with gradients that are the same on each, as agents average them before clipping.

    Args:
        optimizer: that was built for the variables.
        gradients: one for each variable.
        variables: to be changed.
    """
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        optimizer.apply(gradients, variables)
        return

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

        for gradient, variable in zip(gradients, variables, strict=True):
            strategy.extended.update(variable.value, step, args=(gradient, rate), group=False)
        optimizer.iterations.assign_add(1)

    tf.distribute.get_replica_context().merge_call(of_all, args=tuple(gradients))


def build_optimizer(parameters: NetworkParameters, variables: list[keras.Variable]) -> keras.optimizers.Optimizer:
    """Returns an optimizer with its slots made, so that a checkpoint can be read into them.

    Args:
        parameters: of the network.
        variables: that it trains.

    Raises:
        ValueError: Nadam under a strategy of several replicas.
    """
    rate: float | keras.optimizers.schedules.LearningRateSchedule = parameters.learning_rate
    if parameters.learning_rate_decay_type == "linear":
        rate = keras.optimizers.schedules.PolynomialDecay(rate, parameters.learning_rate_decay_steps, end_learning_rate=0.0)
    elif parameters.learning_rate_decay_steps:
        rate = keras.optimizers.schedules.ExponentialDecay(
            rate, parameters.learning_rate_decay_steps, parameters.learning_rate_decay_rate, staircase=True
        )
    name, takes = parameters.optimizer_type, OPTIMIZERS[parameters.optimizer_type]
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if name == "Nadam" and replicas > 1:
        raise ValueError(
            "Keras's Nadam keeps a number that several replicas cannot share: choose another optimizer_type, such as Adam, or one replica. "
            f"Received: optimizer_type='Nadam' on {replicas} replicas"
        )
    given = {argument: getattr(parameters, field) for field, argument in takes.fields.items()}
    if parameters.weight_decay is not None:
        given["weight_decay"] = parameters.weight_decay
    made: type[keras.optimizers.Optimizer] = getattr(keras.optimizers, "RMSprop" if name == "RMSProp" else name)
    if name in ("Adam", "AdamW") and not parameters.optimizer_kwargs.get("amsgrad"):
        made, given = FusedAdam, {"weight_decay": USUAL_DECAY if name == "AdamW" else 0.0, **given}
    else:
        given |= parameters.optimizer_kwargs
    if name == "Muon":  # which gives vectors a decay of their own
        given["adam_weight_decay"] = given.get("weight_decay", USUAL_DECAY)
    optimizer = made(rate, **given)
    optimizer.build(variables)
    return optimizer


def adam(
    rate: float | keras.optimizers.schedules.LearningRateSchedule,
    variables: list[keras.Variable],
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> FusedAdam:
    """Returns Adam with its slots made; the paper's constants (arXiv 1412.6980) by default."""
    optimizer = FusedAdam(rate, beta1, beta2, epsilon)
    optimizer.build(variables)
    return optimizer


def clip_gradients(parameters: NetworkParameters, gradients: list[tf.Tensor], global_norm: tf.Tensor) -> list[tf.Tensor]:
    """Bounds gradients by their global norm, each by its own norm, or each entry, as the parameters say."""
    bound = parameters.clip_gradients
    if bound is None:
        return gradients
    if parameters.gradients_clipping_method == "global_norm":
        return tf.clip_by_global_norm(gradients, bound, use_norm=global_norm)[0]
    if parameters.gradients_clipping_method == "norm":
        return [tf.clip_by_norm(gradient, bound) for gradient in gradients]
    return [tf.clip_by_value(gradient, -bound, bound) for gradient in gradients]
