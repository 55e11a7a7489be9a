"""Several agents that share their networks: acting, updates, what each network reads."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from agent_tools import changed, weights
from toys import random_batches, team_spec

from tfsac.agents import DiscreteSoftActorCriticAgent, SoftActorCriticAgent, TwinSoftActorCriticAgent
from tfsac.parameters import (
    AutoAlphaParameters,
    DiscreteSoftActorCriticAgentParameters,
    EmbedderScheme,
    InputEmbedderParameters,
    PrioritizedExperienceReplayParameters,
    SoftActorCriticAgentParameters,
    SQILExperienceReplayParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    discrete_soft_actor_critic_networks,
    soft_actor_critic_networks,
    twin_soft_actor_critic_networks,
)
from tfsac.policies.team_axis import fold
from tfsac.types import Transition, Update

TEAMS, AGENTS = 4, 3
TEAM = {"policy_input": "agent_state", "critic_input": "global_state"}
PRIORITIZED = PrioritizedExperienceReplayParameters()


def networks_with_v(layers, **trained):
    reads = {
        "policy": ("agent_state", (16,)),
        "v": ("global_state", (16,)),
        "q": ("global_state", EmbedderScheme.Empty),
    }
    embedders = {name: {key: InputEmbedderParameters(scheme)} for name, (key, scheme) in reads.items()}
    return {
        name: dataclasses.replace(network, input_embedders_parameters=embedders[name])
        for name, network in soft_actor_critic_networks(layers, **trained).items()
    }


KINDS = {
    "discrete": (
        DiscreteSoftActorCriticAgent,
        DiscreteSoftActorCriticAgentParameters,
        partial(discrete_soft_actor_critic_networks, **TEAM),
    ),
    "twin": (
        TwinSoftActorCriticAgent,
        TwinSoftActorCriticAgentParameters,
        partial(twin_soft_actor_critic_networks, **TEAM),
    ),
    "v": (SoftActorCriticAgent, SoftActorCriticAgentParameters, networks_with_v),
}


def spec_of(kind):
    return team_spec(AGENTS, discrete=kind == "discrete", masked=kind == "discrete")


def make_agent(kind, spec=None, rows=TEAMS, memory=None, eager=True):
    """A team of three; with `spec` of one agent and more `rows`, an agent alone that has the same first weights."""
    agent_class, parameters_class, networks = KINDS[kind]
    given = {"networks": networks((16, 16), learning_rate=1e-2, batch_size=rows)}
    if memory:
        given["memory"] = memory
    if kind == "twin":
        given["algorithm"] = TwinSoftActorCriticAlgorithmParameters(temperature=AutoAlphaParameters())
    return agent_class(parameters_class(**given), spec or spec_of(kind), eager=eager)


def batches(kind, updates=1, weight=None):
    stacked = random_batches(spec_of(kind), updates, TEAMS)
    return stacked if weight is None else stacked._replace(weight=np.tile(np.float32(weight), (updates, 1)))


def see(kind, teams=TEAMS, seed=2):
    return {key: value[0] for key, value in random_batches(spec_of(kind), 1, teams, seed).observation.items()}


# -- demonstrations --------------------------------------------------------------------------------------------------


def test_what_is_an_experts_in_a_team_is_that_for_each_agent(monkeypatch):
    imitating = make_agent("discrete", memory=SQILExperienceReplayParameters(demonstrations="not read here"))
    halves = batches("discrete")._replace(extras={"expert": np.float32([[0, 1, 0, 1]])})
    given, nothing = [], Update({}, tf.zeros(TEAMS * AGENTS))
    monkeypatch.setattr(imitating, "update_once", lambda batch: given.append(batch) or nothing)
    imitating.update(halves)
    np.testing.assert_array_equal(given[0].extras["expert"], [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1])


# -- acting ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_each_agent_acts_as_an_agent_alone_would(kind):
    team, alone = make_agent(kind), make_agent(kind, spec_of(kind).single_agent())
    observation = see(kind, 50)
    greedy = team.policy.act(observation, mode="greedy").action
    for i in range(AGENTS):
        own = alone.policy.act({key: value[:, i] for key, value in observation.items()}, mode="greedy").action
        np.testing.assert_allclose(greedy[:, i], own, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_actions_and_values_have_the_axis_of_the_agents(kind):
    agent, observation = make_agent(kind), see(kind)
    tensors, shape = {key: tf.constant(value) for key, value in observation.items()}, spec_of(kind).action.shape
    greedy = agent.policy.act_tensors(tensors)[0]
    np.testing.assert_allclose(greedy, agent.policy.act(observation, mode="greedy").action, rtol=1e-5, atol=1e-6)
    noise = agent.policy.sample_noise(tensors)
    assert noise.shape == (TEAMS, AGENTS, 3 if kind == "discrete" else 2)
    sample = agent.policy.act_tensors(tensors, noise)[0]
    assert greedy.shape == sample.shape == (TEAMS, *shape)
    values = agent.value_tensors(tensors, sample)
    assert values.keys() == ({"v", "q"} if kind == "v" else {"q"})
    folded = agent.values(fold(tensors), fold(sample))
    for name, value in values.items():
        np.testing.assert_array_equal(value, folded[name].numpy().reshape(TEAMS, AGENTS))


@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_reads_the_agents_state_and_the_critics_the_global_one(kind):
    agent, observation = make_agent(kind), {key: tf.constant(value) for key, value in see(kind, 50).items()}
    noise = tf.random.stateless_uniform(agent.policy.sample_noise(observation).shape, [1, 2])
    other = {**observation, "global_state": observation["global_state"] + 1.0}
    elsewhere = {**observation, "agent_state": observation["agent_state"] + 1.0}
    action = agent.policy.act_tensors(observation, noise)[0]
    np.testing.assert_array_equal(agent.policy.act_tensors(other, noise)[0], action)
    assert (agent.policy.act_tensors(elsewhere, noise)[0].numpy() != action.numpy()).any()
    for name, value in agent.value_tensors(observation, action).items():
        np.testing.assert_array_equal(agent.value_tensors(elsewhere, action)[name], value)
        assert (agent.value_tensors(other, action)[name].numpy() != value.numpy()).all()


# -- updates -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_an_update_of_a_team_is_that_of_one_agent_on_the_folded_batch(kind, eager):
    weight = np.array([0.5, 2.0, 0.0, 1.0], np.float32)
    team = make_agent(kind, memory=PRIORITIZED, eager=eager)
    alone = make_agent(kind, spec_of(kind).single_agent(), TEAMS * AGENTS, memory=PRIORITIZED)
    stacked = batches(kind, 2, weight)

    def by_hand(x, repeated=False):
        return np.repeat(x, AGENTS, axis=1) if repeated else x.reshape(2, TEAMS * AGENTS, *x.shape[3:])

    flat = Transition(
        *(tf.nest.map_structure(by_hand, field) for field in stacked[:2]),
        by_hand(stacked.reward, True),
        by_hand(stacked.discount, True),
        tf.nest.map_structure(by_hand, stacked.next_observation),
        by_hand(stacked.weight, True),
        {},
    )
    first, ours, theirs = weights(team), team.update(stacked), alone.update(flat)
    assert team.metric_names == alone.metric_names
    np.testing.assert_allclose(ours.metrics, theirs.metrics, rtol=1e-4, atol=1e-6)
    assert ours.priority.shape == (2, TEAMS)
    np.testing.assert_allclose(
        ours.priority, theirs.priority.reshape(2, TEAMS, AGENTS).mean(axis=2), rtol=1e-4, atol=1e-6
    )
    for name, values in weights(team).items():
        for a, b in zip(values, weights(alone)[name], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6, err_msg=name)
    assert changed(first, weights(team)) == first.keys()
