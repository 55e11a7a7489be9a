"""How outputs of an ensemble of critics are Q values: as they are, or as means of distributions of returns.

Each class has the target of all critics, their losses, and Q. What comes of N critics is `[B, N]`, of distributions
`[B, N, K]`.
"""

from __future__ import annotations

import tensorflow as tf

from tfsac.losses import distributional, ensembles
from tfsac.losses.soft_actor_critic import assert_shapes, regression_loss, squared_or_huber
from tfsac.parameters import (
    ATOM_BOUND,
    CategoricalValueParameters,
    QHeadParameters,
    QuantileValueParameters,
    TwinSoftActorCriticAlgorithmParameters,
)
from tfsac.types import Metrics, Transition


class ScalarCritics:
    """Outputs `[B, N]` are Q.

    Args:
        reduction: of the target critics.
        huber: whether errors beyond 1 count linearly.
    """

    def __init__(self, reduction: str, huber: bool):
        self.reduction, self.huber = reduction, huber

    def q(self, outputs_BN: tf.Tensor) -> tf.Tensor:
        """Returns Q of every critic, `[B, N]`."""
        return outputs_BN

    def target(
        self, batch: Transition, next_BM: tf.Tensor, next_log_prob_B: tf.Tensor, alpha: tf.Tensor
    ) -> tuple[tf.Tensor, Metrics]:
        """Returns the target of all critics `[B]`, or of each `[B, N]`, and metrics of it.

        Args:
            batch: rewards and discounts.
            next_BM: outputs of M target critics at the next observation and action.
            next_log_prob_B: log-probability of that action.
            alpha: temperature, or 0 where the target has no entropy.
        """
        value = ensembles.reduce_q(next_BM, self.reduction)
        return ensembles.soft_target(batch.reward, batch.discount, value, next_log_prob_B, alpha), {}

    def loss(self, outputs_BN: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Returns the squared error, or Huber's, of every critic, `[B, N]`."""
        if target.shape.rank == 1:
            return regression_loss(outputs_BN, target, self.huber)
        assert_shapes(outputs=(outputs_BN, "BN"), target=(target, "BN"))
        return squared_or_huber(outputs_BN - target, self.huber)

    def q_of_target(self, target: tf.Tensor) -> tf.Tensor:
        """Returns the target as Q, `[B, 1]` or `[B, N]`."""
        return target if target.shape.rank == 2 else target[:, None]


class CategoricalCritics:
    """Outputs `[B, N, K]` are logits of K atoms.

    Args:
        reduction: of the target critics.
        parameters: of the atoms.
    """

    def __init__(self, reduction: str, parameters: CategoricalValueParameters):
        low, high = (-ATOM_BOUND, ATOM_BOUND) if parameters.low is None else (parameters.low, parameters.high)
        assert high is not None
        self.reduction, self.support = reduction, distributional.Support(low, high, parameters.num_atoms)

    def q(self, outputs_BNK: tf.Tensor) -> tf.Tensor:
        """Returns Q of every critic, `[B, N]`."""
        return distributional.q_of_logits(outputs_BNK, self.support)

    def target(
        self, batch: Transition, next_BMK: tf.Tensor, next_log_prob_B: tf.Tensor, alpha: tf.Tensor
    ) -> tuple[tf.Tensor, Metrics]:
        """Returns the projected distribution of all critics `[B, K]`, or of each; see `ScalarCritics.target`."""
        prob_BMK = tf.nn.softmax(tf.cast(next_BMK, tf.float32))
        q_BM = distributional.expected_value(prob_BMK, self.support)
        prob = ensembles.reduce_distributions(prob_BMK, q_BM, self.reduction)
        backup = (batch.reward, batch.discount, next_log_prob_B, alpha, self.support)
        position_BK = distributional.target_positions(*backup)
        clipped = tf.reduce_mean(distributional.clipped_mass(prob, *backup))
        return distributional.projected_target(prob, position_BK), {"q/clipped_mass": clipped}

    def loss(self, outputs_BNK: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Returns the cross-entropy of every critic, `[B, N]`."""
        return distributional.cross_entropy(outputs_BNK, target)

    def q_of_target(self, target: tf.Tensor) -> tf.Tensor:
        """Returns the target's mean, `[B, 1]` or `[B, N]`."""
        value = distributional.expected_value(target, self.support)
        return value if value.shape.rank == 2 else value[:, None]


class QuantileCritics:
    """Outputs `[B, N, K]` are quantiles.

    Args:
        reduction: of the target critics.
        parameters: of the quantiles.
    """

    def __init__(self, reduction: str, parameters: QuantileValueParameters):
        self.reduction, self.drop = reduction, parameters.drop_per_critic

    def q(self, outputs_BNK: tf.Tensor) -> tf.Tensor:
        """Returns Q of every critic, `[B, N]`."""
        return distributional.q_of_quantiles(outputs_BNK)

    def target(
        self, batch: Transition, next_BMK: tf.Tensor, next_log_prob_B: tf.Tensor, alpha: tf.Tensor
    ) -> tuple[tf.Tensor, Metrics]:
        """Returns the target quantiles of all critics, `[B, K]`, or of each; see `ScalarCritics.target`."""
        if self.reduction == "pool":
            quantiles = distributional.pooled_quantiles(next_BMK, self.drop)
        else:
            q_BM = distributional.q_of_quantiles(next_BMK)
            quantiles = ensembles.reduce_distributions(next_BMK, q_BM, self.reduction)
        return ensembles.soft_target(batch.reward, batch.discount, quantiles, next_log_prob_B, alpha), {}

    def loss(self, outputs_BNK: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Returns the quantile Huber loss of every critic, `[B, N]`."""
        return distributional.quantile_huber(outputs_BNK, target)

    def q_of_target(self, target: tf.Tensor) -> tf.Tensor:
        """Returns the target's mean, `[B, 1]` or `[B, N]`."""
        return tf.reduce_mean(target, axis=-1, keepdims=target.shape.rank == 2)


CriticValues = ScalarCritics | CategoricalCritics | QuantileCritics


def critic_values(
    algorithm: TwinSoftActorCriticAlgorithmParameters, head: QHeadParameters, huber: bool
) -> CriticValues:
    """Returns what reads the outputs of the critics that parameters describe."""
    if isinstance(head.distribution, CategoricalValueParameters):
        return CategoricalCritics(algorithm.target_reduction, head.distribution)
    if isinstance(head.distribution, QuantileValueParameters):
        return QuantileCritics(algorithm.target_reduction, head.distribution)
    return ScalarCritics(algorithm.target_reduction, huber)
