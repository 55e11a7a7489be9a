"""Policies' distributions as those of TensorFlow Probability; to be imported when one is first asked for."""

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

POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)  # of expectations over a standard normal variable


def tfp_distribution(
    policy: SquashedGaussian | MaskedCategorical | DiagonalGaussian | HybridDistribution,
    action: ActionSpec,
    batch_shape: Sequence[int],
) -> Any:
    """Returns a distribution of actions in the environment's units.

    Args:
        policy: of arrays `[B, A]`.
        action: the environment's, with its bounds or the first number of discrete actions.
        batch_shape: of the distribution, with B entries.

    Returns:
        `Categorical` (with another first number than 0 `FiniteDiscrete`), or an `Independent` over the dimensions of
        real actions, whose `quantile` is that of each dimension and whose `entropy` is computed by quadrature. Of
        several actions a `JointDistributionNamed` by name, in which a MultiDiscrete is a `Blockwise` of its factors.
    """
    if isinstance(policy, HybridDistribution):
        parts = {name: of_leaf(policy, name, batch_shape) for name in policy.action.leaves}
        alone = isinstance(policy.action.structure, str)
        return parts["action"] if alone else tfp.distributions.JointDistributionNamed(parts)

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


def of_leaf(policy: HybridDistribution, name: str, batch_shape: Sequence[int]) -> Any:
    """Returns the distribution of one of several actions; those of more dimensions than one are raveled."""
    leaf, leaves = policy.action.leaves[name], policy.action.leaves
    before = [other for key, other in leaves.items() if [*leaves].index(key) < [*leaves].index(name)]
    if isinstance(leaf, ArraySpec):
        begin = sum(math.prod(other.shape) for other in before if isinstance(other, ArraySpec))
        entries = slice(begin, begin + math.prod(leaf.shape))
        assert policy.continuous is not None and leaf.low is not None and leaf.high is not None
        part = SquashedGaussian(policy.continuous.loc[:, entries], policy.continuous.log_scale[:, entries])
        bounds = ArraySpec((math.prod(leaf.shape),), leaf.dtype, np.ravel(leaf.low), np.ravel(leaf.high))
        return tfp_distribution(part, bounds, batch_shape)
    assert policy.discrete is not None
    begin = sum(len(other.sizes) for other in before if isinstance(other, FactorsSpec))
    factors = [
        tfp_distribution(policy.discrete.factors[begin + i], DiscreteSpec(size, start=start), batch_shape)
        for i, (size, start) in enumerate(zip(leaf.sizes, leaf.starts, strict=True))
    ]
    if not leaf.shape:
        return factors[0]
    events = [tfp.distributions.Sample(factor, 1) for factor in factors]  # vectors of one entry
    return tfp.distributions.Blockwise(events)


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
