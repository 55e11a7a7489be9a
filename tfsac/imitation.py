"""Diagnostics of soft Q imitation learning: how the demonstrated half of a batch differs from the agent's own (arXiv 1905.11108).

The learning itself is the memory's doing. Only agents with a SQIL memory have these, composed around two of their steps.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfsac.types import EXPERT, Metrics, Transition

PERIOD = 50  # updates between two cosines, which cost two gradients of the policy


def attach_diagnostics(agent: Any) -> None:
    """Lets an agent's steps report the metrics of both halves.

    Args:
        agent: with `policy_loss(batch)`, `policy_step(batch)` and `critic_step(batch)`.
    """
    critic_step, policy_step = agent.critic_step, agent.policy_step
    once = tf.VariableAggregation.ONLY_FIRST_REPLICA
    newest = tf.Variable(0.0, trainable=False, aggregation=once, name="gradient_cosine")
    agent.gradient_cosine = newest  # part of checkpoints

    def critic_step_with_halves(batch: Transition) -> Any:
        step = critic_step(batch)
        return step._replace(metrics={**step.metrics, **halves("imitation/td_error", step.td_error_B, batch)})

    def policy_step_with_halves(batch: Transition) -> Any:
        step = policy_step(batch)
        due = agent.updates % PERIOD == 0
        cosine = tf.cond(due, lambda: gradient_cosine(agent, batch), lambda: tf.convert_to_tensor(newest))
        newest.assign(cosine)
        return step._replace(
            metrics={
                **step.metrics,
                **halves("imitation/policy_loss", step.loss_B, batch),
                "imitation/gradient_cosine": cosine,
            }
        )

    agent.critic_step, agent.policy_step = critic_step_with_halves, policy_step_with_halves


def halves(name: str, values_B: tf.Tensor, batch: Transition) -> Metrics:
    """Returns the mean over the rows of each half: name_agent and name_expert."""
    expert_B = batch.extras[EXPERT]
    agent_B = 1.0 - expert_B
    return {
        f"{name}_agent": tf.math.divide_no_nan(tf.reduce_sum(agent_B * values_B), tf.reduce_sum(agent_B)),
        f"{name}_expert": tf.math.divide_no_nan(tf.reduce_sum(expert_B * values_B), tf.reduce_sum(expert_B)),
    }


def gradient_cosine(agent: Any, batch: Transition) -> tf.Tensor:
    """Returns the cosine between the policy gradients of both halves, flattened over all weights.

    Near 1 both halves pull the policy the same way, below 0 they are in conflict; 0 where a half has no gradient.

    Args:
        agent: see `attach_diagnostics`.
        batch: this replica's rows.
    """
    variables = [variable.value for variable in agent.trained["policy"]]
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(variables)
        of_halves = halves("loss", agent.policy_loss(batch)[0], batch)
    own, demonstrated = (tape.gradient(loss, variables) for loss in of_halves.values())
    product = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(own, demonstrated, strict=True)])
    return tf.math.divide_no_nan(product, tf.linalg.global_norm(own) * tf.linalg.global_norm(demonstrated))
