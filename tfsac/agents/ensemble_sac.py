"""Soft actor-critic with an ensemble of critics. REDQ (arXiv 2101.05982), DroQ (2110.02034), TQC (2005.04269), CrossQ
(1902.05605), XQC, FlashSAC and SimBa (2410.09754) are presets of its options.

Networks: `policy`, `q` with N critics in one head, and optionally its target network `q_target`. The update orders are
those of the twin agent.
"""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar

import tensorflow as tf

from tfsac.agents.learner import Step
from tfsac.agents.twin_sac import TwinSoftActorCriticAgent
from tfsac.losses.critics import critic_values
from tfsac.losses.ensembles import reduce_q
from tfsac.networks.layers import Mask
from tfsac.networks.unit_weights import weight_norm
from tfsac.parameters import TwinSoftActorCriticAgentParameters
from tfsac.policies.distributions import SquashedGaussian
from tfsac.types import Spec, Tensors, Transition


def concatenated(first: Any, second: Any) -> Any:
    """Returns tensors `[B, ...]` of the same structure as `[2 B, ...]`."""
    return tf.nest.map_structure(lambda *x: tf.concat(x, axis=0), first, second)


def dropout_factors(rate: float, shape: list[int], seed: tf.Tensor) -> tf.Tensor:
    """Returns 0 for each unit that dropout drops, with probability `rate`, and 1 / (1 - rate) for the others.

    The distance between dropped units is geometric, so only they need random numbers.
    """
    size = math.prod(shape)
    expected = rate * size
    most = math.ceil(expected + 6.0 * expected**0.5) + 8  # more are dropped once in a billion draws
    uniform = tf.random.stateless_uniform([most], seed)
    distance = 1.0 + tf.floor(tf.math.log1p(-uniform) / math.log1p(-rate))
    left_out = tf.cumsum(tf.cast(tf.minimum(distance, size + 1.0), tf.int32)) - 1
    keep_scale = tf.fill([size + 1], 1.0 / (1.0 - rate))  # drops beyond the end go to its last entry
    factors = tf.tensor_scatter_nd_update(keep_scale, tf.minimum(left_out, size)[:, None], tf.zeros([most]))
    return tf.reshape(factors[:size], shape)


class EnsembleSoftActorCriticAgent(TwinSoftActorCriticAgent):
    """Twin-target soft actor-critic with N critics, of which M form the target; optionally with return distributions,
    normalisation, dropout and unit weights.

    Attributes:
        critics: converts the critics' outputs to Q.

    Example:
        >>> head = QHeadParameters(num_critics=10)
        >>> networks = {
        ...     "policy": NetworkParameters(SACPolicyHeadParameters()),
        ...     "q": NetworkParameters(head, create_target_network=True),
        ... }
        >>> algorithm = TwinSoftActorCriticAlgorithmParameters(critic_subset=2, policy_reduction="mean")
        >>> parameters = TwinSoftActorCriticAgentParameters(algorithm=algorithm, networks=networks)
        >>> agent = EnsembleSoftActorCriticAgent(parameters, tfsac.environments.spec_of(gymnasium.make("Pendulum-v1")))
    """

    has_ensemble: ClassVar[bool] = True

    def __init__(self, parameters: TwinSoftActorCriticAgentParameters, spec: Spec, *args: Any, **kwargs: Any):
        super().__init__(parameters, spec, *args, **kwargs)
        q: Any = parameters.networks["q"]
        self.critics = critic_values(self.algorithm, q.head_parameters, q.replace_mse_with_huber_loss)
        self.num_critics = q.head_parameters.num_critics
        self.has_dropout = q.head_parameters.dropout > 0

    def critic_step(self, batch: Transition) -> Step:
        """Computes the step of every Q(s, a) towards the target, a reduction over (a subset of) the target critics."""
        policy = SquashedGaussian(*self.networks["policy"](batch.next_observation))
        noise_BA = self.noise("next", [self.entries, self.policy.action_size])
        next_action_BA, next_log_prob_B = policy.sample_and_log_prob(noise_BA)
        alpha = self.temperature.value() if self.algorithm.entropy_in_target else tf.zeros([])
        with self.watch("q") as tape:
            outputs, next_outputs = self.outputs(batch, next_action_BA)
            target, metrics = self.critics.target(batch, next_outputs, next_log_prob_B, alpha)
            loss_BN = self.critics.loss(outputs, target)
            if self.prioritized:
                loss_BN *= batch.weight[:, None]
            loss = self.mean_loss("q", loss_BN)
        q_BN, q_target = self.critics.q(outputs), self.critics.q_of_target(target)
        step = self.critic_result(batch, q_BN, q_target, loss_BN, self.gradients(loss, tape, "q"))
        spread = tf.reduce_mean(tf.math.reduce_std(q_BN, axis=-1))
        norm = weight_norm(self.networks["q"])
        return step._replace(metrics=step.metrics | metrics | {"q/spread": spread, "q/weight_norm": norm})

    def outputs(self, batch: Transition, next_action_BA: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the outputs of the critics for (s, a), and of (a subset of) the target critics for (s', a'): computed
        separately, or in one joint batch (1902.05605, section 3).
        """
        joint, size, subset = self.algorithm.joint_critic_forward, batch.reward.shape[0], self.subset()
        now, following = (batch.observation, batch.action), (batch.next_observation, next_action_BA)
        if joint:
            now = following = concatenated(now, following)
        mask = self.dropout_mask("online", self.num_critics, 1 + joint)
        outputs = self.networks["q"].compute(*now, batch_statistics=True, update_statistics=True, dropout_mask=mask)
        if self.targets["q"] is not self.networks["q"]:
            mask = self.dropout_mask("target", self.algorithm.critic_subset or self.num_critics, 1 + joint)
            next_outputs = self.targets["q"].compute(
                *following, batch_statistics=True, dropout_mask=mask, critic_indices=subset
            )
        else:
            next_outputs = tf.stop_gradient(outputs)
            if subset is not None:
                next_outputs = tf.gather(next_outputs, subset, axis=1)
        return (outputs[:size], next_outputs[size:]) if joint else (outputs, next_outputs)

    def dropout_mask(self, use: str, critics: int, batches: int) -> Mask | None:
        """Returns a function that draws dropout factors for these numbers of critics and batches; None without."""
        if not self.has_dropout:
            return None

        @functools.cache
        def draw(layer: str, rate: float, units: int) -> tf.Tensor:
            names = [f"dropout/{use}/{layer}/{i}" for i in range(batches)]
            shape, factors = [self.entries, critics, units], functools.partial(dropout_factors, rate)
            factors_BNF = tf.concat([self.noise(name, shape, factors) for name in names], axis=0)
            return tf.transpose(factors_BNF, [1, 0, 2])

        return draw

    def policy_outputs(self, batch: Transition) -> list[tf.Tensor]:
        """Returns the policy's outputs for s, normalised by the batch of s, or by the joint batch of s and s'."""
        policy = functools.partial(self.networks["policy"].compute, batch_statistics=True, update_statistics=True)
        if not self.algorithm.joint_policy_forward:
            return policy(batch.observation)
        both = concatenated(batch.observation, batch.next_observation)
        return [x[: batch.reward.shape[0]] for x in policy(both)]

    def policy_loss(self, batch: Transition) -> tuple[tf.Tensor, SquashedGaussian, tf.Tensor, tf.Tensor]:
        """Returns the loss of each entry `[B]` (1812.05905, equation 7, with the policy's reduction of Q), the policy's
        distribution, and log-probability `[B]` and Q `[B, N]` of its sample.
        """
        policy = SquashedGaussian(*self.policy_outputs(batch))
        noise_BA = self.noise("policy", [self.entries, self.policy.action_size])
        action_BA, log_prob_B = policy.sample_and_log_prob(noise_BA)
        mask = self.dropout_mask("policy", self.num_critics, 1)
        outputs = self.networks["q"].compute(batch.observation, action_BA, batch_statistics=False, dropout_mask=mask)
        q_BN, reduction = self.critics.q(outputs), self.algorithm.policy_reduction
        loss_B = self.temperature.value() * log_prob_B - reduce_q(q_BN, reduction)
        return loss_B, policy, log_prob_B, q_BN

    def policy_step(self, batch: Transition) -> Step:
        """Computes the step of policy and temperature; see `TwinSoftActorCriticAgent`."""
        step = super().policy_step(batch)
        return step._replace(metrics=step.metrics | {"policy/weight_norm": weight_norm(self.networks["policy"])})

    def values(self, observation: Tensors, action: tf.Tensor, state: Tensors | None = None) -> dict[str, tf.Tensor]:
        """Returns the reduction of Q(s, a) that the policy maximises, `[B]`, in units of the scaled reward."""
        q_BN = self.critics.q(self.networks["q"](observation, action))
        return {"q": reduce_q(q_BN, self.algorithm.policy_reduction)}
