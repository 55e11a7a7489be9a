"""Ensemble losses: reductions over critics, projections, quantiles, gradients and dtypes."""

import numpy as np
import pytest
import tensorflow as tf

from tfsac.losses import distributional, ensembles
from tfsac.losses.critics import ScalarCritics
from tfsac.losses.distributional import Support

SUPPORT = Support(-5.0, 5.0, 101)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_reduction_own_keeps_critics_separate():
    q, log_prob = tf.constant(normal(3, 2)), tf.constant([1.0, 2.0, 3.0])
    target = ensembles.soft_target(tf.ones([3]), tf.fill([3], 0.5), ensembles.reduce_q(q, "own"), log_prob, 0.1)
    np.testing.assert_allclose(target, 1.0 + 0.5 * (q - 0.1 * log_prob[:, None]), rtol=1e-6)
    np.testing.assert_allclose(ScalarCritics("own", huber=True).loss(3.0 + q, q), np.full([3, 2], 5.0), rtol=1e-6)


def test_no_gradient_flows_into_targets():
    logits, log_prob = tf.constant(normal(4, 2, 101)), tf.constant(normal(4))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([logits, log_prob])
        prob = tf.nn.softmax(logits)
        position = distributional.target_positions(tf.ones([4]), tf.ones([4]), log_prob, 0.2, SUPPORT)
        loss = distributional.cross_entropy(tf.zeros([4, 2, 101]), prob)
        target = distributional.projected_target(prob, position)
        y = ensembles.soft_target(tf.ones([4]), tf.ones([4]), logits, log_prob, 0.2)
        huber = distributional.quantile_huber(tf.zeros([4, 2, 3]), logits)
    for result in (loss, target, y, huber):
        assert tape.gradient(result, [logits, log_prob]) == [None, None]


def test_bfloat16_inputs_are_computed_in_float32():
    def half(*shape):
        return tf.cast(normal(*shape), tf.bfloat16)

    prob, logits = tf.nn.softmax(half(4, 2, 101)), half(4, 2, 101)
    position = distributional.target_positions(half(4), half(4), half(4), tf.constant(0.2, tf.bfloat16), SUPPORT)
    results = [
        position,
        distributional.projected_target(prob, position),
        distributional.clipped_mass(prob, half(4), half(4), half(4), tf.constant(0.2, tf.bfloat16), SUPPORT),
        distributional.q_of_logits(logits, SUPPORT),
        distributional.expected_value(prob, SUPPORT),
        distributional.cross_entropy(logits, prob),
        distributional.q_of_quantiles(logits),
        distributional.pooled_quantiles(logits, 1),
        distributional.quantile_huber(logits, half(4, 7)),
    ]
    assert {tensor.dtype for tensor in results} == {tf.float32}
    exact = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    expected = -tf.reduce_sum(tf.cast(prob, tf.float32) * exact, axis=-1)
    np.testing.assert_allclose(distributional.cross_entropy(logits, prob), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("support", [Support(-5.0, 100.0, 51), Support(-1.0, 0.1, 7), Support(-0.3, 0.7, 101)])
def test_target_at_end_of_support_is_not_clipped(support, dtype):
    zeros, prob = tf.zeros([2], dtype), tf.ones([2, support.size])
    ends = tf.constant([support.low, support.high], dtype)
    assert not distributional.clipped_mass(prob, ends, zeros, zeros, 0.2, support).numpy().any()
    assert not distributional.clipped_mass(prob, zeros, zeros + 1.0, zeros, 0.2, support).numpy().any()
    beyond = ends + tf.constant([-1e-5, 1e-5], dtype)
    assert distributional.clipped_mass(prob, beyond, zeros, zeros, 0.2, support).numpy().all()


def test_quantile_huber_with_separate_targets():
    quantiles, target = tf.constant(normal(3, 2, 4)), tf.constant(normal(3, 2, 5, seed=1))
    both = distributional.quantile_huber(quantiles, target)
    for i in range(2):
        single = distributional.quantile_huber(quantiles[:, i : i + 1], target[:, i])
        np.testing.assert_allclose(both[:, i], single[:, 0], rtol=1e-6)
