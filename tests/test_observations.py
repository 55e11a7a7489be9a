"""Default embedders for images and Dict observations that a preset does not configure."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from tfsac.errors import TfsacError
from tfsac.networks import Network
from tfsac.networks.observations import with_embedders
from tfsac.parameters import (
    Conv2d,
    EmbedderScheme,
    FCMiddlewareParameters,
    InputEmbedderParameters,
    NetworkParameters,
    RunParameters,
    VHeadParameters,
    discrete_acer_networks,
    override,
)
from tfsac.preset_lookup import load_preset
from tfsac.training.build import build_agent
from tfsac.types import ArraySpec, DiscreteSpec, Spec

CAMERA, SMALL, VECTOR = ArraySpec((40, 44, 3), "uint8"), ArraySpec((10, 8, 2), "float32"), ArraySpec((4,), "float32")
GOAL = {
    key: ArraySpec((size,), "float32") for key, size in (("achieved_goal", 2), ("desired_goal", 2), ("observation", 4))
}
ACTION = ArraySpec((2,), "float32", np.float32([-1, -1]), np.float32([1, 1]))
MEDIUM = (Conv2d(32, 8, 4), Conv2d(64, 4, 2), Conv2d(64, 3, 1))


def halving_convolutions(number):
    """Returns the default convolutions of a small image; each halves both sides."""
    return (Conv2d(16, 4, 2, "same"), *[Conv2d(32, 4, 2, "same")] * (number - 1))


def value_network(scheme=(6,), **keys):
    """Returns a value network with embedders for "observation" or the given keys."""
    embedders = keys or {"observation": InputEmbedderParameters(scheme)}
    return NetworkParameters(VHeadParameters(), embedders, middleware_parameters=FCMiddlewareParameters((5,)))


def default_schemes(scheme, observation, name="v"):
    network, note = with_embedders(name, value_network(scheme), observation)
    return {key: embedder.scheme for key, embedder in network.input_embedders_parameters.items()}, note


@pytest.mark.parametrize(
    ("scheme", "array", "expected"),
    [
        (EmbedderScheme.Medium, CAMERA, EmbedderScheme.Medium),  # configured by the preset
        (EmbedderScheme.Empty, CAMERA, MEDIUM),
        ((256, 7), CAMERA, (*MEDIUM, 256, 7)),
        ((6,), SMALL, (*halving_convolutions(2), 6)),
        ((), ArraySpec((36, 36, 1), "float32"), MEDIUM),
        ((), ArraySpec((36, 35, 1), "float32"), halving_convolutions(4)),
        ((), ArraySpec((3, 3, 1), "uint8"), halving_convolutions(1)),
    ],
)
def test_dense_image_scheme_gets_convolutions(scheme, array, expected):
    schemes, note = default_schemes(scheme, {"observation": array})
    assert schemes == {"observation": expected}
    assert (str(array.shape) in note) == (scheme is not EmbedderScheme.Medium)


def test_flattened_images_are_rescaled():
    made = value_network(observation=InputEmbedderParameters((6,), flatten=True))
    assert with_embedders("v", made, {"observation": CAMERA}) == (made, "")
    layers = Network("v", made, Spec({"observation": CAMERA}, ACTION), 0).embedders["observation"]
    assert [type(layer) for layer in layers] == [keras.layers.Rescaling, keras.layers.Flatten, keras.layers.Dense]
    assert layers[-1].kernel.shape == (40 * 44 * 3, 6)
    np.testing.assert_allclose(layers[1](layers[0](np.full((1, *CAMERA.shape), 255, np.uint8))), 1.0, rtol=1e-6)


def test_single_scheme_applies_to_every_key():
    schemes, note = default_schemes((6,), GOAL)
    assert schemes == {"achieved_goal": (6,), "desired_goal": (6,), "observation": (6,)}
    assert "'observation'" in note
    explicit = value_network(desired_goal=InputEmbedderParameters((5,)))  # only the configured keys are read
    assert with_embedders("v", explicit, GOAL) == (explicit, "")


def test_dict_images_get_convolutions_and_mask_is_ignored():
    schemes, note = default_schemes((6,), {"camera": CAMERA, "joints": VECTOR, "action_mask": ArraySpec((3,), "bool")})
    assert schemes == {"camera": (*MEDIUM, 6), "joints": (6,)}
    assert "the networks read all of them" in note and "the image 'camera'" in note


def test_teams_must_name_their_keys():
    with pytest.raises(TfsacError, match="observation"):
        default_schemes((6,), {"agent_state": VECTOR, "global_state": ArraySpec((9,), "float32")}, "policy")


def agent_of(preset, observation, action=ACTION):
    return build_agent(preset, RunParameters(), Spec(observation, action))


def small_preset(name, **changes):
    return override(tiny.shrunk(load_preset(name)), {"environment.num_envs": 1, **changes})


@pytest.mark.parametrize(
    "name",
    [
        "pendulum_twin_sac",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("pendulum_sac", "taac_simple_control", "acer_pendulum")
        ),
    ],
)
def test_agents_read_unconfigured_image_and_vector(name):
    agent = agent_of(small_preset(name), {"camera": SMALL, "joints": VECTOR})
    (note,) = agent.notes
    assert "the networks read all of them" in note and "the image 'camera'" in note
    for network in agent.networks.values():
        assert sum(isinstance(layer, keras.layers.Conv2D) for layer in network.embedders["camera"]) == 2
    rng = np.random.default_rng(0)
    x = {key: rng.normal(size=(2, *array.shape)).astype(np.float32) for key, array in agent.spec.observation.items()}
    changed = {**x, "camera": x["camera"] + 1.0}
    assert np.abs(agent.policy.act(x, mode="greedy").action - agent.policy.act(changed, mode="greedy").action).max() > 0


@pytest.mark.parametrize(
    ("name", "keys", "action"),
    [
        ("pendulum_twin_sac", ["q1", "mean_and_log_std"], ACTION),
        ("acer_partially_observable", ["lstm", "logits"], DiscreteSpec(3)),
    ],
)
def test_observation_keys_may_equal_layer_names(name, keys, action):
    networks = load_preset(name).agent.networks
    changes = {
        f"agent.networks.{network}.input_embedders_parameters": {key: {"scheme": "Empty"} for key in keys}
        for network, parameters in networks.items()
        if "observation" in parameters.input_embedders_parameters
    }
    agent = agent_of(small_preset(name, **changes), dict.fromkeys(keys, VECTOR), action)
    x = dict.fromkeys(keys, np.zeros((2, 4), np.float32))
    assert len(agent.policy.act(x).action) == 2


@pytest.mark.slow
def test_trunk_reads_the_image():
    preset = tiny.acer(shared=True)
    agent = agent_of(preset, {"observation": SMALL}, DiscreteSpec(2))
    assert [*agent.networks["q"].embedders] == ["features"] and len(agent.notes) == 1
    assert "with a stride of 2" in agent.notes[0]
    assert [*discrete_acer_networks(shared=True)] == ["trunk", "policy", "q"]


def test_shared_encoder_includes_convolutions():
    shared = {
        "agent.shared_encoder": True,
        **{
            f"agent.networks.{name}.input_embedders_parameters": {"observation": {"scheme": [4]}}
            for name in ("policy", "q")
        },
    }
    agent = agent_of(small_preset("cart_pole_discrete_sac", **shared), {"observation": SMALL}, DiscreteSpec(3))
    assert agent.networks["policy"].embedders is agent.networks["q"].embedders
    assert isinstance(agent.networks["q"].embedders["observation"][0], keras.layers.Conv2D)


INVALID = {
    "too small": (ArraySpec((2, 9, 3), "uint8"), (6,), "flatten"),
    "matrix": (ArraySpec((5, 2), "float32"), (6,), "neither a vector nor an image"),
    "convolutions over a vector": (VECTOR, (Conv2d(2, 3, 1),), "nor an image"),
    "another key": (None, (6,), "'camera'"),
}


@pytest.mark.parametrize("case", INVALID)
def test_observations_without_an_embedder_are_rejected(case):
    array, scheme, word = INVALID[case]
    made = value_network(scheme) if array else value_network(camera=InputEmbedderParameters(scheme))
    with pytest.raises(TfsacError, match=word):
        with_embedders("v", made, {"observation": array or VECTOR})


def test_default_convolutions_see_every_pixel():
    spec = Spec({"observation": ArraySpec((9, 35, 1), "float32")}, ACTION)  # odd sides included
    net = Network("v", value_network(()), spec, 0)
    x = tf.Variable(np.zeros((1, 9, 35, 1), np.float32))
    layers = [layer for layer in net.embedders["observation"] if isinstance(layer, keras.layers.Conv2D)]
    for layer in layers:
        layer.kernel.assign(np.ones(layer.kernel.shape, np.float32))
    with tf.GradientTape() as tape:
        y = x + 1.0
        for layer in net.embedders["observation"]:
            y = layer(y)
    assert (tape.gradient(y, x).numpy() > 0).all()


def test_sum_merger_needs_equal_widths():
    networks = {
        "agent.networks.*.embedding_merger_type": "sum",
        "agent.networks.policy.input_embedders_parameters.*.scheme": [],
    }
    with pytest.raises(TfsacError, match="equal widths"):
        agent_of(small_preset("pendulum_twin_sac", **networks), GOAL)
