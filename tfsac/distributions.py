"""What policies draw from: the squashed Gaussian, on TensorFlow Probability, the masked categorical and the plain Gaussian."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import tensorflow as tf

LOG_SCALE_MIN, LOG_SCALE_MAX = -20.0, 2.0


@functools.cache
def _tfp() -> Any:
    # Importing TensorFlow Probability takes seconds, so only what computes with it pays for it. Its warnings are about itself, and
    # as errors (python -W error) they would end the trace of an update.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow_probability as tfp

        tfp.distributions  # noqa: B018 loads it, which the import does not
    return tfp


def clip_log_scale(log_scale: tf.Tensor) -> tf.Tensor:
    """Clips log sigma to [-20, 2]; outside, its gradient is zero."""
    return tf.clip_by_value(log_scale, LOG_SCALE_MIN, LOG_SCALE_MAX)


class SquashedGaussian:
    """`a = tanh(u)`, `u ~ N(loc, exp(log_scale)^2)` in each of A dimensions (arXiv 1801.01290, appendix C).

    Args:
        loc: `[B, A]`.
        log_scale: `[B, A]`, clipped to [-20, 2].

    Raises:
        ValueError: shapes that are not `[B, A]` or differ.
    """

    def __init__(self, loc: tf.Tensor, log_scale: tf.Tensor):
        loc, log_scale = tf.convert_to_tensor(loc), tf.convert_to_tensor(log_scale)
        if loc.shape.rank != 2 or not loc.shape.is_compatible_with(log_scale.shape):
            raise ValueError(f"loc and log_scale are both [B, A]. Received: {loc.shape} and {log_scale.shape}")
        self.loc = loc
        self.log_scale = clip_log_scale(log_scale)

    def sample_and_log_prob(self, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns an action and its log density, both functions of the same draw.

        Args:
            noise: `[B, A]`, standard normal.

        Returns:
            actions `[B, A]` in (-1, 1) and log densities `[B]` over [-1, 1]^A, computed from the sample before tanh.

        Raises:
            ValueError: noise of another shape.
        """
        if not self.loc.shape.is_compatible_with(noise.shape):
            raise ValueError(f"noise has the shape of loc, {self.loc.shape}. Received: {noise.shape}")
        scale = tf.exp(self.log_scale)
        u = self.loc + scale * noise
        normal = _tfp().distributions.MultivariateNormalDiag(self.loc, scale)
        squash = _tfp().bijectors.Tanh()
        return tf.tanh(u), normal.log_prob(u) - squash.forward_log_det_jacobian(u, event_ndims=1)

    def mode(self) -> tf.Tensor:
        """Returns the deterministic action `tanh(loc)`, `[B, A]`."""
        return tf.tanh(self.loc)


class MaskedCategorical:
    """A choice among A actions, of which those outside the mask have probability zero, exactly.

    Args:
        logits: `[B, A]`.
        mask: `[B, A]` booleans, True for valid actions; None where all are. In a row without any valid action all
            probabilities are zero.

    Attributes:
        prob: `[B, A]`.
        log_prob: `[B, A]`, zero outside the mask.

    Raises:
        ValueError: shapes that are not `[B, A]` or differ.
    """

    def __init__(self, logits: tf.Tensor, mask: tf.Tensor | None = None):
        logits = tf.convert_to_tensor(logits)
        self.mask = tf.ones_like(logits, tf.bool) if mask is None else tf.convert_to_tensor(mask)
        if logits.shape.rank != 2 or not logits.shape.is_compatible_with(self.mask.shape):
            raise ValueError(f"logits and mask are both [B, A]. Received: {logits.shape} and {self.mask.shape}")
        # A finite number instead of minus infinity: its differences and gradients are finite too.
        self.logits = tf.where(self.mask, logits, 0.5 * logits.dtype.min)
        log_prob = tf.nn.log_softmax(self.logits)
        zero = tf.zeros([], logits.dtype)
        self.log_prob = tf.where(self.mask, log_prob, zero)
        self.prob = tf.where(self.mask, tf.exp(log_prob), zero)

    def mode(self) -> tf.Tensor:
        """Returns the likeliest actions, `[B]` int32; the first of equally likely ones."""
        return tf.argmax(self.logits, axis=-1, output_type=tf.int32)

    def entropy(self) -> tf.Tensor:
        """Returns `-sum_a pi(a) log pi(a)` in nats, `[B]`."""
        return -tf.reduce_sum(tf.math.multiply_no_nan(self.log_prob, self.prob), axis=-1)

    def sample(self, uniform: tf.Tensor) -> tf.Tensor:
        """Returns actions `[B]` int32 drawn with uniform numbers `[B, A]` in [0, 1), by Gumbel's argmax.

        Raises:
            ValueError: numbers of another shape.
        """
        if not self.logits.shape.is_compatible_with(uniform.shape):
            raise ValueError(f"uniform numbers have the shape of the logits, {self.logits.shape}. Received: {uniform.shape}")
        inside = tf.clip_by_value(uniform, 1e-20, 1.0 - 1e-7)  # -log(-log(x)) is finite there
        perturbed = self.logits - tf.math.log(-tf.math.log(inside))
        return tf.argmax(perturbed, axis=-1, output_type=tf.int32)


class DiagonalGaussian:
    """A Gaussian over all of R^A with independent dimensions.

    Args:
        mean: `[B, A]`.
        variance: `[B, A]`, positive.

    Raises:
        ValueError: shapes that are not `[B, A]` or differ.
    """

    def __init__(self, mean: tf.Tensor, variance: tf.Tensor):
        mean, variance = tf.convert_to_tensor(mean), tf.convert_to_tensor(variance)
        if mean.shape.rank != 2 or not mean.shape.is_compatible_with(variance.shape):
            raise ValueError(f"mean and variance are both [B, A]. Received: {mean.shape} and {variance.shape}")
        self.mean, self.variance = mean, variance

    def mode(self) -> tf.Tensor:
        """Returns the mean, `[B, A]`."""
        return self.mean

    def log_prob(self, action: tf.Tensor) -> tf.Tensor:
        """Returns log densities over R^A: of actions `[B, A]`, `[B]`; of `[N, B, A]`, `[N, B]`.

        Raises:
            ValueError: actions of another shape.
        """
        self._check("actions", action.shape[-2:])
        squared = tf.square(action - self.mean) / self.variance
        return -0.5 * tf.reduce_sum(squared + tf.math.log(2.0 * math.pi * self.variance), axis=-1)

    def sample(self, noise: tf.Tensor) -> tf.Tensor:
        """Returns actions made with standard normal noise, `[B, A]` or `[N, B, A]`."""
        return self.mean + tf.sqrt(self.variance) * noise

    def entropy(self) -> tf.Tensor:
        """Returns the differential entropy in nats, `[B]`."""
        return 0.5 * tf.reduce_sum(1.0 + tf.math.log(2.0 * math.pi * self.variance), axis=-1)

    def kl_to(self, other: DiagonalGaussian) -> tf.Tensor:
        """Returns KL(self || other) in nats, `[B]`.

        Raises:
            ValueError: a Gaussian of another shape.
        """
        self._check("the other Gaussian", other.mean.shape)
        ratio = self.variance / other.variance
        distance = tf.square(self.mean - other.mean) / other.variance
        return 0.5 * tf.reduce_sum(distance + ratio - 1.0 - tf.math.log(self.variance) + tf.math.log(other.variance), axis=-1)

    def _check(self, name: str, shape: tf.TensorShape) -> None:
        if not self.mean.shape.is_compatible_with(shape):
            raise ValueError(f"The last axes of {name} are those of the mean, {self.mean.shape}. Received: {shape}")
