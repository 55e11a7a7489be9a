"""Losses of actor-critic with experience replay: hand numbers, exact expectations, the projection, degenerate
policies.
"""

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy.stats import norm

from tfsac.losses import experience_replay as losses
from tfsac.losses.soft_actor_critic import expectation
from tfsac.policies.distributions import DiagonalGaussian, MaskedCategorical


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


def test_returns_by_hand():
    q_ret, q_opc = returns_of([STEPS], [END])
    np.testing.assert_array_equal(q_ret[:, 0], RET)
    np.testing.assert_array_equal(q_opc[:, 0], OPC)


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


# -- the expectation of the gradient -----------------------------------------------------------------------------------

THRESHOLDS = [0.0, 0.1, 0.5, 1.0, 2.0, 10.0, 1e6]


def gradients_by_action(logits, behaviour_logits, q, truncation):
    """Gradient by the logits of every action's loss, had the behaviour chosen it: `[A, A]`, an action per row."""
    size = len(q)
    behaviour = MaskedCategorical(double([behaviour_logits] * size))
    tiled = double([logits] * size)
    with tf.GradientTape() as tape:
        tape.watch(tiled)
        policy = MaskedCategorical(tiled)
        log_ratio = losses.log_ratio(policy.log_prob, behaviour.log_prob)
        q_RA = double([q] * size)
        v_R = expectation(policy.prob, q_RA)
        log_prob_R, log_ratio_R = tf.linalg.diag_part(policy.log_prob), tf.linalg.diag_part(log_ratio)
        loss = losses.policy_loss(log_prob_R, log_ratio_R, double(q) - v_R, tf.zeros(size, tf.float64), truncation)
        loss += losses.full_correction(policy.prob, policy.log_prob, log_ratio, q_RA, v_R, truncation)
    return tape.gradient(loss, tiled).numpy()


def softmax(logits):
    exponent = np.exp(np.asarray(logits) - np.max(logits))
    return exponent / exponent.sum()


def on_policy_gradient(logits, q):
    """Sum over a of pi(a) d/dlogits [-log pi(a) (Q(a) - V)], which is -pi (Q - V)."""
    prob = softmax(logits)
    return -prob * (q - prob @ q)


@pytest.mark.parametrize("truncation", THRESHOLDS)
def test_truncation_with_correction_is_unbiased_exactly(truncation):
    rng = np.random.default_rng(2)
    for size in (2, 3, 6, 6, 6):
        logits, behaviour_logits, q = rng.normal(0, 2, size), rng.normal(0, 2, size), rng.normal(0, 3, size)
        gradient = softmax(behaviour_logits) @ gradients_by_action(logits, behaviour_logits, q, truncation)
        np.testing.assert_allclose(gradient, on_policy_gradient(logits, q), rtol=0, atol=1e-12)


@pytest.mark.parametrize("truncation", [0.0, 0.5, 1.0, 2.0, 10.0])
def test_the_sampled_correction_is_unbiased_for_gaussians(truncation):
    # With Q = a^2 + 3a the on-policy gradient is that of -(m^2 + variance + 3m).
    mean, variance, behaviour_mean, behaviour_variance = 0.3, 0.5, -0.7, 0.4
    grid, step = np.linspace(-12.0, 12.0, 24001, retstep=True)
    behaviour_density = step * norm.pdf(grid, behaviour_mean, math.sqrt(behaviour_variance))
    density = step * norm.pdf(grid, mean, math.sqrt(variance))
    inputs, one = [double(mean), double(variance)], tf.ones((grid.size, 1), tf.float64)
    advantage = double(grid**2 + 3.0 * grid - (mean**2 + variance + 3.0 * mean))
    behaviour = DiagonalGaussian(behaviour_mean * one, behaviour_variance * one)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        policy, action = DiagonalGaussian(inputs[0] * one, inputs[1] * one), double(grid[:, None])
        log_prob = policy.log_prob(action)
        log_ratio = losses.log_ratio(log_prob, behaviour.log_prob(action))
        truncated = losses.policy_loss(log_prob, log_ratio, advantage, tf.zeros_like(log_prob), truncation)
        first = tf.reduce_sum(behaviour_density * truncated)
        total = first + tf.reduce_sum(density * losses.sampled_correction(log_prob, log_ratio, advantage, truncation))
    np.testing.assert_allclose(tape.gradient(total, inputs), [-(2.0 * mean + 3.0), -1.0], rtol=0, atol=1e-6)
    assert np.abs(np.subtract(tape.gradient(first, inputs), [-(2.0 * mean + 3.0), -1.0])).max() > 1e-3


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


@pytest.mark.parametrize("delta", [0.0, 0.1, 1.0, 3.0])
def test_z_is_the_nearest_of_all_that_move_the_divergence_by_at_most_delta(delta):
    rng = np.random.default_rng(3)
    g, k = rng.normal(0, 2, (2000, 4)), rng.normal(0, 1, (2000, 4)) * rng.lognormal(0, 2, (2000, 1))
    z, factor = (x.numpy() for x in losses.trust_region(double(g), double(k), delta))
    dot, size = (k * z).sum(-1), np.linalg.norm(k, axis=-1)
    touched = (k * g).sum(-1) > delta
    assert 200 < touched.sum() < 1800
    # Karush-Kuhn-Tucker: z is allowed, g - z is factor * k with a factor of at least zero, which is zero off the
    # boundary.
    assert (dot <= delta + 1e-12 * size).all()
    np.testing.assert_allclose(g - z, factor[:, None] * k, rtol=0, atol=1e-12)
    assert (factor[touched] > 0).all()
    np.testing.assert_allclose(dot[touched] / size[touched], delta / size[touched], rtol=0, atol=1e-11)
    np.testing.assert_array_equal(z[~touched], g[~touched])
    np.testing.assert_array_equal(factor[~touched], 0.0)


@pytest.mark.parametrize(("scale", "delta"), [(1e20, 1.0), (1e20, 0.0), (1e-20, 1.0), (1e-20, 0.0)])
def test_the_size_of_the_divergences_gradient_does_not_matter_to_single_precision(scale, delta):
    rng = np.random.default_rng(4)
    g, k = single(rng.normal(0, 1, (200, 3))), single(scale * rng.normal(0, 1, (200, 3)))
    z, factor = losses.trust_region(g, k, delta)
    expected_z, expected_factor = projected(g, k, delta)
    np.testing.assert_allclose(z, expected_z, rtol=0, atol=1e-5)
    np.testing.assert_allclose(scale * np.float64(factor), scale * expected_factor, rtol=1e-4, atol=1e-5)
    assert (expected_factor > 0).any() == (scale > 1 or delta == 0.0)


# Statistics of the policy as functions of its outputs, and what its log-probabilities are of them.
DISCRETE = {
    "logits": (tf.identity, tf.nn.log_softmax),
    "log_probs": (tf.nn.log_softmax, tf.identity),
    "probabilities": (tf.nn.softmax, lambda prob: tf.math.log(tf.maximum(prob, 1e-30))),
}
GAUSSIAN = {"variance": 1.0, "scale": 2.0}  # the power of the statistic that the variance is


def gaussian_of(statistics_RS, power):
    mean_RA, spread_RA = tf.split(statistics_RS, 2, axis=-1)
    return DiagonalGaussian(mean_RA, spread_RA**power)


def choices(geometry):
    """Outputs of a policy, its statistics of them, loss and divergence of these, the loss of the outputs, k and the
    divergence by hand.
    """
    rng = np.random.default_rng(5)
    logits, average_logits, weight = (double(rng.normal(0, 1, (50, 4))) for _ in range(3))
    statistics_of, log_prob_of = DISCRETE[geometry]
    average = MaskedCategorical(average_logits)

    def loss_of(log_prob_RA):
        return tf.reduce_sum(weight * log_prob_RA, axis=-1)

    prob = tf.nn.softmax(logits).numpy()
    k = {"logits": average.prob - prob, "log_probs": average.prob, "probabilities": average.prob / prob}[geometry]
    kl = (average.prob * (average.log_prob - np.log(prob))).numpy().sum(-1)

    def loss_and_kl(statistics_RS):
        log_prob_RA = log_prob_of(statistics_RS)
        return loss_of(log_prob_RA), expectation(average.prob, average.log_prob - log_prob_RA)

    return logits, statistics_of, loss_and_kl, lambda x: loss_of(tf.nn.log_softmax(x)), np.asarray(k), kl


def numbers(geometry):
    """The same of a Gaussian, whose outputs are its mean and the logarithm of its variance."""
    rng = np.random.default_rng(6)
    mean, log_variance, average_mean, action = (rng.normal(0, 1, (50, 2)) for _ in range(4))
    average_variance, weight = rng.uniform(0.3, 2.0, (50, 2)), rng.normal(0, 1, 50)
    power, average = GAUSSIAN[geometry], DiagonalGaussian(double(average_mean), double(average_variance))

    def statistics_of(outputs):
        mean_RA, log_variance_RA = tf.split(outputs, 2, axis=-1)
        return tf.concat([mean_RA, tf.exp(log_variance_RA / power)], axis=-1)

    def direct_loss(outputs):
        mean_RA, log_variance_RA = tf.split(outputs, 2, axis=-1)
        squared = tf.square(action - mean_RA) * tf.exp(-log_variance_RA)
        return -0.5 * weight * tf.reduce_sum(squared + log_variance_RA, axis=-1)

    variance, apart = np.exp(log_variance), average_mean - mean
    by_variance = 0.5 * (apart**2 / variance**2 + average_variance / variance**2 - 1.0 / variance)
    chain = 1.0 if geometry == "variance" else 2.0 * np.sqrt(variance)
    k = np.concatenate([apart / variance, chain * by_variance], axis=-1)
    kl = 0.5 * (apart**2 / variance + average_variance / variance - 1.0 + np.log(variance / average_variance)).sum(-1)

    def loss_and_kl(statistics_RS):
        policy = gaussian_of(statistics_RS, power)
        return weight * policy.log_prob(double(action)), average.kl_to(policy)

    return double(np.concatenate([mean, log_variance], axis=-1)), statistics_of, loss_and_kl, direct_loss, k, kl


POLICIES = [(choices, geometry) for geometry in DISCRETE] + [(numbers, geometry) for geometry in GAUSSIAN]


@pytest.mark.parametrize(("policy", "geometry"), POLICIES, ids=lambda x: x if isinstance(x, str) else x.__name__)
@pytest.mark.parametrize("delta", [None, 1e6])
def test_no_trust_region_or_a_wide_one_leaves_the_gradient_as_it_is(policy, geometry, delta):
    outputs, statistics_of, loss_and_kl, direct_loss, _, kl = policy(geometry)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(outputs)
        inside, region = losses.constrained(loss_and_kl, statistics_of(outputs), delta)
        direct = direct_loss(outputs)
    np.testing.assert_allclose(tape.gradient(inside, outputs), tape.gradient(direct, outputs), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(region.factor, 0.0)
    np.testing.assert_allclose(region.kl, kl, rtol=1e-10)


@pytest.mark.parametrize(("policy", "geometry"), POLICIES, ids=lambda x: x if isinstance(x, str) else x.__name__)
@pytest.mark.parametrize("delta", [0.0, 0.1])
def test_directions_stay_inside_the_trust_region(policy, geometry, delta):
    outputs, statistics_of, loss_and_kl, _, k, _ = policy(geometry)
    statistics = statistics_of(outputs)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(statistics)
        free, _ = loss_and_kl(statistics)
        inside, region = losses.constrained(loss_and_kl, statistics, delta)
    expected, factor = projected(tape.gradient(free, statistics), k, delta)
    np.testing.assert_allclose(region.direction, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(tape.gradient(inside, statistics), region.direction)
    np.testing.assert_allclose(region.factor, factor, rtol=1e-9, atol=1e-12)
    assert ((k * region.direction).numpy().sum(-1) <= delta + 1e-9).all()
    assert 5 < (factor > 0).sum() < 45


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


# -- degenerate distributions ------------------------------------------------------------------------------------------


def assert_finite(**tensors):
    for name, tensor in tensors.items():
        assert np.isfinite(tensor).all(), f"{name}: {tensor}"


SURE = {
    "first": [1e10, 0.0, -1e10],
    "last": [-1e10, 0.0, 1e10],
    "nearly": [66.0, 0.0, 30.0],
    "unsure": [0.5, 0.0, -0.5],
}


@pytest.mark.parametrize("geometry", DISCRETE)
@pytest.mark.parametrize("truncation", [None, 0.0, 5.0])
@pytest.mark.parametrize(
    ("policy", "behaviour", "average"),
    [
        ("first", "unsure", "unsure"),
        ("unsure", "first", "unsure"),
        ("first", "last", "last"),
        ("unsure", "last", "first"),
        ("nearly", "unsure", "last"),
        ("unsure", "nearly", "nearly"),
    ],
)
def test_sure_choices_are_finite(policy, behaviour, average, truncation, geometry):
    logits, action = tf.constant([SURE[policy]] * 3), tf.eye(3)  # an action per row
    other, mean = (
        MaskedCategorical(tf.constant([SURE[behaviour]] * 3)),
        MaskedCategorical(tf.constant([SURE[average]] * 3)),
    )
    q, q_ret, statistics_of = tf.constant([[2.0, -1.0, 0.5]] * 3), tf.constant([1.0, -3.0, 2.0]), DISCRETE[geometry][0]
    with tf.GradientTape() as tape:
        tape.watch([logits, q])
        current = MaskedCategorical(logits)
        log_ratio_RA = losses.log_ratio(current.log_prob, other.log_prob)
        log_ratio, q_R = tf.reduce_sum(log_ratio_RA * action, axis=-1), tf.reduce_sum(q * action, axis=-1)
        v = tf.stop_gradient(expectation(current.prob, q))

        def loss_of(x):
            log_prob = DISCRETE[geometry][1](x)
            loss = losses.policy_loss(
                tf.reduce_sum(log_prob * action, axis=-1), log_ratio, q_ret - v, tf.zeros(3), truncation
            )
            if truncation is None:
                return loss
            return loss + losses.full_correction(
                current.prob, log_prob, log_ratio_RA, tf.stop_gradient(q), v, truncation
            )

        statistics = statistics_of(logits)
        in_region, region = losses.constrained(
            lambda x: (loss_of(x), expectation(mean.prob, mean.log_prob - DISCRETE[geometry][1](x))), statistics, 0.1
        )
        free = loss_of(statistics)
        total = free + in_region - 0.01 * current.entropy() + losses.q_loss(q_R, q_ret)
    by_logits, by_q = tape.gradient(total, [logits, q])
    assert_finite(
        ratio=tf.exp(log_ratio_RA),
        trace=losses.trace_coefficient(log_ratio),
        loss=free,
        in_region=in_region,
        total=total,
        direction=region.direction,
        kl=region.kl,
        factor=region.factor,
        by_logits=by_logits,
        by_q=by_q,
    )


@pytest.mark.parametrize("geometry", GAUSSIAN)
@pytest.mark.parametrize("truncation", [None, 0.0, 5.0])
@pytest.mark.parametrize("narrow", [("policy",), ("behaviour",), ("average",), ("policy", "behaviour", "average")])
def test_narrow_gaussians_are_finite(narrow, truncation, geometry):
    def raw(name):
        return tf.constant([[-60.0 if name in narrow else 0.5] * 2] * 4)

    def variance_of(x):
        return tf.nn.softplus(x) + 1e-10

    assert np.min(variance_of(raw(narrow[0]))) == np.float32(1e-10)
    other = DiagonalGaussian(tf.fill((4, 2), 1.0), variance_of(raw("behaviour")))
    average = DiagonalGaussian(tf.fill((4, 2), -0.5), variance_of(raw("average")))
    outputs, q, v = (
        [tf.zeros((4, 2)), raw("policy")],
        tf.constant([2.0, -1.0, 0.5, 1.0]),
        tf.constant([1.0, 0.0, -1.0, 3.0]),
    )
    power, q_ret = GAUSSIAN[geometry], tf.constant([1.0, -3.0, 2.0, 5.0])
    with tf.GradientTape() as tape:
        tape.watch([*outputs, q, v])
        current = DiagonalGaussian(outputs[0], variance_of(outputs[1]))
        noise = tf.constant([[0.0, 0.0], [3.0, -3.0], [0.0, 0.0], [3.0, -3.0]])
        fresh = tf.stop_gradient(current.sample(noise))
        action = tf.concat([other.sample(noise)[:2], fresh[2:]], axis=0)
        log_prob = current.log_prob(action)
        log_ratio = losses.log_ratio(log_prob, other.log_prob(action))
        fresh_log_ratio = losses.log_ratio(current.log_prob(fresh), other.log_prob(fresh))

        def loss_of(x):
            loss = losses.policy_loss(
                gaussian_of(x, power).log_prob(action), log_ratio, q_ret - tf.stop_gradient(v), tf.zeros(4), truncation
            )
            if truncation is None:
                return loss
            return loss + losses.sampled_correction(
                gaussian_of(x, power).log_prob(fresh), fresh_log_ratio, q, truncation
            )

        statistics = tf.concat([current.mean, current.variance ** (1.0 / power)], axis=-1)
        in_region, region = losses.constrained(
            lambda x: (loss_of(x), average.kl_to(gaussian_of(x, power))), statistics, 0.1
        )
        free = loss_of(statistics)
        value = losses.q_loss(q, q_ret) + losses.v_loss(v, q, q_ret, log_ratio)
        total = free + in_region - 0.01 * current.entropy() + value
    by_mean, by_raw, by_q, by_v = tape.gradient(total, [*outputs, q, v])
    assert_finite(
        ratio=tf.exp(log_ratio),
        trace=losses.trace_coefficient(log_ratio, 2),
        loss=free,
        in_region=in_region,
        total=total,
        direction=region.direction,
        kl=region.kl,
        factor=region.factor,
        by_mean=by_mean,
        by_raw=by_raw,
        by_q=by_q,
        by_v=by_v,
    )


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
