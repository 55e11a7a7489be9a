"""Soft actor-critic with a value network: Coach's agent (Haarnoja et al. 2018, arXiv 1801.01290).

Networks: `policy`, twin `q` in one head, `v` and its slow copy `v_target`. The temperature is 1: it is the inverse of the
reward scale.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from tfsac.agents import critics, imitation
from tfsac.agents.gaussian import GaussianAgent
from tfsac.agents.gradients import no_gradients
from tfsac.distributions import SquashedGaussian
from tfsac.losses import soft_actor_critic as losses
from tfsac.types import Metrics, Transition


class SoftActorCriticAgent(GaussianAgent):
    """Policy, then value, then critic, then target: one update.

    Args:
        parameters: algorithm, networks, exploration.
        spec: what the agent sees and does.
        seed: of weights, noise and acting.
        eager: run updates without compiling them.

    Raises:
        ValueError: see `Agent`.

    Example:
        >>> env = gymnasium.make("Pendulum-v1")
        >>> agent = SoftActorCriticAgent(SoftActorCriticAgentParameters(), tfsac.environments.spec_of(env))
        >>> agent.act({"observation": np.zeros((1, 3), "float32")}, mode="greedy").action.shape
        (1, 1)
    """

    def update_once(self, batch: Transition, train_policy: bool = True) -> tuple[Metrics, tf.Tensor]:
        """One update in the order policy, value, critic, target, with one draw of noise."""
        noise_BA = self.update_noise("policy")
        log_prob_B, q_min_B, policy_metrics = self.policy_step(batch, noise_BA, train_policy)
        value_metrics = self.value_step(batch, log_prob_B, q_min_B)
        td_error_B, critic_metrics = self.critic_step(batch)
        self.target_step()
        return {**policy_metrics, **value_metrics, **critic_metrics, **self.learning_rates()}, td_error_B

    def policy_step(
        self, batch: Transition, noise_BA: tf.Tensor, train: bool = True
    ) -> tuple[tf.Tensor, tf.Tensor, Metrics]:
        """Moves the policy towards actions of high Q and high entropy (equation 12).

        Args:
            batch: of which the observations are used.
            noise_BA: for one draw of actions.
            train: False computes everything but moves nothing.

        Returns:
            log pi(a~|s) `[B]` and min_i Q_i(s, a~) `[B]` of the policy before it moved, and metrics.
        """
        with self.watch("policy") as tape:
            policy = SquashedGaussian(*self.networks["policy"](batch.observation))
            action_BA, log_prob_B = policy.sample_and_log_prob(noise_BA)
            q_BN = self.networks["q"](batch.observation, action_BA)
            q_min_B = tf.reduce_min(q_BN, axis=-1)
            loss_B = losses.policy_loss(log_prob_B, q_min_B)
            loss = self.weighted("policy", loss_B)
            halves = imitation.of_halves("imitation/policy_loss", loss_B, batch)
        cosine = imitation.gradient_cosine(self, halves, tape)
        gradients = self.minimize("policy", loss, tape) if train else no_gradients("policy")
        metrics = {
            "loss/policy": loss,
            "policy/mean": tf.reduce_mean(policy.loc),
            "policy/log_std": tf.reduce_mean(policy.log_scale),
            "policy/log_prob": tf.reduce_mean(log_prob_B),
            "policy/action": tf.reduce_mean(action_BA),
            "policy/gradient_sum_abs": sum((tf.reduce_sum(tf.abs(value)) for value in gradients.values), tf.zeros([])),
            "policy/gradient_norm": gradients.norm,
            **critics.of_critics("q/q", tf.reduce_mean(q_BN, axis=0)),
            **halves,
            **cosine,
        }
        return log_prob_B, q_min_B, metrics

    def value_step(self, batch: Transition, log_prob_B: tf.Tensor, q_min_B: tf.Tensor) -> Metrics:
        """Regresses V(s) on `q_min - log_prob` of the policy step's draw (equation 5)."""
        target_B = losses.value_target(log_prob_B, q_min_B)
        with self.watch("v") as tape:
            v_B = self.networks["v"](batch.observation)
            huber = self.parameters["v"].replace_mse_with_huber_loss
            loss = self.weighted("v", losses.regression_loss(v_B, target_B, huber))
        gradients = self.minimize("v", loss, tape)
        return {
            "loss/v": loss,
            "v/value": tf.reduce_mean(v_B),
            "v/target": tf.reduce_mean(target_B),
            "v/gradient_norm": gradients.norm,
        }

    def critic_step(self, batch: Transition) -> tuple[tf.Tensor, Metrics]:
        """Regresses both Q(s, a) on `r + discount * V_target(s')` (equations 7 and 8), weighted by importance.

        Returns:
            absolute TD errors `[B]`, mean over the critics, and metrics.
        """
        next_v_B = self.slow("v")(batch.next_observation)
        target_B = losses.critic_target(batch.reward, batch.discount, next_v_B)
        step = critics.regress(
            self, batch, lambda: self.networks["q"](batch.observation, batch.action), target_B, losses.regression_loss
        )
        self.apply(step.gradients)
        return step.td_error_B, {**step.metrics, "v/next_target_value": tf.reduce_mean(next_v_B)}

    def target_step(self) -> None:
        """Moves V_target towards V."""
        self.soft_update("v")

    def values_of(self, observation: Mapping[str, tf.Tensor], action: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns V(s) and min_i Q_i(s, a), `[B]`, in units of the filtered reward."""
        q_BN = self.networks["q"](observation, action)
        return {"v": self.networks["v"](observation), "q": tf.reduce_min(q_BN, axis=-1)}
