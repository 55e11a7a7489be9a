"""The discrete agent: masks, temperature, shared encoders and acting."""

import dataclasses
import math

import numpy as np
import pytest
import strategy_tools
import tensorflow as tf
from agent_tools import assert_same_weights, batch_at, changed, weights
from toys import discrete_spec, random_batches

from tfsac.agents import DiscreteSoftActorCriticAgent
from tfsac.errors import TfsacError
from tfsac.networks import GraphForward
from tfsac.parameters import (
    Conv2d,
    DiscreteAutoAlphaParameters,
    DiscreteSoftActorCriticAgentParameters,
    EpsilonGreedyParameters,
    InputEmbedderParameters,
    ParameterError,
    discrete_soft_actor_critic_networks,
)
from tfsac.types import ArraySpec, DiscreteSpec, Spec

BATCH, ACTIONS = strategy_tools.BATCH, 4
PLAIN, MASKED = discrete_spec(3, ACTIONS), discrete_spec(3, ACTIONS, masked=True)
IMAGES = Spec({"observation": ArraySpec((12, 12, 2), "uint8")}, DiscreteSpec(ACTIONS))
CONVOLUTIONS = (Conv2d(3, 4, 2), 8)


def make_agent(temperature=None, spec=MASKED, eager=True, exploration=None, embedder=()):
    parameters, _ = strategy_tools.discrete(
        networks={"embedder": embedder} if embedder else None,
        shared_encoder=bool(embedder),
        temperature=temperature or DiscreteAutoAlphaParameters(learning_rate=1e-2),
        rate_for_copying_weights_to_target=0.25,
    )
    return DiscreteSoftActorCriticAgent(dataclasses.replace(parameters, exploration=exploration), spec, eager=eager)


def batches(updates, spec=MASKED):
    return random_batches(spec, updates, BATCH)


def set_logits(agent, logits):
    """Gives the policy the same logits in every state."""
    head = agent.networks["policy"].head.logits
    head.kernel.assign(tf.zeros_like(head.kernel))
    head.bias.assign(logits)
    agent.policy.refresh()


def test_empty_masks_after_termination_have_no_effect():
    stacked = batches(3)
    stacked.next_observation["action_mask"][:] = False
    rewards_only = stacked._replace(discount=np.zeros_like(stacked.discount))
    agents = make_agent(), make_agent()
    results = [agent.update(batch).metrics for agent, batch in zip(agents, (stacked, rewards_only), strict=True)]
    assert np.isfinite(results[0]).all()
    np.testing.assert_array_equal(*results)
    assert_same_weights(*agents)


def test_unreachable_target_entropy_is_rejected():
    with pytest.raises(TfsacError, match="target_entropy"):
        make_agent(DiscreteAutoAlphaParameters(target_entropy=math.log(4)))


SHARED = {"image": (IMAGES, CONVOLUTIONS), "vector": (PLAIN, (8,))}


def encoder(agent, name="q"):
    return [layer.kernel.numpy() for layer in agent.networks[name].embedders["observation"] if hasattr(layer, "kernel")]


@pytest.mark.parametrize(("spec", "embedder"), SHARED.values(), ids=SHARED)
def test_shared_encoder_learns_from_the_critic_only(spec, embedder):
    agent, batch = make_agent(spec=spec, embedder=embedder), batch_at(batches(1, spec=spec))
    assert agent.networks["policy"].embedders is agent.networks["q"].embedders
    before, first = weights(agent), encoder(agent)
    agent.apply(agent.policy_step(batch).gradients[0])
    assert changed(before, weights(agent)) == {"policy"}
    logits = agent.networks["policy"](batch.observation).numpy()
    agent.apply(*agent.critic_step(batch).gradients)
    assert all((a != b).any() for a, b in zip(first, encoder(agent), strict=True))
    assert (agent.networks["policy"](batch.observation).numpy() != logits).any()
    for a, b in zip(first, encoder(agent, "q_target"), strict=True):  # the target network has its own encoder
        np.testing.assert_array_equal(a, b)
    agent.update_target("q")
    for target, a, b in zip(encoder(agent, "q_target"), first, encoder(agent), strict=True):
        np.testing.assert_allclose(target, 0.75 * a + 0.25 * b, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "embedder"), SHARED.values(), ids=SHARED)
def test_acting_uses_updated_weights(spec, embedder):
    agent = make_agent(spec=spec, embedder=embedder, eager=False)
    assert isinstance(agent.policy.forwards["policy"], GraphForward) == (spec is IMAGES)
    observation = random_batches(spec, 1, 500, seed=3).observation["observation"][0]
    (first,) = agent.policy.forwards["policy"]({"observation": observation})
    agent.update(batches(5, spec=spec))
    logits = agent.networks["policy"]({"observation": tf.constant(observation)}).numpy()
    np.testing.assert_allclose(
        agent.policy.forwards["policy"]({"observation": observation})[0], logits, rtol=1e-4, atol=1e-5
    )
    greedy = agent.policy.act({"observation": observation}, mode="greedy").action
    np.testing.assert_array_equal(greedy, agent.policy.act_tensors({"observation": tf.constant(observation)})[0])
    np.testing.assert_array_equal(greedy, logits.argmax(axis=1))
    assert np.abs(logits - first).min(axis=1).max() > 1e-3


def test_different_embedders_cannot_be_shared():
    networks = discrete_soft_actor_critic_networks(embedder=(8,))
    other = {"observation": InputEmbedderParameters((9,))}
    networks["policy"] = dataclasses.replace(networks["policy"], input_embedders_parameters=other)
    with pytest.raises(ParameterError, match="shared_encoder"):
        DiscreteSoftActorCriticAgentParameters(networks=networks, shared_encoder=True)


def random_observations(rows=10_000):
    return {"observation": np.random.default_rng(5).standard_normal((rows, 3), np.float32)}


@pytest.mark.parametrize("mode", ["greedy", "sample", "explore", "random"])
def test_every_mode_respects_the_mask(mode):
    agent = make_agent(exploration=EpsilonGreedyParameters(0.5, 0.5))
    set_logits(agent, [0.0, 3.0, 1.0, 2.0])  # the likeliest action is often invalid
    mask = np.random.default_rng(1).random((10_000, ACTIONS)) < 0.5
    mask[np.arange(10_000), np.random.default_rng(2).integers(ACTIONS, size=10_000)] = True
    action = agent.policy.act({**random_observations(), "action_mask": mask}, mode=mode).action
    assert action.shape == (10_000,) and action.dtype == np.int32
    assert mask[np.arange(10_000), action].all() and set(action) == {0, 1, 2, 3}
    if mode == "greedy":
        np.testing.assert_array_equal(action, np.where(mask, [0, 3, 1, 2], -1).argmax(axis=1))


@pytest.mark.parametrize(
    ("mode", "prob"),
    [("sample", [0.1, 0.2, 0.3, 0.4]), ("random", [0.25] * 4), ("explore", [0.145, 0.215, 0.285, 0.355])],
)
def test_action_frequencies_match_probabilities(mode, prob):
    agent, rows = make_agent(spec=PLAIN, exploration=EpsilonGreedyParameters(0.3, 0.3)), 100_000
    set_logits(agent, np.log([0.1, 0.2, 0.3, 0.4]))
    frequencies = np.bincount(agent.policy.act(random_observations(rows), mode=mode).action, minlength=ACTIONS) / rows
    np.testing.assert_allclose(frequencies, prob, atol=4 * np.sqrt(0.25 / rows))


@pytest.mark.parametrize(("env_steps", "epsilon"), [(0, 0.8), (50, 0.4), (100, 0.0), (5000, 0.0)])
def test_epsilon_decays_with_environment_steps(env_steps, epsilon):
    agent = make_agent(spec=PLAIN, exploration=EpsilonGreedyParameters(0.8, 0.0, 100, "linear"))
    set_logits(agent, [1000.0, 0.0, 0.0, 0.0])
    action = agent.policy.act(random_observations(), mode="explore", env_steps=env_steps).action
    assert np.mean(action != 0) == pytest.approx(0.75 * epsilon, abs=0.02 if epsilon else 0.0)
    assert (agent.policy.act(random_observations(), mode="sample", env_steps=env_steps).action == 0).all()


def test_invalid_action_has_no_value():
    agent = make_agent(spec=PLAIN)
    observation = {key: tf.constant(x) for key, x in random_observations(3).items()}
    value = agent.value_tensors(observation, tf.constant([0, ACTIONS, -1]))["q"]
    assert np.isnan(value).tolist() == [False, True, True]
