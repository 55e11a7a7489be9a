"""TAAC losses: returns by hand and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from tfsac.losses import taac as losses
from tfsac.policies.temporally_abstract import choice, pessimistic


def double(x):
    return tf.constant(x, tf.float64)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-np.asarray(x)))


@pytest.mark.parametrize(
    ("clipping", "clipped"),
    [
        (None, [-3.0, -1.0, 1.0, 3.0]),
        ((0.0, None), [0.0, 0.0, 1.0, 3.0]),
        ((-2.0, 1.5), [-2.0, -1.0, 1.0, 1.5]),
    ],
)
def test_clipped_advantage_affects_only_probabilities(clipping, clipped):
    advantage = [-3.0, -1.0, 1.0, 3.0]
    result = choice(double([10.0] * 4), double([7.0, 9.0, 11.0, 13.0]), double(2.0), clipping)
    np.testing.assert_allclose(result.switch_B, sigmoid(np.array(clipped) / 2.0), rtol=1e-12)
    np.testing.assert_array_equal(result.advantage_B, advantage)
    np.testing.assert_array_equal(result.better_B, np.array(clipped) > 0)


def test_choice_has_no_gradient():
    inputs = [tf.constant([1.0, 2.0]), tf.constant([2.0, 1.5]), tf.constant(0.5)]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        result = choice(*inputs)
        totals = [tf.reduce_sum(value) for value in result[:4]]
    for total in totals:
        assert tape.gradient(total, inputs) == [None] * 3


def test_pessimistic_value_with_negative_reward_weights():
    q = tf.constant([[[1.0, 1.0, 5.0], [2.0, 2.0, 4.0], [3.0, -7.0, 6.0]]])
    np.testing.assert_array_equal(pessimistic(q, np.float32([1.0, -0.5, 0.0])), [[1.0, 2.0, 4.0]])
    np.testing.assert_array_equal(pessimistic(q[:, :1], np.float32([-1.0, 1.0, -1.0])), q[:, 0])


def hand_returns(last, switched, would_switch, discount=(1.0, 1.0, 1.0, 1.0)):
    """Computes returns of four steps with gamma 0.5, values 10, 20, 30 and 40, and keep weight 0.25."""
    value = np.array([10.0, 20.0, 30.0, 40.0])
    keep_q, switch_q = value + 6.0, value - 2.0

    def column(x):
        return tf.constant(np.reshape(x, (4, 1)))

    return losses.compare_through_returns(
        double(np.reshape([1.0, 2.0, 3.0, 4.0], (4, 1, 1))),
        double(np.reshape(discount, (4, 1))),
        double([0.5]),
        double(keep_q[:, None, None]),
        double(switch_q[:, None, None]),
        double(np.full((4, 1), 0.25)),
        column(np.array(last, bool)),
        column(np.array(switched, bool)),
        None if would_switch is None else column(np.array(would_switch, bool)),
    ).numpy()[:, 0, 0]


NONE = (0, 0, 0, 0)
RETURNS = {
    # G2 = 3 + 20 always; G1 = 2 + acc2 / 2; G0 = 1 + acc1 / 2.
    "no switch": (NONE, NONE, NONE, [1 + 13.5 / 2, 2 + 23 / 2, 23]),
    "switched before": (NONE, (0, 1, 0, 0), NONE, [1 + 20 / 2, 2 + 23 / 2, 23]),
    "would switch": (NONE, NONE, (0, 0, 1, 0), [1 + 17 / 2, 2 + 30 / 2, 23]),
    "both": (NONE, (0, 1, 0, 0), (0, 1, 1, 0), [1 + 20 / 2, 2 + 30 / 2, 23]),
    "truncated": ((0, 0, 1, 0), NONE, NONE, [1 + 17 / 2, 2 + 30 / 2, 23]),
    "first and last steps are ignored": ((0, 0, 0, 1), (1, 0, 0, 1), (1, 0, 0, 1), [1 + 13.5 / 2, 2 + 23 / 2, 23]),
    # acc2 = 28 * 3/4 + 23 / 4 = 26.75, G1 = 15.375, acc1 = 18 * 3/4 + 15.375 / 4 = 17.34375
    "on average": (NONE, NONE, None, [1 + 17.34375 / 2, 2 + 26.75 / 2, 23]),
    "on average, switched before": (NONE, (0, 1, 0, 0), None, [1 + 20 / 2, 2 + 26.75 / 2, 23]),
    # acc1 = 18 * 3/4 + 17 / 4
    "on average, truncated": ((0, 0, 1, 0), NONE, None, [1 + 17.75 / 2, 2 + 30 / 2, 23]),
}


@pytest.mark.parametrize(("last", "switched", "would_switch", "expected"), RETURNS.values(), ids=RETURNS.keys())
def test_returns_by_hand(last, switched, would_switch, expected):
    np.testing.assert_allclose(hand_returns(last, switched, would_switch), expected, rtol=1e-12)


def test_terminal_step_has_no_bootstrap():
    np.testing.assert_allclose(
        hand_returns((0, 0, 1, 0), NONE, NONE, discount=(1, 0, 1, 1)), [1 + 2 / 2, 2, 23], rtol=1e-12
    )


def test_critic_loss_gradient():
    q, returns = tf.ones((3, 2, 2, 1)), tf.zeros((2, 2, 1))
    with tf.GradientTape() as tape:
        tape.watch(q)
        total = tf.reduce_sum(losses.critic_loss(q, returns))
    gradient = tape.gradient(total, q)
    np.testing.assert_array_equal(gradient[:2], tf.fill((2, 2, 2, 1), 2.0))
    np.testing.assert_array_equal(gradient[2], tf.zeros((2, 2, 1)))


@pytest.mark.parametrize("sampled", [True, False])
def test_returns_have_no_gradient(sampled):
    inputs = [tf.fill(shape, 0.5) for shape in ((3, 2, 1), (3, 2), (1,), (3, 2, 1), (3, 2, 1), (3, 2))]
    none = tf.zeros((3, 2), tf.bool)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        total = tf.reduce_sum(losses.compare_through_returns(*inputs, none, none, none if sampled else None))
    assert tape.gradient(total, inputs) == [None] * 6


def test_policy_loss_and_gradients():
    inputs = [double([1.0, -2.0]), double([0.25, 0.75]), double([4.0, -8.0])]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = losses.policy_loss(*inputs, double(0.5))
    np.testing.assert_allclose(loss, [0.5 - 1.0, -1.0 + 6.0])
    log_prob, switch, q = tape.gradient(loss, inputs)
    np.testing.assert_array_equal(log_prob, [0.5, 0.5])
    assert switch is None
    np.testing.assert_array_equal(q, [-0.25, -0.75])
