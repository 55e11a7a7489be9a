"""ACER parameters: networks, number of replays, and errors."""

import dataclasses

import numpy as np
import pytest
from acer_tools import SPECS, make_agent, make_parameters

from tfsac import parameters as p
from tfsac.agents import DiscreteACERAgent

Algorithm = p.DiscreteACERAlgorithmParameters


@pytest.mark.parametrize("cells", [None, 7])
def test_networks_are_separate_or_share_a_trunk(cells):
    layers = (p.Conv2d(2, 4, 2), 6, 5)
    separate, shared = (
        p.gaussian_acer_networks(layers, (4, 3), cells, shared, "tanh", learning_rate=0.5) for shared in (False, True)
    )
    body = p.LSTMMiddlewareParameters(7, (6, 5), "tanh") if cells else p.FCMiddlewareParameters((6, 5), "tanh")
    image = {"observation": p.InputEmbedderParameters((p.Conv2d(2, 4, 2),), "tanh")}
    assert [*separate] == ["policy", "v", "advantage"] and [*shared] == ["trunk", *separate]
    for network in (separate["policy"], separate["v"], shared["trunk"]):
        assert (network.input_embedders_parameters, network.middleware_parameters) == (image, body)
    advantage = separate["advantage"]  # also reads the action, so its dense layers are in the head
    assert advantage.input_embedders_parameters == image and advantage.middleware_parameters.kind == body.kind
    assert advantage.head_parameters.network_layers_sizes == (4, 3)
    for name, network in separate.items():
        assert [*shared[name].input_embedders_parameters] == ["features"]
        assert shared[name].middleware_parameters.scheme == "Empty" and shared[name].middleware_parameters.kind == "fc"
        assert network.head_parameters == shared[name].head_parameters
    assert {name for name, network in shared.items() if network.create_target_network} == {"trunk", "policy"}
    assert {network.learning_rate for network in [*separate.values(), *shared.values()]} == {0.5}


def test_number_of_replays_is_fixed_or_poisson():
    rng = np.random.default_rng(0)
    assert {Algorithm(n_times_replay=3).replays(rng) for _ in range(20)} == {3}
    samples = [Algorithm(n_times_replay=3, replay_times="poisson").replays(rng) for _ in range(5000)]
    assert np.mean(samples) == pytest.approx(3, abs=0.1) and np.var(samples) == pytest.approx(3, abs=0.3)
    assert min(samples) == 0 and type(samples[0]) is int


def test_order_of_network_dict_does_not_matter():
    networks = p.discrete_acer_networks((4,), shared=True, batch_size=2)
    backwards = {name: networks[name] for name in reversed(networks)}
    agent = DiscreteACERAgent(p.DiscreteACERAgentParameters(networks=backwards), SPECS["discrete"])
    assert [*agent.networks][:2] == ["trunk", "trunk_target"]
    assert [*agent.networks["q"].embedders] == ["features"] and agent.networks["q"].model.input_shape == (None, 4)


def preset(**changes):
    """Returns a preset without random warm-up steps."""
    base = p.Preset(agent=make_parameters(), schedule=p.ScheduleParameters(heatup_steps=0))
    return p.override(base, {path.replace("__", "."): value for path, value in changes.items()})


def twin_sac_with_lstms():
    networks = p.twin_soft_actor_critic_networks()
    body = p.LSTMMiddlewareParameters(3)
    recurrent = {name: dataclasses.replace(each, middleware_parameters=body) for name, each in networks.items()}
    return p.TwinSoftActorCriticAgentParameters(networks=recurrent)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: preset(agent__networks__policy__create_target_network=False), "use_trust_region"),
        (twin_sac_with_lstms, "LSTM"),
        (lambda: p.Preset(agent=make_parameters()), "heatup_steps"),
        (lambda: preset(environment__num_envs=5), "num_envs=5"),
        (lambda: make_agent("discrete", SPECS["gaussian"]), "continuous"),
    ],
)
def test_invalid_parameters_and_spaces_are_rejected(make, words):
    with pytest.raises(ValueError, match=words):
        make()
