"""Networks: layers, mergers, images, initialisers, the NumPy forward pass, optimizers and clipping."""

from typing import get_args

import keras
import numpy as np
import pytest
import tensorflow as tf
from critic_tools import critic_layers

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
TWO_KEYS = Spec({"left": ArraySpec((4,), "float32"), "right": ArraySpec((4,), "float32")}, ArraySpec((2,), "float32"))
MATRIX = Spec({"observation": ArraySpec((5, 2), "float32")}, VECTOR.action)
STATE = {name: ArraySpec((2,), "float32") for name in ("tau_a", "tau_v")}
DISCRETE = Spec({"observation": ArraySpec((5,), "float32"), "action_mask": ArraySpec((4,), "bool")}, DiscreteSpec(4))
CONVOLUTIONS = (Conv2d(2, 8, 4), 6)


def network(head=None, spec=VECTOR, embed=(6,), middle=(7,), seed=0, activation="relu", random=False, **fields):
    """Returns a network; `embed` is a scheme for all observations or a dict of embedders."""
    if not isinstance(embed, dict):
        embed = {key: InputEmbedderParameters(embed, activation) for key in spec.observation}
    network_parameters = NetworkParameters(
        head or SACPolicyHeadParameters(),
        embed,
        middleware_parameters=middle if hasattr(middle, "kind") else FCMiddlewareParameters(middle, activation),
        **fields,
    )
    net = Network("policy", network_parameters, spec, seed)
    if random:
        randomise(net)
    return net


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def random_inputs(arrays, rows=16):
    """Returns random inputs `[rows, ...]` by key."""
    return {key: normal(rows, *array.shape, seed=i) for i, (key, array) in enumerate(arrays.items())}


def randomise(net, seed=1):
    """Sets random weights and biases."""
    rng = np.random.default_rng(seed)
    for variable in net.trainable_variables:
        variable.assign(rng.normal(size=variable.shape) * 0.4)


def dense(layer, x):
    return x @ layer.kernel.numpy() + layer.bias.numpy()


def hidden_of(net, x):
    """Computes the inputs of the head in NumPy."""
    for layer in [*net.embedders["observation"], *net.middleware]:
        x = np.maximum(dense(layer, x), 0)
    return x


def assert_close(ours, theirs, rtol=1e-5, atol=1e-6):
    for a, b in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    "scheme, embedder, middleware",
    [("Empty", [], []), ("Shallow", [128], [64]), ("Medium", [256], [512]), ("Deep", [128] * 3, [128] * 3)],
)
def test_scheme_widths(scheme, embedder, middleware):
    net = network(embed=EmbedderScheme(scheme), middle=MiddlewareScheme(scheme))
    actual = [[layer.units for layer in layers] for layers in (net.embedders["observation"], net.middleware)]
    assert actual == [embedder, middleware]


def test_action_mask_as_network_input():
    net = network(CategoricalPolicyHeadParameters(), DISCRETE, embed=EmbedderScheme.Empty, middle=())
    mask = np.array([[True, False, False, True]])
    expected = np.concatenate([np.zeros((1, 5)), mask], axis=1) @ net.head.logits.kernel.numpy()
    assert_close(net({"observation": np.zeros((1, 5), np.float32), "action_mask": mask}), expected)


def test_state_fields_have_linear_embedders():
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
        (DISCRETE, 2, (2, 4)),
    ],
    ids=["Q", "one reward", "three rewards", "discrete"],
)
def test_stacked_critics_match_separate_critics(spec, critics, shape):
    head, embed = (
        QHeadParameters((8, 6), num_critics=critics, activation_function="tanh"),
        InputEmbedderParameters((6,)),
    )
    net = network(head, spec, {"observation": embed}, random=True)
    assert [layer.units for layer in net.head.critics.layers if layer.weights] == [8, 6, shape[-1] if shape[1:] else 1]
    x, action = {"observation": normal(4, 5)}, [] if spec is DISCRETE else [normal(4, 3)]
    q = net(x, *action).numpy()
    assert q.shape == (4, *shape)
    joined = np.concatenate([hidden_of(net, x["observation"]), *action], axis=1)
    for i, (first, second, out) in enumerate(critic_layers(net)):
        expected = dense(out, np.tanh(dense(second, np.tanh(dense(first, joined)))))
        assert_close(q[:, i].reshape(4, -1), expected, 1e-4, 1e-5)
    forward = forward_of(net, spec, with_actions=bool(action))
    assert isinstance(forward, NumpyForward)
    assert_close(forward(x, *action), q, 1e-4, 1e-5)


def test_init_w_bounds_critic_output_layer():
    net = network(QHeadParameters((200,), num_critics=2, init_w=0.01), VECTOR._replace(num_rewards=2))
    for critic in critic_layers(net):
        assert 0.0095 < np.abs(critic[-1].kernel.numpy()).max() <= 0.01
        assert 0.0 < np.abs(critic[-1].bias.numpy()).max() <= 0.01
        assert np.abs(critic[0].kernel.numpy()).max() > 0.1
    first, second = (critic[-1].kernel.numpy() for critic in critic_layers(net))
    assert not np.allclose(first, second)


@pytest.mark.parametrize("merger", ["concat", "sum"])
def test_observations_are_merged_in_spec_order(merger):
    net = network(VHeadParameters(), TWO_KEYS, EmbedderScheme.Empty, (), embedding_merger_type=merger)
    weights = np.arange(1, 9 if merger == "concat" else 5, dtype=np.float32)
    net.head.out.kernel.assign(weights[:, None])
    left, right = normal(3, 4), normal(3, 4, seed=2)
    expected = left @ weights[:4] + right @ weights[-4:]
    assert_close(net({"right": right, "left": left}), expected, atol=1e-5)


@pytest.mark.parametrize(
    "scheme, expected",
    [
        (EmbedderScheme.Shallow, [(32, 3, 1)]),
        (EmbedderScheme.Medium, [(32, 8, 4), (64, 4, 2), (64, 3, 1)]),
        ((Conv2d(2, 5, 3), Conv2d(4, 3, 2), 11), [(2, 5, 3), (4, 3, 2)]),
    ],
)
def test_image_embedder_layers(scheme, expected):
    layers = network(spec=IMAGE, embed=scheme).embedders["observation"]
    actual = [layer for layer in layers if isinstance(layer, keras.layers.Conv2D)]
    assert [(layer.filters, layer.kernel_size[0], layer.strides[0]) for layer in actual] == expected
    assert {layer.activation.__name__ for layer in layers if hasattr(layer, "activation")} == {"relu"}
    if isinstance(scheme, tuple):
        assert layers[-1].kernel.shape == (6 * 5 * 4, 11)


def test_convolutions_ignore_keras_image_data_format():
    keras.config.set_image_data_format("channels_first")
    try:
        layers = network(spec=IMAGE, embed=CONVOLUTIONS).embedders["observation"]
    finally:
        keras.config.set_image_data_format("channels_last")
    assert [each.data_format for each in layers if isinstance(each, keras.layers.Conv2D)] == ["channels_last"]


def test_too_large_kernels_are_rejected():
    with pytest.raises(TfsacError, match="large enough"):
        network(spec=IMAGE, embed=(Conv2d(2, 8, 4), Conv2d(2, 10, 1)))


def weights(net):
    return [variable.numpy() for variable in net.trainable_variables]


def hidden_kernel(initializer):
    """Returns the kernel `[200, 100]` of a hidden layer."""
    return network(embed=(200, 100), initializer=initializer).embedders["observation"][1].kernel.numpy()


@pytest.mark.parametrize("kind", get_args(Initializer))
def test_seed_determines_initial_weights(kind):
    head = SACPolicyHeadParameters(initializer=kind)
    one, two, other = (weights(network(head, seed=seed, initializer=kind)) for seed in (3, 3, 4))
    for a, b, c in zip(one, two, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a == 0).all() if a.ndim == 1 else not np.array_equal(a, c)
    assert not np.array_equal(one[-4], one[-2])  # mean and log std have different weights


@pytest.mark.parametrize(
    ("kind", "bound", "std"),
    [
        ("xavier", np.sqrt(6 / (200 + 100)), np.sqrt(2 / (200 + 100))),
        ("he", np.sqrt(6 / 200), np.sqrt(2 / 200)),
        ("fan_in_uniform", np.sqrt(1 / 200), np.sqrt(1 / 600)),
        ("lecun_normal", 2.27 * np.sqrt(1 / 200), np.sqrt(1 / 200)),  # truncated at two standard deviations
    ],
)
def test_initializer_range_and_std(kind, bound, std):
    kernel = hidden_kernel(kind)
    assert 0.95 * bound < np.abs(kernel).max() <= 1.01 * bound
    assert kernel.std() == pytest.approx(std, rel=0.02)


def test_orthogonal_initializer():
    kernel = hidden_kernel("orthogonal")
    np.testing.assert_allclose(kernel.T @ kernel, np.eye(100), atol=1e-5)


def test_mean_and_log_std_are_initialized_separately():
    kernel = network(middle=(300,)).head.output.kernel.numpy()
    parts, bound = np.split(kernel, 2, axis=1), np.sqrt(6 / (300 + 3))  # Glorot bound with three outputs each
    assert (parts[0] != parts[1]).all()
    for part in parts:
        assert 0.97 * bound < np.abs(part).max() <= bound


def test_normalized_columns_initializer():
    net = network(SACPolicyHeadParameters(initializer="normalized_columns"))
    np.testing.assert_allclose(np.linalg.norm(net.head.output.kernel.numpy(), axis=0), 0.01, rtol=1e-5)
    assert np.linalg.norm(net.middleware[0].kernel.numpy(), axis=0).min() > 0.1


BOUNDED = {
    "clip": (lambda raw: np.clip(raw, -10.0, 2.0), {"log_std_bounds": (-10.0, 2.0)}),
    "tanh": (lambda raw: -10.0 + 6.0 * (1.0 + np.tanh(raw)), {"log_std_bounds": (-10.0, 2.0), "log_std": "tanh"}),
    "default bounds": (lambda raw: -20.0 + 11.0 * (1.0 + np.tanh(raw)), {"log_std": "tanh"}),
}


@pytest.mark.parametrize(("formula", "fields"), BOUNDED.values(), ids=BOUNDED.keys())
def test_log_std_bounds_in_keras_and_numpy(formula, fields):
    net, plain = network(SACPolicyHeadParameters(**fields), random=True), network(random=True)
    for one in (net, plain):
        one.head.output.kernel.assign(20.0 * one.head.output.kernel)  # far outside the bounds
    x = {"observation": 3.0 * normal(64, 5)}
    (mean, raw), (same_mean, log_std) = plain(x), net(x)
    assert raw.numpy().min() < -20.0 and raw.numpy().max() > 2.0
    np.testing.assert_array_equal(mean, same_mean)
    assert_close(log_std, formula(raw.numpy()), atol=1e-5)
    assert_close(NumpyForward(net)(x), [same_mean, log_std], atol=1e-5)


DENSE = {
    "one embedder": dict(spec=VECTOR),
    "tanh": dict(spec=VECTOR, activation="tanh"),
    "no hidden layer": dict(spec=VECTOR, embed=EmbedderScheme.Empty, middle=MiddlewareScheme.Empty),
    "concatenated": dict(spec=TWO_KEYS, embedding_merger_type="concat"),
    "summed": dict(spec=TWO_KEYS, embedding_merger_type="sum"),
    "summed raw": dict(spec=TWO_KEYS, embedding_merger_type="sum", embed=EmbedderScheme.Empty),
    "logits": dict(
        head=CategoricalPolicyHeadParameters(), spec=DISCRETE, embed={"observation": InputEmbedderParameters((6,))}
    ),
    "state": dict(spec=VECTOR._replace(state=STATE)),
    "state and raw observations": dict(
        spec=TWO_KEYS._replace(state=STATE), embed=EmbedderScheme.Empty, embedding_merger_type="concat"
    ),
}


@pytest.mark.parametrize("fields", DENSE.values(), ids=DENSE.keys())
def test_numpy_forward_matches_keras(fields):
    net, spec = network(**fields, random=True), fields["spec"]
    x = random_inputs({**spec.observation, **spec.state})
    given, forward = {key: value.copy() for key, value in x.items()}, forward_of(net, spec)
    assert isinstance(forward, NumpyForward)
    ours = forward(given)
    assert {a.dtype for a in ours} == {np.dtype(np.float32)}
    assert_close(ours, net(x))
    for key, value in x.items():
        np.testing.assert_array_equal(given[key], value)


def test_graph_forward_uses_current_weights():
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


def value_network(**fields):
    return NetworkParameters(VHeadParameters(), **fields)


def test_rmsprop_epsilon_is_inside_the_root():
    variable = keras.Variable(np.zeros(2, np.float32))
    rmsprop_parameters = value_network(
        optimizer_type="RMSProp", learning_rate=0.5, rms_prop_optimizer_decay=0.75, optimizer_epsilon=3.0
    )
    rmsprop = build_optimizer(rmsprop_parameters, [variable])
    # The second moment is 0.25 * 2^2 = 1, and 0.5 * 2 / sqrt(1 + 3) = 0.5; outside the root it would be 0.25.
    rmsprop.apply([tf.constant([2.0, 0.0])], [variable])
    np.testing.assert_allclose(variable.numpy(), [-0.5, 0.0], rtol=1e-6)


@pytest.mark.parametrize("kind", ["Adam", "RMSProp"])
def test_staircase_learning_rate_decay(kind):
    decay = dict(learning_rate_decay_rate=0.5, learning_rate_decay_steps=3)
    variable = keras.Variable(np.zeros(1, np.float32))
    optimizer, rates = build_optimizer(value_network(optimizer_type=kind, learning_rate=0.8, **decay), [variable]), []
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
def test_gradient_clipping_methods(bound, method, expected):
    gradients = [tf.constant(gradient) for gradient in GRADIENTS]
    clipped = clip_gradients(gradients, bound, method, tf.linalg.global_norm(gradients))
    assert_close(clipped, [*map(tf.constant, expected)])


BATCH_RENORM = FCMiddlewareParameters(
    (8,), normalization=NormalizationParameters("batch_renorm", "before"), dropout=0.1
)

MODELS = {
    "residual policy": (SACPolicyHeadParameters(), ResidualMiddlewareParameters("flash", 8)),
    "normalised critics": (
        QHeadParameters(num_critics=3, body_parameters=BATCH_RENORM, distribution=QuantileValueParameters(5)),
        (),
    ),
}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # raised in Keras
@pytest.mark.parametrize("case", MODELS)
def test_keras_clones_and_saves_models(case, tmp_path):
    head, middle = MODELS[case]
    model = network(head, middle=middle, initializer="normalized_columns").model
    model.save(tmp_path / "model.keras")
    inputs = tf.nest.map_structure(lambda x: tf.random.stateless_normal((4, *x.shape[1:]), [1, 2]), model.input)
    for copy in keras.models.clone_model(model), keras.models.load_model(tmp_path / "model.keras"):
        for expected, actual in zip(model.get_weights(), copy.get_weights(), strict=True):
            np.testing.assert_array_equal(actual, expected)
        for expected, actual in zip(tf.nest.flatten(model(inputs)), tf.nest.flatten(copy(inputs)), strict=True):
            np.testing.assert_array_equal(actual, expected)
