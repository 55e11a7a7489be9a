"""Actor-critic with experience replay against the golden vectors: returns, losses, trust region and gradients."""

from typing import NamedTuple

import golden_tools
import numpy as np
import pytest
import tensorflow as tf
from tfsac.losses.discrete_soft_actor_critic import entropy, expectation

from tfsac.distributions import DiagonalGaussian, MaskedCategorical
from tfsac.losses import experience_replay as losses

DTYPES = [tf.float64, tf.float32]
COMBOS = range(16)  # on-policy, or off-policy with no truncation, 5 and 10; each with and without trust region and q_opc


def close(ours, golden, name, dtype, gradient=False, exact=False):
    """Compares within the tolerances of the files; `exact` are recursions."""
    double = dtype == tf.float64
    if exact:
        rtol, atol = 0.0, 1e-12 if double else 2e-6
    else:
        rtol, atol = (1e-7, 1e-8) if double else (1e-4, 1e-5 if gradient else 2e-5)
    np.testing.assert_allclose(ours, golden, rtol=rtol, atol=atol, err_msg=name)


def columns(z, name, dtype):
    """Reads an input, `[S, T, ...]` in the file, as columns, `[T, B, ...]`."""
    return tf.cast(np.moveaxis(z[f"input/{name}"], 0, 1), dtype)


def rows(x_TB):
    return tf.reshape(x_TB, [-1, *x_TB.shape[2:]])


# -- returns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("kind", ["discrete", "continuous", "on_policy"])
def test_returns_match(kind, dtype):
    z, meta = golden_tools.read("retrace.npz")
    reward, q, v, rho = (columns(z, name, dtype) for name in ("reward", "q", "v", "rho"))
    log_rho = tf.zeros_like(rho) if kind == "on_policy" else tf.math.log(rho)
    trace = losses.trace_coefficient(log_rho, meta["act"] if kind == "continuous" else 1)
    returns = losses.retrace_returns(
        reward, tf.ones_like(reward), meta["gamma"], q, v, trace, tf.cast(z["input/bootstrap"], dtype),
        tf.fill(reward.shape, True),
    )
    for name, ours in (("c", trace), ("q_ret", returns.q_ret), ("q_opc", returns.q_opc)):
        close(tf.transpose(ours), z[f"{kind}/{name}"], name, dtype, exact=True)


# -- losses ------------------------------------------------------------------------------------------------------------


class Assembled(NamedTuple):
    """A loss of every segment, `[B]`, and what led to it, `[T, B]`."""

    loss: tf.Tensor
    pi_loss: tf.Tensor
    q_loss: tf.Tensor
    returns: losses.Returns
    rho: tf.Tensor
    v: tf.Tensor
    factor: tf.Tensor


def assemble(z, meta, combo, policy, q_TB, v_TB, action_size=1, regress_v=False):
    """Adds up the loss of both segments as an agent does, from the policy's statistics, log-probabilities and so on."""
    truncation, time, dtype = combo["truncation"], q_TB.shape[0], q_TB.dtype

    def along_time(x_R):
        return tf.reshape(x_R, q_TB.shape)

    log_ratio_R = losses.log_ratio(policy["log_prob"](policy["statistics"]), policy["behaviour_log_prob"])
    on_policy_R = tf.fill(log_ratio_R.shape, tf.cast(not combo["off_policy"], dtype))
    log_ratio_R = (1.0 - on_policy_R) * log_ratio_R
    returns = losses.retrace_returns(
        columns(z, "reward", dtype), tf.ones_like(q_TB), meta["gamma"], q_TB, v_TB,
        along_time(losses.trace_coefficient(log_ratio_R, action_size)), tf.cast(z["input/bootstrap"], dtype),
        tf.fill(q_TB.shape, True),
    )
    advantage_R = rows((returns.q_opc if combo["q_opc"] else returns.q_ret) - v_TB)

    def loss_of(statistics_RS):
        loss_R = losses.policy_loss(policy["log_prob"](statistics_RS), log_ratio_R, advantage_R, on_policy_R, truncation)
        if truncation is not None:
            loss_R += (1.0 - on_policy_R) * policy["correction"](statistics_RS, rows(v_TB), truncation)
        return loss_R

    statistics_RS, factor_R = policy["statistics"], tf.zeros_like(log_ratio_R)
    if combo["trust_region"]:
        direction_RS, _, factor_R = losses.constrained(loss_of, policy["kl"], statistics_RS, meta["delta"])
        pi_loss_R = tf.reduce_sum(statistics_RS * direction_RS, axis=-1)
    else:
        pi_loss_R = loss_of(statistics_RS)
    pi_loss_R -= meta["beta"] * policy["entropy"]
    q_R, q_ret_R = rows(q_TB), rows(returns.q_ret)
    q_loss_R = losses.q_loss(q_R, q_ret_R)
    if regress_v:
        q_loss_R += losses.v_loss(rows(v_TB), q_R, q_ret_R, log_ratio_R)
    pi_loss = meta["pi_coef"] * tf.reduce_sum(along_time(pi_loss_R), axis=0) / time
    q_loss = meta["q_coef"] * tf.reduce_sum(along_time(q_loss_R), axis=0) / time
    return Assembled(pi_loss + q_loss, pi_loss, q_loss, returns, along_time(tf.exp(log_ratio_R)), v_TB, along_time(factor_R))


def check(assembled, gradients, z, geometry, number, dtype):
    """Compares all that the file has of a combination; gradients by name, `[T, B, ...]`."""
    q_ret, q_opc = assembled.returns
    for name, ours in (("q_ret", q_ret), ("q_opc", q_opc), ("rho", assembled.rho), ("v", assembled.v)):
        close(tf.transpose(ours), z[f"inter/{name}"][number], name, dtype)
    for name in ("loss", "pi_loss", "q_loss"):
        close(getattr(assembled, name), z[f"{geometry}/{name}"][number], name, dtype)
    for name, ours in gradients.items():
        close(np.moveaxis(ours, 0, 1), z[f"{geometry}/grad_{name}"][number], name, dtype, gradient=True)
    if geometry == "chainerrl":  # the file has no others
        close(tf.transpose(assembled.factor), z["inter/trust_region_factor"][number], "factor", dtype)


def discrete(z, geometry, logits_TBA, q_TBA):
    """The policy of the file; `pfrl` has log-probabilities for statistics, `chainerrl` logits."""
    dtype = logits_TBA.dtype
    current = MaskedCategorical(rows(logits_TBA))
    average, behaviour = (MaskedCategorical(rows(columns(z, name, dtype))) for name in ("avg_logits", "mu_logits"))
    chosen_RA = tf.one_hot(tf.cast(rows(columns(z, "action", dtype)), tf.int32), q_TBA.shape[-1], dtype=dtype)

    def log_prob_of(statistics_RS):
        return statistics_RS if geometry == "pfrl" else MaskedCategorical(statistics_RS).log_prob

    def taken(x_RA):
        return tf.reduce_sum(x_RA * chosen_RA, axis=-1)

    def correction(statistics_RS, v_R, truncation):
        log_ratio_RA = losses.log_ratio(current.log_prob, behaviour.log_prob)
        return losses.full_correction(
            current.prob, log_prob_of(statistics_RS), log_ratio_RA, tf.stop_gradient(rows(q_TBA)), v_R, truncation
        )

    policy = {
        "statistics": current.log_prob if geometry == "pfrl" else rows(logits_TBA),
        "log_prob": lambda statistics_RS: taken(log_prob_of(statistics_RS)),
        "behaviour_log_prob": taken(behaviour.log_prob),
        "kl": lambda statistics_RS: expectation(average.prob, average.log_prob - log_prob_of(statistics_RS)),
        "entropy": entropy(current.prob, current.log_prob),
        "correction": correction,
    }
    q_TB = tf.reshape(taken(rows(q_TBA)), q_TBA.shape[:2])
    v_TB = tf.reshape(tf.stop_gradient(expectation(current.prob, rows(q_TBA))), q_TBA.shape[:2])
    return policy, q_TB, v_TB


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("geometry", ["chainerrl", "pfrl"])
@pytest.mark.parametrize("number", COMBOS)
def test_choices_match(number, geometry, dtype):
    z, meta = golden_tools.read("acer_discrete.npz")
    logits, q = columns(z, "logits", dtype), columns(z, "q", dtype)
    with tf.GradientTape() as tape:
        tape.watch([logits, q])
        assembled = assemble(z, meta, meta["combos"][number], *discrete(z, geometry, logits, q))
    gradients = dict(zip(("logits", "q"), tape.gradient(assembled.loss, [logits, q]), strict=True))
    check(assembled, gradients, z, geometry, number, dtype)


def gaussian(z, geometry, mean_TBA, variance_TBA):
    """The policy of the file; `pfrl` has the standard deviation among its statistics, `chainerrl` the variance."""
    dtype = mean_TBA.dtype
    power = 2.0 if geometry == "pfrl" else 1.0
    average, behaviour = (
        DiagonalGaussian(*(rows(columns(z, f"{name}_{part}", dtype)) for part in ("mean", "var"))) for name in ("avg", "mu")
    )
    current = DiagonalGaussian(rows(mean_TBA), rows(variance_TBA))
    action_RA, fresh_RA = (rows(columns(z, name, dtype)) for name in ("action", "correction_action"))

    def policy_of(statistics_RS):
        mean_RA, spread_RA = tf.split(statistics_RS, 2, axis=-1)
        return DiagonalGaussian(mean_RA, spread_RA**power)

    def correction(statistics_RS, v_R, truncation):
        log_ratio_R = losses.log_ratio(current.log_prob(fresh_RA), behaviour.log_prob(fresh_RA))
        advantage_R = rows(columns(z, "q_correction", dtype)) - v_R
        return losses.sampled_correction(policy_of(statistics_RS).log_prob(fresh_RA), log_ratio_R, advantage_R, truncation)

    return {
        "statistics": tf.concat([current.mean, current.variance ** (1.0 / power)], axis=-1),
        "log_prob": lambda statistics_RS: policy_of(statistics_RS).log_prob(action_RA),
        "behaviour_log_prob": behaviour.log_prob(action_RA),
        "kl": lambda statistics_RS: average.kl_to(policy_of(statistics_RS)),
        "entropy": current.entropy(),
        "correction": correction,
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("geometry", ["chainerrl", "pfrl"])
@pytest.mark.parametrize("number", COMBOS)
def test_numbers_match(number, geometry, dtype):
    z, meta = golden_tools.read("acer_gaussian.npz")
    inputs = [columns(z, name, dtype) for name in ("mean", "var", "q", "v")]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        mean, variance, q, v = inputs
        assembled = assemble(
            z, meta, meta["combos"][number], gaussian(z, geometry, mean, variance), q, v, mean.shape[-1], regress_v=True
        )
    gradients = dict(zip(("mean", "var", "q", "v"), tape.gradient(assembled.loss, inputs), strict=True))
    check(assembled, gradients, z, geometry, number, dtype)
