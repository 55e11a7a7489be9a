"""Optimizers and gradient clipping from NetworkParameters."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfsac.parameters import NetworkParameters


class OfMeanGradients:
    """What makes a Keras optimizer take gradients that are the same on all replicas, as agents average them before clipping."""

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return grads_and_vars


class RMSprop(OfMeanGradients, keras.optimizers.RMSprop):
    """Keras's RMSProp."""


class FusedAdam(OfMeanGradients, keras.optimizers.Adam):
    """Keras's Adam with each variable's step in one kernel instead of a dozen passes over its memory.

    The formula is the same: lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon).
    """

    def apply(self, grads: list[tf.Tensor], trainable_variables: list[keras.Variable] | None = None) -> tf.Tensor:
        """Takes one step; what depends on its number alone is computed once for all variables."""
        t = tf.cast(self.iterations + 1, tf.float32)
        self._powers = tf.pow(self.beta_1, t), tf.pow(self.beta_2, t)
        return super().apply(grads, trainable_variables)

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """Updates one variable and its two moments."""
        index = self._get_variable_index(variable)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=self._powers[0],
            beta2_power=self._powers[1],
            lr=tf.cast(learning_rate, tf.float32),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )


def build_optimizer(parameters: NetworkParameters, variables: list[keras.Variable]) -> keras.optimizers.Optimizer:
    """Returns an optimizer with its slots made, so that a checkpoint can be read into them."""
    rate: float | keras.optimizers.schedules.LearningRateSchedule = parameters.learning_rate
    if parameters.learning_rate_decay_type == "linear":
        rate = keras.optimizers.schedules.PolynomialDecay(rate, parameters.learning_rate_decay_steps, end_learning_rate=0.0)
    elif parameters.learning_rate_decay_steps:
        rate = keras.optimizers.schedules.ExponentialDecay(
            rate, parameters.learning_rate_decay_steps, parameters.learning_rate_decay_rate, staircase=True
        )
    if parameters.optimizer_type == "Adam":
        betas = parameters.adam_optimizer_beta1, parameters.adam_optimizer_beta2
        return adam(rate, variables, *betas, epsilon=parameters.optimizer_epsilon)
    optimizer = RMSprop(
        rate, rho=parameters.rms_prop_optimizer_decay, epsilon=parameters.optimizer_epsilon
    )
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
