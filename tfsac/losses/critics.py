"""Converts the outputs of N critics to Q: unchanged, or as means of return distributions `[B, N, K]`.

Each class computes every critic's Q `[B, N]` from the outputs, the target of all critics `[B, ...]` or of each
`[B, N, ...]`, Q of that target `[B]` or `[B, N]`, and the losses `[B, N]`.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow import Tensor

from tfsac.losses import distributional, ensembles
from tfsac.losses.soft_actor_critic import regression_loss
from tfsac.parameters import (
    ATOM_BOUND,
    CategoricalValueParameters,
    QHeadParameters,
    QuantileValueParameters,
    TwinSoftActorCriticAlgorithmParameters,
)
from tfsac.types import Metrics, Transition


class ScalarCritics:
    """Critics whose outputs are Q.

    Args:
        reduction: reduction over the target critics.
        huber: whether errors beyond 1 count linearly.
    """

    def __init__(self, reduction: str, huber: bool):
        self.reduction, self.huber = reduction, huber

    def q(self, outputs_BN: Tensor) -> Tensor:
        """Returns Q of every critic."""
        return outputs_BN

    def target(
        self, batch: Transition, next_BM: Tensor, next_log_prob_B: Tensor, alpha: Tensor
    ) -> tuple[Tensor, Metrics]:
        """Returns the target and its metrics.

        Args:
            batch: rewards and discounts.
            next_BM: outputs of M target critics at the next observation and action.
            next_log_prob_B: log-probability of that action.
            alpha: temperature, or 0 for a target without entropy.
        """
        value = ensembles.reduce_q(next_BM, self.reduction)
        return ensembles.soft_target(batch.reward, batch.discount, value, next_log_prob_B, alpha), {}

    def q_of_target(self, target: Tensor) -> Tensor:
        """Returns the target."""
        return target

    def loss(self, outputs_BN: Tensor, target: Tensor) -> Tensor:
        """Returns the squared error, or the Huber loss."""
        return regression_loss(outputs_BN, target, self.huber)


class CategoricalCritics:
    """Critics whose outputs are logits of K atoms; the parameters set their bounds and number."""

    def __init__(self, reduction: str, parameters: CategoricalValueParameters):
        low, high = (-ATOM_BOUND, ATOM_BOUND) if parameters.low is None else (parameters.low, parameters.high)
        assert high is not None
        self.reduction, self.support = reduction, distributional.Support(low, high, parameters.num_atoms)

    def q(self, outputs_BNK: Tensor) -> Tensor:
        """Returns the means of the distributions."""
        return distributional.q_of_logits(outputs_BNK, self.support)

    def target(
        self, batch: Transition, next_BMK: Tensor, next_log_prob_B: Tensor, alpha: Tensor
    ) -> tuple[Tensor, Metrics]:
        """Returns the projected distribution; see `ScalarCritics.target`."""
        prob_BMK = tf.nn.softmax(tf.cast(next_BMK, tf.float32))
        q_BM = distributional.expected_value(prob_BMK, self.support)
        prob = ensembles.reduce_distributions(prob_BMK, q_BM, self.reduction)
        backup = (batch.reward, batch.discount, next_log_prob_B, alpha, self.support)
        clipped = tf.reduce_mean(distributional.clipped_mass(prob, *backup))
        target = distributional.projected_target(prob, distributional.target_positions(*backup))
        return target, {"q/clipped_mass": clipped}

    def q_of_target(self, target: Tensor) -> Tensor:
        """Returns the target's mean."""
        return distributional.expected_value(target, self.support)

    def loss(self, outputs_BNK: Tensor, target: Tensor) -> Tensor:
        """Returns the cross-entropy."""
        return distributional.cross_entropy(outputs_BNK, target)


class QuantileCritics:
    """Critics whose outputs are K quantiles."""

    def __init__(self, reduction: str, parameters: QuantileValueParameters):
        self.reduction, self.drop = reduction, parameters.drop_per_critic

    def q(self, outputs_BNK: Tensor) -> Tensor:
        """Returns the means of the quantiles."""
        return distributional.q_of_quantiles(outputs_BNK)

    def target(
        self, batch: Transition, next_BMK: Tensor, next_log_prob_B: Tensor, alpha: Tensor
    ) -> tuple[Tensor, Metrics]:
        """Returns target quantiles; see `ScalarCritics.target`."""
        if self.reduction == "pool":
            quantiles = distributional.pooled_quantiles(next_BMK, self.drop)
        else:
            quantiles = ensembles.reduce_distributions(next_BMK, self.q(next_BMK), self.reduction)
        return ensembles.soft_target(batch.reward, batch.discount, quantiles, next_log_prob_B, alpha), {}

    def q_of_target(self, target: Tensor) -> Tensor:
        """Returns the target's mean."""
        return tf.reduce_mean(target, axis=-1)

    def loss(self, outputs_BNK: Tensor, target: Tensor) -> Tensor:
        """Returns the quantile Huber loss."""
        return distributional.quantile_huber(outputs_BNK, target)


def critic_values(
    algorithm: TwinSoftActorCriticAlgorithmParameters, head: QHeadParameters, huber: bool
) -> ScalarCritics | CategoricalCritics | QuantileCritics:
    """Returns the conversion of outputs for the critics that the parameters describe."""
    if isinstance(head.distribution, CategoricalValueParameters):
        return CategoricalCritics(algorithm.target_reduction, head.distribution)
    if isinstance(head.distribution, QuantileValueParameters):
        return QuantileCritics(algorithm.target_reduction, head.distribution)
    return ScalarCritics(algorithm.target_reduction, huber)
