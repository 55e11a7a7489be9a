"""Soft actor-critic with twin target critics: Spinning Up's and DI-engine's (Haarnoja et al. 2018, arXiv 1812.05905).

Networks: `policy`, twin `q` in one head and its slow copy `q_target`. The temperature is fixed or learned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import tensorflow as tf

from tfsac.agents import critics, imitation
from tfsac.agents.base import ModelMaker
from tfsac.agents.gaussian import GaussianAgent
from tfsac.agents.gradients import Gradients, no_gradients
from tfsac.agents.temperature import AutoAlpha, make_temperature
from tfsac.distributions import SquashedGaussian
from tfsac.losses import twin_soft_actor_critic as losses
from tfsac.parameters import TwinSoftActorCriticAgentParameters
from tfsac.types import Metrics, Spec, Transition


@dataclasses.dataclass
class Update:
    """What the steps of one update read and leave for each other.

    Attributes:
        batch: this replica's rows.
        train_policy: whether policy and temperature learn in this update.
        log_prob_B: log pi(a~|s) that the policy step drew.
        td_error_B: absolute TD errors, mean over the critics.
        metrics: of the steps so far.
    """

    batch: Transition
    train_policy: bool
    log_prob_B: tf.Tensor | None = None
    td_error_B: tf.Tensor | None = None
    metrics: Metrics = dataclasses.field(default_factory=dict)


class TwinSoftActorCriticAgent(GaussianAgent):
    """Critic, policy, temperature and target in the order that the parameters give.

    Args:
        parameters: algorithm, networks, exploration, memory.
        spec: what the agent sees and does.
        seed: of weights, noise and acting.
        eager: run updates without compiling them.
        models: makes "policy" and "q" as Keras models instead.
        jit_compile: compile updates with XLA.

    Attributes:
        temperature: `FixedAlpha` or `AutoAlpha`.

    Raises:
        ValueError: see `Agent` and `make_temperature`.

    Example:
        >>> env = gymnasium.make("Pendulum-v1")
        >>> agent = TwinSoftActorCriticAgent(TwinSoftActorCriticAgentParameters(), tfsac.environments.spec_of(env))
        >>> agent.act({"observation": np.zeros((1, 3), "float32")}, mode="greedy").action.shape
        (1, 1)
    """

    def __init__(
        self,
        parameters: TwinSoftActorCriticAgentParameters,
        spec: Spec,
        seed: int = 0,
        eager: bool = False,
        models: ModelMaker | None = None,
        jit_compile: bool = False,
    ):
        super().__init__(parameters, spec, seed, eager, models, jit_compile)
        self.order = parameters.algorithm.groups()
        self.temperature = make_temperature(parameters.algorithm.temperature, self.action_size)
        self.temperature.join(self)

    def update_once(self, batch: Transition, train_policy: bool = True) -> tuple[Metrics, tf.Tensor]:
        """One update: in each group all gradients are taken before anything moves."""
        update = Update(batch, train_policy)
        steps = {"policy": self.policy_step, "critic": self.critic_step, "temperature": self.temperature_step}
        for group in self.order:
            if group == ("target",):
                self.target_step()
                continue
            for gradients in [steps[name](update) for name in group]:
                if gradients.values:
                    self.apply(gradients)
        assert update.td_error_B is not None
        return {**update.metrics, **self.learning_rates()}, update.td_error_B

    def critic_step(self, update: Update) -> Gradients:
        """Regresses every Q(s, a) on `r + discount * (min_i Q_target_i(s', a') - alpha log pi(a'|s'))` (equation 5)."""
        batch = update.batch
        policy = SquashedGaussian(*self.networks["policy"](batch.next_observation))
        next_action_BA, next_log_prob_B = policy.sample_and_log_prob(self.update_noise("next"))
        next_q_BN = self.slow("q")(batch.next_observation, next_action_BA)
        target_B = losses.critic_target(
            batch.reward, batch.discount, next_q_BN, next_log_prob_B, self.temperature.value()
        )
        step = critics.regress(
            self, batch, lambda: self.networks["q"](batch.observation, batch.action), target_B, losses.critic_loss
        )
        update.td_error_B = step.td_error_B
        update.metrics |= {**critics.of_critics("q/q", tf.reduce_mean(step.q_BN, axis=0)), **step.metrics}
        return step.gradients

    def policy_step(self, update: Update) -> Gradients:
        """Moves the policy towards actions of high Q and, times alpha, high entropy (equation 7)."""
        batch, alpha = update.batch, self.temperature.value()
        with self.watch("policy") as tape:
            policy = SquashedGaussian(*self.networks["policy"](batch.observation))
            action_BA, update.log_prob_B = policy.sample_and_log_prob(self.update_noise("policy"))
            q_min_B = tf.reduce_min(self.networks["q"](batch.observation, action_BA), axis=-1)
            loss_B = losses.policy_loss(update.log_prob_B, q_min_B, alpha)
            loss = self.weighted("policy", loss_B)
            halves = imitation.of_halves("imitation/policy_loss", loss_B, batch)
        gradients = self.gradients("policy", loss, tape) if update.train_policy else no_gradients("policy")
        update.metrics |= {
            "loss/policy": loss,
            "policy/mean": tf.reduce_mean(policy.loc),
            "policy/log_std": tf.reduce_mean(policy.log_scale),
            "policy/log_prob": tf.reduce_mean(update.log_prob_B),
            "policy/q": tf.reduce_mean(q_min_B),
            "policy/gradient_norm": gradients.norm,
            "temperature/alpha": alpha,
            **halves,
            **imitation.gradient_cosine(self, halves, tape),
        }
        return gradients

    def temperature_step(self, update: Update) -> Gradients:
        """Moves alpha so that the entropy of the policy step's draw comes to its target (equation 18)."""
        if not isinstance(self.temperature, AutoAlpha):
            return no_gradients("temperature")
        with self.watch("temperature") as tape:
            loss = tf.reduce_mean(self.temperature.loss(update.log_prob_B, self.temperature.target_entropy))
        update.metrics["loss/temperature"] = loss
        return self.gradients("temperature", loss, tape) if update.train_policy else no_gradients("temperature")

    def target_step(self) -> None:
        """Moves the slow critics towards the critics."""
        self.soft_update("q")

    def values_of(self, observation: Mapping[str, tf.Tensor], action: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns min_i Q_i(s, a), `[B]`, in units of the filtered reward."""
        return {"q": tf.reduce_min(self.networks["q"](observation, action), axis=-1)}
