"""Networks: layers, mergers, images, initialisers, the NumPy forward pass, optimizers and clipping."""

from typing import get_args

import keras
import numpy as np
import pytest
import tensorflow as tf
from critic_tools import layers_of_critics

from tfsac.errors import TfsacError
from tfsac.networks import GraphForward, Network, NumpyForward, forward_of
from tfsac.networks.optimizers import build_optimizer, clip_gradients
from tfsac.parameters import (
    CategoricalPolicyHeadParameters,
    Conv2d,
    EmbedderScheme,
    FCMiddlewareParameters,
    InputEmbedderParameters,
    MiddlewareScheme,
    NetworkParameters,
    NormalizationParameters,
    ParameterError,
    QHeadParameters,
    QuantileValueParameters,
    ResidualMiddlewareParameters,
    SACPolicyHeadParameters,
    VHeadParameters,
)
from tfsac.parameters.networks import Initializer
from tfsac.types import ArraySpec, DiscreteSpec, Spec

VECTOR = Spec({"observation": ArraySpec((5,), "float32")}, ArraySpec((3,), "float32"))
IMAGE = Spec({"observation": ArraySpec((44, 40, 3), "uint8")}, ArraySpec((3,), "float32"))
TWO = Spec({"left": ArraySpec((4,), "float32"), "right": ArraySpec((4,), "float32")}, ArraySpec((2,), "float32"))
MATRIX = Spec({"observation": ArraySpec((5, 2), "float32")}, VECTOR.action)
STATE = {name: ArraySpec((2,), "float32") for name in ("tau_a", "tau_v")}
CHOICE = Spec({"observation": ArraySpec((5,), "float32"), "action_mask": ArraySpec((4,), "bool")}, DiscreteSpec(4))
CONVOLUTIONS = (Conv2d(2, 8, 4), 6)


def network(head=None, spec=VECTOR, embed=(6,), middle=(7,), seed=0, activation="relu", random=False, **fields):
    """A network in which every observation has the same embedder, or a dict of embedders; perhaps of random weights."""
    if not isinstance(embed, dict):
        embed = {key: InputEmbedderParameters(embed, activation) for key in spec.observation}
    parameters = NetworkParameters(
        head or SACPolicyHeadParameters(),
        embed,
        middleware_parameters=middle if hasattr(middle, "kind") else FCMiddlewareParameters(middle, activation),
        **fields,
    )
    net = Network("policy", parameters, spec, seed)
    if random:
        randomise(net)
    return net


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def seen(arrays, rows=16):
    """Returns what a network may read, `[rows, ...]` by key."""
    return {key: normal(rows, *array.shape, seed=i) for i, (key, array) in enumerate(arrays.items())}


def randomise(net, seed=1):
    """Gives all weights, biases too, random values."""
    rng = np.random.default_rng(seed)
    for variable in net.trainable_variables:
        variable.assign(rng.normal(size=variable.shape) * 0.4)


def dense(layer, x):
    return x @ layer.kernel.numpy() + layer.bias.numpy()


def hidden_of(net, x):
    """Returns what the head reads of a plain observation, computed here."""
    for layer in [*net.embedders["observation"], *net.middleware]:
        x = np.maximum(dense(layer, x), 0)
    return x


def assert_close(ours, theirs, rtol=1e-5, atol=1e-6):
    for a, b in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


# -- layers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scheme, embedder, middleware",
    [("Empty", [], []), ("Shallow", [128], [64]), ("Medium", [256], [512]), ("Deep", [128] * 3, [128] * 3)],
)
def test_schemes_have_the_promised_widths(scheme, embedder, middleware):
    net = network(embed=EmbedderScheme(scheme), middle=MiddlewareScheme(scheme))
    found = [[layer.units for layer in layers] for layers in (net.embedders["observation"], net.middleware)]
    assert found == [embedder, middleware]


def test_a_mask_may_be_read_as_zeros_and_ones():
    net = network(CategoricalPolicyHeadParameters(), CHOICE, embed=EmbedderScheme.Empty, middle=())
    mask = np.array([[True, False, False, True]])
    expected = np.concatenate([np.zeros((1, 5)), mask], axis=1) @ net.head.logits.kernel.numpy()
    assert_close(net({"observation": np.zeros((1, 5), np.float32), "action_mask": mask}), expected)


# -- a state and trajectories ------------------------------------------------------------------------------------------


def test_each_field_of_a_state_goes_through_a_linear_layer_of_the_embeddings_width():
    net = network(spec=VECTOR._replace(state=STATE), random=True)
    x = {"observation": normal(4, 5), "tau_a": normal(4, 2, seed=1), "tau_v": normal(4, 2, seed=2)}
    assert {name: layer.units for name, layer in net.state_embedders.items()} == {"tau_a": 6, "tau_v": 6}
    (embedder,), (middle,) = net.embedders["observation"], net.middleware
    states = [dense(net.state_embedders[name], x[name]) for name in STATE]
    merged = np.concatenate([np.maximum(dense(embedder, x["observation"]), 0), *states], axis=1)
    expected = np.split(dense(net.head.output, np.maximum(dense(middle, merged), 0)), 2, axis=1)
    assert_close(net(x), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "critics", "shape"),
    [
        (VECTOR, 2, (2,)),
        (VECTOR._replace(num_rewards=1), 1, (1, 1)),
        (VECTOR._replace(num_rewards=3), 4, (4, 3)),
        (CHOICE, 2, (2, 4)),
    ],
    ids=["Q", "one reward", "three rewards", "discrete"],
)
def test_critics_are_independent_and_have_a_value_for_each_reward_or_discrete_action(spec, critics, shape):
    head, embed = (
        QHeadParameters((8, 6), num_critics=critics, activation_function="tanh"),
        InputEmbedderParameters((6,)),
    )
    net = network(head, spec, {"observation": embed}, random=True)
    assert [layer.units for layer in net.head.critics.layers if layer.weights] == [8, 6, shape[-1] if shape[1:] else 1]
    x, action = {"observation": normal(4, 5)}, [] if spec is CHOICE else [normal(4, 3)]
    q = net(x, *action).numpy()
    assert q.shape == (4, *shape)
    joined = np.concatenate([hidden_of(net, x["observation"]), *action], axis=1)
    for i, (first, second, out) in enumerate(layers_of_critics(net)):
        expected = dense(out, np.tanh(dense(second, np.tanh(dense(first, joined)))))
        assert_close(q[:, i].reshape(4, -1), expected, 1e-4, 1e-5)
    forward = forward_of(net, spec, with_actions=bool(action))
    assert isinstance(forward, NumpyForward)
    assert_close(forward(x, *action), q, 1e-4, 1e-5)


def test_first_values_of_trajectories_are_within_their_bound():
    net = network(QHeadParameters((200,), num_critics=2, init_w=0.01), VECTOR._replace(num_rewards=2))
    for critic in layers_of_critics(net):
        assert 0.0095 < np.abs(critic[-1].kernel.numpy()).max() <= 0.01
        assert 0.0 < np.abs(critic[-1].bias.numpy()).max() <= 0.01
        assert np.abs(critic[0].kernel.numpy()).max() > 0.1
    first, second = (critic[-1].kernel.numpy() for critic in layers_of_critics(net))
    assert not np.allclose(first, second)


# -- several observations ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("merger", ["concat", "sum"])
def test_observations_are_merged_in_their_order(merger):
    net = network(VHeadParameters(), TWO, EmbedderScheme.Empty, (), embedding_merger_type=merger)
    weights = np.arange(1, 9 if merger == "concat" else 5, dtype=np.float32)
    net.head.out.kernel.assign(weights[:, None])
    left, right = normal(3, 4), normal(3, 4, seed=2)
    expected = left @ weights[:4] + right @ weights[-4:]
    assert_close(net({"right": right, "left": left}), expected, atol=1e-5)


# -- images ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scheme, expected",
    [
        (EmbedderScheme.Shallow, [(32, 3, 1)]),
        (EmbedderScheme.Medium, [(32, 8, 4), (64, 4, 2), (64, 3, 1)]),
        ((Conv2d(2, 5, 3), Conv2d(4, 3, 2), 11), [(2, 5, 3), (4, 3, 2)]),
    ],
)
def test_images_go_through_convolutions_and_then_dense_layers(scheme, expected):
    layers = network(spec=IMAGE, embed=scheme).embedders["observation"]
    found = [layer for layer in layers if isinstance(layer, keras.layers.Conv2D)]
    assert [(layer.filters, layer.kernel_size[0], layer.strides[0]) for layer in found] == expected
    assert {layer.activation.__name__ for layer in layers if hasattr(layer, "activation")} == {"relu"}
    if isinstance(scheme, tuple):
        assert layers[-1].kernel.shape == (6 * 5 * 4, 11)


def test_convolutions_that_do_not_fit_are_refused():
    with pytest.raises(TfsacError, match="large enough"):
        network(spec=IMAGE, embed=(Conv2d(2, 8, 4), Conv2d(2, 10, 1)))


# -- initialisers ------------------------------------------------------------------------------------------------------


def weights(net):
    return [variable.numpy() for variable in net.trainable_variables]


def kernel_of(initializer):
    """Returns the kernel `[200, 100]` of a hidden layer."""
    return network(embed=(200, 100), initializer=initializer).embedders["observation"][1].kernel.numpy()


@pytest.mark.parametrize("kind", get_args(Initializer))
def test_first_weights_follow_from_the_seed(kind):
    head = SACPolicyHeadParameters(initializer=kind)
    one, two, other = (weights(network(head, seed=seed, initializer=kind)) for seed in (3, 3, 4))
    for a, b, c in zip(one, two, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a == 0).all() if a.ndim == 1 else not np.array_equal(a, c)
    assert not np.array_equal(one[-4], one[-2])  # mean and log sigma start apart


@pytest.mark.parametrize(
    ("kind", "bound", "std"),
    [
        ("xavier", np.sqrt(6 / (200 + 100)), np.sqrt(2 / (200 + 100))),
        ("he", np.sqrt(6 / 200), np.sqrt(2 / 200)),
        ("fan_in_uniform", np.sqrt(1 / 200), np.sqrt(1 / 600)),
        ("lecun_normal", 2.27 * np.sqrt(1 / 200), np.sqrt(1 / 200)),  # cut off at two deviations of the normal
    ],
)
def test_kernels_have_the_range_and_deviation_of_their_initialiser(kind, bound, std):
    kernel = kernel_of(kind)
    assert 0.95 * bound < np.abs(kernel).max() <= 1.01 * bound
    assert kernel.std() == pytest.approx(std, rel=0.02)


def test_orthogonal_kernels_have_orthonormal_columns():
    kernel = kernel_of("orthogonal")
    np.testing.assert_allclose(kernel.T @ kernel, np.eye(100), atol=1e-5)


def test_mean_and_log_std_begin_as_layers_of_their_own():
    kernel = network(middle=(300,)).head.output.kernel.numpy()
    parts, bound = np.split(kernel, 2, axis=1), np.sqrt(6 / (300 + 3))  # Glorot's, of three outputs each
    assert (parts[0] != parts[1]).all()
    for part in parts:
        assert 0.97 * bound < np.abs(part).max() <= bound


def test_normalised_columns_have_a_norm_of_a_hundredth():
    net = network(SACPolicyHeadParameters(initializer="normalized_columns"))
    np.testing.assert_allclose(np.linalg.norm(net.head.output.kernel.numpy(), axis=0), 0.01, rtol=1e-5)
    assert np.linalg.norm(net.middleware[0].kernel.numpy(), axis=0).min() > 0.1  # the network's own initialiser


# -- bounds of the log standard deviation ------------------------------------------------------------------------------

BOUNDED = {
    "clip": (lambda raw: np.clip(raw, -10.0, 2.0), {"log_std_bounds": (-10.0, 2.0)}),
    "tanh": (lambda raw: -10.0 + 6.0 * (1.0 + np.tanh(raw)), {"log_std_bounds": (-10.0, 2.0), "log_std": "tanh"}),
    "default bounds": (lambda raw: -20.0 + 11.0 * (1.0 + np.tanh(raw)), {"log_std": "tanh"}),
}


@pytest.mark.parametrize(("formula", "fields"), BOUNDED.values(), ids=BOUNDED.keys())
def test_the_head_bounds_log_sigma_the_same_in_keras_and_numpy(formula, fields):
    net, plain = network(SACPolicyHeadParameters(**fields), random=True), network(random=True)
    for one in (net, plain):
        one.head.output.kernel.assign(20.0 * one.head.output.kernel)  # far beyond the bounds
    x = {"observation": 3.0 * normal(64, 5)}
    (mean, raw), (same_mean, log_std) = plain(x), net(x)
    assert raw.numpy().min() < -20.0 and raw.numpy().max() > 2.0
    np.testing.assert_array_equal(mean, same_mean)
    assert_close(log_std, formula(raw.numpy()), atol=1e-5)
    assert_close(NumpyForward(net)(x), [same_mean, log_std], atol=1e-5)


def test_bounds_that_are_none_are_refused():
    with pytest.raises(ParameterError, match="log_std_bounds"):
        SACPolicyHeadParameters(log_std_bounds=(2.0, -5.0))


# -- NumPy -------------------------------------------------------------------------------------------------------------

DENSE = {
    "one embedder": dict(spec=VECTOR),
    "tanh": dict(spec=VECTOR, activation="tanh"),
    "no hidden layer": dict(spec=VECTOR, embed=EmbedderScheme.Empty, middle=MiddlewareScheme.Empty),
    "concatenated": dict(spec=TWO, embedding_merger_type="concat"),
    "summed": dict(spec=TWO, embedding_merger_type="sum"),
    "summed raw": dict(spec=TWO, embedding_merger_type="sum", embed=EmbedderScheme.Empty),
    "logits": dict(
        head=CategoricalPolicyHeadParameters(), spec=CHOICE, embed={"observation": InputEmbedderParameters((6,))}
    ),
    "state": dict(spec=VECTOR._replace(state=STATE)),
    "state beside raw observations": dict(
        spec=TWO._replace(state=STATE), embed=EmbedderScheme.Empty, embedding_merger_type="concat"
    ),
}


@pytest.mark.parametrize("fields", DENSE.values(), ids=DENSE.keys())
def test_numpy_computes_what_keras_computes(fields):
    net, spec = network(**fields, random=True), fields["spec"]
    x = seen({**spec.observation, **spec.state})
    given, forward = {key: value.copy() for key, value in x.items()}, forward_of(net, spec)
    assert isinstance(forward, NumpyForward)
    ours = forward(given)
    assert {a.dtype for a in ours} == {np.dtype(np.float32)}
    assert_close(ours, net(x))
    for key, value in x.items():
        np.testing.assert_array_equal(given[key], value)


def test_a_graph_computes_what_numpy_cannot_and_sees_new_weights_at_once():
    spec = IMAGE._replace(state=STATE)
    policy, q = network(spec=spec, embed=CONVOLUTIONS), network(QHeadParameters((8,)), IMAGE, CONVOLUTIONS)
    x = {"observation": np.random.default_rng(0).integers(0, 256, (4, 44, 40, 3), np.uint8)}
    state, action = {name: normal(4, 2) for name in STATE}, normal(4, 3)
    forward, forward_q = forward_of(policy, spec), forward_of(q, IMAGE, with_actions=True)
    assert isinstance(forward, GraphForward) and isinstance(forward_q, GraphForward)
    for seed in (1, 2):
        randomise(policy, seed)
        randomise(q, seed)
        assert_close(forward({**x, **state}), policy({**x, **state}), 1e-4, 1e-5)
        assert_close(forward_q(x, action), q(x, action), 1e-4, 1e-5)


@pytest.mark.parametrize(
    "fields",
    [
        dict(spec=IMAGE, embed=CONVOLUTIONS),
        dict(activation="selu"),
        dict(head=VHeadParameters()),
        dict(spec=MATRIX, embed={"observation": InputEmbedderParameters((6,), flatten=True)}),
    ],
    ids=["image", "other activation", "other head", "matrix"],
)
def test_numpy_does_not_claim_what_it_cannot_compute(fields):
    assert not NumpyForward.supports(network(**fields))


# -- optimizers --------------------------------------------------------------------------------------------------------


def training(**fields):
    return NetworkParameters(VHeadParameters(), **fields)


def test_rmsprop_has_its_epsilon_inside_the_root():
    variable = keras.Variable(np.zeros(2, np.float32))
    made = training(optimizer_type="RMSProp", learning_rate=0.5, rms_prop_optimizer_decay=0.75, optimizer_epsilon=3.0)
    rmsprop = build_optimizer(made, [variable])
    # The second moment is 0.25 * 2^2 = 1, and 0.5 * 2 / sqrt(1 + 3) = 0.5; outside the root it would be 0.25.
    rmsprop.apply([tf.constant([2.0, 0.0])], [variable])
    np.testing.assert_allclose(variable.numpy(), [-0.5, 0.0], rtol=1e-6)


@pytest.mark.parametrize("kind", ["Adam", "RMSProp"])
def test_the_learning_rate_falls_in_stairs(kind):
    falls = dict(learning_rate_decay_rate=0.5, learning_rate_decay_steps=3)
    variable = keras.Variable(np.zeros(1, np.float32))
    optimizer, rates = build_optimizer(training(optimizer_type=kind, learning_rate=0.8, **falls), [variable]), []
    for _ in range(7):
        rates.append(float(optimizer.learning_rate))
        optimizer.apply([tf.ones(1)], [variable])
    np.testing.assert_allclose(rates, [0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.2], rtol=1e-6)


GRADIENTS = [[3.0, 0.0], [0.0, -4.0, 12.0]]  # norms 3 and sqrt(160), together 13


@pytest.mark.parametrize(
    ("bound", "method", "expected"),
    [
        (6.5, "global_norm", [[1.5, 0.0], [0.0, -2.0, 6.0]]),
        (6.5, "norm", [[3.0, 0.0], [0.0, -4 * 6.5 / np.sqrt(160), 12 * 6.5 / np.sqrt(160)]]),
        (6.5, "value", [[3.0, 0.0], [0.0, -4.0, 6.5]]),
        (100.0, "global_norm", GRADIENTS),
    ],
)
def test_gradients_are_clipped_as_the_method_says(bound, method, expected):
    gradients = [tf.constant(gradient) for gradient in GRADIENTS]
    clipped = clip_gradients(gradients, bound, method, tf.linalg.global_norm(gradients))
    assert_close(clipped, [*map(tf.constant, expected)])


BATCH_RENORM = FCMiddlewareParameters(
    (8,), normalization=NormalizationParameters("batch_renorm", "before"), dropout=0.1
)

SAVED = {
    "policy of blocks": (SACPolicyHeadParameters(), ResidualMiddlewareParameters("flash", 8)),
    "stacked critics of normalised layers": (
        QHeadParameters(num_critics=3, body_parameters=BATCH_RENORM, distribution=QuantileValueParameters(5)),
        (),
    ),
}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # by Keras itself
@pytest.mark.parametrize("case", SAVED)
def test_models_are_cloned_and_saved_by_keras(case, tmp_path):
    head, middle = SAVED[case]
    model = network(head, middle=middle, initializer="normalized_columns").model
    model.save(tmp_path / "model.keras")
    inputs = tf.nest.map_structure(lambda x: tf.random.stateless_normal((4, *x.shape[1:]), [1, 2]), model.input)
    for copy in keras.models.clone_model(model), keras.models.load_model(tmp_path / "model.keras"):
        for expected, found in zip(model.get_weights(), copy.get_weights(), strict=True):
            np.testing.assert_array_equal(found, expected)
        for expected, found in zip(tf.nest.flatten(model(inputs)), tf.nest.flatten(copy(inputs)), strict=True):
            np.testing.assert_array_equal(found, expected)
