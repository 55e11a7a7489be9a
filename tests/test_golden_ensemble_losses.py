"""Reductions over critics and distributional losses match golden vectors: values and gradients."""

import golden_tools
import numpy as np
import pytest
import tensorflow as tf

from tfsac.losses import distributional, ensembles
from tfsac.losses.critics import ScalarCritics

# Tolerances relative to max(1, absolute value).
EVERY_DTYPE = pytest.mark.parametrize(
    ("dtype", "values", "gradients"), [("float32", 5e-5, 5e-5), ("float64", 2e-6, 1e-6)]
)


def close(ours, expected, allowed, name=""):
    ours, expected = np.asarray(ours), np.asarray(expected)
    assert ours.shape == expected.shape, name
    assert (np.abs(ours - expected) / np.maximum(1.0, np.abs(expected))).max() <= allowed, name


def inputs(golden, dtype=tf.float32):
    arrays = golden.with_prefix("input/")
    return {name: tf.constant(x, None if name == "subset" else dtype) for name, x in arrays.items()}


def differentiated(loss, x):
    """Returns the value of a function and its gradient."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = loss(x)
    return value, tape.gradient(value, x)


def summed(rows_BN, weight_B=None):
    """Returns the sum over critics of the mean over batch entries."""
    rows_BN = rows_BN if weight_B is None else weight_B[:, None] * rows_BN
    return tf.reduce_sum(tf.reduce_mean(rows_BN, axis=0))


@EVERY_DTYPE
def test_scalar_critics_match(dtype, values, gradients):
    golden, meta = golden_tools.read("modern_redq_target.npz")
    x, alpha = inputs(golden, dtype), tf.constant(meta["alpha"], dtype)

    def target(next_q_BN, reduction, alpha=alpha):
        next_value = ensembles.reduce_q(next_q_BN, reduction)
        return ensembles.soft_target(x["reward"], x["discount"], next_value, x["next_log_prob"], alpha)

    subsets = [tf.gather(x["next_q"], subset, axis=1) for subset in x["subset"]]
    for i, subset in enumerate(subsets):
        close(target(subset, "min"), golden[f"target/subset_{i}"], values)
    close(target(subsets[0], "index_min"), golden["target/subset_0"], values)
    close(target(subsets[0], "mean"), golden["target/subset_mean_0"], values)
    close(target(subsets[0][:, :1], "min"), golden["target/single"], values)
    close(target(x["next_q"], "min"), golden["target/min"], values)
    close(target(x["next_q"], "mean"), golden["target/mean"], values)
    close(target(subsets[0], "min", 0.0), golden["target/no_entropy_subset_0"], values)

    y = target(subsets[0], "min")
    for suffix, weight in (("", None), ("_weighted", x["weight"])):
        loss, gradient = differentiated(lambda q: summed(ScalarCritics("min", huber=False).loss(q, y), weight), x["q"])  # noqa: B023
        close(loss, golden[f"loss/critic{suffix}"], values)
        close(gradient, golden[f"grad/q{suffix}"], gradients)
    close(tf.reduce_mean(tf.abs(x["q"] - y[:, None]), axis=-1), golden["td_error"], values)
    for reduction in ("min", "mean"):
        loss, gradient = differentiated(
            lambda q: tf.reduce_mean(alpha * x["log_prob"] - ensembles.reduce_q(q, reduction)),  # noqa: B023
            x["q"],
        )
        close(loss, golden[f"loss/policy_{reduction}"], values)
        close(gradient, golden[f"grad/policy_{reduction}_q"], gradients)


@EVERY_DTYPE
def test_categorical_critics_match(dtype, values, gradients):
    golden, meta = golden_tools.read("modern_categorical.npz")
    x, support = inputs(golden, dtype), distributional.Support(meta["low"], meta["high"], meta["atoms"])
    close(support.atoms(), golden["atoms"], 1e-6)
    next_q = distributional.q_of_logits(x["next_logits"], support)
    close(next_q, golden["inter/next_q"], values)
    position = distributional.target_positions(x["reward"], x["discount"], x["next_log_prob"], meta["alpha"], support)
    close(support.low + position * support.width, golden["inter/values"], values)
    next_prob = tf.nn.softmax(x["next_logits"])
    for reduction in ("index_min", "mean", "own"):
        chosen = ensembles.reduce_distributions(next_prob, next_q, reduction)
        target = distributional.projected_target(chosen, position)
        close(target, golden[f"target/{reduction}"], values, reduction)
        close(distributional.cross_entropy(x["logits"], target), golden[f"rows/{reduction}"], values)
        loss, gradient = differentiated(
            lambda logits: summed(distributional.cross_entropy(logits, target)),  # noqa: B023
            x["logits"],
        )
        close(loss, golden[f"loss/{reduction}"], values)
        close(gradient, golden[f"grad/{reduction}_logits"], gradients)
        rows = distributional.cross_entropy(x["logits"], target)
        close(summed(rows, x["weight"]), golden[f"loss/{reduction}_weighted"], values)

    chosen = ensembles.reduce_distributions(next_prob, next_q, "index_min")
    np.testing.assert_array_equal(tf.argmin(next_q, axis=-1), golden["inter/index"])
    backup = (x["reward"], x["discount"], x["next_log_prob"], meta["alpha"], support)
    close(distributional.clipped_mass(chosen, *backup), golden["clipped_mass"], values)
    q = distributional.q_of_logits(x["logits"], support)
    close(q, golden["q"], values)
    y = distributional.expected_value(distributional.projected_target(chosen, position), support)
    close(tf.reduce_mean(tf.abs(q - y[:, None]), axis=-1), golden["td_error"], values)
    for reduction in ("min", "mean"):
        value, gradient = differentiated(
            lambda logits: ensembles.reduce_q(distributional.q_of_logits(logits, support), reduction),  # noqa: B023
            x["logits"],
        )
        close(value, golden[f"policy/{reduction}"], values)
        close(gradient, golden[f"policy/{reduction}_grad_logits"], gradients)
    value_S = tf.constant(golden["two_hot/value"], dtype)
    terminal = distributional.target_positions(value_S, tf.zeros_like(value_S), value_S, meta["alpha"], support)
    any_prob = tf.fill([len(value_S), support.size], tf.constant(1.0 / support.size, dtype))
    close(distributional.projected_target(any_prob, terminal), golden["two_hot/probs"], values)


@EVERY_DTYPE
def test_quantile_critics_match(dtype, values, gradients):
    golden, meta = golden_tools.read("modern_quantile.npz")
    x = inputs(golden, dtype)
    next_q = distributional.q_of_quantiles(x["next_quantiles"])
    reduced = {f"drop_{drop}": distributional.pooled_quantiles(x["next_quantiles"], drop) for drop in meta["drops"]}
    reduced["mean"] = ensembles.reduce_distributions(x["next_quantiles"], next_q, "mean")
    targets = {}
    for name, next_quantiles in reduced.items():
        y = targets[name] = ensembles.soft_target(
            x["reward"], x["discount"], next_quantiles, x["next_log_prob"], meta["alpha"]
        )
        close(y, golden[f"target/{name}"], values, name)
        rows = distributional.quantile_huber(x["quantiles"], y)
        close(rows, golden[f"rows/{name}"], values, name)
        loss, gradient = differentiated(
            lambda quantiles: summed(distributional.quantile_huber(quantiles, y)),  # noqa: B023
            x["quantiles"],
        )
        close(loss, golden[f"loss/{name}"], values, name)
        close(loss / meta["critics"], golden[f"loss/{name}_tqc"], values, name)
        close(gradient, golden[f"grad/{name}_quantiles"], gradients, name)
        close(summed(rows, x["weight"]), golden[f"loss/{name}_weighted"], values, name)
    q = distributional.q_of_quantiles(x["quantiles"])
    close(ensembles.reduce_q(q, "mean"), golden["policy/mean"], values)
    td_error = tf.abs(q - tf.reduce_mean(targets["drop_1"], axis=-1, keepdims=True))
    close(tf.reduce_mean(td_error, axis=-1), golden["td_error"], values)
