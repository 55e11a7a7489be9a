"""Optimizers and gradient clipping from NetworkParameters."""

from __future__ import annotations

import keras
import tensorflow as tf

from tfsac.parameters import NetworkParameters


def build_optimizer(parameters: NetworkParameters, variables: list[keras.Variable]) -> keras.optimizers.Optimizer:
    """Returns an optimizer with its slots made, so that a checkpoint can be read into them."""
    rate: float | keras.optimizers.schedules.LearningRateSchedule = parameters.learning_rate
    if parameters.learning_rate_decay_steps:
        rate = keras.optimizers.schedules.ExponentialDecay(
            rate, parameters.learning_rate_decay_steps, parameters.learning_rate_decay_rate, staircase=True
        )
    if parameters.optimizer_type == "Adam":
        optimizer = keras.optimizers.Adam(
            rate, parameters.adam_optimizer_beta1, parameters.adam_optimizer_beta2, parameters.optimizer_epsilon
        )
    else:
        optimizer = keras.optimizers.RMSprop(
            rate, rho=parameters.rms_prop_optimizer_decay, epsilon=parameters.optimizer_epsilon
        )
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
