"""The distributions of policies: the squashed Gaussian, the masked categorical and the plain Gaussian.

Samples and modes are computed in NumPy if the parameters are NumPy arrays, so acting and training share one formula.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.networks.layers import functions_of
from tfsac.parameters import LOG_STD_BOUNDS
from tfsac.types import HybridSpec

MIN_LOGIT = 0.5 * float(np.finfo(np.float32).min)  # of masked actions


class SquashedGaussian:
    """`a = tanh(u)`, `u ~ N(loc, exp(log_scale)^2)` in each of A dimensions (arXiv 1801.01290, appendix C).

    Args:
        loc, log_scale: `[B, A]`, the second clipped to [-20, 2]; outside, its gradient is zero.
    """

    def __init__(self, loc: Any, log_scale: Any):
        check_shapes(loc, log_scale)
        self.functions = functions_of(loc)
        self.loc = loc
        self.log_scale = self.functions.clip(log_scale, *LOG_STD_BOUNDS)

    def mode(self) -> Any:
        """Returns the deterministic action `tanh(loc)`, `[B, A]`."""
        return self.functions.tanh(self.loc)

    def sample(self, noise: Any) -> Any:
        """Returns reparameterised actions `[B, A]` in (-1, 1), made with standard normal noise of that shape."""
        return self.functions.tanh(self.loc + self.functions.exp(self.log_scale) * noise)

    def sample_and_log_prob(self, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns reparameterised actions `[B, A]` in (-1, 1) and their log densities `[B]` over [-1, 1]^A.

        The noise `[B, A]` is standard normal. Densities are computed from the sample before tanh.
        """
        check_shapes(self.loc, noise)
        u = self.loc + tf.exp(self.log_scale) * noise
        log_normal = -0.5 * (tf.square(noise) + math.log(2.0 * math.pi)) - self.log_scale
        log_slope = 2.0 * (math.log(2.0) - u - tf.math.softplus(-2.0 * u))  # log(1 - tanh(u)^2), finite even far out
        return tf.tanh(u), tf.reduce_sum(log_normal - log_slope, axis=-1)


ROUNDING = 1e-5  # relative error of values in float32, computed in different ways


class MaskedCategorical:
    """A categorical distribution over A actions; those outside the mask have probability exactly zero.

    Args:
        logits: `[B, A]`.
        mask: `[B, A]` booleans, True for valid actions; None if all are. In a row without any valid action all
            probabilities are zero.

    Attributes:
        prob, log_prob: `[B, A]`, zero outside the mask.
    """

    def __init__(self, logits: Any, mask: Any = None):
        check_shapes(logits, logits if mask is None else mask)
        self.functions, self.raw_logits, self.raw_mask = functions_of(logits), logits, mask
        # A finite number instead of minus infinity: its differences and gradients are finite too.
        self.logits = logits if mask is None else self.functions.where(mask, logits, MIN_LOGIT)
        if isinstance(logits, np.ndarray):  # sampling needs no probabilities
            return
        self.mask = tf.ones_like(logits, tf.bool) if mask is None else mask
        log_prob, zero = tf.nn.log_softmax(self.logits), tf.zeros([], logits.dtype)
        self.log_prob = tf.where(self.mask, log_prob, zero)
        self.prob = tf.where(self.mask, tf.exp(log_prob), zero)

    def mode(self) -> Any:
        """Returns the likeliest actions, `[B]` int32; the first of equally likely ones."""
        return self._likeliest_valid(self.raw_logits)

    def is_tie(self) -> bool:
        """Returns whether the two likeliest actions of any row are equal up to rounding; logits are an array."""
        second_B, first_B = np.partition(self.logits, -2, axis=-1)[:, -2:].T
        return bool((first_B - second_B <= ROUNDING * (1.0 + np.abs(first_B))).any())

    def entropy(self) -> tf.Tensor:
        """Returns `-sum_a pi(a) log pi(a)` in nats, `[B]`."""
        return -tf.reduce_sum(tf.math.multiply_no_nan(self.log_prob, self.prob), axis=-1)

    def max_entropy(self) -> tf.Tensor:
        """Returns the largest entropy, that of equally likely valid actions: the log of their number, `[B]`."""
        valid_B = tf.math.count_nonzero(self.mask, axis=-1, dtype=tf.int32)
        return tf.math.log(tf.cast(tf.maximum(valid_B, 1), self.logits.dtype))

    def sample(self, uniform: Any) -> Any:
        """Returns actions `[B]` int32 sampled with uniform numbers `[B, A]` in [0, 1), with the Gumbel-max trick."""
        check_shapes(self.logits, uniform)
        log = self.functions.log
        # -log(-log(x)) is finite inside these bounds.
        inside = self.functions.maximum(self.functions.minimum(uniform, np.float32(1.0 - 1e-7)), np.float32(1e-20))
        return self._likeliest_valid(self.raw_logits - log(-log(inside)))

    def _likeliest_valid(self, score: Any) -> Any:
        """Returns the valid action with the largest score `[B, A]`, `[B]` int32."""
        if self.raw_mask is None:
            return likeliest(score)
        # Only a little below all others: next to MIN_LOGIT, all scores of an int8 export would be equal.
        lowest = self.functions.min(score, axis=-1, keepdims=True)
        return likeliest(self.functions.where(self.raw_mask, score, lowest - 1.0 - self.functions.abs(lowest)))


class FactoredCategorical:
    """Independent categorical distributions over F factors.

    Args:
        logits: `[B, S]`, of the values of all factors, concatenated.
        sizes: number of values of each factor.
        mask: `[B, S]` booleans, True for valid values; None if all are.

    Attributes:
        factors: the distribution of each factor.
    """

    def __init__(self, logits: Any, sizes: Sequence[int], mask: Any = None):
        ends = [*itertools.accumulate(sizes)]
        slices = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self.slices, self.functions = slices, functions_of(logits)
        self.factors = [MaskedCategorical(logits[:, s], None if mask is None else mask[:, s]) for s in slices]

    def mode(self) -> Any:
        """Returns the likeliest values, `[B, F]` int32, which are the likeliest combination."""
        return self.functions.stack([factor.mode() for factor in self.factors], axis=-1)

    def sample(self, uniform: Any) -> Any:
        """Returns values `[B, F]` int32 sampled with uniform numbers `[B, S]` in [0, 1)."""
        draws = zip(self.factors, self.slices, strict=True)
        return self.functions.stack([factor.sample(uniform[:, s]) for factor, s in draws], axis=-1)

    def is_tie(self) -> bool:
        """Returns whether the two likeliest values of a factor are equal up to rounding; logits are an array."""
        return any(factor.is_tie() for factor in self.factors if factor.logits.shape[-1] > 1)

    def joint(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns probability and log-probability of every combination, `[B, K]`; the last factor varies fastest. Both
        are zero where a value is invalid.
        """
        prob, log_prob = self.factors[0].prob, self.factors[0].log_prob
        for factor in self.factors[1:]:
            size = prob.shape[-1] * factor.prob.shape[-1]
            both = prob[:, :, None] * factor.prob[:, None], log_prob[:, :, None] + factor.log_prob[:, None]
            prob, log_prob = (tf.reshape(x, [-1, size]) for x in both)
        return prob, tf.where(prob > 0, log_prob, tf.zeros_like(log_prob))

    def entropy(self) -> tf.Tensor:
        """Returns the entropy in nats, `[B]`, the sum of those of the factors."""
        return tf.add_n([factor.entropy() for factor in self.factors])

    def max_entropy(self) -> tf.Tensor:
        """Returns the log of the number of valid combinations, `[B]`."""
        return tf.add_n([factor.max_entropy() for factor in self.factors])


class HybridDistribution:
    """An independent `FactoredCategorical` and `SquashedGaussian`, or only one of them.

    Args:
        action: spec of the actions.
        outputs: outputs of the policy's head: logits `[B, S]`, location and log scale `[B, A]`, arrays or tensors.
        mask: see `FactoredCategorical`.

    Attributes:
        discrete, continuous: the two parts; None for a part that the actions lack.
    """

    def __init__(self, action: HybridSpec, outputs: Sequence[Any], mask: Any = None):
        self.action, sizes = action, action.sizes
        self.discrete = FactoredCategorical(outputs[0], sizes, mask) if sizes else None
        self.continuous = SquashedGaussian(*outputs[-2:]) if action.action_size else None

    def mode(self) -> Any:
        """Returns the likeliest factors and the mode of the Gaussian, combined by `HybridSpec.whole`."""
        return self.action.whole(*(part and part.mode() for part in (self.discrete, self.continuous)))

    def joint(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns probability and log-probability of every combination of factors, `[B, K]`; K is 1 without factors."""
        if self.discrete is not None:
            return self.discrete.joint()
        assert self.continuous is not None
        one = tf.ones_like(self.continuous.loc[:, :1])
        return one, tf.zeros_like(one)

    def sample(self, noise: Any) -> Any:
        """Returns a sample from uniform noise `[B, S]` and normal noise `[B, A]`, structured like actions."""
        parts = zip((self.discrete, self.continuous), self.action.parts(noise), strict=True)
        return self.action.whole(*(part and part.sample(noise) for part, noise in parts))


def likeliest(score: Any) -> Any:
    """Returns the index of the largest score in each row `[B, A]`, `[B]` int32; the first of equal ones. In NumPy it is
    -1, which is not an action, if that score is not finite.
    """
    if isinstance(score, np.ndarray):
        best = np.argmax(score, axis=-1).astype(np.int32)
        best[~np.isfinite(score[np.arange(len(best)), best])] = -1  # the largest of a row with a NaN is NaN
        return best
    return tf.argmax(score, axis=-1, output_type=tf.int32)


class DiagonalGaussian:
    """A Gaussian over all of R^A with independent dimensions, of mean and variance `[B, A]`."""

    def __init__(self, mean: Any, variance: Any):
        check_shapes(mean, variance)
        self.mean, self.variance = mean, variance

    def mode(self) -> Any:
        """Returns the mean, `[B, A]`."""
        return self.mean

    def log_prob(self, action: tf.Tensor) -> tf.Tensor:
        """Returns log densities over R^A: `[B]` for actions `[B, A]`, `[J, B]` for `[J, B, A]`."""
        check_shapes(self.mean, action[0] if len(action.shape) == 3 else action)
        squared = tf.square(action - self.mean) / self.variance
        return -0.5 * tf.reduce_sum(squared + tf.math.log(2.0 * math.pi * self.variance), axis=-1)

    def sample(self, noise: Any) -> Any:
        """Returns reparameterised actions, made with standard normal noise `[B, A]` or `[J, B, A]`."""
        return self.mean + functions_of(self.mean).sqrt(self.variance) * noise

    def entropy(self) -> tf.Tensor:
        """Returns the differential entropy in nats, `[B]`."""
        return 0.5 * tf.reduce_sum(1.0 + tf.math.log(2.0 * math.pi * self.variance), axis=-1)

    def kl_to(self, other: DiagonalGaussian) -> tf.Tensor:
        """Returns KL(self || other) in nats, `[B]`."""
        check_shapes(self.mean, other.mean)
        ratio, distance = self.variance / other.variance, tf.square(self.mean - other.mean) / other.variance
        return 0.5 * tf.reduce_sum(distance + ratio - 1.0 - tf.math.log(ratio), axis=-1)


def check_shapes(x: Any, other: Any) -> None:
    """Raises ValueError for shapes that are not `[B, A]` or differ, which would silently broadcast."""
    if len(x.shape) != 2 or (x.shape != other.shape and not tf.TensorShape(x.shape).is_compatible_with(other.shape)):
        raise ValueError(f"shapes must be [B, A] and equal, got {x.shape} and {other.shape}")
