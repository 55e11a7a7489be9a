"""LSTM networks: initial weights and the NumPy forward pass. Gaussian heads of ACER."""

import numpy as np
import pytest
import tensorflow as tf

from tfsac.networks import Network, NumpyForward, forward_of
from tfsac.networks.lstm import CELL, HIDDEN
from tfsac.parameters import (
    CategoricalPolicyHeadParameters,
    EmbedderScheme,
    FCMiddlewareParameters,
    FeaturesHeadParameters,
    GaussianPolicyHeadParameters,
    InputEmbedderParameters,
    LSTMMiddlewareParameters,
    NetworkParameters,
    VHeadParameters,
)
from tfsac.types import ArraySpec, DiscreteSpec, Spec

CONTINUOUS = Spec({"observation": ArraySpec((5,), "float32")}, ArraySpec((3,), "float32"))
DISCRETE = CONTINUOUS._replace(action=DiscreteSpec(4))
ROWS, CELLS = 16, 4


def network(head, spec=CONTINUOUS, lstm=CELLS, embed=(6,), middle=(7,)):
    body = FCMiddlewareParameters(middle) if lstm is None else LSTMMiddlewareParameters(lstm, middle, "tanh")
    embedders = {key: InputEmbedderParameters(embed) for key in spec.observation}
    net = Network("policy", NetworkParameters(head, embedders, middleware_parameters=body), spec, 0)
    rng = np.random.default_rng(1)
    for variable in net.trainable_variables:
        variable.assign(rng.normal(size=variable.shape) * 0.4)
    return net


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def state():
    return {name: np.tanh(normal(ROWS, CELLS, seed=i)) for i, name in enumerate((HIDDEN, CELL), 7)}


def test_initial_lstm_weights():
    parameters = NetworkParameters(VHeadParameters(), middleware_parameters=LSTMMiddlewareParameters(CELLS))
    one, same, other = (Network("v", parameters, CONTINUOUS, seed).lstm.layer for seed in (3, 3, 4))
    np.testing.assert_allclose(one.recurrent_kernel @ one.recurrent_kernel.numpy().T, np.eye(CELLS), atol=1e-5)
    np.testing.assert_array_equal(one.bias, np.repeat([0.0, 1.0, 0.0, 0.0], CELLS))  # the forget gate is open
    for ours, theirs, different in zip(one.weights[:2], same.weights, other.weights, strict=False):
        np.testing.assert_array_equal(ours, theirs)
        assert np.abs(ours - different).min() > 0


HEADS = {
    "categorical": (CategoricalPolicyHeadParameters(), DISCRETE),
    "diagonal": (GaussianPolicyHeadParameters(), CONTINUOUS),
    "spherical, unbounded": (GaussianPolicyHeadParameters(bound_mean=False, covariance="spherical"), CONTINUOUS),
    "features": (FeaturesHeadParameters(), CONTINUOUS),
}


@pytest.mark.parametrize("cells", [None, CELLS], ids=["feed-forward", "lstm"])
@pytest.mark.parametrize(("head", "spec"), HEADS.values(), ids=HEADS.keys())
def test_numpy_forward_matches_keras(head, spec, cells):
    net = network(head, spec, cells)
    inputs = {"observation": normal(ROWS, 5), **(state() if cells else {})}
    for with_head, expected in ((True, net(inputs)), (False, net.advance(inputs))):
        forward = forward_of(net, spec, with_head=with_head)
        assert isinstance(forward, NumpyForward)
        for ours, theirs in zip(forward(inputs), tf.nest.flatten(expected), strict=True):
            assert ours.dtype == np.float32
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_numpy_lstm_keeps_its_state_without_overflow():
    net = network(CategoricalPolicyHeadParameters(), DISCRETE)
    forward, ours, theirs = NumpyForward(net), state(), state()
    for t in range(20):
        scale = 1e4 if t == 10 else 1.0
        inputs = {"observation": scale * normal(ROWS, 5, seed=t)}
        (_, *ours_after), (_, *theirs_after) = forward({**inputs, **ours}), net({**inputs, **theirs})
        ours, theirs = (dict(zip((HIDDEN, CELL), map(np.asarray, x), strict=True)) for x in (ours_after, theirs_after))
    for name, value in ours.items():
        assert np.isfinite(value).all()
        np.testing.assert_allclose(value, theirs[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("covariance", "variances"), [("diagonal", 3), ("spherical", 1)])
@pytest.mark.parametrize("bounded", [True, False])
def test_gaussian_head_outputs(covariance, variances, bounded):
    net = network(GaussianPolicyHeadParameters(bounded, covariance), lstm=None, embed=EmbedderScheme.Empty, middle=())
    x = 10 * normal(50, 5)
    mean, raw = net({"observation": x})
    assert mean.shape == (50, 3) and raw.shape == (50, variances)
    expected = [x @ layer.kernel.numpy() + layer.bias.numpy() for layer in (net.head.mean, net.head.variance)]
    np.testing.assert_allclose(mean, np.tanh(expected[0]) if bounded else expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(raw, expected[1], rtol=1e-5, atol=1e-5)
    assert np.abs(mean).max() <= 1 if bounded else np.abs(mean).max() > 5
