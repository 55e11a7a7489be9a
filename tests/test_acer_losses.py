"""Losses of actor-critic with experience replay: hand numbers, exact expectations, the projection, degenerate
policies.
"""

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfsac.losses import experience_replay as losses
from tfsac.policies.distributions import DiagonalGaussian


def double(x):
    return tf.constant(x, tf.float64)


def single(x):
    return tf.constant(x, tf.float32)


# -- returns -----------------------------------------------------------------------------------------------------------

# Three steps with gamma 0.5. From the end: 3 + 8/2 = 7; then 2 + (1/4 (7 - 6) + 30)/2 and so on.
STEPS = {
    "reward": [1.0, 2.0, 3.0],
    "discount": [1.0, 1.0, 1.0],
    "q": [4.0, 5.0, 6.0],
    "v": [10.0, 20.0, 30.0],
    "trace": [0.125, 0.5, 0.25],
    "valid": [True, True, True],
}
END, RET, OPC = 8.0, [14.03125, 17.125, 7.0], [17.25, 17.5, 7.0]


def returns_of(columns, end):
    """Returns of columns, each a table as `STEPS`, with the values after their ends: `[T, B]`."""
    z = {name: np.stack([column[name] for column in columns], axis=1) for name in STEPS}
    returns = losses.retrace_returns(
        double(z["reward"]),
        double(0.5 * z["discount"]),
        double(z["q"]),
        double(z["v"]),
        double(z["trace"]),
        double(end),
        tf.constant(z["valid"]),
    )
    return returns.q_ret.numpy(), returns.q_opc.numpy()


def test_nothing_flows_back_over_a_termination():
    ended = {**STEPS, "discount": [1.0, 0.0, 1.0]}
    other = {
        **ended,
        "reward": [1.0, 2.0, -9.0],
        "q": [4.0, 5.0, 90.0],
        "v": [10.0, 20.0, -7.0],
        "trace": [0.125, 0.5, 1.0],
    }
    q_ret, q_opc = returns_of([ended, other], [END, 100.0])
    # 2 alone, then 1 + (1/2 (2 - 5) + 20)/2 and 1 + (2 - 5 + 20)/2; what follows begins from its own end.
    np.testing.assert_array_equal(q_ret, [[10.25, 10.25], [2.0, 2.0], [7.0, 41.0]])
    np.testing.assert_array_equal(q_opc, [[9.5, 9.5], [2.0, 2.0], [7.0, 41.0]])


def padded(column, steps, q=0.0):
    """Appends rows without a step."""
    rows = {"reward": 0.0, "discount": 0.0, "q": q, "v": q, "trace": 1.0, "valid": False}
    return {name: [*column[name], *[rows[name]] * steps] for name in STEPS}


def test_columns_do_not_mix_and_may_differ_in_length():
    two = {name: values[1:] for name, values in STEPS.items()}
    q_ret, q_opc = returns_of([STEPS, padded(two, 1, q=50.0)], [END, -2.0])
    np.testing.assert_array_equal(q_ret[:, 0], RET)
    np.testing.assert_array_equal(q_opc[:, 0], OPC)
    # 3 - 2/2 = 2, then 2 + (1/4 (2 - 6) + 30)/2 and 2 + (2 - 6 + 30)/2.
    np.testing.assert_array_equal(q_ret[:2, 1], [16.5, 2.0])
    np.testing.assert_array_equal(q_opc[:2, 1], [15.0, 2.0])
    np.testing.assert_array_equal(returns_of([two], [-2.0])[0][:, 0], q_ret[:2, 1])


def test_returns_have_no_gradient():
    inputs = [single([STEPS[name]]) for name in ("reward", "discount", "q", "v", "trace")] + [tf.ones(3)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        q_ret, q_opc = losses.retrace_returns(*inputs, tf.fill((1, 3), True))
        total = tf.reduce_sum(q_ret + q_opc)
    assert tape.gradient(total, inputs) == [None] * 6


def test_ratios_and_traces_by_hand():
    log_probs = [single([0.5, 1e10, -1e10, 0.0]), single([0.25, 0.0, 0.0, 1e10])]
    with tf.GradientTape() as tape:
        tape.watch(log_probs)
        ratio = losses.log_ratio(*log_probs)
    np.testing.assert_array_equal(ratio, [0.25, 40.0, -40.0, -40.0])
    assert tape.gradient(ratio, log_probs) == [None, None]
    assert np.isfinite(tf.exp(ratio)).all()
    log_rho = double(np.log([8.0, 1.0, 1 / 8]))
    np.testing.assert_allclose(losses.trace_coefficient(log_rho), [1.0, 1.0, 1 / 8], rtol=1e-12)
    np.testing.assert_allclose(losses.trace_coefficient(log_rho, 3), [1.0, 1.0, 1 / 2], rtol=1e-12)


# -- losses by hand ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("truncation", "weight"),
    [(None, [4.0, 0.5, 1, 1]), (2.0, [2.0, 0.5, 1, 1]), (0.25, [0.25, 0.25, 1, 1]), (0.0, [0, 0, 1, 1])],
)
def test_the_policy_loss_and_its_gradients(truncation, weight):
    log_prob, advantage, on_policy = (
        double([-1.0, -2.0, -3.0, 1.0]),
        double([1.0, -2.0, 3.0, 4.0]),
        double([0.0, 0.0, 1.0, 1.0]),
    )
    inputs = [log_prob, double(np.log([4.0, 0.5, 4.0, 0.5])), advantage]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = losses.policy_loss(*inputs, on_policy, truncation)
    np.testing.assert_allclose(loss, -np.array(weight) * advantage * log_prob, rtol=1e-12)
    by_log_prob, *others = tape.gradient(loss, inputs)
    np.testing.assert_allclose(by_log_prob, -np.array(weight) * advantage, rtol=1e-12)
    assert others == [None, None]


def test_corrections_by_hand():
    log_rho = double(np.log([4.0, 2.0, 0.5]))
    inputs = [double([-1.0, -2.0, -3.0]), log_rho, double([2.0, -3.0, 5.0])]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = losses.sampled_correction(*inputs, 1.0)
    np.testing.assert_allclose(loss, [1.5, -3.0, 0.0], rtol=1e-12)
    by_log_prob, *others = tape.gradient(loss, inputs)
    np.testing.assert_allclose(by_log_prob, [-1.5, 1.5, 0.0], rtol=1e-12)
    assert others == [None, None]
    # pi is a half each and mu a tenth and nine tenths, so with c = 2 only the first is cut off: 1 - 2/5.
    prob = double([[0.5, 0.5]])
    inputs = [prob, tf.math.log(prob), double(np.log([[5.0, 5 / 9]])), double([[3.0, 1.0]]), double([2.0])]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = losses.full_correction(*inputs, 2.0)
    np.testing.assert_allclose(loss, [0.6 * 0.5 * math.log(2.0)], rtol=1e-12)
    gradients = tape.gradient(loss, inputs)
    np.testing.assert_allclose(gradients.pop(1), [[-0.3, 0.0]], rtol=1e-12)
    assert gradients == [None] * 4


def test_value_losses_by_hand():
    q, q_ret, v, log_rho = double([1.0, 2.0]), double([3.0, 1.0]), double([10.0, 10.0]), double(np.log([4.0, 0.25]))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([q, q_ret, v])
        q_loss, v_loss = losses.q_loss(q, q_ret), losses.v_loss(v, q, q_ret, log_rho)
    np.testing.assert_allclose(q_loss, [2.0, 0.5])
    np.testing.assert_allclose(v_loss, [2.0, 0.03125])  # targets are 10 + 2 and 10 - 1/4
    by_q, by_q_ret = tape.gradient(q_loss, [q, q_ret])
    np.testing.assert_allclose(by_q, [-2.0, 1.0])
    assert by_q_ret is None
    by_v, *others = tape.gradient(v_loss, [v, q, q_ret])
    np.testing.assert_allclose(by_v, [-2.0, 0.25])
    assert others == [None, None]


# -- the trust region --------------------------------------------------------------------------------------------------


def projected(g, k, delta):
    """z and the factor of k by the formula, in double precision."""
    g, k = np.asarray(g, np.float64), np.asarray(k, np.float64)
    factor = np.maximum(0.0, ((k * g).sum(-1) - delta) / (k**2).sum(-1))
    return g - factor[:, None] * k, factor


def test_the_projection_by_hand():
    g = double([[3.0, 4.0], [3.0, 4.0], [3.0, 4.0], [3.0, 4.0]])
    z, factor = losses.trust_region(g, double([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]), 1.0)
    np.testing.assert_array_equal(z, [[1.0, 4.0], [0.5, 4.0], [3.0, 4.0], [3.0, 4.0]])
    np.testing.assert_array_equal(factor, [2.0, 1.25, 0.0, 0.0])


@pytest.mark.parametrize(("scale", "delta"), [(1e20, 1.0), (1e20, 0.0), (1e-20, 1.0), (1e-20, 0.0)])
def test_the_size_of_the_divergences_gradient_does_not_matter_to_single_precision(scale, delta):
    rng = np.random.default_rng(4)
    g, k = single(rng.normal(0, 1, (200, 3))), single(scale * rng.normal(0, 1, (200, 3)))
    z, factor = losses.trust_region(g, k, delta)
    expected_z, expected_factor = projected(g, k, delta)
    np.testing.assert_allclose(z, expected_z, rtol=0, atol=1e-5)
    np.testing.assert_allclose(scale * np.float64(factor), scale * expected_factor, rtol=1e-4, atol=1e-5)
    assert (expected_factor > 0).any() == (scale > 1 or delta == 0.0)


def test_what_the_region_returns_has_no_gradient():
    statistics, scale = double([[1.0, 2.0]]), double(3.0)
    with tf.GradientTape() as tape:
        tape.watch([statistics, scale])
        _, region = losses.constrained(
            lambda x: (scale * tf.reduce_sum(x**2, axis=-1), -scale * tf.reduce_sum(x**3, axis=-1)), statistics, 1.0
        )
        total = tf.add_n([tf.reduce_sum(x) for x in region])
    assert region.factor[0] > 0
    assert tape.gradient(total, [statistics, scale]) == [None, None]


# -- the Gaussian ------------------------------------------------------------------------------------------------------


def test_the_gaussian_equals_tensorflow_probability():
    rng = np.random.default_rng(7)
    mean, other_mean = double(rng.normal(0, 1, (5, 3))), double(rng.normal(0, 1, (5, 3)))
    variance, other_variance = double(rng.lognormal(0, 2, (5, 3))), double(rng.lognormal(0, 2, (5, 3)))
    ours, other = DiagonalGaussian(mean, variance), DiagonalGaussian(other_mean, other_variance)
    theirs = tfp.distributions.MultivariateNormalDiag(mean, tf.sqrt(variance))
    noise = double(rng.normal(0, 1, (7, 5, 3)))
    for draw in (noise, noise[0]):
        action = ours.sample(draw)
        np.testing.assert_allclose(action, mean + tf.sqrt(variance) * draw, rtol=1e-12)
        assert ours.log_prob(action).shape == draw.shape[:-1]
        np.testing.assert_allclose(
            other.log_prob(action),
            tfp.distributions.MultivariateNormalDiag(other_mean, tf.sqrt(other_variance)).log_prob(action),
            rtol=1e-12,
        )
    np.testing.assert_allclose(ours.entropy(), theirs.entropy(), rtol=1e-12)
    kl = theirs.kl_divergence(tfp.distributions.MultivariateNormalDiag(other_mean, tf.sqrt(other_variance)))
    np.testing.assert_allclose(ours.kl_to(other), kl, rtol=1e-12)
    np.testing.assert_allclose(ours.kl_to(ours), np.zeros(5), atol=1e-14)
