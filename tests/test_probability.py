"""TensorFlow Probability distributions of policies match the training formulas, in environment units."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tiny
from toys import tiny_preset

from tfsac.environments import Filters, maker, spec_of
from tfsac.parameters import RunParameters
from tfsac.policies.distributions import DiagonalGaussian, MaskedCategorical, SquashedGaussian
from tfsac.policies.tfp_distributions import tfp_distribution
from tfsac.training.build import build_agent
from tfsac.training.trained_policy import Policy
from tfsac.types import ArraySpec, DiscreteSpec

LOW, HIGH = np.float32([-2, -1, 0]), np.float32([2, 3, 0.5])
MIDDLE, HALF = (HIGH + LOW) / 2, (HIGH - LOW) / 2
ACTION = ArraySpec((3,), "float32", LOW, HIGH)
RNG = np.random.default_rng(0)
LOC, LOG_SCALE = (RNG.normal(size=(6, 3)).astype(np.float32) * factor for factor in (1.0, 0.5))


def test_squashed_gaussian_matches_training():
    policy = tfp_distribution(SquashedGaussian(LOC, LOG_SCALE), ACTION, (2, 3))
    noise = tf.random.stateless_normal([6, 3], [1, 2])
    action, log_prob = SquashedGaussian(tf.constant(LOC), tf.constant(LOG_SCALE)).sample_and_log_prob(noise)
    env_action = tf.reshape(MIDDLE + HALF * action, [2, 3, 3])
    expected = tf.reshape(log_prob, [2, 3]) - np.log(HALF).sum()
    np.testing.assert_allclose(policy.log_prob(env_action), expected, rtol=1e-4, atol=1e-4)
    median = np.reshape(MIDDLE + HALF * np.tanh(LOC), (2, 3, 3))
    np.testing.assert_allclose(policy.quantile(0.5), median, rtol=1e-5, atol=1e-5)
    samples = policy.sample(20_000, seed=1)
    assert (samples.numpy() >= LOW).all() and (samples.numpy() <= HIGH).all()
    np.testing.assert_allclose(policy.entropy(), -tf.reduce_mean(policy.log_prob(samples), 0), atol=0.05)
    assert np.isfinite(policy.log_prob(np.broadcast_to(HIGH, (2, 3, 3)))).all()
    other = tfp_distribution(SquashedGaussian(LOC + 0.1, LOG_SCALE), ACTION, (2, 3))
    divergence = (0.01 / 2 / np.exp(LOG_SCALE) ** 2).sum(-1).reshape(2, 3)  # tanh does not change the divergence
    np.testing.assert_allclose(tfp.distributions.kl_divergence(policy, other), divergence, rtol=1e-4)


def test_gaussian_matches_training():
    ours = DiagonalGaussian(tf.constant(LOC), tf.exp(2 * LOG_SCALE))
    policy = tfp_distribution(DiagonalGaussian(LOC, np.exp(2 * LOG_SCALE)), ACTION, (6,))
    action = tf.random.stateless_normal([6, 3], [1, 2])
    scaling = np.log(HALF).sum()
    np.testing.assert_allclose(policy.log_prob(MIDDLE + HALF * action), ours.log_prob(action) - scaling, rtol=1e-4)
    np.testing.assert_allclose(policy.entropy(), ours.entropy() + scaling, rtol=1e-4)


@pytest.mark.parametrize("start", [0, 5])
def test_categorical_matches_training(start):
    mask = np.array([[True, False, True]] * 6)
    ours = MaskedCategorical(tf.constant(LOC), tf.constant(mask))
    policy = tfp_distribution(MaskedCategorical(LOC, mask), DiscreteSpec(3, start=start), (6,))
    np.testing.assert_allclose(policy.log_prob(start + 2), ours.log_prob[:, 2], rtol=1e-5)
    assert (policy.prob(start + 1).numpy() == 0).all()
    np.testing.assert_allclose(policy.entropy(), ours.entropy(), rtol=1e-5)


AGENTS = {
    "sac": lambda: tiny_preset("Pendulum-v1"),
    "taac": tiny.taac,
    "acer": tiny.acer,
    "gaussian acer": lambda: tiny.acer("Pendulum-v1", lstm=True),
}


@pytest.mark.parametrize("name", AGENTS)
def test_policy_distribution_of_single_and_batched_observations(name):
    preset = AGENTS[name]()
    spec = spec_of(maker(preset.environment)())
    acting = build_agent(preset, RunParameters(seed=1), spec).policy
    policy = Policy(acting, Filters(preset.environment.filters, spec))
    observations = RNG.normal(size=(4, *spec.observation["observation"].shape)).astype(np.float32)
    one, many = policy.distribution(observations[0]), policy.distribution(observations)
    assert (one.batch_shape, many.batch_shape) == ((), (4,))
    assert many.event_shape == spec.action.shape
    sample = many.sample(seed=1)
    np.testing.assert_allclose(one.log_prob(sample[0]), many.log_prob(sample)[0], rtol=1e-3)
    assert np.isfinite(many.entropy()).all()
