"""Losses and distributions match hand computations, SciPy and TensorFlow Probability."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy.stats import norm

from tfsac.losses import soft_actor_critic as losses
from tfsac.losses.temperature import temperature_loss
from tfsac.policies.distributions import MaskedCategorical, SquashedGaussian


def double(x):
    return tf.constant(x, tf.float64)


TWO_Q, LOG_PROB_B = tf.constant([[0.5, 2.0], [4.0, 3.0]]), tf.constant([1.0, -2.0])


@pytest.mark.parametrize(("alpha", "expected"), [(1.0, [-0.5, 5.0]), (0.5, [0.0, 4.0]), (0.0, [0.5, 3.0])])
def test_soft_value_is_min_q_minus_alpha_log_prob(alpha, expected):
    with tf.GradientTape() as tape:
        tape.watch([TWO_Q, LOG_PROB_B])
        value = losses.soft_value(TWO_Q, LOG_PROB_B, tf.constant(alpha))
    np.testing.assert_allclose(value, expected)
    to_q, to_log_prob = tape.gradient(value, [TWO_Q, LOG_PROB_B])
    np.testing.assert_array_equal(to_q, [[1, 0], [0, 1]])
    np.testing.assert_array_equal(to_log_prob, [-alpha, -alpha])


def test_huber_loss_is_linear_for_errors_above_one():
    prediction = tf.constant([0.0, 0.5, 1.0, -1.0, 3.0, -101.0])
    with tf.GradientTape() as tape:
        tape.watch(prediction)
        loss = losses.regression_loss(prediction, tf.zeros(6), huber=True)
    np.testing.assert_allclose(loss, [0.0, 0.25, 1.0, 1.0, 5.0, 201.0])
    np.testing.assert_allclose(tape.gradient(loss, prediction), [0.0, 1.0, 2.0, -2.0, 2.0, -2.0])


PROB = tf.constant([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]])
LOG_PROB = tf.constant([[-1.0, -2.0], [-3.0, -4.0], [0.0, -5.0]])
# Minima over critics: 1 0, 4 -1, 6 9.
Q = tf.constant([[[1.0, 2.0], [3.0, 0.0]], [[4.0, -1.0], [5.0, 8.0]], [[6.0, 9.0], [7.0, 9.0]]])


def test_expected_soft_value_matches_hand_computation():
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([Q, PROB, LOG_PROB])
        value = losses.expected_soft_value(Q, PROB, LOG_PROB, tf.constant(0.5))
        target = losses.bootstrap_target(tf.constant([1.0, 2.0, 3.0]), tf.constant([0.8, 0.0, 0.5]), value)
    np.testing.assert_allclose(value, [0.5 * 1.5 + 0.5 * 1.0, 0.25 * 5.5 + 0.75 * 1.0, 6.0])
    np.testing.assert_allclose(target, [1 + 0.8 * (0.5 * 1.5 + 0.5 * 1.0), 2.0, 3 + 0.5 * 6.0])
    assert tape.gradient(target, [Q, PROB, LOG_PROB]) == [None] * 3
    to_prob, to_q = tape.gradient(value, [PROB, Q])
    np.testing.assert_allclose(to_prob, [[1.5, 1.0], [5.5, 1.0], [6.0, 0.0]])
    np.testing.assert_allclose(to_q[:2], [[[0.5, 0.0], [0.0, 0.5]], [[0.25, 0.75], [0.0, 0.0]]])


def test_entropy_expectation_and_q_of_actions():
    prob = np.float32([[0.5, 0.25, 0.25, 0.0], [0.25] * 4, [0.0, 1.0, 0.0, 0.0]])
    policy = MaskedCategorical(tf.constant(np.log(np.where(prob > 0, prob, 1.0))), tf.constant(prob > 0))
    np.testing.assert_allclose(policy.entropy(), np.log(2) * np.array([1.5, 2.0, 0.0]), rtol=1e-6)
    np.testing.assert_allclose(losses.expectation(PROB, Q[:, 0]), [1.5, 0.25, 6.0])
    np.testing.assert_array_equal(losses.q_of_actions(Q, tf.constant([1, 0, 1])), [[2, 0], [4, 5], [9, 9]])


def test_temperature_loss_accepts_a_target_per_entry():
    log_alpha, minus_entropy = tf.constant(-0.5), tf.constant([-1.0, -0.2])
    with tf.GradientTape() as tape:
        tape.watch(log_alpha)
        loss = temperature_loss(log_alpha, minus_entropy, tf.constant([0.5, 0.9]))
    np.testing.assert_allclose(loss, [0.5 * (-1.0 + 0.5), 0.5 * (-0.2 + 0.9)], rtol=1e-6)
    assert float(tape.gradient(loss, log_alpha)) == pytest.approx(-(-0.5 + 0.7))
    np.testing.assert_allclose(temperature_loss(log_alpha, minus_entropy, 0.5), [-0.25, 0.15], rtol=1e-6)


@pytest.mark.parametrize("q", [1e30, -np.inf, np.nan])
def test_masked_action_has_no_effect_for_any_q(q):
    mask, logits = tf.constant([[True, False, True]] * 2), tf.constant([[0.3, 2.0, -1.0], [0.0, -9.0, 4.0]])

    def computed(masked_q):
        values = tf.constant([[[1.0, masked_q, 2.0], [0.5, masked_q, 3.0]]] * 2)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            policy = MaskedCategorical(logits, mask)
            value = losses.expected_soft_value(values, policy.prob, policy.log_prob, tf.constant(0.2))
        return value.numpy(), tape.gradient(value, logits).numpy()

    (values, gradient), (expected, expected_gradient) = computed(q), computed(0.0)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(gradient, expected_gradient)
    assert np.isfinite(values).all() and (gradient[:, 1] == 0).all() and (np.abs(gradient[:, 0]) > 1e-3).all()


def log_density(loc, log_scale, noise):
    """Computes the normal log-density minus the log slope of tanh, in a form that stays finite."""
    u = loc + np.exp(log_scale) * noise
    log_slope = 2 * np.log(2) - 2 * np.abs(u) - 2 * np.log1p(np.exp(-2 * np.abs(u)))
    return (norm.logpdf(u, loc, np.exp(log_scale)) - log_slope).sum(axis=-1)


def test_log_prob_and_gradient_match_tensorflow_probability():
    rng = np.random.default_rng(0)
    loc, noise = (double(rng.normal(size=(50, 3))) for _ in range(2))
    log_scale = double(rng.uniform(-3, 1, (50, 3)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([loc, log_scale])
        ours = SquashedGaussian(loc, log_scale).sample_and_log_prob(noise)
        before_tanh = loc + tf.exp(log_scale) * noise
        normal = tfp.distributions.MultivariateNormalDiag(loc, tf.exp(log_scale))
        slope = tfp.bijectors.Tanh().forward_log_det_jacobian(before_tanh, event_ndims=1)
        theirs = tf.tanh(before_tanh), normal.log_prob(before_tanh) - slope
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-12)
    for variable in (loc, log_scale):
        np.testing.assert_allclose(tape.gradient(ours, variable), tape.gradient(theirs, variable), rtol=1e-10)


@pytest.mark.parametrize("dtype, rtol", [(tf.float32, 1e-5), (tf.float64, 1e-12)])
@pytest.mark.parametrize("u", [-20.0, 20.0])
def test_log_prob_and_gradient_are_finite_in_the_tails(dtype, rtol, u):
    loc, log_scale = tf.constant([[u, 0.0]], dtype), tf.constant([[-1.0, -1.0]], dtype)
    with tf.GradientTape() as tape:
        tape.watch([loc, log_scale])
        action, log_prob = SquashedGaussian(loc, log_scale).sample_and_log_prob(tf.constant([[0.5, 0.5]], dtype))
    expected = log_density(np.array([[u, 0.0]]), np.array([[-1.0, -1.0]]), np.array([[0.5, 0.5]]))
    np.testing.assert_allclose(log_prob, expected, rtol=rtol)
    assert np.abs(action).max() <= 1.0
    to_loc, to_log_scale = tape.gradient(log_prob, [loc, log_scale])
    # In the tails, -log(slope) = 2|u| - log 4, whose derivative is 2 sign(u).
    assert to_loc[0, 0].numpy() == pytest.approx(2 * np.sign(u), rel=1e-5)
    assert np.isfinite(to_log_scale).all()


@pytest.mark.parametrize("log_scale, slope", [(-25.0, False), (7.0, False), (0.5, True)])
def test_sample_and_log_prob_clip_log_scale(log_scale, slope):
    variable, noise = double([[log_scale]]), double([[0.1]])
    with tf.GradientTape() as tape:
        tape.watch(variable)
        action, log_prob = SquashedGaussian(double([[0.3]]), variable).sample_and_log_prob(noise)
    clipped = np.clip([[log_scale]], -20, 2)
    np.testing.assert_allclose(action, np.tanh(0.3 + np.exp(clipped) * 0.1), rtol=1e-12)
    np.testing.assert_allclose(log_prob, log_density(np.array([[0.3]]), clipped, np.array([[0.1]])), rtol=1e-6)
    assert bool(np.any(tape.gradient(log_prob, variable))) is slope


@pytest.mark.parametrize(("shape", "other"), [((4,), (4,)), ((4, 2), (4, 1)), ((4, 2), (2,))])
def test_distributions_reject_wrong_shapes(shape, other):
    with pytest.raises(ValueError, match="shapes"):
        SquashedGaussian(tf.zeros(shape), tf.zeros(other))
    with pytest.raises(ValueError, match="shapes"):
        SquashedGaussian(tf.zeros(shape), tf.zeros(shape)).sample_and_log_prob(tf.zeros(other))
    with pytest.raises(ValueError, match="shapes"):
        MaskedCategorical(tf.zeros(shape), tf.zeros(other, tf.bool))


def test_masked_actions_have_probability_zero():
    policy = MaskedCategorical(
        tf.constant([[0.0, 5.0, np.log(3.0)], [1.0, 1.0, 1.0]]), tf.constant([[True, False, True], [True] * 3])
    )
    assert policy.prob[0, 1] == 0.0 and policy.log_prob[0, 1] == 0.0
    np.testing.assert_allclose(policy.prob, [[0.25, 0.0, 0.75], [1 / 3] * 3], rtol=1e-6)
    np.testing.assert_allclose(policy.log_prob, np.log([[0.25, 1.0, 0.75], [1 / 3] * 3]), rtol=1e-6)


def test_empty_mask_gives_finite_zeros():
    logits, q = tf.constant([[3.0, -1.0], [0.0, 0.0]]), tf.constant([[[np.inf, 1.0]], [[1.0, 3.0]]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        policy = MaskedCategorical(logits, tf.constant([[False, False], [True, True]]))
        value = losses.expected_soft_value(q, policy.prob, policy.log_prob, tf.constant(0.0))
    np.testing.assert_array_equal(policy.prob, [[0.0, 0.0], [0.5, 0.5]])
    np.testing.assert_array_equal(policy.log_prob[0], [0.0, 0.0])
    np.testing.assert_array_equal([policy.entropy()[0], policy.max_entropy()[0]], 0.0)
    np.testing.assert_array_equal(value, [0.0, 2.0])
    np.testing.assert_array_equal(tape.gradient(value, logits), [[0.0, 0.0], [-0.5, 0.5]])


def test_is_tie_detects_rounding_differences():
    logits = np.float32([[0.3, -1.0, 0.3 + 1e-7], [2.0, -1.0, 0.0]])
    assert MaskedCategorical(logits).is_tie() and not MaskedCategorical(logits[1:]).is_tie()
    assert not MaskedCategorical(logits[:1], np.array([[True, True, False]])).is_tie()


def test_sampling_handles_extreme_uniform_numbers():
    low, high = 0.0, np.float32(1 - 2**-24)
    uniform = tf.constant([[low] * 3, [high] * 3, [low, low, high], [high, low, low]])
    policy = MaskedCategorical(tf.constant([[0.0, 1.0, 9.0]] * 4), tf.constant([[True, True, False]] * 4))
    np.testing.assert_array_equal(policy.sample(uniform), [1, 1, 1, 0])


def test_mode_is_first_most_likely_valid_action():
    logits = tf.constant([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 2.0, 3.0]])
    mask = tf.constant([[True, True, True], [False, True, True], [True, True, False]])
    np.testing.assert_array_equal(MaskedCategorical(logits).mode(), [0, 0, 2])
    np.testing.assert_array_equal(MaskedCategorical(logits, mask).mode(), [0, 1, 1])


def test_non_finite_logits_give_no_action():
    logits = np.float32([[0.0, 1.0, 0.0], [0.0, np.nan, 1.0], [0.0, np.inf, 1.0], [-np.inf, 0.0, -1.0]])
    for policy in (MaskedCategorical(logits), MaskedCategorical(logits, np.ones((4, 3), bool))):
        np.testing.assert_array_equal(policy.mode(), [1, -1, -1, 1])
        np.testing.assert_array_equal(policy.sample(np.full((4, 3), 0.5, np.float32)), [1, -1, -1, 1])
