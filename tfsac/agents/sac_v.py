"""Soft actor-critic with a value network, as in Coach (Haarnoja et al. 2018, arXiv 1801.01290).

Networks: `policy`, twin `q` in one head, `v` and its target network `v_target`. The temperature is fixed at 1; scale
the reward by 1 / alpha instead.
"""

from __future__ import annotations

import tensorflow as tf

from tfsac.agents.learner import Agent, Step
from tfsac.agents.sqil_diagnostics import policy_diagnostics
from tfsac.losses import soft_actor_critic as losses
from tfsac.policies import SquashedGaussianPolicy
from tfsac.policies.distributions import SquashedGaussian
from tfsac.types import Tensors, Transition, Update


class SoftActorCriticAgent(Agent):
    """Soft actor-critic with V. An update steps the policy, V and the critics in this order, then the target network.

    Example:
        >>> env = gymnasium.make("Pendulum-v1")
        >>> agent = SoftActorCriticAgent(SoftActorCriticAgentParameters(), tfsac.environments.spec_of(env))
        >>> agent.policy.act({"observation": np.zeros((1, 3), "float32")}, mode="greedy").action.shape
        (1, 1)
    """

    policy_class = SquashedGaussianPolicy

    def update_once(self, batch: Transition) -> Update:
        """Makes one update in the order policy, value, critic, target, with one reparameterised sample."""
        policy = self.policy_step(batch)
        self.apply(*policy.gradients)
        value = self.value_step(batch, -policy.values_B)  # of the policy before its step
        self.apply(*value.gradients)
        critic = self.critic_step(batch)
        self.apply(*critic.gradients)
        self.update_target("v")
        return Update(policy.metrics | value.metrics | critic.metrics, critic.values_B)

    def update_critics_once(self, batch: Transition) -> Update:
        """Makes one update in the order value, critic, target."""
        loss_B, *_ = self.policy_loss(batch)
        value = self.value_step(batch, -loss_B)
        self.apply(*value.gradients)
        critic = self.critic_step(batch)
        self.apply(*critic.gradients)
        self.update_target("v")
        return Update(value.metrics | critic.metrics, critic.values_B)

    def policy_loss(self, batch: Transition) -> tuple[tf.Tensor, SquashedGaussian, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the loss of each entry `[B]` (equation 12), the policy's distribution, its sample `[B, A]`, and
        log-probability `[B]` and Q `[B, N]` of the sample.
        """
        policy = SquashedGaussian(*self.networks["policy"](batch.observation))
        noise_BA = self.noise("policy", [self.entries, self.policy.action_size])
        action_BA, log_prob_B = policy.sample_and_log_prob(noise_BA)
        q_BN = self.networks["q"](batch.observation, action_BA)
        return -losses.soft_value(q_BN, log_prob_B, 1.0), policy, action_BA, log_prob_B, q_BN

    def policy_step(self, batch: Transition) -> Step:
        """Computes the step of the policy towards actions of high Q and high entropy (equation 12)."""
        with self.watch("policy") as tape:
            loss_B, policy, action_BA, log_prob_B, q_BN = self.policy_loss(batch)
            loss = self.mean_loss("policy", loss_B)
        gradients = self.gradients(loss, tape, "policy")
        sums_abs = [tf.reduce_sum(tf.abs(gradient)) for gradient in gradients[0].values]
        metrics = {
            "loss/policy": loss,
            "policy/mean": tf.reduce_mean(policy.loc),
            "policy/log_std": tf.reduce_mean(policy.log_scale),
            "policy/log_prob": tf.reduce_mean(log_prob_B),
            "policy/action": tf.reduce_mean(action_BA),
            "policy/gradient_sum_abs": tf.add_n([tf.zeros([]), *sums_abs]),
            "policy/gradient_norm": gradients[0].norm,
            "policy/q": tf.reduce_mean(tf.reduce_min(q_BN, axis=-1)),
            **(policy_diagnostics(self, loss_B, batch, tape) if self.imitates else {}),
        }
        return Step(gradients, metrics, loss_B)

    def value_step(self, batch: Transition, soft_value_B: tf.Tensor) -> Step:
        """Computes the step that regresses V(s) on the soft value of the policy step's sample (equation 5)."""
        target_B = tf.stop_gradient(soft_value_B)
        with self.watch("v") as tape:
            v_B = self.networks["v"](batch.observation)
            huber = self.network_parameters["v"].replace_mse_with_huber_loss
            loss = self.mean_loss("v", 0.5 * losses.regression_loss(v_B, target_B, huber))
        gradients = self.gradients(loss, tape, "v")
        metrics = {
            "loss/v": loss,
            "v/value": tf.reduce_mean(v_B),
            "v/target": tf.reduce_mean(target_B),
            "v/gradient_norm": gradients[0].norm,
        }
        return Step(gradients, metrics)

    def critic_step(self, batch: Transition) -> Step:
        """Computes the step that regresses both Q(s, a) on `r + discount * V_target(s')` (equations 7 and 8),
        weighted by importance.
        """
        next_v_B = self.targets["v"](batch.next_observation)
        target_B = losses.bootstrap_target(batch.reward, batch.discount, next_v_B)
        with self.watch("q") as tape:
            q_BN = self.networks["q"](batch.observation, batch.action)
            huber = self.network_parameters["q"].replace_mse_with_huber_loss
            loss_BN = 0.5 * losses.regression_loss(q_BN, target_B, huber)
            if self.prioritized:
                loss_BN *= batch.weight[:, None]
            loss = self.mean_loss("q", loss_BN)
        step = self.critic_result(batch, q_BN, target_B, loss_BN, self.gradients(loss, tape, "q"))
        return step._replace(metrics=step.metrics | {"v/next_target_value": tf.reduce_mean(next_v_B)})

    def values(self, observation: Tensors, action: tf.Tensor, state: Tensors | None = None) -> dict[str, tf.Tensor]:
        """Returns V(s) and min_i Q_i(s, a), `[B]`, in units of the scaled reward."""
        q_BN = self.networks["q"](observation, action)
        return {"v": self.networks["v"](observation), "q": tf.reduce_min(q_BN, axis=-1)}
