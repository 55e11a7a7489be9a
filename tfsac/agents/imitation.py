"""Diagnostics of soft Q imitation learning: how the demonstrated half of a batch differs from the agent's own.

Without demonstrations these functions return no metrics. The learning itself is the memory's doing (arXiv 1905.11108).
"""

from __future__ import annotations

import tensorflow as tf

from tfsac.agents.base import Agent
from tfsac.types import EXPERT, Metrics, Transition


def of_halves(name: str, values_B: tf.Tensor, batch: Transition) -> Metrics:
    """Returns the mean of each half of the rows: name_agent and name_expert."""
    if EXPERT not in batch.extras:
        return {}
    expert_B = batch.extras[EXPERT]
    agent_B = 1.0 - expert_B
    return {
        f"{name}_agent": tf.math.divide_no_nan(tf.reduce_sum(agent_B * values_B), tf.reduce_sum(agent_B)),
        f"{name}_expert": tf.math.divide_no_nan(tf.reduce_sum(expert_B * values_B), tf.reduce_sum(expert_B)),
    }


def gradient_cosine(agent: Agent, losses: Metrics, tape: tf.GradientTape) -> Metrics:
    """Returns the cosine between the policy gradients of both halves, flattened over all weights.

    Near 1 both halves pull the policy the same way, below 0 they are in conflict.

    Args:
        agent: that has the policy.
        losses: of the halves, as `of_halves` returned them on the tape.
        tape: persistent, of the policy step.
    """
    if not losses:
        return {}
    own, demonstrated = (agent.gradients("policy", loss, tape) for loss in losses.values())
    product = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(own.values, demonstrated.values, strict=True)])
    return {"imitation/gradient_cosine": tf.math.divide_no_nan(product, own.norm * demonstrated.norm)}
