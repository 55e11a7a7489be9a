"""Actor-critic with experience replay for discrete actions (arXiv 1611.01224, sections 3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfsac.agents.acer import ACERAgent, Evaluation, flat
from tfsac.agents.base import Mode, ModelMaker
from tfsac.agents.categorical import best
from tfsac.agents.noise import fresh_uniform
from tfsac.agents.recurrent import POLICY
from tfsac.distributions import MaskedCategorical
from tfsac.losses import acer as losses
from tfsac.losses.discrete_soft_actor_critic import expectation
from tfsac.parameters import DiscreteACERAgentParameters
from tfsac.types import ACTION_MASK, BEHAVIOUR, ArraySpec, DiscreteSpec, Segments, Spec, check_actions

LOGITS = BEHAVIOUR + "logits"
SMALLEST = 1e-30  # probability whose log is finite


class Correction(NamedTuple):
    """Of every action: Q, and log pi - log mu; constants `[R, A]`."""

    q_RA: tf.Tensor
    log_ratio_RA: tf.Tensor


class DiscreteACERAgent(ACERAgent):
    """Q of every action is the critic, `V = sum_a pi(a) Q(a)`, and the bias correction is a sum over actions.

    Args:
        parameters: algorithm, networks, memory.
        spec: what the agent sees and does.
        seed: of weights, noise and acting.
        eager: run updates without compiling them.
        models: none.
        jit_compile: compile updates with XLA.

    Raises:
        ValueError: actions that are no choice; see `RecurrentAgent`.

    Example:
        >>> env = gymnasium.make("CartPole-v1")
        >>> agent = DiscreteACERAgent(DiscreteACERAgentParameters(), tfsac.environments.spec_of(env))
        >>> agent.act({"observation": np.zeros((1, 4), "float32")}).extras["behaviour/logits"].shape
        (1, 2)
    """

    def __init__(
        self,
        parameters: DiscreteACERAgentParameters,
        spec: Spec,
        seed: int = 0,
        eager: bool = False,
        models: ModelMaker | None = None,
        jit_compile: bool = False,
    ):
        check_actions(parameters.kind, spec.action)
        assert isinstance(spec.action, DiscreteSpec)
        self.num_actions = spec.action.num_actions
        extras = {LOGITS: ArraySpec((self.num_actions,), "float32")}
        super().__init__(parameters, spec._replace(extras=extras), seed, eager, models, jit_compile)

    # -- acting --------------------------------------------------------------------------------------------------------

    def draw(
        self, outputs: list[np.ndarray], observation: Mapping[str, np.ndarray], mode: Mode
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Returns choices `[E]` from 0 and the logits; "greedy" takes the likeliest."""
        (logits,) = outputs
        score = logits if mode == "greedy" else logits + self.rng.gumbel(size=logits.shape)
        return best(score, observation.get(ACTION_MASK)), {LOGITS: logits}

    def at_random(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns uniform valid choices `[E]`."""
        rows = len(next(iter(observation.values())))
        return best(self.rng.random((rows, self.num_actions)), observation.get(ACTION_MASK))

    def policy_of(self, outputs: list[tf.Tensor], observation: Mapping[str, tf.Tensor]) -> MaskedCategorical:
        """Returns the policy in `[R]` rows."""
        return MaskedCategorical(outputs[0], observation.get(ACTION_MASK))

    def acting_noise(self, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Draws uniform noise `[E, A]` in [0, 1)."""
        return fresh_uniform([tf.shape(next(iter(observation.values())))[0], self.num_actions])

    def value_tensors(
        self, observation: Mapping[str, tf.Tensor], action: tf.Tensor, state: Mapping[str, tf.Tensor] | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns "q" of observations and choices and "v", `[E]`.

        Raises:
            ValueError: see `refuse_remembering_critics`; no state for a policy that has one.
        """
        self.refuse_remembering_critics()
        outputs, _, given = self.chained(observation, state)
        q_EA = self.networks["q"](given)[:, 0]
        return {"q": tf.gather(q_EA, action, axis=1, batch_dims=1), "v": expectation(self.policy_of(outputs, observation).prob, q_EA)}

    # -- the parts of an update ----------------------------------------------------------------------------------------

    def evaluate(self, batch: Segments, seen: dict[str, tf.Tensor]) -> Evaluation:
        """Returns policies and values in all steps."""
        steps, masks = self.steps, batch.observation.get(ACTION_MASK)

        def policy(name: str, rows: slice) -> MaskedCategorical:
            logits = self.head(name, seen[name][rows])
            return self.policy_of(logits, {} if masks is None else {ACTION_MASK: flat(masks[rows])})

        during, after = slice(0, steps), slice(steps, steps + 1)
        now, average, end = policy(POLICY, during), policy(self.average_of(POLICY), during), policy(POLICY, after)
        behaviour = MaskedCategorical(flat(batch.extras[LOGITS]), now.mask)
        q_TBA = tf.reshape(self.head("q", seen["q"])[0], [steps + 1, -1, self.num_actions])
        q_RA, action_R = flat(q_TBA[:steps]), flat(batch.action)
        log_ratio_RA = losses.log_ratio(now.log_prob, behaviour.log_prob)
        off_policy_R = 1.0 - flat(batch.on_policy)
        return Evaluation(
            policy=now,
            average=average,
            log_ratio_R=off_policy_R * taken(log_ratio_RA, action_R),
            q_R=taken(q_RA, action_R),
            v_R=tf.stop_gradient(expectation(now.prob, q_RA)),
            bootstrap_B=tf.stop_gradient(expectation(end.prob, q_TBA[steps])),
            correction=Correction(tf.stop_gradient(q_RA), log_ratio_RA),
        )

    def statistics(self, policy: MaskedCategorical) -> tf.Tensor:
        """Returns logits, log-probabilities or probabilities, `[R, A]`."""
        return {"logits": policy.logits, "log_probs": policy.log_prob, "probabilities": policy.prob}[
            self.algorithm.trust_region_statistics
        ]

    def _log_prob(self, statistics_RA: tf.Tensor, now: Evaluation) -> tf.Tensor:
        """Returns log-probabilities `[R, A]` as a function of the statistics."""
        if self.algorithm.trust_region_statistics == "logits":
            return MaskedCategorical(statistics_RA, now.policy.mask).log_prob
        if self.algorithm.trust_region_statistics == "log_probs":
            return statistics_RA
        return tf.where(now.policy.mask, tf.math.log(tf.maximum(statistics_RA, SMALLEST)), 0.0)

    def policy_loss(self, statistics_RS: tf.Tensor, now: Evaluation, batch: Segments, advantage_R: tf.Tensor) -> tf.Tensor:
        """Equation 8, `[R]`."""
        log_prob_RA, truncation = self._log_prob(statistics_RS, now), self.algorithm.truncation_threshold
        log_prob_R, on_policy_R = taken(log_prob_RA, flat(batch.action)), flat(batch.on_policy)
        loss_R = losses.policy_loss(log_prob_R, now.log_ratio_R, advantage_R, on_policy_R, truncation)
        if truncation is None:
            return loss_R
        q_RA, log_ratio_RA = now.correction
        return loss_R + (1.0 - on_policy_R) * losses.full_correction(
            now.policy.prob, log_prob_RA, log_ratio_RA, q_RA, now.v_R, truncation
        )

    def kl(self, statistics_RS: tf.Tensor, now: Evaluation) -> tf.Tensor:
        """Returns `sum_a average(a) (log average(a) - log pi(a))`, `[R]`."""
        return expectation(now.average.prob, now.average.log_prob - self._log_prob(statistics_RS, now))

    def critic_rows(self, now: Evaluation, q_ret_R: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the loss of Q, `[R]`."""
        return {"q": losses.q_loss(now.q_R, q_ret_R)}


def taken(values_RA: tf.Tensor, action_R: tf.Tensor) -> tf.Tensor:
    """Returns the entries of the actions taken, `[R]`."""
    return tf.gather(values_RA, action_R, axis=1, batch_dims=1)
