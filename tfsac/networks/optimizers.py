"""Optimizers from NetworkParameters."""

from __future__ import annotations

import keras
import tensorflow as tf

from tfsac.networks.optimizer_steps import FusedAdam
from tfsac.parameters import OPTIMIZERS, NetworkParameters

USUAL_DECAY = 0.004  # Keras's, of AdamW and Muon


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
        rate = keras.optimizers.schedules.PolynomialDecay(
            rate, parameters.learning_rate_decay_steps, end_learning_rate=0.0
        )
    elif parameters.learning_rate_decay_steps:
        rate = keras.optimizers.schedules.ExponentialDecay(
            rate, parameters.learning_rate_decay_steps, parameters.learning_rate_decay_rate, staircase=True
        )
    name, takes = parameters.optimizer_type, OPTIMIZERS[parameters.optimizer_type]
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if name == "Nadam" and replicas > 1:
        raise ValueError(
            "Keras's Nadam keeps a number that several replicas cannot share: choose another optimizer_type, such as "
            f"Adam, or one replica. Received: optimizer_type='Nadam' on {replicas} replicas"
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
