"""Diagnostics of soft Q imitation learning: how demonstrated entries of a batch differ from the agent's own (arXiv
1905.11108). The memory implements the method itself.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfsac.types import EXPERT, ArraySpec, Metrics, Transition

EXTRAS = {EXPERT: ArraySpec((), "float32")}  # of batches: 1 for demonstrated entries


def policy_diagnostics(agent: Any, loss_B: tf.Tensor, batch: Transition, tape: tf.GradientTape) -> Metrics:
    """Returns the policy's mean losses on the agent's own and on demonstrated entries, and the cosine between their
    gradients, from the persistent tape that recorded the losses.
    """
    expert_B = batch.extras[EXPERT]
    means = means_by_origin("imitation/policy_loss", loss_B, expert_B)
    # It takes two gradients of the policy, which replicas of several workers would exchange in every update.
    cosine = gradient_cosine(agent, loss_B, expert_B, tape) if agent.full_metrics else tf.zeros([])
    return {**means, "imitation/gradient_cosine": cosine}


def critic_diagnostics(td_error_B: tf.Tensor, batch: Transition) -> Metrics:
    """Returns the critics' mean TD errors on the agent's own and on demonstrated entries."""
    return means_by_origin("imitation/td_error", td_error_B, batch.extras[EXPERT])


def means_by_origin(name: str, values_B: tf.Tensor, expert_B: tf.Tensor) -> Metrics:
    """Returns the means over the agent's own and over the demonstrated entries: name_agent and name_expert."""
    agent_B = 1.0 - expert_B
    return {
        f"{name}_agent": tf.math.divide_no_nan(tf.reduce_sum(agent_B * values_B), tf.reduce_sum(agent_B)),
        f"{name}_expert": tf.math.divide_no_nan(tf.reduce_sum(expert_B * values_B), tf.reduce_sum(expert_B)),
    }


def gradient_cosine(agent: Any, loss_B: tf.Tensor, expert_B: tf.Tensor, tape: tf.GradientTape) -> tf.Tensor:
    """Returns the cosine, over all weights, between the policy gradients of the agent's and the expert's entries of the
    global batch. Near 1 they agree about the policy, below 0 they conflict; 0 if one of them has no gradient.
    """
    variables = [variable.value for variable in agent.trained["policy"]]
    shares = (tf.math.divide_no_nan(part_B, tf.reduce_sum(part_B)) for part_B in (1.0 - expert_B, expert_B))
    agent_grads, expert_grads = (
        agent.mean_over_replicas(tape.gradient(loss_B, variables, output_gradients=share_B)) for share_B in shares
    )
    product = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(agent_grads, expert_grads, strict=True)])
    return tf.math.divide_no_nan(product, tf.linalg.global_norm(agent_grads) * tf.linalg.global_norm(expert_grads))
