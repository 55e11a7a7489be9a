"""Actor-critic with experience replay for actions that are numbers (arXiv 1611.01224, section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfsac.agents.acer import ACERAgent, Evaluation, flat
from tfsac.agents.base import Mode, ModelMaker
from tfsac.agents.noise import fresh_normal
from tfsac.agents.recurrent import POLICY
from tfsac.distributions import DiagonalGaussian
from tfsac.losses import acer as losses
from tfsac.parameters import GaussianACERAgentParameters, GaussianPolicyHeadParameters
from tfsac.types import BEHAVIOUR, ArraySpec, Segments, Spec, check_actions

MEAN, VARIANCE = BEHAVIOUR + "mean", BEHAVIOUR + "variance"


class Correction(NamedTuple):
    """Of a fresh action a' of the policy, constants: itself `[R, A]`, log pi(a') - log mu(a'), and Q(a') - V."""

    action_RA: tf.Tensor
    log_ratio_R: tf.Tensor
    advantage_R: tf.Tensor


class GaussianACERAgent(ACERAgent):
    """V and an advantage are the critics, a stochastic dueling network: `Q(a) = V + Adv(a) - mean_n Adv(u_n)`, u_n of the policy.

    Samples are not bounded and neither is their density; the environment clips what it is given.

    Args:
        parameters: algorithm, networks, memory.
        spec: what the agent sees and does.
        seed: of weights, noise and acting.
        eager: run updates without compiling them.
        models: none.
        jit_compile: compile updates with XLA.

    Raises:
        ValueError: actions that are no numbers; see `RecurrentAgent`.

    Example:
        >>> env = gymnasium.make("Pendulum-v1")
        >>> agent = GaussianACERAgent(GaussianACERAgentParameters(), tfsac.environments.spec_of(env))
        >>> sorted(agent.act({"observation": np.zeros((1, 3), "float32")}).extras)
        ['behaviour/mean', 'behaviour/variance']
    """

    def __init__(
        self,
        parameters: GaussianACERAgentParameters,
        spec: Spec,
        seed: int = 0,
        eager: bool = False,
        models: ModelMaker | None = None,
        jit_compile: bool = False,
    ):
        check_actions(parameters.kind, spec.action)
        self.trace_size = self.action_size = spec.action.shape[0]
        head = parameters.networks[POLICY].head_parameters
        assert isinstance(head, GaussianPolicyHeadParameters)
        self.min_variance = head.min_variance
        extras = {name: ArraySpec((self.action_size,), "float32") for name in (MEAN, VARIANCE)}
        super().__init__(parameters, spec._replace(extras=extras), seed, eager, models, jit_compile)

    # -- acting --------------------------------------------------------------------------------------------------------

    def draw(
        self, outputs: list[np.ndarray], observation: Mapping[str, np.ndarray], mode: Mode
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Returns actions `[E, A]`, mean and variance; "greedy" is the mean. Samples may lie outside of [-1, 1]."""
        mean, raw = outputs
        variance = np.broadcast_to(np.logaddexp(0.0, raw) + np.float32(self.min_variance), mean.shape)
        noise = 0.0 if mode == "greedy" else np.sqrt(variance) * self.rng.standard_normal(mean.shape, np.float32)
        return mean + noise, {MEAN: mean, VARIANCE: variance}

    def at_random(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns uniform actions `[E, A]` in [-1, 1]."""
        shape = (len(next(iter(observation.values()))), self.action_size)
        return self.rng.uniform(-1.0, 1.0, shape).astype(np.float32)

    def policy_of(self, outputs: list[tf.Tensor], observation: Mapping[str, tf.Tensor]) -> DiagonalGaussian:
        """Returns the policy in `[R]` rows."""
        mean_RA, raw = outputs
        return DiagonalGaussian(mean_RA, tf.ones_like(mean_RA) * (tf.math.softplus(raw) + self.min_variance))

    def acting_noise(self, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Draws standard normal noise `[E, A]`."""
        return fresh_normal([tf.shape(next(iter(observation.values())))[0], self.action_size])

    def value_tensors(
        self, observation: Mapping[str, tf.Tensor], action: tf.Tensor, state: Mapping[str, tf.Tensor] | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns "q" of observations and actions and "v", `[E]`; the same n draws serve as the baseline of every call.

        Raises:
            ValueError: see `refuse_remembering_critics`; no state for a policy that has one.
        """
        self.refuse_remembering_critics()
        outputs, _, given = self.chained(observation, state)
        samples = self.algorithm.num_advantage_samples
        noise = np.random.default_rng(0).standard_normal((samples, 1, self.action_size), np.float32)
        baseline = tf.unstack(self.policy_of(outputs, observation).sample(tf.constant(noise)))
        advantage_KE = tf.stack([self.networks["advantage"](given, a)[:, 0] for a in (action, *baseline)])
        v_E = self.networks["v"](given)
        return {"q": v_E + advantage_KE[0] - tf.reduce_mean(advantage_KE[1:], axis=0), "v": v_E}

    # -- the parts of an update ----------------------------------------------------------------------------------------

    def evaluate(self, batch: Segments, seen: dict[str, tf.Tensor]) -> Evaluation:
        """Returns policies and values in all steps."""
        steps, action_RA = self.steps, flat(batch.action)
        now, average = (
            self.policy_of(self.head(name, seen[name][:steps]), {}) for name in (POLICY, self.average_of(POLICY))
        )
        # Where there is no step the stored variance is zero.
        variance_RA = tf.where(flat(batch.length)[:, None] > 0, flat(batch.extras[VARIANCE]), 1.0)
        behaviour = DiagonalGaussian(flat(batch.extras[MEAN]), variance_RA)
        off_policy_R = 1.0 - flat(batch.on_policy)
        v_TB = tf.reshape(self.head("v", seen["v"])[0], [steps + 1, -1])
        v_R, samples = flat(v_TB[:steps]), self.algorithm.num_advantage_samples
        fresh_RA = tf.stop_gradient(now.sample(self._noise("correction", 1)[0]))
        baselines = [tf.stop_gradient(now.sample(self._noise(name, samples))) for name in ("baseline", "correction_baseline")]
        advantage_KR = self._advantages(seen["advantage"][:steps], tf.concat([action_RA[None], fresh_RA[None], *baselines], axis=0))
        taken_R, fresh_R, first_NR, second_NR = tf.split(advantage_KR, [1, 1, samples, samples])
        return Evaluation(
            policy=now,
            average=average,
            log_ratio_R=off_policy_R * losses.log_ratio(now.log_prob(action_RA), behaviour.log_prob(action_RA)),
            q_R=v_R + taken_R[0] - tf.reduce_mean(first_NR, axis=0),
            v_R=v_R,
            bootstrap_B=tf.stop_gradient(v_TB[steps]),
            correction=Correction(
                fresh_RA,
                losses.log_ratio(now.log_prob(fresh_RA), behaviour.log_prob(fresh_RA)),
                tf.stop_gradient(fresh_R[0] - tf.reduce_mean(second_NR, axis=0)),
            ),
        )

    def _noise(self, name: str, draws: int) -> tf.Tensor:
        """Returns standard normal noise for this replica's rows, `[N, R, A]`."""
        noise_TBNA = self.noise(name, [self.steps, self.batch_size, draws, self.action_size])
        return tf.transpose(flat(noise_TBNA), [1, 0, 2])

    def _advantages(self, features_TBF: tf.Tensor, action_KRA: tf.Tensor) -> tf.Tensor:
        """Returns the advantage network's outputs for K actions in every row, `[K, R]`."""
        many = tf.tile(features_TBF, [action_KRA.shape[0], 1, 1])
        (advantage,) = self.head("advantage", many, flat(action_KRA))
        return tf.reshape(advantage, [action_KRA.shape[0], -1])

    def statistics(self, policy: DiagonalGaussian) -> tf.Tensor:
        """Returns mean and variance, or mean and standard deviation, side by side, `[R, 2 A]`."""
        variance = self.algorithm.trust_region_statistics == "variance"
        return tf.concat([policy.mean, policy.variance if variance else tf.sqrt(policy.variance)], axis=-1)

    def _policy(self, statistics_RS: tf.Tensor) -> DiagonalGaussian:
        mean_RA, width_RA = tf.split(statistics_RS, 2, axis=-1)
        return DiagonalGaussian(mean_RA, width_RA if self.algorithm.trust_region_statistics == "variance" else tf.square(width_RA))

    def policy_loss(self, statistics_RS: tf.Tensor, now: Evaluation, batch: Segments, advantage_R: tf.Tensor) -> tf.Tensor:
        """Equation 9, `[R]`."""
        policy, on_policy_R = self._policy(statistics_RS), flat(batch.on_policy)
        truncation = self.algorithm.truncation_threshold
        log_prob_R = policy.log_prob(flat(batch.action))
        loss_R = losses.policy_loss(log_prob_R, now.log_ratio_R, advantage_R, on_policy_R, truncation)
        if truncation is None:
            return loss_R
        fresh_RA, log_ratio_R, fresh_advantage_R = now.correction
        return loss_R + (1.0 - on_policy_R) * losses.sampled_correction(
            policy.log_prob(fresh_RA), log_ratio_R, fresh_advantage_R, truncation
        )

    def kl(self, statistics_RS: tf.Tensor, now: Evaluation) -> tf.Tensor:
        """Returns KL(average || policy), `[R]`."""
        return now.average.kl_to(self._policy(statistics_RS))

    def critic_rows(self, now: Evaluation, q_ret_R: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the losses of Q, which trains V and the advantage, and of V, `[R]`."""
        q_loss_R = losses.q_loss(now.q_R, q_ret_R)
        return {"advantage": q_loss_R, "v": losses.v_loss(now.v_R, now.q_R, q_ret_R, now.log_ratio_R)}
