"""The step that all agents share: regressing the critics on a target."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tfsac.agents import imitation
from tfsac.agents.base import Agent
from tfsac.agents.gradients import Gradients
from tfsac.types import Metrics, Transition


class CriticStep(NamedTuple):
    """What the regression leaves: gradients, the critics' predictions, absolute TD errors (mean over the critics), metrics."""

    gradients: Gradients
    q_BN: tf.Tensor
    td_error_B: tf.Tensor
    metrics: Metrics


def of_critics(name: str, values_N: tf.Tensor) -> Metrics:
    """Returns one metric for each critic: name1, name2."""
    return {f"{name}{i + 1}": value for i, value in enumerate(tf.unstack(values_N))}


def regress(
    agent: Agent,
    batch: Transition,
    predict: Callable[[], tf.Tensor],
    target_B: tf.Tensor,
    loss: Callable[[tf.Tensor, tf.Tensor, bool], tf.Tensor],
) -> CriticStep:
    """Computes the gradients of network `q` towards a target.

    Args:
        agent: that has the network.
        batch: with importance weights where the memory is prioritised.
        predict: returns the critics at the stored actions, `[B, N]`.
        target_B: y, without gradient.
        loss: of (predictions, target, Huber), `[B, N]`.
    """
    parameters = agent.parameters["q"]
    with agent.watch("q") as tape:
        q_BN = predict()
        loss_BN = loss(q_BN, target_B, parameters.replace_mse_with_huber_loss)
        if not isinstance(batch.weight, tuple):
            loss_BN = batch.weight[:, None] * loss_BN
        total = agent.weighted("q", loss_BN)
    gradients = agent.gradients("q", total, tape)
    error_BN = tf.abs(q_BN - target_B[:, None])
    error_B = tf.reduce_mean(error_BN, axis=-1)
    metrics = {
        **of_critics("loss/q", parameters.loss_weight * tf.reduce_mean(loss_BN, axis=0)),
        **of_critics("q/td_error", tf.reduce_mean(error_BN, axis=0)),
        "q/target": tf.reduce_mean(target_B),
        "q/gradient_norm": gradients.norm,
        **imitation.of_halves("imitation/td_error", error_B, batch),
    }
    return CriticStep(gradients, q_BN, error_B, metrics)
