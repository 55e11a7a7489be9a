"""Optimizers from NetworkParameters."""

from __future__ import annotations

from typing import Any, TypeAlias

import keras
import tensorflow as tf

from tfsac.errors import TfsacError
from tfsac.networks.optimizer_steps import FusedAdam
from tfsac.parameters import OPTIMIZERS, LearnedAlphaParameters, NetworkParameters

LearningRate: TypeAlias = float | keras.optimizers.schedules.LearningRateSchedule
USUAL_DECAY = 0.004  # Keras's, of AdamW and Muon


class OfUpdates(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate by the number of an agent's updates, whether or not the optimizer takes a step in each.

    Args:
        schedule: the learning rate by a number.
        updates: number of updates so far.
    """

    def __init__(self, schedule: keras.optimizers.schedules.LearningRateSchedule, updates: tf.Variable):
        self.schedule, self.updates = schedule, updates

    def __call__(self, step: Any) -> Any:
        """Returns the learning rate of the update that is being made."""
        return self.schedule(tf.convert_to_tensor(self.updates))


def learning_rate_of(
    parameters: NetworkParameters | LearnedAlphaParameters, updates: tf.Variable | None = None
) -> LearningRate:
    """Returns a constant learning rate, or one that falls.

    Args:
        parameters: with the learning rate and its decay.
        updates: number of the agent's updates so far; None counts the optimizer's own steps.

    Raises:
        ValueError: the decay lasts as long as a run, of which nobody said how long it is.
    """
    rate, steps = parameters.learning_rate, parameters.learning_rate_decay_steps
    if isinstance(steps, str):
        raise ValueError(
            f"Only a Trainer knows how many updates a run has: outside of one, learning_rate_decay_steps is a number. "
            f"Received: learning_rate_decay_steps={steps!r}"
        )
    if not steps:
        return rate
    schedules, kind = keras.optimizers.schedules, parameters.learning_rate_decay_type
    if kind == "linear":
        schedule = schedules.PolynomialDecay(rate, steps, end_learning_rate=parameters.learning_rate_end)
    elif kind == "cosine":
        schedule = schedules.CosineDecay(rate, steps, alpha=parameters.learning_rate_end / rate)
    else:
        schedule = schedules.ExponentialDecay(rate, steps, parameters.learning_rate_decay_rate, staircase=True)
    return schedule if updates is None else OfUpdates(schedule, updates)


def build_optimizer(
    parameters: NetworkParameters, variables: list[keras.Variable], updates: tf.Variable | None = None
) -> keras.optimizers.Optimizer:
    """Returns an optimizer with its slots made, so that a checkpoint can be read into them.

    Args:
        parameters: of the network.
        variables: that it trains.
        updates: see `learning_rate_of`.

    Raises:
        ValueError: Nadam under a strategy of several replicas; see also `learning_rate_of`.
    """
    name, fields = parameters.optimizer_type, OPTIMIZERS[parameters.optimizer_type]
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if name == "Nadam" and replicas > 1:
        raise ValueError(
            "Keras's Nadam keeps a number that several replicas cannot share: choose another optimizer_type, such as "
            f"Adam, or one replica. Received: optimizer_type='Nadam' on {replicas} replicas"
        )
    given = {argument: getattr(parameters, field) for field, argument in fields.items()}
    if parameters.weight_decay is not None:
        given["weight_decay"] = parameters.weight_decay
    made: type[keras.optimizers.Optimizer] = getattr(keras.optimizers, "RMSprop" if name == "RMSProp" else name)
    if name in ("Adam", "AdamW") and not any(parameters.optimizer_kwargs.values()):
        made, given = FusedAdam, {"weight_decay": USUAL_DECAY if name == "AdamW" else 0.0, **given}
    else:
        given |= parameters.optimizer_kwargs
    if name == "Muon":  # which gives vectors a decay of their own
        given["adam_weight_decay"] = given.get("weight_decay", USUAL_DECAY)
    try:
        optimizer = made(learning_rate_of(parameters, updates), **given)
    except (TypeError, ValueError) as error:
        raise TfsacError(f"optimizer_kwargs of {name}: {error}") from error
    optimizer.build(variables)
    return optimizer


def adam(rate: LearningRate, variables: list[keras.Variable]) -> FusedAdam:
    """Returns Adam with the paper's constants (arXiv 1412.6980) and its slots made."""
    optimizer = FusedAdam(rate)
    optimizer.build(variables)
    return optimizer
