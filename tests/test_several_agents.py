"""Teams with shared networks: acting, updates and network inputs."""

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

TEAMS, MEMBERS = 4, 3
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
    return team_spec(MEMBERS, discrete=kind == "discrete", masked=kind == "discrete")


def make_agent(kind, spec=None, rows=TEAMS, memory=None, eager=True):
    """Returns a team of three members, or a single agent with the same weights if `spec` is that of one member."""
    agent_class, parameters_class, networks = KINDS[kind]
    keywords = {"networks": networks((16, 16), learning_rate=1e-2, batch_size=rows)}
    if memory:
        keywords["memory"] = memory
    if kind == "twin":
        keywords["algorithm"] = TwinSoftActorCriticAlgorithmParameters(temperature=AutoAlphaParameters())
    return agent_class(parameters_class(**keywords), spec or spec_of(kind), eager=eager)


def batches(kind, updates=1, weight=None):
    stacked = random_batches(spec_of(kind), updates, TEAMS)
    return stacked if weight is None else stacked._replace(weight=np.tile(np.float32(weight), (updates, 1)))


def observe(kind, teams=TEAMS, seed=2):
    return {key: value[0] for key, value in random_batches(spec_of(kind), 1, teams, seed).observation.items()}


def test_expert_flag_is_repeated_for_each_member(monkeypatch):
    imitating = make_agent("discrete", memory=SQILExperienceReplayParameters(demonstrations="not read here"))
    halves = batches("discrete")._replace(extras={"expert": np.float32([[0, 1, 0, 1]])})
    keywords, no_update = [], Update({}, tf.zeros(TEAMS * MEMBERS))
    monkeypatch.setattr(imitating, "update_once", lambda batch: keywords.append(batch) or no_update)
    imitating.update(halves)
    np.testing.assert_array_equal(keywords[0].extras["expert"], [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_team_members_act_as_single_agents(kind):
    team, single = make_agent(kind), make_agent(kind, spec_of(kind).single_agent())
    observation = observe(kind, 50)
    greedy = team.policy.act(observation, mode="greedy").action
    for i in range(MEMBERS):
        expected = single.policy.act({key: value[:, i] for key, value in observation.items()}, mode="greedy").action
        np.testing.assert_allclose(greedy[:, i], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_tensor_actions_and_values_have_a_member_axis(kind):
    agent, observation = make_agent(kind), observe(kind)
    tensors, shape = {key: tf.constant(value) for key, value in observation.items()}, spec_of(kind).action.shape
    greedy = agent.policy.act_tensors(tensors)[0]
    np.testing.assert_allclose(greedy, agent.policy.act(observation, mode="greedy").action, rtol=1e-5, atol=1e-6)
    noise = agent.policy.sample_noise(tensors)
    assert noise.shape == (TEAMS, MEMBERS, 3 if kind == "discrete" else 2)
    sample = agent.policy.act_tensors(tensors, noise)[0]
    assert greedy.shape == sample.shape == (TEAMS, *shape)
    values = agent.value_tensors(tensors, sample)
    assert values.keys() == ({"v", "q"} if kind == "v" else {"q"})
    folded = agent.values(fold(tensors), fold(sample))
    for name, value in values.items():
        np.testing.assert_array_equal(value, folded[name].numpy().reshape(TEAMS, MEMBERS))


@pytest.mark.parametrize("kind", KINDS)
def test_policy_reads_agent_state_and_critics_global_state(kind):
    agent, observation = make_agent(kind), {key: tf.constant(value) for key, value in observe(kind, 50).items()}
    noise = tf.random.stateless_uniform(agent.policy.sample_noise(observation).shape, [1, 2])
    other_global_state = {**observation, "global_state": observation["global_state"] + 1.0}
    other_agent_state = {**observation, "agent_state": observation["agent_state"] + 1.0}
    action = agent.policy.act_tensors(observation, noise)[0]
    np.testing.assert_array_equal(agent.policy.act_tensors(other_global_state, noise)[0], action)
    assert (agent.policy.act_tensors(other_agent_state, noise)[0].numpy() != action.numpy()).any()
    for name, value in agent.value_tensors(observation, action).items():
        np.testing.assert_array_equal(agent.value_tensors(other_agent_state, action)[name], value)
        assert (agent.value_tensors(other_global_state, action)[name].numpy() != value.numpy()).all()


@pytest.mark.slow
@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_team_update_matches_folded_batch(kind, eager):
    weight = np.array([0.5, 2.0, 0.0, 1.0], np.float32)
    team = make_agent(kind, memory=PRIORITIZED, eager=eager)
    single = make_agent(kind, spec_of(kind).single_agent(), TEAMS * MEMBERS, memory=PRIORITIZED)
    stacked = batches(kind, 2, weight)

    def by_hand(x, repeated=False):
        return np.repeat(x, MEMBERS, axis=1) if repeated else x.reshape(2, TEAMS * MEMBERS, *x.shape[3:])

    flat = Transition(
        *(tf.nest.map_structure(by_hand, field) for field in stacked[:2]),
        by_hand(stacked.reward, True),
        by_hand(stacked.discount, True),
        tf.nest.map_structure(by_hand, stacked.next_observation),
        by_hand(stacked.weight, True),
        {},
    )
    first, ours, theirs = weights(team), team.update(stacked), single.update(flat)
    assert team.metric_names == single.metric_names
    np.testing.assert_allclose(ours.metrics, theirs.metrics, rtol=1e-4, atol=1e-6)
    assert ours.priority.shape == (2, TEAMS)
    np.testing.assert_allclose(
        ours.priority, theirs.priority.reshape(2, TEAMS, MEMBERS).mean(axis=2), rtol=1e-4, atol=1e-6
    )
    for name, values in weights(team).items():
        for a, b in zip(values, weights(single)[name], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6, err_msg=name)
    assert changed(first, weights(team)) == first.keys()
