"""Diagnostics of soft Q imitation learning: how demonstrated rows of a batch differ from the agent's own (arXiv
1905.11108).

The learning itself is the memory's doing. Only agents with a SQIL memory have these, composed around two of their
steps.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfsac.types import EXPERT, Metrics, Transition


def attach_diagnostics(agent: Any) -> None:
    """Lets an agent's steps report the metrics of own and of demonstrated rows, in updates that report all metrics.

    Args:
        agent: with `policy_loss(batch)`, `policy_step(batch, train_policy)` and `critic_step(batch)`.
    """
    critic_step, policy_step = agent.critic_step, agent.policy_step

    def diagnosed_critic_step(batch: Transition) -> Any:
        step = critic_step(batch)
        return step._replace(metrics={**step.metrics, **means_by_origin("imitation/td_error", step.td_error_B, batch)})

    def diagnosed_policy_step(batch: Transition, train_policy: bool = True) -> Any:
        step = policy_step(batch, train_policy)
        # Two gradients of the policy; replicas of several workers would exchange them in every update.
        cosine = gradient_cosine(agent, batch) if agent.diagnosed else tf.zeros([])
        return step._replace(
            metrics={
                **step.metrics,
                **means_by_origin("imitation/policy_loss", step.loss_B, batch),
                "imitation/gradient_cosine": cosine,
            }
        )

    agent.critic_step, agent.policy_step = diagnosed_critic_step, diagnosed_policy_step


def means_by_origin(name: str, values_B: tf.Tensor, batch: Transition) -> Metrics:
    """Returns the means over the agent's own and over the demonstrated rows: name_agent and name_expert."""
    expert_B = batch.extras[EXPERT]
    agent_B = 1.0 - expert_B
    return {
        f"{name}_agent": tf.math.divide_no_nan(tf.reduce_sum(agent_B * values_B), tf.reduce_sum(agent_B)),
        f"{name}_expert": tf.math.divide_no_nan(tf.reduce_sum(expert_B * values_B), tf.reduce_sum(expert_B)),
    }


def gradient_cosine(agent: Any, batch: Transition) -> tf.Tensor:
    """Returns the cosine, over all weights, between the policy gradients of own and demonstrated rows of the global
    batch.

    Near 1 they agree about the policy, below 0 they conflict; 0 where one of them has no gradient.

    Args:
        agent: see `attach_diagnostics`.
        batch: this replica's rows.
    """
    variables = [variable.value for variable in agent.trained["policy"]]
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(variables)
        by_origin = means_by_origin("loss", agent.policy_loss(batch)[0], batch)
    own, demonstrated = (agent.mean_over_replicas(tape.gradient(loss, variables)) for loss in by_origin.values())
    product = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(own, demonstrated, strict=True)])
    return tf.math.divide_no_nan(product, tf.linalg.global_norm(own) * tf.linalg.global_norm(demonstrated))
