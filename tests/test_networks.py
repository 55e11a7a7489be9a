"""Networks: layers, mergers, images, initialisers, the NumPy forward pass, optimizers and clipping."""

from typing import get_args

import keras
import numpy as np
import pytest
import tensorflow as tf
from critic_tools import layers_of_critics
from toys import random_batches, vector_spec

from tfsac.agents import TwinSoftActorCriticAgent
from tfsac.catalog import load_preset
from tfsac.errors import TfsacError
from tfsac.networks import GraphForward, Network, NumpyForward, build_optimizer, clip_gradients, forward_of
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
    RunParameters,
    SACPolicyHeadParameters,
    TwinSoftActorCriticAgentParameters,
    VHeadParameters,
    override,
    twin_soft_actor_critic_networks,
)
from tfsac.parameters.networks import Initializer
from tfsac.training.build import build_agent
from tfsac.types import ArraySpec, DiscreteSpec, Spec

VECTOR = Spec({"observation": ArraySpec((5,), "float32")}, ArraySpec((3,), "float32"))
IMAGE = Spec({"observation": ArraySpec((44, 40, 3), "uint8")}, ArraySpec((3,), "float32"))
TWO = Spec({"left": ArraySpec((4,), "float32"), "right": ArraySpec((4,), "float32")}, ArraySpec((2,), "float32"))
MATRIX = Spec({"observation": ArraySpec((5, 2), "float32")}, VECTOR.action)
STATE = {name: ArraySpec((2,), "float32") for name in ("tau_a", "tau_v")}
CHOICE = Spec({"observation": ArraySpec((5,), "float32"), "action_mask": ArraySpec((4,), "bool")}, DiscreteSpec(4))


def network(head=None, spec=VECTOR, embed=(6,), middle=(7,), seed=0, activation="relu", **fields):
    """A network in which every observation has the same embedder, or a dict of embedders."""
    if not isinstance(embed, dict):
        embed = {key: InputEmbedderParameters(embed, activation) for key in spec.observation}
    parameters = NetworkParameters(
        head or SACPolicyHeadParameters(),
        embed,
        middleware_parameters=middle if hasattr(middle, "kind") else FCMiddlewareParameters(middle, activation),
        **fields,
    )
    return Network("policy", parameters, spec, seed)


def widths(layers):
    return [layer.units for layer in layers]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def randomise(net, seed=1):
    """Gives all weights, biases too, random values."""
    rng = np.random.default_rng(seed)
    for variable in net.trainable_variables:
        variable.assign(rng.normal(size=variable.shape) * 0.4)


# -- layers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scheme, expected", [("Empty", []), ("Shallow", [128]), ("Medium", [256]), ("Deep", [128, 128, 128])]
)
def test_embedder_schemes_have_the_promised_widths(scheme, expected):
    assert widths(network(embed=EmbedderScheme(scheme)).embedders["observation"]) == expected


@pytest.mark.parametrize(
    "scheme, expected", [("Empty", []), ("Shallow", [64]), ("Medium", [512]), ("Deep", [128, 128, 128])]
)
def test_middleware_schemes_have_the_promised_widths(scheme, expected):
    assert widths(network(middle=MiddlewareScheme(scheme)).middleware) == expected


@pytest.mark.parametrize("activation", ["relu", "tanh", "elu", "selu", "leaky_relu", "sigmoid", "silu"])
def test_the_activation_follows_every_hidden_layer_and_no_output(activation):
    net = network(activation=activation)
    hidden = [*net.embedders["observation"], *net.middleware]
    assert [layer.activation.__name__ for layer in hidden] == [activation] * 2
    assert net.head.output.activation.__name__ == "linear"


def test_q_reads_the_action_beside_the_raw_observation():
    net = network(QHeadParameters((6,)), embed=EmbedderScheme.Empty, middle=MiddlewareScheme.Empty)
    randomise(net)
    x, action = normal(4, 5), normal(4, 3, seed=2)
    hidden, out = (
        [layer.kernel.numpy() for layer in layers_of_critics(net)[1]],
        [layer.bias.numpy() for layer in layers_of_critics(net)[1]],
    )
    expected = np.maximum(np.concatenate([x, action], axis=1) @ hidden[0] + out[0], 0) @ hidden[1] + out[1]
    np.testing.assert_allclose(net({"observation": x}, action)[:, 1], expected[:, 0], rtol=1e-5, atol=1e-5)


def test_discrete_q_has_its_own_layers_and_activation_for_each_critic():
    net = network(
        QHeadParameters((8, 6), activation_function="tanh"),
        CHOICE,
        embed={"observation": InputEmbedderParameters((7,))},
    )
    assert [layer.units for layer in net.head.critics.layers if layer.weights] == [8, 6, 4]
    randomise(net)
    x = features = normal(3, 5)
    for layer in [*net.embedders["observation"], *net.middleware]:
        features = np.maximum(features @ layer.kernel.numpy() + layer.bias.numpy(), 0)
    for i, critic in enumerate(layers_of_critics(net)):
        y = features
        for layer in critic:
            y = y @ layer.kernel.numpy() + layer.bias.numpy()
            y = y if layer is critic[-1] else np.tanh(y)
        np.testing.assert_allclose(net({"observation": x})[:, i], y, rtol=1e-4, atol=1e-5)
    assert not np.allclose(*np.moveaxis(net({"observation": x}).numpy(), 1, 0))


def test_a_mask_may_be_read_as_zeros_and_ones():
    net = network(CategoricalPolicyHeadParameters(), CHOICE, embed=EmbedderScheme.Empty, middle=())
    mask = np.array([[True, False, False, True]])
    expected = np.concatenate([np.zeros((1, 5)), mask], axis=1) @ net.head.logits.kernel.numpy()
    np.testing.assert_allclose(
        net({"observation": np.zeros((1, 5), np.float32), "action_mask": mask}), expected, rtol=1e-5
    )


def test_a_network_on_the_encoder_of_another_computes_with_its_layers_and_owns_the_rest():
    parameters = NetworkParameters(
        CategoricalPolicyHeadParameters(),
        {"observation": InputEmbedderParameters((6,))},
        middleware_parameters=FCMiddlewareParameters((7,)),
    )
    other = network(QHeadParameters((8,)), CHOICE, embed={"observation": InputEmbedderParameters((6,))})
    net, x = Network("policy", parameters, CHOICE, 1, encoder=other), {"observation": normal(3, 5)}
    assert net.embedders is other.embedders and len(net.trainable_variables) == 6
    own = [variable for layer in (net.middleware[0], net.head.logits) for variable in layer.weights]
    assert [id(variable) for variable in net.own_variables] == [id(variable) for variable in own]
    assert [id(variable) for variable in other.own_variables] == [
        id(variable) for variable in other.trainable_variables
    ]
    before = net(x).numpy()
    other.embedders["observation"][0].bias.assign_add(np.ones(6))
    assert (net(x).numpy() != before).all()
    assert NumpyForward.supports(net)
    np.testing.assert_allclose(NumpyForward(net)(x)[0], net(x), rtol=1e-5, atol=1e-6)


# -- a state and trajectories ------------------------------------------------------------------------------------------


def test_each_field_of_a_state_goes_through_a_linear_layer_of_the_embeddings_width():
    net = network(spec=VECTOR._replace(state=STATE), embed=(6,), middle=(7,))
    randomise(net)
    x = {"observation": normal(4, 5), "tau_a": normal(4, 2, seed=1), "tau_v": normal(4, 2, seed=2)}
    assert {name: layer.units for name, layer in net.state_embedders.items()} == {"tau_a": 6, "tau_v": 6}

    def dense(layer, value):
        return value @ layer.kernel.numpy() + layer.bias.numpy()

    (embedder,), (middle,) = net.embedders["observation"], net.middleware
    merged = [
        np.maximum(dense(embedder, x["observation"]), 0),
        *(dense(net.state_embedders[name], x[name]) for name in STATE),
    ]
    hidden = np.maximum(dense(middle, np.concatenate(merged, axis=1)), 0)
    expected = np.split(dense(net.head.output, hidden), 2, axis=1)
    for output, values in zip(net(x), expected, strict=True):
        np.testing.assert_allclose(output, values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rewards", "critics"), [(1, 1), (1, 2), (3, 4)])
def test_critics_of_trajectories_are_independent_and_have_a_value_for_each_reward(rewards, critics):
    net = network(
        QHeadParameters((8,), num_critics=critics, activation_function="tanh"),
        VECTOR._replace(num_rewards=rewards),
    )
    randomise(net)
    x, tau = {"observation": normal(4, 5)}, normal(4, 3)
    q, features = net(x, tau).numpy(), x["observation"]
    assert q.shape == (4, critics, rewards or 1)
    for layer in [*net.embedders["observation"], *net.middleware]:
        features = np.maximum(features @ layer.kernel.numpy() + layer.bias.numpy(), 0)
    for i, critic in enumerate(layers_of_critics(net)):
        hidden, out = critic
        y = np.tanh(np.concatenate([features, tau], axis=1) @ hidden.kernel.numpy() + hidden.bias.numpy())
        np.testing.assert_allclose(q[:, i], y @ out.kernel.numpy() + out.bias.numpy(), rtol=1e-4, atol=1e-5)


def test_first_values_of_trajectories_are_within_their_bound():
    net = network(QHeadParameters((200,), num_critics=2, init_w=0.01), VECTOR._replace(num_rewards=2))
    for critic in layers_of_critics(net):
        assert 0.0095 < np.abs(critic[-1].kernel.numpy()).max() <= 0.01
        assert 0.0 < np.abs(critic[-1].bias.numpy()).max() <= 0.01
        assert np.abs(critic[0].kernel.numpy()).max() > 0.1
    first, second = (critic[-1].kernel.numpy() for critic in layers_of_critics(net))
    assert not np.allclose(first, second)


# -- several observations ----------------------------------------------------------------------------------------------


def merged(merger, **fields):
    return network(VHeadParameters(), TWO, embedding_merger_type=merger, **fields)


def test_concatenated_observations_keep_their_order():
    net = merged("concat", embed=EmbedderScheme.Empty, middle=())
    weights = np.arange(1, 9, dtype=np.float32)
    net.head.out.kernel.assign(weights[:, None])
    left, right = normal(3, 4), normal(3, 4, seed=2)
    expected = left @ weights[:4] + right @ weights[4:]
    np.testing.assert_allclose(net({"right": right, "left": left}), expected, rtol=1e-5, atol=1e-5)


def test_summed_observations_are_added():
    net = merged("sum", embed=EmbedderScheme.Empty, middle=())
    left, right = normal(3, 4), normal(3, 4, seed=2)
    expected = (left + right) @ net.head.out.kernel.numpy()[:, 0]
    np.testing.assert_allclose(net({"left": left, "right": right}), expected, rtol=1e-5, atol=1e-5)


def test_a_network_may_read_fewer_observations_than_there_are():
    net = network(VHeadParameters(), TWO, embed={"right": InputEmbedderParameters((3,))})
    left, right = normal(2, 4), normal(2, 4, seed=2)
    np.testing.assert_array_equal(net({"left": left, "right": right}), net({"right": right}))


# -- images ------------------------------------------------------------------------------------------------------------


def convolutions(net):
    layers = net.embedders["observation"]
    return [
        (layer.filters, layer.kernel_size[0], layer.strides[0])
        for layer in layers
        if isinstance(layer, keras.layers.Conv2D)
    ]


@pytest.mark.parametrize(
    "scheme, expected",
    [
        ("Shallow", [(32, 3, 1)]),
        ("Medium", [(32, 8, 4), (64, 4, 2), (64, 3, 1)]),
    ],
)
def test_image_schemes_have_the_promised_convolutions(scheme, expected):
    assert convolutions(network(spec=IMAGE, embed=EmbedderScheme(scheme))) == expected


def test_explicit_convolutions_are_followed_by_dense_layers():
    net = network(spec=IMAGE, embed=(Conv2d(2, 5, 3), Conv2d(4, 3, 2), 11))
    assert convolutions(net) == [(2, 5, 3), (4, 3, 2)]
    assert [layer.activation.__name__ for layer in net.embedders["observation"] if hasattr(layer, "activation")] == [
        "relu"
    ] * 3
    assert net.embedders["observation"][-1].kernel.shape == (6 * 5 * 4, 11)


def test_bytes_are_rescaled_to_one():
    embed = (Conv2d(2, 8, 4), 5)
    floats = Spec({"observation": ArraySpec((44, 40, 3), "float32")}, IMAGE.action)
    image = np.random.default_rng(0).integers(0, 256, (2, 44, 40, 3), np.uint8)
    loc, _ = network(spec=IMAGE, embed=embed)({"observation": image})
    expected, _ = network(spec=floats, embed=embed)({"observation": (image / 255).astype(np.float32)})
    np.testing.assert_allclose(loc, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(loc).max() > 1e-3


@pytest.mark.parametrize(
    "spec, embed, words",
    [
        (VECTOR, (Conv2d(2, 3, 1),), "no image"),
        (IMAGE, (8, Conv2d(2, 3, 1)), "before dense layers"),
        (IMAGE, (Conv2d(2, 41, 1),), "too small"),
        (IMAGE, (Conv2d(2, 8, 4), Conv2d(2, 10, 1)), "too small"),
    ],
)
def test_convolutions_that_do_not_fit_are_refused(spec, embed, words):
    with pytest.raises(TfsacError, match=words):
        network(spec=spec, embed=embed)


# -- initialisers ------------------------------------------------------------------------------------------------------


def weights(net):
    return [variable.numpy() for variable in net.trainable_variables]


@pytest.mark.parametrize("kind", get_args(Initializer))
def test_first_weights_follow_from_the_seed(kind):
    head = SACPolicyHeadParameters(initializer=kind)
    one, two, other = (weights(network(head, seed=seed, initializer=kind)) for seed in (3, 3, 4))
    for a, b, c in zip(one, two, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.ndim == 1 or not np.array_equal(a, c)
    assert not np.array_equal(one[-4], one[-2])  # mean and log sigma start apart


@pytest.mark.parametrize(
    "kind, bound",
    [("xavier", np.sqrt(6 / (200 + 100))), ("he", np.sqrt(6 / 200)), ("fan_in_uniform", np.sqrt(1 / 200))],
)
def test_uniform_initialisers_fill_their_range(kind, bound):
    kernel = network(embed=(200, 100), initializer=kind).embedders["observation"][1].kernel.numpy()
    assert 0.99 * bound < np.abs(kernel).max() <= bound
    assert kernel.std() == pytest.approx(bound / np.sqrt(3), rel=0.02)


def test_lecuns_normal_kernels_have_a_variance_of_one_over_their_inputs():
    kernel = network(embed=(200, 100), initializer="lecun_normal").embedders["observation"][1].kernel.numpy()
    assert kernel.std() == pytest.approx(np.sqrt(1 / 200), rel=0.02)
    assert np.abs(kernel).max() < 2.3 * np.sqrt(1 / 200)  # cut off at two deviations of what it is drawn from


def test_orthogonal_columns_are_orthonormal():
    kernel = network(embed=(30, 20), initializer="orthogonal").embedders["observation"][1].kernel.numpy()
    np.testing.assert_allclose(kernel.T @ kernel, np.eye(20), atol=1e-5)


def test_mean_and_log_std_begin_as_layers_of_their_own():
    kernel = network(middle=(300,)).head.output.kernel.numpy()
    parts, bound = np.split(kernel, 2, axis=1), np.sqrt(6 / (300 + 3))  # Glorot's, of three outputs each
    assert (parts[0] != parts[1]).all()
    for part in parts:
        assert 0.97 * bound < np.abs(part).max() <= bound


def test_normalised_columns_have_a_norm_of_a_hundredth():
    net = network(SACPolicyHeadParameters(initializer="normalized_columns"))
    np.testing.assert_allclose(np.linalg.norm(net.head.output.kernel.numpy(), axis=0), 0.01, rtol=1e-5)
    hidden = net.middleware[0].kernel.numpy()
    assert np.linalg.norm(hidden, axis=0).min() > 0.1  # the network's own initialiser


def test_biases_start_at_zero():
    assert all((variable == 0).all() for variable in weights(network()) if variable.ndim == 1)


# -- bounds of the log standard deviation ------------------------------------------------------------------------------

BOUNDED = {
    "clip": (lambda raw: np.clip(raw, -10.0, 2.0), {"log_std_bounds": (-10.0, 2.0)}),
    "tanh": (lambda raw: -10.0 + 6.0 * (1.0 + np.tanh(raw)), {"log_std_bounds": (-10.0, 2.0), "log_std": "tanh"}),
    "default bounds": (lambda raw: -20.0 + 11.0 * (1.0 + np.tanh(raw)), {"log_std": "tanh"}),
}


@pytest.mark.parametrize(("formula", "fields"), BOUNDED.values(), ids=BOUNDED.keys())
def test_the_head_bounds_log_sigma_the_same_in_keras_and_numpy(formula, fields):
    net, plain = network(SACPolicyHeadParameters(**fields)), network()
    for one in (net, plain):
        randomise(one)
        one.head.output.kernel.assign(20.0 * one.head.output.kernel)  # far beyond the bounds
    x = {"observation": 3.0 * normal(64, 5)}
    (mean, raw), (same_mean, log_std) = plain(x), net(x)
    assert raw.numpy().min() < -20.0 and raw.numpy().max() > 2.0
    np.testing.assert_array_equal(mean, same_mean)
    np.testing.assert_allclose(log_std, formula(raw.numpy()), rtol=1e-5, atol=1e-5)
    ours = NumpyForward(net)(x)
    assert ours[1].dtype == np.float32
    np.testing.assert_allclose(ours[0], same_mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ours[1], log_std, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bounds", [(-21.0, 2.0), (-20.0, 2.5), (1.0, 1.0), (2.0, -5.0)])
def test_bounds_that_are_none_are_refused(bounds):
    with pytest.raises(ParameterError, match="log_std_bounds"):
        SACPolicyHeadParameters(log_std_bounds=bounds)


@pytest.mark.parametrize("log_std", ["clip", "tanh"])
def test_a_policy_acts_and_learns_within_the_bounds(log_std):
    head = {"log_std_bounds": (-3.0, -1.0), "log_std": log_std}
    preset = override(
        load_preset("pendulum_twin_sac"),
        {f"agent.networks.policy.head_parameters.{name}": value for name, value in head.items()},
    )
    agent = build_agent(preset, RunParameters(seed=1, updates_between_diagnostics=1), vector_spec(3, 1))
    agent.networks["policy"].head.output.bias.assign([0.0, -50.0])
    batch = random_batches(agent.spec, 1, preset.agent.batch_size)
    metrics = dict(zip(agent.trace(single=True), agent.update(batch).metrics[0], strict=True))
    assert metrics["policy/log_std"] == pytest.approx(-3.0, abs=1e-3)
    see = {"observation": np.repeat(normal(1, 3), 4000, axis=0)}
    u = np.arctanh(agent.policy.act(see, mode="sample").action.astype(np.float64))
    assert u.std() == pytest.approx(np.exp(-3.0), rel=0.05)
    noise = tf.constant(normal(4000, 1))
    action, _ = agent.policy.act_tensors({"observation": tf.constant(see["observation"])}, noise)
    mean, log_std = agent.networks["policy"](see)
    np.testing.assert_allclose(action, np.tanh(mean + np.exp(log_std) * noise), atol=1e-6)


# -- NumPy -------------------------------------------------------------------------------------------------------------

DENSE = {
    "one embedder": (VECTOR, dict()),
    "tanh": (VECTOR, dict(activation="tanh")),
    "no embedder": (VECTOR, dict(embed=EmbedderScheme.Empty)),
    "no hidden layer": (VECTOR, dict(embed=EmbedderScheme.Empty, middle=MiddlewareScheme.Empty)),
    "concatenated": (TWO, dict(embedding_merger_type="concat")),
    "summed": (TWO, dict(embedding_merger_type="sum")),
    "summed raw": (TWO, dict(embedding_merger_type="sum", embed=EmbedderScheme.Empty)),
}


@pytest.mark.parametrize("spec, fields", DENSE.values(), ids=DENSE.keys())
def test_numpy_computes_what_keras_computes(spec, fields):
    net = network(spec=spec, **fields)
    randomise(net)
    assert NumpyForward.supports(net)
    x = {key: normal(16, *array.shape, seed=i) for i, (key, array) in enumerate(spec.observation.items())}
    given = {key: value.copy() for key, value in x.items()}
    ours, theirs = NumpyForward(net)(given), net(x)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-6)
    for key, value in x.items():
        np.testing.assert_array_equal(given[key], value)


def test_numpy_computes_the_logits_of_a_choice():
    net = network(
        CategoricalPolicyHeadParameters(), CHOICE, embed={"observation": InputEmbedderParameters((6,), "tanh")}
    )
    randomise(net)
    x = {"observation": normal(16, 5), "action_mask": np.ones((16, 4), bool)}
    (logits,) = NumpyForward(net)(x)
    np.testing.assert_allclose(logits, net(x), rtol=1e-5, atol=1e-6)
    assert logits.shape == (16, 4) and logits.dtype == np.float32


@pytest.mark.parametrize("spec", [VECTOR, TWO], ids=["one observation", "two observations"])
@pytest.mark.parametrize("embed", [(6,), EmbedderScheme.Empty], ids=["embedder", "no embedder"])
def test_numpy_reads_a_state(spec, embed):
    spec = spec._replace(state=STATE)
    net = network(spec=spec, embed=embed, embedding_merger_type="concat")
    randomise(net)
    x = {key: normal(16, *array.shape, seed=i) for i, (key, array) in enumerate({**spec.observation, **STATE}.items())}
    forward = forward_of(net, spec)
    assert isinstance(forward, NumpyForward)
    for ours, theirs in zip(forward(x), net(x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("rewards", "critics"), [(1, 1), (1, 2), (3, 4)])
def test_numpy_computes_the_critics_of_trajectories(rewards, critics):
    spec = VECTOR._replace(num_rewards=rewards)
    net = network(QHeadParameters((8, 6), num_critics=critics), spec)
    randomise(net)
    x, tau = {"observation": normal(16, 5)}, normal(16, 3, seed=2)
    forward = forward_of(net, spec, with_actions=True)
    assert isinstance(forward, NumpyForward)
    (q,) = forward(x, tau)
    assert q.shape == (16, critics, rewards or 1) and q.dtype == np.float32
    np.testing.assert_allclose(q, net(x, tau), rtol=1e-4, atol=1e-5)


def test_a_graph_computes_what_numpy_cannot_and_sees_new_weights_at_once():
    policy = network(spec=IMAGE._replace(state=STATE), embed=(Conv2d(2, 8, 4), 6))
    q = network(QHeadParameters((8,)), IMAGE, embed=(Conv2d(2, 8, 4), 6))
    x = {"observation": np.random.default_rng(0).integers(0, 256, (4, 44, 40, 3), np.uint8)}
    state, tau = {name: normal(4, 2) for name in STATE}, normal(4, 3)
    forward, forward_q = forward_of(policy, IMAGE._replace(state=STATE)), forward_of(q, IMAGE, with_actions=True)
    assert isinstance(forward, GraphForward) and isinstance(forward_q, GraphForward)
    for seed in (1, 2):
        randomise(policy, seed)
        randomise(q, seed)
        for ours, theirs in zip(forward({**x, **state}), policy({**x, **state}), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(forward_q(x, tau)[0], q(x, tau), rtol=1e-4, atol=1e-5)


def unnamed_models():
    """A policy and critics of one's own whose inputs have no names, with a layer that is not dense."""

    def body(*inputs):
        return keras.layers.LayerNormalization()(
            keras.layers.Concatenate()([*inputs]) if len(inputs) > 1 else inputs[0]
        )

    seen, judged, action = {"observation": keras.Input((3,))}, {"observation": keras.Input((3,))}, keras.Input((2,))
    x, y = body(seen["observation"]), body(judged["observation"], action)
    policy = keras.Model(seen, [keras.layers.Dense(2)(x) for _ in range(2)])
    q = keras.layers.Concatenate()([keras.layers.Dense(1)(y) for _ in range(2)])
    return {"policy": policy, "q": keras.Model([judged, action], q)}


@pytest.mark.filterwarnings("ignore:When providing `inputs` as a dict:UserWarning")  # of Keras, about the names
def test_a_policy_of_ones_own_with_unnamed_inputs_acts():
    spec = vector_spec(3, 2)
    parameters = TwinSoftActorCriticAgentParameters(networks=twin_soft_actor_critic_networks((8, 8), batch_size=8))
    agent = TwinSoftActorCriticAgent(parameters, spec, eager=True, models=unnamed_models)
    net, x = agent.networks["policy"], {"observation": normal(16, 3)}
    assert "observation" not in {given.name for given in net.model.inputs} and isinstance(
        agent.policy.forwards["policy"], GraphForward
    )
    randomise(net)
    for updates in (0, 1):  # the graph sees new weights
        before = net(x)[0].numpy()
        if updates:
            agent.update(random_batches(spec, updates, 8))
            assert np.abs(net(x)[0] - before).max() > 0
        np.testing.assert_allclose(agent.policy.act(x, mode="greedy").action, np.tanh(net(x)[0]), rtol=1e-5, atol=1e-6)
    assert agent.policy.act(x, mode="explore").action.shape == (16, 2)


def test_numpy_keeps_its_weights_until_it_loads_others():
    net = network()
    forward, x = NumpyForward(net), {"observation": normal(2, 5)}
    before = forward(x)[0]
    randomise(net)
    np.testing.assert_array_equal(forward(x)[0], before)
    forward.load(weights(net))
    np.testing.assert_allclose(forward(x)[0], net(x)[0].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "fields",
    [
        dict(spec=IMAGE, embed=(Conv2d(2, 8, 4),)),
        dict(activation="selu"),
        dict(head=VHeadParameters()),
        dict(head=QHeadParameters((8,), activation_function="selu")),
        dict(spec=MATRIX, embed={"observation": InputEmbedderParameters((6,), flatten=True)}),
    ],
    ids=["image", "other activation", "other head", "other activation in the head", "matrix"],
)
def test_numpy_does_not_claim_what_it_cannot_compute(fields):
    assert not NumpyForward.supports(network(**fields))


# -- optimizers --------------------------------------------------------------------------------------------------------


def training(**fields):
    return NetworkParameters(VHeadParameters(), **fields)


def test_adam_has_the_parameters_of_the_network():
    variables = [keras.Variable(np.ones(2, np.float32))]
    made = training(learning_rate=0.5, optimizer_epsilon=1e-4, adam_optimizer_beta1=0.8, adam_optimizer_beta2=0.7)
    adam = build_optimizer(made, variables)
    assert (float(adam.learning_rate), adam.epsilon, adam.beta_1, adam.beta_2) == (0.5, 1e-4, 0.8, 0.7)
    assert len(adam.variables) > 2  # slots exist before the first step


def test_one_step_of_adam_is_the_textbooks():
    variable = keras.Variable(np.zeros(2, np.float32))
    adam = build_optimizer(training(learning_rate=0.1, optimizer_epsilon=1.0), [variable])
    adam.apply([tf.constant([3.0, -1.0])], [variable])
    # Bias-corrected moments of one step are the gradient and its square; Keras corrects before adding epsilon.
    root = np.sqrt(1 - 0.999)
    expected = -0.1 * root * np.array([3.0, -1.0]) / (root * np.array([3.0, 1.0]) + 1.0)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-4)


def test_rmsprop_has_the_parameters_of_the_network():
    variable = keras.Variable(np.zeros(1, np.float32))
    made = training(optimizer_type="RMSProp", learning_rate=0.5, rms_prop_optimizer_decay=0.75, optimizer_epsilon=1e-3)
    rmsprop = build_optimizer(made, [variable])
    assert isinstance(rmsprop, keras.optimizers.RMSprop)
    assert (rmsprop.rho, rmsprop.epsilon) == (0.75, 1e-3)
    rmsprop.apply([tf.constant([2.0])], [variable])
    assert variable.numpy()[0] == pytest.approx(-0.5 * 2 / np.sqrt(0.25 * 4), rel=1e-2)


def test_the_learning_rate_falls_by_its_factor_every_so_many_updates():
    variable = keras.Variable(np.zeros(1, np.float32))
    made = training(learning_rate=0.8, learning_rate_decay_rate=0.5, learning_rate_decay_steps=3)
    optimizer, rates = build_optimizer(made, [variable]), []
    for _ in range(7):
        rates.append(float(optimizer.learning_rate))
        optimizer.apply([tf.ones(1)], [variable])
    np.testing.assert_allclose(rates, [0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.2], rtol=1e-6)


GRADIENTS = [[3.0, 0.0], [0.0, -4.0, 12.0]]  # norms 3 and sqrt(160), together 13


@pytest.mark.parametrize(
    "method, expected",
    [
        ("global_norm", [[1.5, 0.0], [0.0, -2.0, 6.0]]),
        ("norm", [[3.0, 0.0], [0.0, -4 * 6.5 / np.sqrt(160), 12 * 6.5 / np.sqrt(160)]]),
        ("value", [[3.0, 0.0], [0.0, -4.0, 6.5]]),
    ],
)
def test_gradients_are_clipped_as_the_method_says(method, expected):
    gradients = [tf.constant(gradient) for gradient in GRADIENTS]
    made = training(clip_gradients=6.5, gradients_clipping_method=method)
    clipped = clip_gradients(made, gradients, tf.linalg.global_norm(gradients))
    for ours, theirs in zip(clipped, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize(
    ("bound", "method"), [(None, "global_norm"), (100.0, "global_norm"), (100.0, "norm"), (100.0, "value")]
)
def test_gradients_inside_the_bound_stay_as_they_are(method, bound):
    gradients = [tf.constant(gradient) for gradient in GRADIENTS]
    made = training(clip_gradients=bound, gradients_clipping_method=method)
    clipped = clip_gradients(made, gradients, tf.linalg.global_norm(gradients))
    for ours, theirs in zip(clipped, GRADIENTS, strict=True):
        np.testing.assert_array_equal(ours, np.float32(theirs))


BATCH_RENORM = FCMiddlewareParameters(
    (8,), normalization=NormalizationParameters("batch_renorm", "before"), dropout=0.1
)
SAVED = {
    "policy": (SACPolicyHeadParameters(), (7,)),
    "policy of blocks": (SACPolicyHeadParameters(), ResidualMiddlewareParameters("flash", 8)),
    "q": (QHeadParameters(), (7,)),
    "v": (VHeadParameters(), (7,)),
    "stacked critics of blocks": (
        QHeadParameters(num_critics=3, residual_blocks=ResidualMiddlewareParameters("simba", 8)),
        (),
    ),
    "stacked critics of normalised layers": (
        QHeadParameters(num_critics=3, body_parameters=BATCH_RENORM, distribution=QuantileValueParameters(5)),
        (),
    ),
}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # by Keras itself
@pytest.mark.parametrize("initializer", ["normalized_columns", "fan_in_uniform"])
@pytest.mark.parametrize("case", SAVED)
def test_models_are_cloned_and_saved_by_keras(case, initializer, tmp_path):
    head, middle = SAVED[case]
    model = network(head, middle=middle, initializer=initializer).model
    model.save(tmp_path / "model.keras")
    inputs = tf.nest.map_structure(lambda x: tf.random.stateless_normal((4, *x.shape[1:]), [1, 2]), model.input)
    for copy in keras.models.clone_model(model), keras.models.load_model(tmp_path / "model.keras"):
        for expected, found in zip(model.get_weights(), copy.get_weights(), strict=True):
            np.testing.assert_array_equal(found, expected)
        for expected, found in zip(tf.nest.flatten(model(inputs)), tf.nest.flatten(copy(inputs)), strict=True):
            np.testing.assert_array_equal(found, expected)
