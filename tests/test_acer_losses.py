"""ACER losses: hand-computed returns and the trust region projection."""

import numpy as np
import pytest
import tensorflow as tf

from tfsac.losses import acer as losses


def double(x):
    return tf.constant(x, tf.float64)


# Three steps with gamma 0.5. Backwards: 3 + 8/2 = 7; then 2 + (1/4 (7 - 6) + 30)/2 and so on.
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
    """Computes the returns `[T, B]` of columns like `STEPS`, with bootstrap values `end`."""
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


def test_returns_stop_at_termination():
    terminated = {**STEPS, "discount": [1.0, 0.0, 1.0]}
    other = {**terminated, "reward": [1.0, 2.0, -9.0], "q": [4.0, 5.0, 90.0]}
    other |= {"v": [10.0, 20.0, -7.0], "trace": [0.125, 0.5, 1.0]}
    q_ret, q_opc = returns_of([terminated, other], [END, 100.0])
    # 2, then 1 + (1/2 (2 - 5) + 20)/2 and 1 + (2 - 5 + 20)/2; the last step starts from its own bootstrap value.
    np.testing.assert_array_equal(q_ret, [[10.25, 10.25], [2.0, 2.0], [7.0, 41.0]])
    np.testing.assert_array_equal(q_opc, [[9.5, 9.5], [2.0, 2.0], [7.0, 41.0]])


def padded(column, steps, q=0.0):
    """Appends padding steps."""
    rows = {"reward": 0.0, "discount": 0.0, "q": q, "v": q, "trace": 1.0, "valid": False}
    return {name: [*column[name], *[rows[name]] * steps] for name in STEPS}


def test_columns_are_independent_and_may_differ_in_length():
    two = {name: values[1:] for name, values in STEPS.items()}
    q_ret, q_opc = returns_of([STEPS, padded(two, 1, q=50.0)], [END, -2.0])
    np.testing.assert_array_equal(q_ret[:, 0], RET)
    np.testing.assert_array_equal(q_opc[:, 0], OPC)
    # 3 - 2/2 = 2, then 2 + (1/4 (2 - 6) + 30)/2 and 2 + (2 - 6 + 30)/2.
    np.testing.assert_array_equal(q_ret[:2, 1], [16.5, 2.0])
    np.testing.assert_array_equal(q_opc[:2, 1], [15.0, 2.0])
    np.testing.assert_array_equal(returns_of([two], [-2.0])[0][:, 0], q_ret[:2, 1])


@pytest.mark.parametrize(("scale", "delta"), [(1e20, 1.0), (1e20, 0.0), (1e-20, 1.0), (1e-20, 0.0)])
def test_trust_region_is_accurate_for_tiny_and_huge_gradients(scale, delta):
    rng = np.random.default_rng(4)
    g, k = (tf.constant(size * rng.normal(0, 1, (200, 3)), tf.float32) for size in (1.0, scale))
    z, factor = losses.trust_region(g, k, delta)
    g, k = np.asarray(g, np.float64), np.asarray(k, np.float64)
    expected_factor = np.maximum(0.0, ((k * g).sum(-1) - delta) / (k**2).sum(-1))
    np.testing.assert_allclose(z, g - expected_factor[:, None] * k, rtol=0, atol=1e-5)
    np.testing.assert_allclose(scale * np.float64(factor), scale * expected_factor, rtol=1e-4, atol=1e-5)
    assert (expected_factor > 0).any() == (scale > 1 or delta == 0.0)
