"""Parameters of actor-critic with experience replay: defaults, networks, JSON, and what each mistake is answered
with.
"""

import dataclasses
import re

import numpy as np
import pytest
from acer_tools import SPECS, make_agent, make_parameters
from toys import team_spec

from tfsac import parameters as p
from tfsac.agents import DiscreteACERAgent
from tfsac.types import ArraySpec

Discrete, Gaussian = p.DiscreteACERAgentParameters, p.GaussianACERAgentParameters
Algorithm = p.DiscreteACERAlgorithmParameters


def preset(agent=None, changes=()):
    """An experiment with its own policy's steps alone."""
    made = p.Preset(agent=agent or make_parameters(), schedule=p.ScheduleParameters(heatup_steps=0))
    return p.override(made, dict(changes))


@pytest.mark.parametrize("cells", [None, 7])
def test_networks_are_alike_or_after_a_trunk(cells):
    layers = (p.Conv2d(2, 4, 2), 6, 5)
    separate, shared = (
        p.gaussian_acer_networks(layers, (4, 3), cells, shared, "tanh", learning_rate=0.5) for shared in (False, True)
    )
    body = p.LSTMMiddlewareParameters(7, (6, 5), "tanh") if cells else p.FCMiddlewareParameters((6, 5), "tanh")
    image = {"observation": p.InputEmbedderParameters((p.Conv2d(2, 4, 2),), "tanh")}
    assert [*separate] == ["policy", "v", "advantage"] and [*shared] == ["trunk", *separate]
    for made in (separate["policy"], separate["v"], shared["trunk"]):
        assert (made.input_embedders_parameters, made.middleware_parameters) == (image, body)
    advantage = separate["advantage"]  # which reads the action too: its dense layers are those of its head
    assert advantage.input_embedders_parameters == image and advantage.middleware_parameters.kind == body.kind
    assert advantage.head_parameters.network_layers_sizes == (4, 3)
    for name, made in separate.items():
        assert [*shared[name].input_embedders_parameters] == ["features"]
        assert shared[name].middleware_parameters.scheme == "Empty" and shared[name].middleware_parameters.kind == "fc"
        assert made.head_parameters == shared[name].head_parameters
    assert {name for name, network in shared.items() if network.create_target_network} == {"trunk", "policy"}
    assert {network.learning_rate for network in [*separate.values(), *shared.values()]} == {0.5}


def test_the_number_of_replays_is_fixed_or_has_its_mean():
    rng = np.random.default_rng(0)
    assert {Algorithm(n_times_replay=3).replays(rng) for _ in range(20)} == {3}
    drawn = [Algorithm(n_times_replay=3, replay_times="poisson").replays(rng) for _ in range(5000)]
    assert np.mean(drawn) == pytest.approx(3, abs=0.1) and np.var(drawn) == pytest.approx(3, abs=0.3)
    assert min(drawn) == 0 and type(drawn[0]) is int


# -- mistakes ----------------------------------------------------------------------------------------------------------


def with_network(name, kind="discrete", shared=False, **fields):
    made = make_parameters(kind, shared=shared)
    return dataclasses.replace(
        made, networks={**made.networks, name: dataclasses.replace(made.networks[name], **fields)}
    )


def with_lstm(networks):
    body = p.LSTMMiddlewareParameters(3)
    return {name: dataclasses.replace(each, middleware_parameters=body) for name, each in networks.items()}


MISTAKES = {
    "no average": (lambda: with_network("policy", create_target_network=False), "use_trust_region"),
    "average of critics": (lambda: with_network("q", create_target_network=True), "no target network"),
    "reading past the trunk": (
        lambda: with_network("q", shared=True, input_embedders_parameters={"observation": p.InputEmbedderParameters()}),
        "'features'",
    ),
    "a Huber loss": (lambda: with_network("q", replace_mse_with_huber_loss=True), "squared"),
    "an LSTM without an agent for it": (
        lambda: p.TwinSoftActorCriticAgentParameters(networks=with_lstm(p.twin_soft_actor_critic_networks())), "LSTM",
    ),
    "the default warm-up": (lambda: p.Preset(agent=make_parameters()), "heatup_steps"),
    "random actions": (lambda: preset(changes={"schedule.random_action_steps": 5}), "random_action_steps"),
    "more environments than segments": (lambda: preset(changes={"environment.num_envs": 5}), "num_envs=5"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "words"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_refused_with_words_that_help(make, words):
    with pytest.raises(p.ParameterError, match=re.escape(words)):
        make()


# -- agents that cannot be ---------------------------------------------------------------------------------------------

REFUSED = {
    "a box for discrete actions": (lambda: make_agent(spec=SPECS["gaussian"]), "continuous"),
    "discrete actions for a Gaussian": (lambda: make_agent("gaussian", spec=SPECS["discrete"]), "discrete"),
    "a team": (lambda: make_agent(spec=team_spec(2)), "alone"),
    "several rewards": (lambda: make_agent(spec=SPECS["discrete"]._replace(num_rewards=2)), "reward"),
    "custom models": (lambda: DiscreteACERAgent(make_parameters(), SPECS["discrete"], models=dict), "models"),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_the_agent_cannot_do_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("keys", [["policy_hidden"], ["hidden", "cell"]], ids=str)
def test_observations_with_keys_of_the_state_are_refused(keys):
    spec = SPECS["discrete"]
    spec = spec._replace(observation=dict.fromkeys(["observation", *keys], ArraySpec((3,), "float32")))
    with pytest.raises(ValueError, match="state"):
        make_agent(cells=3, spec=spec)


def test_networks_may_be_named_in_any_order():
    networks = p.discrete_acer_networks((4,), shared=True, batch_size=2)
    backwards = {name: networks[name] for name in reversed(networks)}
    agent = DiscreteACERAgent(p.DiscreteACERAgentParameters(networks=backwards), SPECS["discrete"])
    assert [*agent.networks][:2] == ["trunk", "trunk_target"]
    assert [*agent.networks["q"].embedders] == ["features"] and agent.networks["q"].model.input_shape == (None, 4)
