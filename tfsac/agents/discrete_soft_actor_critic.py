"""Soft actor-critic for discrete actions: DI-engine's (Christodoulou 2019, arXiv 1910.07207).

Networks: `policy`, twin `q` of all actions in one head and its slow copy `q_target`. The temperature is fixed or learned.
Expectations over actions are exact sums, so an update draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from tfsac.agents import critics, imitation
from tfsac.agents.base import ModelMaker
from tfsac.agents.categorical import CategoricalAgent
from tfsac.agents.gradients import no_gradients
from tfsac.agents.temperature import DiscreteAutoAlpha, make_discrete_temperature
from tfsac.losses import discrete_soft_actor_critic as losses
from tfsac.losses.twin_soft_actor_critic import critic_loss
from tfsac.parameters import DiscreteSoftActorCriticAgentParameters
from tfsac.types import Metrics, Spec, Transition


class DiscreteSoftActorCriticAgent(CategoricalAgent):
    """Critic, then policy, then temperature, then target: one update.

    With a shared encoder the policy reads the features of q's embedders; only the critic step trains them.

    Args:
        parameters: algorithm, networks, exploration, memory.
        spec: what the agent sees and does.
        seed: of weights and acting.
        eager: run updates without compiling them.
        models: makes "policy" and "q" as Keras models instead.
        jit_compile: compile updates with XLA.

    Attributes:
        temperature: `FixedAlpha` or `DiscreteAutoAlpha`.

    Raises:
        ValueError: see `Agent`, `CategoricalAgent` and `make_discrete_temperature`.

    Example:
        >>> env = gymnasium.make("CartPole-v1")
        >>> agent = DiscreteSoftActorCriticAgent(DiscreteSoftActorCriticAgentParameters(), tfsac.environments.spec_of(env))
        >>> agent.act({"observation": np.zeros((1, 4), "float32")}, mode="greedy").action.shape
        (1,)
    """

    def __init__(
        self,
        parameters: DiscreteSoftActorCriticAgentParameters,
        spec: Spec,
        seed: int = 0,
        eager: bool = False,
        models: ModelMaker | None = None,
        jit_compile: bool = False,
    ):
        if models is not None and parameters.shared_encoder:
            raise ValueError("Custom Keras models have encoders of their own: set agent.shared_encoder to false. Received: shared_encoder=True")
        self.shared_encoder = parameters.shared_encoder
        super().__init__(parameters, spec, seed, eager, models, jit_compile)
        self.temperature = make_discrete_temperature(parameters.algorithm.temperature, self.num_actions)
        self.temperature.join(self)

    def encoder_of(self, name: str) -> str | None:
        """Returns "q" for a policy that shares its encoder."""
        return "q" if self.shared_encoder and name == "policy" else None

    def update_once(self, batch: Transition, train_policy: bool = True) -> tuple[Metrics, tf.Tensor]:
        """One update in the order critic, policy, temperature, target."""
        td_error_B, critic_metrics = self.critic_step(batch)
        entropy_B, policy_metrics = self.policy_step(batch, train_policy)
        temperature_metrics = self.temperature_step(batch, entropy_B, train_policy)
        self.target_step()
        return {**critic_metrics, **policy_metrics, **temperature_metrics, **self.learning_rates()}, td_error_B

    def critic_step(self, batch: Transition) -> tuple[tf.Tensor, Metrics]:
        """Regresses every Q(s, a) on `r + discount * V(s')`, V an exact expectation over the policy of now (equation 10).

        Returns:
            absolute TD errors `[B]`, mean over the critics, and metrics.
        """
        policy = self.policy(batch.next_observation)
        next_q_BNA = self.slow("q")(batch.next_observation)
        target_B = losses.critic_target(
            batch.reward, batch.discount, next_q_BNA, policy.prob, policy.log_prob, self.temperature.value()
        )
        step = critics.regress(
            self, batch, lambda: losses.chosen(self.networks["q"](batch.observation), batch.action), target_B, critic_loss
        )
        self.apply(step.gradients)
        return step.td_error_B, {**critics.of_critics("q/q", tf.reduce_mean(step.q_BN, axis=0)), **step.metrics}

    def policy_step(self, batch: Transition, train: bool = True) -> tuple[tf.Tensor, Metrics]:
        """Moves the policy towards actions of high Q and, times alpha, high entropy (equation 12).

        Args:
            batch: of which the observations are used.
            train: False computes everything but moves nothing.

        Returns:
            entropy `[B]` of the policy before it moved, and metrics.
        """
        alpha, q_BNA = self.temperature.value(), self.networks["q"](batch.observation)
        with self.watch("policy") as tape:
            policy = self.policy(batch.observation)
            loss_B = losses.policy_loss(policy.prob, policy.log_prob, q_BNA, alpha)
            loss = self.weighted("policy", loss_B)
            halves = imitation.of_halves("imitation/policy_loss", loss_B, batch)
        cosine = imitation.gradient_cosine(self, halves, tape)
        gradients = self.minimize("policy", loss, tape) if train else no_gradients("policy")
        entropy_B = losses.entropy(policy.prob, policy.log_prob)
        return entropy_B, {
            "loss/policy": loss,
            "policy/entropy": tf.reduce_mean(entropy_B),
            "policy/q": tf.reduce_mean(losses.expectation(policy.prob, tf.reduce_min(q_BNA, axis=1))),
            "policy/gradient_norm": gradients.norm,
            "temperature/alpha": alpha,
            **halves,
            **cosine,
        }

    def temperature_step(self, batch: Transition, entropy_B: tf.Tensor, train: bool = True) -> Metrics:
        """Moves alpha so that the policy's entropy comes to its target in the mean over states (equation 11)."""
        if not isinstance(self.temperature, DiscreteAutoAlpha):
            return {}
        target_B = self.temperature.target(self.num_valid(batch.observation))
        with self.watch("temperature") as tape:
            loss = tf.reduce_mean(self.temperature.loss(-entropy_B, target_B))
        if train:
            self.minimize("temperature", loss, tape)
        return {"loss/temperature": loss, "policy/target_entropy": tf.reduce_mean(target_B)}

    def target_step(self) -> None:
        """Moves the slow critics towards the critics."""
        self.soft_update("q")

    def values_of(self, observation: Mapping[str, tf.Tensor], action: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns min_i Q_i(s, a), `[B]`, in units of the filtered reward; NaN for actions that there are not."""
        q_B = tf.reduce_min(losses.chosen(self.networks["q"](observation), action), axis=-1)
        return {"q": tf.where((action >= 0) & (action < self.num_actions), q_B, float("nan"))}
