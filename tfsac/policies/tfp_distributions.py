"""Converts policies' distributions to TensorFlow Probability; imported on first use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfsac.policies.distributions import (
    DiagonalGaussian,
    HybridDistribution,
    MaskedCategorical,
    SquashedGaussian,
)
from tfsac.types import ActionSpec, ArraySpec, DiscreteSpec, FactorsSpec

POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)  # for expectations over a standard normal variable


def tfp_distribution(
    policy: SquashedGaussian | MaskedCategorical | DiagonalGaussian | HybridDistribution,
    action: ActionSpec,
    batch_shape: Sequence[int],
) -> Any:
    """Returns a distribution of actions in the environment's units.

    Args:
        policy: distribution of arrays `[B, A]`.
        action: the environment's action spec, with bounds or the number of the first discrete action.
        batch_shape: batch shape of the distribution, with B entries.

    Returns:
        `Categorical` (`FiniteDiscrete` if the first number is not 0), or an `Independent` over the dimensions of
        continuous actions, whose `quantile` is that of each dimension and whose `entropy` is computed by quadrature.
        For several actions, a `JointDistributionNamed`, in which a MultiDiscrete is a `Blockwise` of its factors.
    """
    if isinstance(policy, HybridDistribution):
        return joint_distribution(policy, batch_shape)

    def shaped(x: Any) -> tf.Tensor:
        return tf.reshape(tf.convert_to_tensor(x), [*batch_shape, x.shape[-1]])

    if isinstance(policy, MaskedCategorical):
        assert isinstance(action, DiscreteSpec)
        logits = shaped(policy.logits)
        if action.start == 0:
            return tfp.distributions.Categorical(logits=logits)
        outcomes = tf.range(action.start, action.start + action.num_actions)
        return tfp.distributions.FiniteDiscrete(outcomes, logits=logits)
    assert isinstance(action, ArraySpec) and action.low is not None and action.high is not None
    low, high = np.asarray(action.low, np.float32), np.asarray(action.high, np.float32)
    bijectors = [tfp.bijectors.Shift((high + low) / 2), tfp.bijectors.Scale((high - low) / 2)]
    if isinstance(policy, SquashedGaussian):
        normal = tfp.distributions.Normal(shaped(policy.loc), tf.exp(shaped(policy.log_scale)))
        bijectors.append(FiniteTanh())
    else:
        normal = tfp.distributions.Normal(shaped(policy.mean), tf.sqrt(shaped(policy.variance)))
    return IndependentActions(
        tfp.distributions.TransformedDistribution(normal, tfp.bijectors.Chain(bijectors)), reinterpreted_batch_ndims=1
    )


def joint_distribution(policy: HybridDistribution, batch_shape: Sequence[int]) -> Any:
    """Returns the distribution of several actions; see `tfp_distribution`. Matrices are flattened."""
    parts, begin, factors = dict[str, Any](), 0, iter(policy.discrete.factors if policy.discrete else ())
    for name, leaf in policy.action.leaves.items():
        if isinstance(leaf, FactorsSpec):
            starts = zip(leaf.sizes, leaf.starts, strict=True)
            of_factors = [DiscreteSpec(size, start=start) for size, start in starts]
            entries = [tfp_distribution(next(factors), factor, batch_shape) for factor in of_factors]
            vectors = [tfp.distributions.Sample(entry, 1) for entry in entries]
            parts[name] = tfp.distributions.Blockwise(vectors) if leaf.shape else entries[0]
            continue
        assert policy.continuous is not None and policy.action.low is not None and policy.action.high is not None
        end = begin + math.prod(leaf.shape)
        gaussian = SquashedGaussian(policy.continuous.loc[:, begin:end], policy.continuous.log_scale[:, begin:end])
        bounds = policy.action.low[begin:end], policy.action.high[begin:end]
        parts[name] = tfp_distribution(gaussian, ArraySpec((end - begin,), "float32", *bounds), batch_shape)
        begin = end
    return parts["action"] if "action" in parts else tfp.distributions.JointDistributionNamed(parts)


class FiniteTanh(tfp.bijectors.Tanh):
    """Tanh whose inverse is finite at the bounds, which samples reach in float32."""

    def _inverse(self, y: Any) -> Any:
        inside = 1.0 - np.finfo(np.float32).eps
        return tf.atanh(tf.clip_by_value(y, -inside, inside))


class IndependentActions(tfp.distributions.Independent):
    """Independent dimensions, each a function of a normal variable."""

    def _quantile(self, value: Any) -> Any:
        return self.distribution.quantile(value)

    def _entropy(self) -> Any:
        normal, bijector = self.distribution.distribution, self.distribution.bijector
        points = tf.reshape(tf.constant(POINTS, normal.dtype), [-1, *[1] * len(normal.batch_shape)])
        log_slope = bijector.forward_log_det_jacobian(normal.loc + normal.scale * points, event_ndims=0)
        weights = tf.constant(WEIGHTS / math.sqrt(2.0 * math.pi), normal.dtype)
        expected = tf.tensordot(weights, tf.broadcast_to(log_slope, [len(POINTS), *normal.batch_shape]), 1)
        return tf.reduce_sum(normal.entropy() + expected, axis=-1)
