"""Soft actor-critic for several discrete actions at once (the factors), and for discrete and continuous ones together
(Delalleau et al. 2019, arXiv 1912.11077; Christodoulou 2019, arXiv 1910.07207).

Networks: `policy` with logits of all factors and a squashed Gaussian, `q` with the values of all combinations of
factors, given the continuous dimensions, and its target network `q_target`. Expectations over combinations are exact
sums. With one factor only, this is discrete SAC; without factors, it is SAC with twin critics.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from tfsac.agents.discrete_sac import DEFAULT_ENTROPY_RATIO
from tfsac.agents.learner import Agent, FixedTemperature, LearnedTemperature, Step
from tfsac.agents.sqil_diagnostics import policy_diagnostics
from tfsac.errors import TfsacError
from tfsac.losses import soft_actor_critic as losses
from tfsac.losses.ensembles import reduce_q
from tfsac.losses.temperature import check_target_entropy
from tfsac.parameters import AutoAlphaParameters, FixedAlphaParameters, HybridSoftActorCriticAgentParameters
from tfsac.policies import HybridPolicy
from tfsac.policies.distributions import HybridDistribution
from tfsac.types import Spec, Tensors, Transition, Update


class HybridSoftActorCriticAgent(Agent):
    """Hybrid soft actor-critic. An update steps the critics, then policy and temperatures, then the target network.

    Attributes:
        discrete_temperature, continuous_temperature: of the two parts of an action, fixed or learned; None for a part
            that the actions lack.
        discrete_target_entropy: in nats, to which a learned temperature brings the entropy of the factors; None to use
            `target_entropy_ratio` of the largest entropy in each state.
        continuous_target_entropy: in nats, of the continuous dimensions.

    Raises:
        TfsacError: see `Agent`; a target entropy that the actions cannot have.

    Example:
        >>> env = gymnasium.make("my_env:Aim-v0")  # with the actions {"aim": Box(-1, 1, (2,)), "press": Discrete(3)}
        >>> parameters = HybridSoftActorCriticAgentParameters()
        >>> agent = HybridSoftActorCriticAgent(parameters, tfsac.environments.spec_of(env))
        >>> agent.policy.act({"observation": np.zeros((1, 4), "float32")}, mode="greedy").action["continuous"].shape
        (1, 2)
    """

    policy_class = HybridPolicy

    def __init__(self, parameters: HybridSoftActorCriticAgentParameters, spec: Spec, *args: Any, **kwargs: Any):
        super().__init__(parameters, spec, *args, **kwargs)
        self.action, algorithm = self.policy.action, parameters.algorithm
        self.num_critics = getattr(parameters.networks["q"].head_parameters, "num_critics", 2)
        self.discrete_temperature: FixedTemperature | LearnedTemperature | None = None
        self.continuous_temperature: FixedTemperature | LearnedTemperature | None = None
        self.discrete_target_entropy, self.target_entropy_ratio = None, DEFAULT_ENTROPY_RATIO
        if self.action.sizes:
            discrete = algorithm.discrete_temperature
            if not isinstance(discrete, FixedAlphaParameters):
                self.discrete_target_entropy = discrete.target_entropy
                self.target_entropy_ratio = discrete.target_entropy_ratio or DEFAULT_ENTROPY_RATIO
            target, most = self.discrete_target_entropy, math.log(self.action.num_joint_actions)
            if target is not None and not 0 < target < most:
                raise TfsacError(f"target_entropy of factors must be between 0 and {most:.4g} nats, got {target}")
            self.discrete_temperature = self.make_temperature(discrete, "discrete_temperature")
        if size := self.action.action_size:
            continuous = algorithm.continuous_temperature
            self.continuous_target_entropy = float(-size)
            if isinstance(continuous, AutoAlphaParameters):
                self.continuous_target_entropy = continuous.target(size)
            check_target_entropy(self.continuous_target_entropy, size)
            self.continuous_temperature = self.make_temperature(continuous, "continuous_temperature")

    def update_once(self, batch: Transition) -> Update:
        """Makes one update in the order critic, policy, temperatures, target."""
        critic = self.critic_step(batch)
        self.apply(*critic.gradients)
        policy = self.policy_step(batch)
        self.apply(*policy.gradients)
        self.update_target("q")
        return Update(critic.metrics | policy.metrics, critic.values_B)

    def critic_step(self, batch: Transition) -> Step:
        """Computes the step that regresses Q(s, u)[k] of the stored action on `r + discount * V(s')`, where V is an
        exact expectation over combinations of factors, for one sample of the continuous dimensions.
        """
        policy = self.distribution(batch.next_observation)
        next_action_BA, next_log_prob_B = self.sampled(policy, "next")
        next_q_BNK = self.q("q_target", batch.next_observation, next_action_BA)
        if (subset := self.subset()) is not None:
            next_q_BNK = tf.gather(next_q_BNK, subset, axis=1)
        next_q_BK = reduce_q(next_q_BNK, self.algorithm.target_reduction)
        next_value_B = self.soft_value(next_q_BK, policy, next_log_prob_B)
        target_B = losses.bootstrap_target(batch.reward, batch.discount, next_value_B)
        discrete_BF, continuous_BA = self.action.parts(batch.action)
        with self.watch("q") as tape:
            q_BNK = self.q("q", batch.observation, continuous_BA)
            q_BN = losses.q_of_actions(q_BNK, self.joint_index(discrete_BF, q_BNK))
            huber = self.network_parameters["q"].replace_mse_with_huber_loss
            loss_BN = losses.regression_loss(q_BN, target_B, huber)
            if self.prioritized:
                loss_BN *= batch.weight[:, None]
            loss = self.mean_loss("q", loss_BN)
        return self.critic_result(batch, q_BN, target_B, loss_BN, self.gradients(loss, tape, "q"))

    def policy_loss(self, batch: Transition) -> tuple[tf.Tensor, HybridDistribution, tf.Tensor, tf.Tensor]:
        """Returns minus the soft value of each entry `[B]`, the policy, the log-probability `[B]` of its sample of the
        continuous dimensions, and Q of every combination with that sample, `[B, K]`.

        The gradient goes through the probabilities of combinations, and through the sample into Q.
        """
        policy = self.distribution(batch.observation)
        action_BA, log_prob_B = self.sampled(policy, "policy")
        q_BK = reduce_q(self.q("q", batch.observation, action_BA), self.algorithm.policy_reduction)
        return -self.soft_value(q_BK, policy, log_prob_B), policy, log_prob_B, q_BK

    def policy_step(self, batch: Transition) -> Step:
        """Computes the steps of the policy towards high Q and entropy, and of both temperatures."""
        with self.watch("policy") as tape:
            loss_B, policy, log_prob_B, q_BK = self.policy_loss(batch)
            loss = self.mean_loss("policy", loss_B)
        gradients = self.gradients(loss, tape, "policy")
        metrics = {
            "loss/policy": loss,
            "policy/q": tf.reduce_mean(losses.expectation(policy.joint()[0], q_BK)),
            "policy/gradient_norm": gradients[0].norm,
        }
        if self.discrete_temperature and policy.discrete:
            entropy_B, target = policy.discrete.entropy(), self.discrete_target_entropy
            if target is None:
                target = self.target_entropy_ratio * policy.discrete.max_entropy()
            step = self.temperature_step(self.discrete_temperature, -entropy_B, target)
            gradients += step.gradients
            metrics |= {
                "policy/discrete_entropy": tf.reduce_mean(entropy_B),
                **({"policy/discrete_target_entropy": tf.reduce_mean(target)} if step.metrics else {}),
                "discrete_temperature/alpha": self.discrete_temperature.value(),
                **step.metrics,
            }
        if self.continuous_temperature and policy.continuous:
            step = self.temperature_step(self.continuous_temperature, log_prob_B, self.continuous_target_entropy)
            gradients += step.gradients
            metrics |= {
                "policy/mean": tf.reduce_mean(policy.continuous.loc),
                "policy/log_std": tf.reduce_mean(policy.continuous.log_scale),
                "policy/log_prob": tf.reduce_mean(log_prob_B),
                "continuous_temperature/alpha": self.continuous_temperature.value(),
                **step.metrics,
            }
        if self.imitates:
            metrics |= policy_diagnostics(self, loss_B, batch, tape)
        return Step(gradients, metrics, loss_B)

    # -- the two parts of an action ------------------------------------------------------------------------------------

    def distribution(self, observation: Tensors) -> HybridDistribution:
        """Returns the policy at observations `[B, ...]`."""
        return self.policy.distribution(tf.nest.flatten(self.networks["policy"](observation)), observation)

    def sampled(self, policy: HybridDistribution, noise: str) -> tuple[tf.Tensor | None, tf.Tensor]:
        """Returns a reparameterised sample of the continuous dimensions, `[B, A]`, and its log density `[B]`, with
        noise of this name; None and zeros without such dimensions.
        """
        if policy.continuous is None:
            return None, tf.zeros([self.entries // self.replicas])
        return policy.continuous.sample_and_log_prob(self.noise(noise, [self.entries, self.action.action_size]))

    def soft_value(self, q_BK: tf.Tensor, policy: HybridDistribution, log_prob_B: tf.Tensor) -> tf.Tensor:
        """Returns the soft value `[B]` for Q of every combination; see `hybrid_soft_value`."""
        alphas = (x.value() if x else tf.zeros([]) for x in (self.discrete_temperature, self.continuous_temperature))
        return losses.hybrid_soft_value(q_BK, *policy.joint(), log_prob_B, *alphas)

    def q(self, name: str, observation: Tensors, action_BA: tf.Tensor | None) -> tf.Tensor:
        """Returns the critics' Q of every combination with a continuous action, `[B, N, K]`."""
        network = self.networks.get(name, self.networks["q"])
        return network(observation) if action_BA is None else network(observation, action_BA)

    def joint_index(self, discrete_BF: tf.Tensor | None, q_BNK: tf.Tensor) -> tf.Tensor:
        """Returns the index of the factors' combination among all K, `[B]`; the last factor varies fastest."""
        if discrete_BF is None:
            return tf.zeros_like(q_BNK[:, 0, 0], tf.int32)
        strides = [math.prod(self.action.sizes[f + 1 :]) for f in range(len(self.action.sizes))]
        return tf.reduce_sum(discrete_BF * tf.constant(strides), axis=-1)

    def values(self, observation: Tensors, action: Any, state: Tensors | None = None) -> dict[str, tf.Tensor]:
        """Returns the reduction of Q(s, u)[k] that the policy maximises, `[B]`, in units of the scaled reward; NaN for
        factors that do not exist.
        """
        discrete_BF, continuous_BA = self.action.parts(action)
        q_BNK = self.q("q", observation, continuous_BA)
        q_BN = losses.q_of_actions(q_BNK, self.joint_index(discrete_BF, q_BNK))
        q_B = reduce_q(q_BN, self.algorithm.policy_reduction)
        if discrete_BF is not None:
            exist_B = tf.reduce_all((discrete_BF >= 0) & (discrete_BF < tf.constant(self.action.sizes)), axis=-1)
            q_B = tf.where(exist_B, q_B, float("nan"))
        return {"q": q_B}
