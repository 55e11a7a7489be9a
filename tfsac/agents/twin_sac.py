"""Soft actor-critic with twin target critics and no V, as in Spinning Up and DI-engine (Haarnoja et al. 2018, arXiv
1812.05905).

Networks: `policy`, twin `q` in one head and its target network `q_target`. The temperature is fixed or learned.
"""

from __future__ import annotations

from typing import Any, ClassVar

import tensorflow as tf

from tfsac.agents.learner import Agent, Step
from tfsac.agents.sqil_diagnostics import policy_diagnostics
from tfsac.errors import TfsacError
from tfsac.losses import soft_actor_critic as losses
from tfsac.losses.temperature import check_target_entropy
from tfsac.parameters import FixedAlphaParameters, TwinSoftActorCriticAgentParameters
from tfsac.policies import SquashedGaussianPolicy
from tfsac.policies.distributions import SquashedGaussian
from tfsac.types import Spec, Tensors, Transition, Update


class TwinSoftActorCriticAgent(Agent):
    """Soft actor-critic with twin critics. The parameters set the order of the steps of critics, policy and
    temperature, `critic_first` by default; the target network is last.

    Attributes:
        temperature: fixed or learned.
        target_entropy: in nats, to which a learned temperature brings the policy's entropy.

    Raises:
        TfsacError: see `Agent`; a target entropy that cannot be reached; critics that need another agent class.

    Example:
        >>> env = gymnasium.make("Pendulum-v1")
        >>> agent = TwinSoftActorCriticAgent(TwinSoftActorCriticAgentParameters(), tfsac.environments.spec_of(env))
        >>> agent.policy.act({"observation": np.zeros((1, 3), "float32")}, mode="greedy").action.shape
        (1, 1)
    """

    policy_class = SquashedGaussianPolicy
    has_ensemble: ClassVar[bool] = False

    def __init__(self, parameters: TwinSoftActorCriticAgentParameters, spec: Spec, *args: Any, **kwargs: Any):
        super().__init__(parameters, spec, *args, **kwargs)
        if getattr(parameters, "has_ensemble", False) and not self.has_ensemble:
            raise TfsacError(
                f"An agent with these critics must be a tfsac.agents.EnsembleSoftActorCriticAgent, got {type(self)}"
            )
        temperature, size = parameters.algorithm.temperature, self.policy.action_size
        target_entropy = float(-size) if isinstance(temperature, FixedAlphaParameters) else temperature.target(size)
        check_target_entropy(target_entropy, size)
        self.target_entropy = target_entropy
        self.temperature = self.make_temperature(temperature)
        self.update_order = ORDER_FUNCTIONS[parameters.algorithm.update_order]

    def update_once(self, batch: Transition) -> Update:
        """Makes one update in the order that the parameters set."""
        return self.update_order(self, batch)

    def critic_step(self, batch: Transition) -> Step:
        """Computes the step that regresses every Q(s, a) on `r + discount * (min_i Q_target_i(s', a') - alpha log
        pi(a'|s'))` (equation 5).
        """
        policy = SquashedGaussian(*self.networks["policy"](batch.next_observation))
        noise_BA = self.noise("next", [self.entries, self.policy.action_size])
        next_action_BA, next_log_prob_B = policy.sample_and_log_prob(noise_BA)
        next_q_BN = self.targets["q"](batch.next_observation, next_action_BA)
        next_value_B = losses.soft_value(next_q_BN, next_log_prob_B, self.temperature.value())
        target_B = losses.bootstrap_target(batch.reward, batch.discount, next_value_B)
        with self.watch("q") as tape:
            q_BN = self.networks["q"](batch.observation, batch.action)
            huber = self.network_parameters["q"].replace_mse_with_huber_loss
            loss_BN = losses.regression_loss(q_BN, target_B, huber)
            if self.prioritized:
                loss_BN *= batch.weight[:, None]
            loss = self.mean_loss("q", loss_BN)
        return self.critic_result(batch, q_BN, target_B, loss_BN, self.gradients(loss, tape, "q"))

    def policy_loss(self, batch: Transition) -> tuple[tf.Tensor, SquashedGaussian, tf.Tensor, tf.Tensor]:
        """Returns the loss `[B]` (equation 7), the policy, and log-probability `[B]` and Q `[B, N]` of its sample."""
        policy = SquashedGaussian(*self.networks["policy"](batch.observation))
        noise_BA = self.noise("policy", [self.entries, self.policy.action_size])
        action_BA, log_prob_B = policy.sample_and_log_prob(noise_BA)
        q_BN = self.networks["q"](batch.observation, action_BA)
        return -losses.soft_value(q_BN, log_prob_B, self.temperature.value()), policy, log_prob_B, q_BN

    def policy_step(self, batch: Transition) -> Step:
        """Computes the steps of the policy towards high Q and entropy (equation 7) and of alpha (equation 18)."""
        with self.watch("policy") as tape:
            loss_B, policy, log_prob_B, q_BN = self.policy_loss(batch)
            loss = self.mean_loss("policy", loss_B)
        gradients = self.gradients(loss, tape, "policy")
        temperature = self.temperature_step(self.temperature, log_prob_B, self.target_entropy)
        metrics = {
            "loss/policy": loss,
            "policy/mean": tf.reduce_mean(policy.loc),
            "policy/log_std": tf.reduce_mean(policy.log_scale),
            "policy/log_prob": tf.reduce_mean(log_prob_B),
            "policy/q": tf.reduce_mean(tf.reduce_min(q_BN, axis=-1)),
            "policy/gradient_norm": gradients[0].norm,
            "temperature/alpha": self.temperature.value(),
            **temperature.metrics,
            **(policy_diagnostics(self, loss_B, batch, tape) if self.imitates else {}),
        }
        return Step(gradients + temperature.gradients, metrics, loss_B)

    def values(self, observation: Tensors, action: tf.Tensor, state: Tensors | None = None) -> dict[str, tf.Tensor]:
        """Returns min_i Q_i(s, a), `[B]`, in units of the scaled reward."""
        return {"q": tf.reduce_min(self.networks["q"](observation, action), axis=-1)}


def critic_first(agent: TwinSoftActorCriticAgent, batch: Transition) -> Update:
    """The critics, then policy and temperature with the new critics, then the target (DI-engine, Stable-Baselines3)."""
    critic = agent.critic_step(batch)
    agent.apply(*critic.gradients)
    policy = agent.policy_step(batch)
    agent.apply(*policy.gradients)
    agent.update_target("q")
    return Update(critic.metrics | policy.metrics, critic.values_B)


def policy_first(agent: TwinSoftActorCriticAgent, batch: Transition) -> Update:
    """Policy and temperature, then the critics with the new policy and temperature, then the target."""
    policy = agent.policy_step(batch)
    agent.apply(*policy.gradients)
    critic = agent.critic_step(batch)
    agent.apply(*critic.gradients)
    agent.update_target("q")
    return Update(critic.metrics | policy.metrics, critic.values_B)


def simultaneous(agent: TwinSoftActorCriticAgent, batch: Transition) -> Update:
    """All gradients are computed before any step; the target network is last (Spinning Up)."""
    critic, policy = agent.critic_step(batch), agent.policy_step(batch)
    agent.apply(*critic.gradients, *policy.gradients)
    agent.update_target("q")
    return Update(critic.metrics | policy.metrics, critic.values_B)


ORDER_FUNCTIONS = {"critic_first": critic_first, "policy_first": policy_first, "simultaneous": simultaneous}
