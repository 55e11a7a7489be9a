"""Reductions over critics, and projections and quantiles: by hand and by their properties; wrong ranks are refused."""

import numpy as np
import pytest
import tensorflow as tf

from tfsac.losses import distributional, ensembles
from tfsac.losses.critic_values import ScalarCritics
from tfsac.losses.distributional import Support

SUPPORT = Support(-5.0, 5.0, 101)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def uniform(low, high, *shape, seed=1):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def projected(prob, reward, discount, log_prob, alpha, support=SUPPORT):
    position = distributional.target_positions(reward, discount, log_prob, alpha, support)
    return distributional.projected_target(prob, position).numpy()


# -- subsets and reductions --------------------------------------------------------------------------------------------


def test_index_min_takes_whole_distributions_and_the_first_of_equal_critics():
    values = tf.constant(normal(3, 3, 4))
    q = tf.constant([[2.0, 1.0, 3.0], [0.5, 4.0, 0.5], [7.0, 7.0, 6.0]])
    chosen = ensembles.reduce_distributions(values, q, "index_min")
    np.testing.assert_array_equal(chosen, [values[0, 1], values[1, 0], values[2, 2]])


def test_own_keeps_every_critic_apart():
    q, values = tf.constant(normal(3, 2)), tf.constant(normal(3, 2, 4))
    np.testing.assert_array_equal(ensembles.reduce_q(q, "own"), q)
    np.testing.assert_array_equal(ensembles.reduce_distributions(values, q, "own"), values)
    target = ensembles.soft_target(tf.ones([3]), tf.constant([0.5, 0.5, 0.0]), q, tf.constant([1.0, 2.0, 3.0]), 0.1)
    expected = 1.0 + np.array([[0.5], [0.5], [0.0]]) * (q.numpy() - 0.1 * np.array([[1.0], [2.0], [3.0]]))
    np.testing.assert_allclose(target, expected, rtol=1e-6)
    np.testing.assert_allclose(ScalarCritics("own", huber=False).loss(2.0 * q, q), np.square(q), rtol=1e-6)
    np.testing.assert_allclose(ScalarCritics("own", huber=True).loss(3.0 + q, q), np.full([3, 2], 5.0), rtol=1e-6)


# -- categorical -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("atoms", [-101, -37, -1, 0, 3, 50, 101])
def test_a_shift_by_whole_atoms_is_exact(atoms):
    prob = tf.nn.softmax(tf.constant(normal(4, 101)))
    reward = np.full(4, atoms * SUPPORT.width, np.float32)
    target = projected(prob, reward, tf.ones([4]), tf.zeros([4]), 0.2)
    padded = np.pad(prob.numpy(), ((0, 0), (101, 101)))
    expected = padded[:, 101 - atoms : 202 - atoms].copy()
    np.testing.assert_array_equal(target[:, 1:-1], expected[:, 1:-1])
    np.testing.assert_allclose(target.sum(axis=-1), 1.0, atol=1e-6)


def test_a_terminal_row_is_two_hot_at_its_reward():
    reward = tf.constant([-7.0, -5.0, 0.03, 2.5, 5.0, 9.0])
    prob = tf.nn.softmax(tf.constant(normal(6, 101)))
    target = projected(prob, reward, tf.zeros([6]), tf.fill([6], 3.0), 0.2)
    expected = np.zeros([6, 101])
    expected[[0, 1], 0] = expected[[4, 5], -1] = expected[3, 75] = 1.0
    expected[2, [50, 51]] = [0.7, 0.3]
    np.testing.assert_allclose(target, expected, atol=1e-5)


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
    for made in (loss, target, y, huber):
        assert tape.gradient(made, [logits, log_prob]) == [None, None]


def test_everything_is_float32_for_networks_in_bfloat16():
    def half(*shape):
        return tf.cast(normal(*shape), tf.bfloat16)

    prob, logits = tf.nn.softmax(half(4, 2, 101)), half(4, 2, 101)
    position = distributional.target_positions(half(4), half(4), half(4), tf.constant(0.2, tf.bfloat16), SUPPORT)
    made = [
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
    assert {tensor.dtype for tensor in made} == {tf.float32}
    exact = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    expected = -tf.reduce_sum(tf.cast(prob, tf.float32) * exact, axis=-1)
    np.testing.assert_allclose(distributional.cross_entropy(logits, prob), expected, rtol=1e-6)


def test_positions_outside_of_the_support_move_to_its_ends():
    prob = tf.constant([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]])
    position = tf.constant([[-0.5, 0.0, 2.0], [0.5, 2.5, 7.0]])
    target = distributional.projected_target(prob, position)
    np.testing.assert_allclose(target, [[0.3, 0.0, 0.7], [0.25, 0.25, 0.5]], rtol=1e-6)


def test_targets_beyond_the_support_are_clipped_mass():
    prob, ones = tf.constant([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25], [0.5, 0.25, 0.25]]), tf.ones([3])
    rewards, log_probs = tf.constant([-0.5, 2.5, 0.0]), tf.constant([0.0, 0.0, 2.0])
    clipped = distributional.clipped_mass(prob, rewards, ones, log_probs, 0.25, Support(0.0, 2.0, 3))
    np.testing.assert_allclose(clipped, [0.1, 1.0, 0.5], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("support", [Support(-5.0, 100.0, 51), Support(-1.0, 0.1, 7), Support(-0.3, 0.7, 101)])
def test_a_target_on_an_end_of_the_support_is_not_clipped(support, dtype):
    zeros, prob = tf.zeros([2], dtype), tf.ones([2, support.size])
    ends = tf.constant([support.low, support.high], dtype)
    assert not distributional.clipped_mass(prob, ends, zeros, zeros, 0.2, support).numpy().any()
    assert not distributional.clipped_mass(prob, zeros, zeros + 1.0, zeros, 0.2, support).numpy().any()
    beyond = ends + tf.constant([-1e-5, 1e-5], dtype)
    assert distributional.clipped_mass(prob, beyond, zeros, zeros, 0.2, support).numpy().all()


# -- quantiles ---------------------------------------------------------------------------------------------------------


def test_the_largest_of_the_pool_are_dropped_whoever_predicted_them():
    quantiles = tf.constant([[[9.0, 8.0, 7.0], [1.0, -2.0, 3.0]]])
    np.testing.assert_array_equal(distributional.pooled_quantiles(quantiles, 0), [[-2, 1, 3, 7, 8, 9]])
    np.testing.assert_array_equal(distributional.pooled_quantiles(quantiles, 1), [[-2, 1, 3, 7]])
    np.testing.assert_array_equal(distributional.pooled_quantiles(quantiles, 2), [[-2, 1]])


def test_quantile_huber_by_hand():
    # Fractions 1/4 and 3/4; errors 0.5, -0.5, 3 and 2: (0.25 * 0.125 + 0.25 * 2.5 + 0.25 * 0.125 + 0.75 * 1.5) / 4
    rows = distributional.quantile_huber(tf.constant([[[0.0, 1.0]]]), tf.constant([[0.5, 3.0]]))
    np.testing.assert_allclose(rows, [[(0.03125 + 0.625 + 0.03125 + 1.125) / 4]], rtol=1e-6)


def test_critics_with_targets_of_their_own():
    quantiles, target = tf.constant(normal(3, 2, 4)), tf.constant(normal(3, 2, 5, seed=1))
    both = distributional.quantile_huber(quantiles, target)
    for i in range(2):
        alone = distributional.quantile_huber(quantiles[:, i : i + 1], target[:, i])
        np.testing.assert_allclose(both[:, i], alone[:, 0], rtol=1e-6)
