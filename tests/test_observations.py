"""What networks read: embedders for images and Dicts that a preset does not describe."""

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
NUMBERS = ArraySpec((2,), "float32", np.float32([-1, -1]), np.float32([1, 1]))
MEDIUM = (Conv2d(32, 8, 4), Conv2d(64, 4, 2), Conv2d(64, 3, 1))


def halving(number):
    """Returns the usual convolutions of a small image, of which each halves both sides."""
    return (Conv2d(16, 4, 2, "same"), *[Conv2d(32, 4, 2, "same")] * (number - 1))


def reading(scheme=(6,), **keys):
    """Returns a network of one middle layer that reads "observation", or other keys."""
    embedders = keys or {"observation": InputEmbedderParameters(scheme)}
    return NetworkParameters(VHeadParameters(), embedders, middleware_parameters=FCMiddlewareParameters((5,)))


def fitted(scheme, observation, name="v"):
    made, note = with_embedders(name, reading(scheme), observation)
    return {key: embedder.scheme for key, embedder in made.input_embedders_parameters.items()}, note


# -- images ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "array", "expected"),
    [
        (EmbedderScheme.Medium, CAMERA, EmbedderScheme.Medium),  # what a preset says stays
        (EmbedderScheme.Empty, CAMERA, MEDIUM),
        ((256, 7), CAMERA, (*MEDIUM, 256, 7)),
        ((6,), SMALL, (*halving(2), 6)),
        ((), ArraySpec((36, 36, 1), "float32"), MEDIUM),
        ((), ArraySpec((36, 35, 1), "float32"), halving(4)),
        ((), ArraySpec((3, 3, 1), "uint8"), halving(1)),
    ],
)
def test_dense_layers_over_an_image_get_the_usual_convolutions_before_them(scheme, array, expected):
    schemes, note = fitted(scheme, {"observation": array})
    assert schemes == {"observation": expected}
    assert (str(array.shape) in note) == (scheme is not EmbedderScheme.Medium)


def test_an_image_is_flattened_where_the_parameters_say_so_and_its_bytes_are_at_most_one():
    made = reading(observation=InputEmbedderParameters((6,), flatten=True))
    assert with_embedders("v", made, {"observation": CAMERA}) == (made, "")
    layers = Network("v", made, Spec({"observation": CAMERA}, NUMBERS), 0).embedders["observation"]
    assert [type(layer) for layer in layers] == [keras.layers.Rescaling, keras.layers.Flatten, keras.layers.Dense]
    assert layers[-1].kernel.shape == (40 * 44 * 3, 6)
    np.testing.assert_allclose(layers[1](layers[0](np.full((1, *CAMERA.shape), 255, np.uint8))), 1.0, rtol=1e-6)


# -- a Dict ------------------------------------------------------------------------------------------------------------


def test_a_preset_that_knows_one_observation_reads_every_key_alike():
    schemes, note = fitted((6,), GOAL)
    assert schemes == {"achieved_goal": (6,), "desired_goal": (6,), "observation": (6,)}
    assert "the preset reads 'observation' alone" in note
    one = reading(desired_goal=InputEmbedderParameters((5,)))  # what a preset names is all that it reads
    assert with_embedders("v", one, GOAL) == (one, "")


def test_the_images_of_a_dict_get_convolutions_and_its_mask_is_not_read():
    schemes, note = fitted((6,), {"camera": CAMERA, "joints": VECTOR, "action_mask": ArraySpec((3,), "bool")})
    assert schemes == {"camera": (*MEDIUM, 6), "joints": (6,)}
    assert "the networks read all of them" in note and "the image 'camera'" in note


def test_a_team_names_its_keys():
    with pytest.raises(TfsacError, match="observation"):
        fitted((6,), {"agent_state": VECTOR, "global_state": ArraySpec((9,), "float32")}, "policy")


# -- agents ------------------------------------------------------------------------------------------------------------


def agent_of(preset, observation, action=NUMBERS):
    return build_agent(preset, RunParameters(), Spec(observation, action))


def small(name, **changes):
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
def test_every_agent_acts_and_learns_from_an_image_and_a_vector_that_its_preset_does_not_name(name):
    agent = agent_of(small(name), {"camera": SMALL, "joints": VECTOR})
    (note,) = agent.notes
    assert "the networks read all of them" in note and "the image 'camera'" in note
    for network in agent.networks.values():
        assert sum(isinstance(layer, keras.layers.Conv2D) for layer in network.embedders["camera"]) == 2
    rng = np.random.default_rng(0)
    seen = {key: rng.normal(size=(2, *array.shape)).astype(np.float32) for key, array in agent.spec.observation.items()}
    other = {**seen, "camera": seen["camera"] + 1.0}
    assert (
        np.abs(agent.policy.act(seen, mode="greedy").action - agent.policy.act(other, mode="greedy").action).max() > 0
    )


@pytest.mark.parametrize(
    ("name", "keys", "action"),
    [
        ("pendulum_twin_sac", ["q1", "mean_and_log_std"], NUMBERS),
        ("acer_partially_observable", ["lstm", "logits"], DiscreteSpec(3)),
    ],
)
def test_observations_may_have_the_names_of_layers(name, keys, action):
    networks = load_preset(name).agent.networks
    changes = {
        f"agent.networks.{network}.input_embedders_parameters": {key: {"scheme": "Empty"} for key in keys}
        for network, parameters in networks.items()
        if "observation" in parameters.input_embedders_parameters
    }
    agent = agent_of(small(name, **changes), dict.fromkeys(keys, VECTOR), action)
    seen = dict.fromkeys(keys, np.zeros((2, 4), np.float32))
    assert len(agent.policy.act(seen).action) == 2


@pytest.mark.slow
def test_a_trunk_reads_the_image_and_the_others_its_features():
    preset = tiny.acer(shared=True)
    agent = agent_of(preset, {"observation": SMALL}, DiscreteSpec(2))
    assert [*agent.networks["q"].embedders] == ["features"] and len(agent.notes) == 1
    assert "with a stride of 2" in agent.notes[0]
    assert [*discrete_acer_networks(shared=True)] == ["trunk", "policy", "q"]


def test_a_shared_encoder_is_the_convolutions_of_the_critics():
    shared = {
        "agent.shared_encoder": True,
        **{
            f"agent.networks.{name}.input_embedders_parameters": {"observation": {"scheme": [4]}}
            for name in ("policy", "q")
        },
    }
    agent = agent_of(small("cart_pole_discrete_sac", **shared), {"observation": SMALL}, DiscreteSpec(3))
    assert agent.networks["policy"].embedders is agent.networks["q"].embedders
    assert isinstance(agent.networks["q"].embedders["observation"][0], keras.layers.Conv2D)


# -- what is impossible ------------------------------------------------------------------------------------------------

IMPOSSIBLE = {
    "too small": (ArraySpec((2, 9, 3), "uint8"), (6,), "flatten"),
    "matrix": (ArraySpec((5, 2), "float32"), (6,), "neither a vector nor an image"),
    "convolutions of a vector": (VECTOR, (Conv2d(2, 3, 1),), "nor an image"),
    "another key": (None, (6,), "'camera'"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_cannot_be_embedded_is_refused(case):
    array, scheme, word = IMPOSSIBLE[case]
    made = reading(scheme) if array else reading(camera=InputEmbedderParameters(scheme))
    with pytest.raises(TfsacError, match=word):
        with_embedders("v", made, {"observation": array or VECTOR})


def test_usual_convolutions_of_small_images_see_every_pixel():
    """Of an image with odd sides, too."""
    spec = Spec({"observation": ArraySpec((9, 35, 1), "float32")}, NUMBERS)
    net = Network("v", reading(()), spec, 0)
    x = tf.Variable(np.zeros((1, 9, 35, 1), np.float32))
    layers = [layer for layer in net.embedders["observation"] if isinstance(layer, keras.layers.Conv2D)]
    for layer in layers:
        layer.kernel.assign(np.ones(layer.kernel.shape, np.float32))
    with tf.GradientTape() as tape:
        y = x + 1.0
        for layer in net.embedders["observation"]:
            y = layer(y)
    assert (tape.gradient(y, x).numpy() > 0).all()


def test_unequal_widths_of_a_dict_cannot_be_summed():
    networks = {
        "agent.networks.*.embedding_merger_type": "sum",
        "agent.networks.policy.input_embedders_parameters.*.scheme": [],
    }
    with pytest.raises(TfsacError, match="equal widths"):
        agent_of(small("pendulum_twin_sac", **networks), GOAL)
