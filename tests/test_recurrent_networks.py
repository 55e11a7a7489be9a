"""Networks with memory: the LSTM along columns, evaluated in NumPy and in graphs; heads of ACER."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsac.networks import GraphForward, Network, NumpyForward, forward_of
from tfsac.networks.initializers import Initializers
from tfsac.networks.lstm import CELL, HIDDEN, LSTM
from tfsac.parameters import (
    CategoricalPolicyHeadParameters,
    Conv2d,
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

NUMBERS = Spec({"observation": ArraySpec((5,), "float32")}, ArraySpec((3,), "float32"))
CHOICE = NUMBERS._replace(action=DiscreteSpec(4))
IMAGE = Spec({"observation": ArraySpec((8, 8, 2), "uint8")}, DiscreteSpec(4))
STEPS, COLUMNS, CELLS = 6, 3, 4


def network(head, spec=NUMBERS, lstm=CELLS, embed=(6,), middle=(7,), **fields):
    body = FCMiddlewareParameters(middle) if lstm is None else LSTMMiddlewareParameters(lstm, middle, "tanh")
    embedders = {key: InputEmbedderParameters(embed) for key in spec.observation}
    net = Network("policy", NetworkParameters(head, embedders, middleware_parameters=body, **fields), spec, 0)
    rng = np.random.default_rng(1)
    for variable in net.trainable_variables:
        variable.assign(rng.normal(size=variable.shape) * 0.4)
    return net


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def state(rows=COLUMNS, seed=7):
    return {name: np.tanh(normal(rows, CELLS, seed=seed + i)) for i, name in enumerate((HIDDEN, CELL))}


def seen(rows=16, spec=NUMBERS):
    return {"observation": normal(rows, *spec.observation["observation"].shape)}


@pytest.fixture(scope="module")
def lstm():
    made = LSTM(LSTMMiddlewareParameters(CELLS), 5, Initializers("xavier", np.random.default_rng(0)))
    made.layer.bias.assign(normal(4 * CELLS, seed=3))
    return made


def unroll(lstm, features, initial, begins=None, valid=None):
    """Runs over columns `[T, B, F]`, of one episode and without gaps unless told."""
    begins = np.zeros(features.shape[:2], np.float32) if begins is None else begins
    valid = np.ones(features.shape[:2], bool) if valid is None else valid
    tensors = {name: tf.constant(value) for name, value in initial.items()}
    return lstm.unroll(tf.constant(features), tensors, tf.constant(begins), tf.constant(valid))


# -- along columns -----------------------------------------------------------------------------------------------------


def test_it_computes_what_kerass_layer_computes(lstm):
    features, initial = normal(STEPS, COLUMNS, 5), state()
    layer = keras.layers.LSTM(CELLS, return_sequences=True)
    layer.build((None, STEPS, 5))
    layer.set_weights(lstm.layer.get_weights())
    expected = layer(np.swapaxes(features, 0, 1), initial_state=[initial[HIDDEN], initial[CELL]])
    np.testing.assert_allclose(unroll(lstm, features, initial), np.swapaxes(expected, 0, 1), rtol=1e-5, atol=1e-6)


def test_a_column_is_one_step_after_another():
    net, initial = network(CategoricalPolicyHeadParameters(), CHOICE), state()
    observation = normal(STEPS, COLUMNS, 5)
    none, all_of_them = tf.zeros([STEPS, COLUMNS]), tf.fill([STEPS, COLUMNS], True)
    features = net.features({"observation": observation}, initial, none, all_of_them)
    hidden, cell = map(tf.constant, initial.values())
    for t in range(STEPS):
        given = {"observation": tf.constant(observation[t]), HIDDEN: hidden, CELL: cell}
        (read, after, _), (logits, hidden, cell) = net.advance(given), net(given)
        np.testing.assert_allclose(features[t], read, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(after, hidden)
        np.testing.assert_array_equal(read, hidden)
        np.testing.assert_allclose(net.head(features[t]), logits, rtol=1e-5, atol=1e-6)


def test_the_state_begins_anew_with_an_episode(lstm):
    features, begins = normal(STEPS, COLUMNS, 5), np.zeros((STEPS, COLUMNS), np.float32)
    begins[0, 1] = begins[2, 0] = begins[4, 0] = 1
    hidden, zeros = (
        unroll(lstm, features, state(), begins).numpy(),
        {name: np.zeros_like(x) for name, x in state().items()},
    )
    alone, anew = (unroll(lstm, features, initial).numpy() for initial in (state(), zeros))
    np.testing.assert_array_equal(hidden[:2, 0], alone[:2, 0])
    np.testing.assert_array_equal(hidden[:, 1], anew[:, 1])
    np.testing.assert_array_equal(hidden[:, 2], alone[:, 2])
    for first, last in ((2, 4), (4, 6)):
        np.testing.assert_allclose(
            hidden[first:last, 0], unroll(lstm, features[first:last], zeros)[:, 0], rtol=1e-5, atol=1e-6
        )
    assert np.abs(hidden[2:, 0] - alone[2:, 0]).max(axis=-1).min() > 0.01


def test_rows_without_a_step_keep_the_state(lstm):
    features, valid = normal(STEPS, COLUMNS, 5), np.ones((STEPS, COLUMNS), bool)
    valid[2:5, 0] = valid[:, 1] = False
    hidden, alone = unroll(lstm, features, state(), valid=valid).numpy(), unroll(lstm, features, state()).numpy()
    np.testing.assert_array_equal(hidden[:2, 0], alone[:2, 0])
    np.testing.assert_array_equal(hidden[2:5, 0], [alone[1, 0]] * 3)
    shorter = unroll(lstm, features[[0, 1, 5]], state()).numpy()
    np.testing.assert_allclose(hidden[5, 0], shorter[2, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(hidden[:, 1], [state()[HIDDEN][1]] * STEPS)
    np.testing.assert_array_equal(hidden[:, 2], alone[:, 2])
    other = np.where(valid[..., None], features, 1e3 * normal(STEPS, COLUMNS, 5, seed=5)).astype(np.float32)
    np.testing.assert_array_equal(unroll(lstm, other, state(), valid=valid), hidden)


def test_gradients_flow_back_in_time_and_not_over_a_begin():
    net = network(FeaturesHeadParameters())
    observation, weights = tf.constant(normal(STEPS, 1, 5)), normal(CELLS)
    initial = {name: tf.constant(value) for name, value in state(1).items()}

    def last(begins):
        features = net.features({"observation": observation}, initial, begins, tf.fill([STEPS, 1], True))
        return tf.reduce_sum(features[-1, 0] * weights)

    for begin, reach in ((None, 0), (3, 3)):
        begins = tf.zeros([STEPS, 1]) if begin is None else tf.one_hot(begin, STEPS)[:, None]
        (embedder,), cell = net.embedders["observation"], net.lstm.layer
        kernels = [layer.kernel for layer in (embedder, net.middleware[0], cell)] + [cell.recurrent_kernel]
        with tf.GradientTape() as tape:
            tape.watch([observation, *initial.values()])
            out = last(begins)
        by_weight = tape.gradient(out, [[kernel.value for kernel in kernels], observation, initial])
        reached = np.abs(by_weight[1][:, 0]).max(axis=-1) > 0
        np.testing.assert_array_equal(reached, np.arange(STEPS) >= reach)
        assert all((np.abs(gradient).max() > 0) == (begin is None) for gradient in by_weight[2].values())
        for kernel, gradient in zip(kernels, by_weight[0], strict=True):
            place = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
            before, step = kernel.numpy(), np.zeros(kernel.shape, np.float32)
            step[place] = 1e-2
            ends = []
            for sign in (1, -1):
                kernel.assign(before + sign * step)
                ends.append(float(last(begins)))
            kernel.assign(before)
            assert (ends[0] - ends[1]) / 2e-2 == pytest.approx(float(gradient[place]), rel=1e-2)


def test_first_weights_of_the_recurrent_kernel_are_orthogonal_and_memory_is_kept_at_first():
    parameters = NetworkParameters(VHeadParameters(), middleware_parameters=LSTMMiddlewareParameters(CELLS))
    one, same, other = (Network("v", parameters, NUMBERS, seed).lstm.layer for seed in (3, 3, 4))
    np.testing.assert_allclose(one.recurrent_kernel @ one.recurrent_kernel.numpy().T, np.eye(CELLS), atol=1e-5)
    np.testing.assert_array_equal(one.bias, np.repeat([0.0, 1.0, 0.0, 0.0], CELLS))  # the forget gate is open
    for ours, theirs, others in zip(one.weights[:2], same.weights, other.weights, strict=False):
        np.testing.assert_array_equal(ours, theirs)
        assert np.abs(ours - others).min() > 0


# -- outside of updates ------------------------------------------------------------------------------------------------

HEADS = {
    "categorical": (CategoricalPolicyHeadParameters(), CHOICE),
    "diagonal": (GaussianPolicyHeadParameters(), NUMBERS),
    "spherical, unbounded": (GaussianPolicyHeadParameters(bound_mean=False, covariance="spherical"), NUMBERS),
    "features": (FeaturesHeadParameters(), NUMBERS),
}


@pytest.mark.parametrize("cells", [None, CELLS], ids=["feed-forward", "lstm"])
@pytest.mark.parametrize(("head", "spec"), HEADS.values(), ids=HEADS.keys())
def test_numpy_computes_what_keras_computes_with_and_without_the_head(head, spec, cells):
    net = network(head, spec, cells)
    given = {**seen(), **(state(16) if cells else {})}
    for with_head, expected in ((True, net(given)), (False, net.advance(given))):
        forward = forward_of(net, spec, with_head=with_head)
        assert isinstance(forward, NumpyForward)
        for ours, theirs in zip(forward(given), tf.nest.flatten(expected), strict=True):
            assert ours.dtype == np.float32
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_numpy_goes_on_from_its_own_state_without_overflow():
    net = network(CategoricalPolicyHeadParameters(), CHOICE)
    forward, ours, theirs = NumpyForward(net), state(), state()
    for t in range(20):
        scale = 1e4 if t == 10 else 1.0
        given = {"observation": scale * normal(COLUMNS, 5, seed=t)}
        (_, *mine), (_, *kerass) = forward({**given, **ours}), net({**given, **theirs})
        ours, theirs = (dict(zip((HIDDEN, CELL), map(np.asarray, after), strict=True)) for after in (mine, kerass))
    for name, value in ours.items():
        assert np.isfinite(value).all()
        np.testing.assert_allclose(value, theirs[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("with_head", [True, False])
def test_a_graph_computes_convolutions_under_an_lstm_and_sees_new_weights_at_once(with_head):
    net = network(CategoricalPolicyHeadParameters(), IMAGE, embed=(Conv2d(3, 4, 2),))
    forward = forward_of(net, IMAGE, with_head=with_head)
    assert isinstance(forward, GraphForward) and not NumpyForward.supports(net, with_head)
    images = {"observation": np.random.default_rng(0).integers(0, 256, (COLUMNS, 8, 8, 2), np.uint8)}
    given, found = {**images, **state()}, []
    for _ in range(2):
        found.append(forward(given))
        assert [x.shape for x in found[-1]] == [(COLUMNS, 4)] * 3
        for ours, theirs in zip(found[-1], net(given) if with_head else net.advance(given), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        net.lstm.layer.bias.assign_add(np.ones(4 * CELLS))
    assert all(np.abs(before - after).max() > 0.01 for before, after in zip(*found, strict=True))


# -- heads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("covariance", "variances"), [("diagonal", 3), ("spherical", 1)])
@pytest.mark.parametrize("bounded", [True, False])
def test_a_gaussian_has_a_mean_and_variances_of_its_covariance(covariance, variances, bounded):
    net = network(GaussianPolicyHeadParameters(bounded, covariance), lstm=None, embed=EmbedderScheme.Empty, middle=())
    x = 10 * normal(50, 5)
    mean, raw = net({"observation": x})
    assert mean.shape == (50, 3) and raw.shape == (50, variances)
    expected = [x @ layer.kernel.numpy() + layer.bias.numpy() for layer in (net.head.mean, net.head.variance)]
    np.testing.assert_allclose(mean, np.tanh(expected[0]) if bounded else expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(raw, expected[1], rtol=1e-5, atol=1e-5)
    assert np.abs(mean).max() <= 1 if bounded else np.abs(mean).max() > 5
