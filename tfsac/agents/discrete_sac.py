"""Soft actor-critic for discrete actions, as in DI-engine (Christodoulou 2019, arXiv 1910.07207).

Networks: `policy`, twin `q` of all actions in one head and its target network `q_target`. The temperature is fixed or
learned. Expectations over actions are exact sums, so an update samples nothing.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from tfsac.agents.learner import Agent, Step
from tfsac.agents.sqil_diagnostics import policy_diagnostics
from tfsac.errors import TfsacError
from tfsac.losses import soft_actor_critic as losses
from tfsac.parameters import (
    DiscreteAutoAlphaParameters,
    DiscreteSoftActorCriticAgentParameters,
    FixedAlphaParameters,
)
from tfsac.policies import CategoricalPolicy
from tfsac.policies.distributions import MaskedCategorical
from tfsac.types import ACTION_MASK, Spec, Tensors, Transition, Update

DEFAULT_ENTROPY_RATIO = 0.98  # arXiv 1910.07207


class DiscreteSoftActorCriticAgent(Agent):
    """Discrete soft actor-critic. An update steps the critics, then policy and temperature, then the target network.

    With a shared encoder the policy reads the features of q's embedders; only the critic step trains them.

    Attributes:
        temperature: fixed or learned.
        target_entropy: in nats, to which a learned temperature brings the policy's entropy; None to use the ratio of
            the largest entropy in each state.
        target_entropy_ratio: ratio to the log of the number of valid actions.
        num_actions: number of actions, A.

    Raises:
        TfsacError: see `Agent`; a target entropy that this many actions cannot have.

    Example:
        >>> env = gymnasium.make("CartPole-v1")
        >>> parameters = DiscreteSoftActorCriticAgentParameters()
        >>> agent = DiscreteSoftActorCriticAgent(parameters, tfsac.environments.spec_of(env))
        >>> agent.policy.act({"observation": np.zeros((1, 4), "float32")}, mode="greedy").action.shape
        (1,)
    """

    policy_class = CategoricalPolicy

    def __init__(self, parameters: DiscreteSoftActorCriticAgentParameters, spec: Spec, *args: Any, **kwargs: Any):
        super().__init__(parameters, spec, *args, **kwargs)
        temperature, self.num_actions = parameters.algorithm.temperature, self.policy.num_actions
        self.target_entropy, self.target_entropy_ratio = entropy_target(temperature, self.num_actions)
        self.temperature = self.make_temperature(temperature)

    def update_once(self, batch: Transition) -> Update:
        """Makes one update in the order critic, policy, temperature, target."""
        critic = self.critic_step(batch)
        self.apply(*critic.gradients)
        policy = self.policy_step(batch)
        self.apply(*policy.gradients)
        self.update_target("q")
        return Update(critic.metrics | policy.metrics, critic.values_B)

    def critic_step(self, batch: Transition) -> Step:
        """Computes the step that regresses every Q(s, a) on `r + discount * V(s')`, where V is an exact expectation
        over the current policy (equation 10).
        """
        policy = self.distribution(batch.next_observation)
        next_q_BNA = self.targets["q"](batch.next_observation)
        next_value_B = losses.expected_soft_value(next_q_BNA, policy.prob, policy.log_prob, self.temperature.value())
        target_B = losses.bootstrap_target(batch.reward, batch.discount, next_value_B)
        with self.watch("q") as tape:
            q_BN = losses.q_of_actions(self.networks["q"](batch.observation), batch.action)
            huber = self.network_parameters["q"].replace_mse_with_huber_loss
            loss_BN = losses.regression_loss(q_BN, target_B, huber)
            if self.prioritized:
                loss_BN *= batch.weight[:, None]
            loss = self.mean_loss("q", loss_BN)
        return self.critic_result(batch, q_BN, target_B, loss_BN, self.gradients(loss, tape, "q"))

    def policy_loss(self, batch: Transition) -> tuple[tf.Tensor, MaskedCategorical, tf.Tensor]:
        """Returns the loss of each entry `[B]` (equation 12), the policy, and min_i Q_i of every action, `[B, A]`."""
        policy, q_BNA = self.distribution(batch.observation), self.networks["q"](batch.observation)
        value_B = losses.expected_soft_value(
            tf.stop_gradient(q_BNA), policy.prob, policy.log_prob, self.temperature.value()
        )
        return -value_B, policy, tf.reduce_min(q_BNA, axis=1)

    def policy_step(self, batch: Transition) -> Step:
        """Computes the steps of the policy towards high Q and entropy (equation 12) and of alpha (equation 11)."""
        with self.watch("policy") as tape:
            loss_B, policy, q_min_BA = self.policy_loss(batch)
            loss = self.mean_loss("policy", loss_B)
        gradients = self.gradients(loss, tape, "policy")
        entropy_B, target = policy.entropy(), self.target_entropy
        if target is None:
            target = self.target_entropy_ratio * policy.max_entropy()
        temperature = self.temperature_step(self.temperature, -entropy_B, target)
        metrics = {
            "loss/policy": loss,
            "policy/entropy": tf.reduce_mean(entropy_B),
            "policy/q": tf.reduce_mean(losses.expectation(policy.prob, q_min_BA)),
            "policy/gradient_norm": gradients[0].norm,
            "temperature/alpha": self.temperature.value(),
            **({"policy/target_entropy": tf.reduce_mean(target)} if temperature.metrics else {}),
            **temperature.metrics,
            **(policy_diagnostics(self, loss_B, batch, tape) if self.imitates else {}),
        }
        return Step(gradients + temperature.gradients, metrics, loss_B)

    def distribution(self, observation: Tensors) -> MaskedCategorical:
        """Returns the policy at observations `[B, ...]`."""
        return MaskedCategorical(self.networks["policy"](observation), observation.get(ACTION_MASK))

    def values(self, observation: Tensors, action: tf.Tensor, state: Tensors | None = None) -> dict[str, tf.Tensor]:
        """Returns min_i Q_i(s, a), `[B]`, in units of the scaled reward; NaN for actions that do not exist."""
        q_B = tf.reduce_min(losses.q_of_actions(self.networks["q"](observation), action), axis=-1)
        return {"q": tf.where((action >= 0) & (action < self.num_actions), q_B, float("nan"))}


def entropy_target(
    temperature: DiscreteAutoAlphaParameters | FixedAlphaParameters, num_actions: int
) -> tuple[float | None, float]:
    """Returns a learned temperature's target entropy in nats or None, and its ratio to the largest entropy."""
    if isinstance(temperature, FixedAlphaParameters):
        return None, DEFAULT_ENTROPY_RATIO
    target, most = temperature.target_entropy, math.log(num_actions)
    if target is not None and not 0 < target < most:
        raise TfsacError(f"target_entropy must be between 0 and {most:.4g} nats, got {target}")
    return target, temperature.target_entropy_ratio or DEFAULT_ENTROPY_RATIO
