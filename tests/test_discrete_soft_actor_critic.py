"""The discrete agent: steps and their order, masks, temperatures, shared encoders, acting, importance weights."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
from agent_tools import assert_same, changed, one, weights
from toys import discrete_spec, random_batches

from tfsac.agents import DiscreteSoftActorCriticAgent
from tfsac.errors import TfsacError
from tfsac.networks import GraphForward
from tfsac.parameters import (
    Conv2d,
    DiscreteAutoAlphaParameters,
    DiscreteSoftActorCriticAgentParameters,
    DiscreteSoftActorCriticAlgorithmParameters,
    EmbedderScheme,
    EpsilonGreedyParameters,
    ExperienceReplayParameters,
    FixedAlphaParameters,
    InputEmbedderParameters,
    ParameterError,
    PrioritizedExperienceReplayParameters,
    discrete_soft_actor_critic_networks,
)
from tfsac.types import ArraySpec, DiscreteSpec, Spec

BATCH, ACTIONS = 8, 4
PLAIN, MASKED = discrete_spec(3, ACTIONS), discrete_spec(3, ACTIONS, masked=True)
IMAGES = Spec({"observation": ArraySpec((12, 12, 2), "uint8")}, DiscreteSpec(ACTIONS))
CONVOLUTIONS = (Conv2d(3, 4, 2), 8)
FIXED = FixedAlphaParameters(0.2)


def make_agent(
    temperature=None,
    memory=None,
    spec=MASKED,
    seed=0,
    eager=True,
    exploration=None,
    shared_encoder=False,
    embedder=(),
    twin_critic=True,
    batch_size=BATCH,
    trained=None,
    **algorithm,
):
    """Small networks; `trained` are fields of both, the rest are fields of the algorithm."""
    networks = discrete_soft_actor_critic_networks(
        (16,),
        twin_critic,
        embedder=embedder or EmbedderScheme.Empty,
        learning_rate=1e-2,
        batch_size=batch_size,
        **(trained or {}),
    )
    changes = {"rate_for_copying_weights_to_target": 0.25, **algorithm}
    parameters = DiscreteSoftActorCriticAgentParameters(
        algorithm=DiscreteSoftActorCriticAlgorithmParameters(
            temperature=temperature or DiscreteAutoAlphaParameters(learning_rate=1e-2), **changes
        ),
        exploration=exploration,
        memory=memory or ExperienceReplayParameters(),
        networks=networks,
        shared_encoder=shared_encoder,
    )
    return DiscreteSoftActorCriticAgent(parameters, spec, seed=seed, eager=eager)


def batches(updates, seed=0, spec=MASKED, weight=None):
    stacked = random_batches(spec, updates, BATCH, seed)
    return (
        stacked
        if weight is None
        else stacked._replace(weight=np.broadcast_to(weight, (updates, BATCH)).astype(np.float32))
    )


def prefer(agent, logits):
    """Makes the policy the same in every state."""
    head = agent.networks["policy"].head.logits
    head.kernel.assign(tf.zeros_like(head.kernel))
    head.bias.assign(logits)
    agent.policy.refresh()


def choice(agent, observation):
    """Probabilities and their logarithms in NumPy, both zero outside the mask."""
    mask = observation.get("action_mask", True)
    exponential = np.exp(agent.networks["policy"](observation).numpy()) * np.array(mask)
    prob = exponential / exponential.sum(axis=1, keepdims=True)
    return prob, np.log(np.where(prob > 0, prob, 1.0))


def errors(agent, batch):
    """Q - y by critic, of a fixed temperature of 0.2."""
    prob, log_prob = choice(agent, batch.next_observation)
    q_next = agent.networks["q_target"](batch.next_observation).numpy().min(axis=1)
    y = batch.reward + batch.discount * (prob * (q_next - 0.2 * log_prob)).sum(axis=1)
    return agent.networks["q"](batch.observation).numpy()[np.arange(BATCH), :, batch.action] - y.numpy()[:, None]


# -- steps and their order ---------------------------------------------------------------------------------------------

STEPS = {
    "q": lambda agent, batch: agent.apply(*agent.critic_step(batch).gradients),
    "policy": lambda agent, batch: agent.apply(agent.policy_step(batch).gradients[0]),
    "temperature": lambda agent, batch: agent.apply(agent.policy_step(batch).gradients[1]),
    "q_target": lambda agent, batch: agent.update_target("q"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_moves_what_it_trains_and_leaves_the_rest_bit_identical(name):
    agent, batch = make_agent(), one(batches(1))
    agent.networks["q_target"].trainable_variables[0].assign_add(
        tf.ones_like(agent.networks["q_target"].trainable_variables[0])
    )
    before = weights(agent)
    STEPS[name](agent, batch)
    assert changed(before, weights(agent)) == {name}


def test_masks_that_leave_no_action_after_the_last_step_do_no_harm():
    stacked = batches(3)
    stacked.next_observation["action_mask"][:] = False
    rewards_only = stacked._replace(discount=np.zeros_like(stacked.discount))
    agents = make_agent(), make_agent()
    results = [agent.update(batch).metrics for agent, batch in zip(agents, (stacked, rewards_only), strict=True)]
    assert np.isfinite(results[0]).all()
    np.testing.assert_array_equal(*results)
    assert_same(*agents)


def test_a_state_without_a_valid_action_leaves_the_temperature_finite():
    agent, stacked = make_agent(), batches(2)
    stacked.observation["action_mask"][:, 0] = False
    assert np.isfinite(agent.update(stacked).metrics).all()
    assert np.isfinite(agent.temperature.value())


# -- weights, priorities, periods --------------------------------------------------------------------------------------

PRIORITIZED = PrioritizedExperienceReplayParameters()


def test_importance_weights_scale_the_critic_loss_and_priorities_are_unweighted_errors():
    weight = np.array([0, 2, 1, 0.5, 0, 1, 1, 3], np.float32)
    agent, stacked = make_agent(FIXED, PRIORITIZED), batches(1, weight=weight)
    error, (prob, log_prob) = errors(agent, one(stacked)), choice(agent, one(stacked).observation)
    result = agent.update(stacked)
    metrics = dict(zip(agent.metric_names, result.metrics[0], strict=True))
    np.testing.assert_allclose(
        [metrics["loss/q1"], metrics["loss/q2"]], (weight[:, None] * error**2).mean(axis=0), rtol=1e-4
    )
    q = agent.networks["q"](one(stacked).observation).numpy().min(axis=1)
    np.testing.assert_allclose(metrics["loss/policy"], (prob * (0.2 * log_prob - q)).sum(axis=1).mean(), rtol=1e-4)
    assert result.priority.shape == (1, BATCH)
    np.testing.assert_allclose(result.priority[0], np.abs(error).mean(axis=1), rtol=1e-4, atol=1e-6)


# -- temperature -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [math.log(4), 1.5, 0.0, -4.0])
def test_a_target_that_no_choice_among_four_reaches_is_refused(target):
    with pytest.raises(TfsacError, match="target_entropy"):
        make_agent(DiscreteAutoAlphaParameters(target_entropy=target))


# -- shared encoder ----------------------------------------------------------------------------------------------------

SHARED = {"image": (IMAGES, CONVOLUTIONS), "vector": (PLAIN, (8,))}


def encoder(agent, name="q"):
    return [layer.kernel.numpy() for layer in agent.networks[name].embedders["observation"] if hasattr(layer, "kernel")]


@pytest.mark.parametrize(("spec", "embedder"), SHARED.values(), ids=SHARED)
def test_only_the_critic_step_moves_a_shared_encoder(spec, embedder):
    agent, batch = make_agent(spec=spec, shared_encoder=True, embedder=embedder), one(batches(1, spec=spec))
    assert agent.networks["policy"].embedders is agent.networks["q"].embedders
    assert [v.path for v in agent.trained["policy"]] == [
        v.path
        for layer in (*agent.networks["policy"].middleware, agent.networks["policy"].head.logits)
        for v in layer.weights
    ]
    before, first = weights(agent), encoder(agent)
    STEPS["policy"](agent, batch)
    assert changed(before, weights(agent)) == {"policy"}
    logits = agent.networks["policy"](batch.observation).numpy()
    STEPS["q"](agent, batch)
    assert all((a != b).any() for a, b in zip(first, encoder(agent), strict=True))
    assert (agent.networks["policy"](batch.observation).numpy() != logits).any()
    for a, b in zip(
        first, encoder(agent, "q_target"), strict=True
    ):  # the target network waits with an encoder of its own
        np.testing.assert_array_equal(a, b)
    STEPS["q_target"](agent, batch)
    for target, a, b in zip(encoder(agent, "q_target"), first, encoder(agent), strict=True):
        np.testing.assert_allclose(target, 0.75 * a + 0.25 * b, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "embedder"), SHARED.values(), ids=SHARED)
def test_acting_follows_the_weights_after_updates(spec, embedder):
    agent = make_agent(spec=spec, shared_encoder=True, embedder=embedder, eager=False)
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


@pytest.mark.parametrize(
    "change",
    [{"input_embedders_parameters": {"observation": InputEmbedderParameters((9,))}}, {"initializer": "he"}, None],
)
def test_an_encoder_that_cannot_be_shared_is_refused(change):
    networks = discrete_soft_actor_critic_networks(embedder=(8,) if change else EmbedderScheme.Empty)
    networks["policy"] = dataclasses.replace(networks["policy"], **(change or {}))
    with pytest.raises(ParameterError, match="shared_encoder"):
        DiscreteSoftActorCriticAgentParameters(networks=networks, shared_encoder=True)


# -- acting ------------------------------------------------------------------------------------------------------------


def many(rows=10_000, mask=None):
    observation = {"observation": np.random.default_rng(5).standard_normal((rows, 3), np.float32)}
    return observation if mask is None else {**observation, "action_mask": mask}


@pytest.mark.parametrize("mode", ["greedy", "sample", "explore", "random"])
def test_every_mode_keeps_to_the_mask(mode):
    agent = make_agent(exploration=EpsilonGreedyParameters(0.5, 0.5))
    prefer(agent, [0.0, 3.0, 1.0, 2.0])  # the likeliest is often not valid
    mask = np.random.default_rng(1).random((10_000, ACTIONS)) < 0.5
    mask[np.arange(10_000), np.random.default_rng(2).integers(ACTIONS, size=10_000)] = True
    action = agent.policy.act(many(mask=mask), mode=mode).action
    assert action.shape == (10_000,) and action.dtype == np.int32
    assert mask[np.arange(10_000), action].all() and set(action) == {0, 1, 2, 3}
    if mode == "greedy":
        np.testing.assert_array_equal(action, np.where(mask, [0, 3, 1, 2], -1).argmax(axis=1))


@pytest.mark.parametrize(
    ("mode", "prob"),
    [("sample", [0.1, 0.2, 0.3, 0.4]), ("random", [0.25] * 4), ("explore", [0.145, 0.215, 0.285, 0.355])],
)
def test_frequencies_of_actions_are_their_probabilities(mode, prob):
    agent, rows = make_agent(spec=PLAIN, exploration=EpsilonGreedyParameters(0.3, 0.3)), 100_000
    prefer(agent, np.log([0.1, 0.2, 0.3, 0.4]))
    found = np.bincount(agent.policy.act(many(rows), mode=mode).action, minlength=ACTIONS) / rows
    np.testing.assert_allclose(found, prob, atol=4 * np.sqrt(0.25 / rows))


@pytest.mark.parametrize(("env_steps", "epsilon"), [(0, 0.8), (50, 0.4), (100, 0.0), (5000, 0.0)])
def test_exploration_is_random_row_by_row_and_falls_with_the_steps(env_steps, epsilon):
    agent = make_agent(spec=PLAIN, exploration=EpsilonGreedyParameters(0.8, 0.0, 100, "linear"))
    prefer(agent, [1000.0, 0.0, 0.0, 0.0])
    action = agent.policy.act(many(), mode="explore", env_steps=env_steps).action
    assert np.mean(action != 0) == pytest.approx(0.75 * epsilon, abs=0.02 if epsilon else 0.0)
    assert (agent.policy.act(many(), mode="sample", env_steps=env_steps).action == 0).all()


def test_sampling_in_the_graph_keeps_to_probabilities_and_masks():
    agent, rows = make_agent(), 20_000
    prefer(agent, np.log([0.1, 0.2, 0.3, 0.4]))
    noise = agent.policy.sample_noise(many(rows))
    assert noise.shape == (rows, ACTIONS) and noise.numpy().min() >= 0 and noise.numpy().max() < 1
    uniform = tf.random.stateless_uniform(noise.shape, [3, 4])
    action = agent.policy.act_tensors(many(rows, np.tile([True, True, True, False], (rows, 1))), uniform)[0]
    np.testing.assert_allclose(
        np.bincount(action, minlength=4) / rows, [1 / 6, 1 / 3, 1 / 2, 0], atol=4 * np.sqrt(0.25 / rows)
    )


def test_an_action_that_there_is_not_has_no_value():
    agent = make_agent(spec=PLAIN)
    value = agent.value_tensors({key: tf.constant(x) for key, x in many(3).items()}, tf.constant([0, ACTIONS, -1]))["q"]
    assert np.isnan(value).tolist() == [False, True, True]
