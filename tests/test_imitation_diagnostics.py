"""Diagnostics of soft Q imitation learning: errors and losses of both halves of a batch, and the cosine of their
gradients.
"""

import numpy as np
import pytest
import tensorflow as tf
from agent_tools import assert_same, named, one
from toys import discrete_spec, random_batches, team_spec, vector_spec

from tfsac.agents import (
    DiscreteSoftActorCriticAgent,
    SoftActorCriticAgent,
    TwinSoftActorCriticAgent,
    sqil_diagnostics,
)
from tfsac.parameters import (
    DiscreteSoftActorCriticAgentParameters,
    DiscreteSoftActorCriticAlgorithmParameters,
    ExperienceReplayParameters,
    FixedAlphaParameters,
    PrioritizedExperienceReplayParameters,
    SoftActorCriticAgentParameters,
    SQILExperienceReplayParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    discrete_soft_actor_critic_networks,
    soft_actor_critic_networks,
    twin_soft_actor_critic_networks,
)
from tfsac.policies.distributions import MaskedCategorical, SquashedGaussian

pytestmark = pytest.mark.slow  # whole runs: the quick tests of the parts are elsewhere

BATCH, ALPHA = 8, 0.2
SQIL = SQILExperienceReplayParameters(demonstrations="not read here")
KINDS = ["discrete", "twin", "v"]
NAMES = [
    "imitation/td_error_agent",
    "imitation/td_error_expert",
    "imitation/policy_loss_agent",
    "imitation/policy_loss_expert",
    "imitation/gradient_cosine",
]
ALTERNATING = np.tile(np.float32([0, 1]), BATCH // 2)


def make_agent(kind, memory=SQIL, eager=True, spec=None, **trained):
    trained, fixed = {"learning_rate": 1e-2, "batch_size": BATCH, **trained}, FixedAlphaParameters(ALPHA)
    if kind == "v":
        parameters = SoftActorCriticAgentParameters(
            memory=memory, networks=soft_actor_critic_networks((16,), **trained)
        )
        return SoftActorCriticAgent(parameters, vector_spec(3, 2), eager=eager)
    if kind == "twin":
        algorithm = TwinSoftActorCriticAlgorithmParameters(temperature=fixed)
        networks = twin_soft_actor_critic_networks((16,), **trained)
        parameters = TwinSoftActorCriticAgentParameters(algorithm=algorithm, memory=memory, networks=networks)
        return TwinSoftActorCriticAgent(parameters, vector_spec(3, 2), eager=eager)
    algorithm = DiscreteSoftActorCriticAlgorithmParameters(temperature=fixed)
    networks = discrete_soft_actor_critic_networks((16,), **trained)
    parameters = DiscreteSoftActorCriticAgentParameters(algorithm=algorithm, memory=memory, networks=networks)
    return DiscreteSoftActorCriticAgent(parameters, spec or discrete_spec(3, 4, masked=True), eager=eager)


def batches(agent, updates=1, expert=ALTERNATING, seed=0):
    stacked = random_batches(agent.spec._replace(extras={}), updates, BATCH, seed)
    return stacked._replace(extras={"expert": np.tile(np.float32(expert), (updates, 1))})


def doubled(stacked):
    """The even rows twice: once as the agent's own, once as demonstrated."""
    twice = tf.nest.map_structure(lambda x: np.repeat(x[:, ::2], 2, axis=1), stacked)
    return twice._replace(extras=stacked.extras)


def policy_loss(agent, batch):
    """The policy loss of each row, written out, as the coming policy step sees it."""
    output, q = agent.networks["policy"](batch.observation), agent.networks["q"]
    if isinstance(agent, DiscreteSoftActorCriticAgent):
        policy = MaskedCategorical(output, batch.observation["action_mask"])
        smaller = tf.reduce_min(q(batch.observation), axis=1)
        return tf.reduce_sum(policy.prob * (ALPHA * policy.log_prob - smaller), axis=1)
    action, log_prob = SquashedGaussian(*output).sample_and_log_prob(agent.noise("policy", [BATCH, 2]))
    alpha = ALPHA if isinstance(agent, TwinSoftActorCriticAgent) else 1.0
    return alpha * log_prob - tf.reduce_min(q(batch.observation, action), axis=1)


# -- which agents have them --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_there_where_batches_are_half_demonstrated_and_change_nothing_of_what_is_learned(kind):
    imitating, plain = make_agent(kind), make_agent(kind, ExperienceReplayParameters())
    stacked = batches(imitating, 2)
    first = imitating.update(stacked).metrics
    second = plain.update(stacked._replace(extras={})).metrics
    assert_same(imitating, plain)
    assert imitating.imitates and not plain.imitates and "expert" not in plain.spec.extras
    kept = [i for i, name in enumerate(imitating.metric_names) if name not in NAMES]
    assert len(kept) + len(NAMES) == len(imitating.metric_names)
    np.testing.assert_array_equal(first[:, kept], second)


# -- means of the halves -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expert", "own", "demonstrated"),
    [([0, 1, 0, 1], 2.0, 6.0), ([1, 1, 0, 0], 3.0, 5.0), ([0, 1, 1, 1], 1.0, 5.0), ([0] * 4, 4.0, 0.0)],
)
def test_the_mean_of_each_half_by_hand(expert, own, demonstrated):
    values = tf.constant([1.0, 9.0, 3.0, 3.0])
    found = sqil_diagnostics.means_by_origin("x", values, tf.constant(expert, tf.float32))
    assert {name: float(value) for name, value in found.items()} == {"x_agent": own, "x_expert": demonstrated}


@pytest.mark.parametrize("kind", KINDS)
def test_errors_and_losses_are_means_over_each_half(kind):
    expert = [1, 0, 0, 1, 1, 1, 0, 0]
    agent, other = make_agent(kind), make_agent(kind)
    stacked, rows = batches(agent, expert=expert), np.array(expert, bool)
    batch = one(stacked)
    error = agent.update_once(batch).td_error_B.numpy()
    metrics = named(other, stacked)
    assert metrics["imitation/td_error_agent"] == pytest.approx(error[~rows].mean(), rel=1e-5)
    assert metrics["imitation/td_error_expert"] == pytest.approx(error[rows].mean(), rel=1e-5)
    fresh = make_agent(kind)
    loss = policy_loss(fresh, batch).numpy()
    metrics = fresh.policy_step(batch).metrics
    assert float(metrics["imitation/policy_loss_agent"]) == pytest.approx(loss[~rows].mean(), rel=1e-4)
    assert float(metrics["imitation/policy_loss_expert"]) == pytest.approx(loss[rows].mean(), rel=1e-4)


def test_a_demonstrated_step_of_a_team_counts_for_each_agent():
    team = team_spec(3)
    networks = discrete_soft_actor_critic_networks(
        (16,), policy_input="agent_state", critic_input="global_state", batch_size=BATCH
    )
    agent, same = (
        DiscreteSoftActorCriticAgent(
            DiscreteSoftActorCriticAgentParameters(memory=memory, networks=networks), team, eager=True
        )
        for memory in (SQIL, PrioritizedExperienceReplayParameters())
    )
    stacked = batches(agent)
    metrics = named(agent, stacked)
    weighted = stacked._replace(extras={}, weight=np.ones((1, BATCH), np.float32))
    error = same.update(weighted).priority[0]  # by team, mean over its agents
    assert metrics["imitation/td_error_agent"] == pytest.approx(error[::2].mean(), rel=1e-5)
    assert metrics["imitation/td_error_expert"] == pytest.approx(error[1::2].mean(), rel=1e-5)


# -- the cosine --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_cosine_is_that_of_the_flattened_gradients_of_both_halves(kind):
    agent = make_agent(kind)
    batch = one(batches(agent))
    variables = [variable.value for variable in agent.trained["policy"]]
    flat = []
    for half in (0, 1):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(policy_loss(agent, batch)[half::2])
        flat.append(np.concatenate([np.ravel(gradient) for gradient in tape.gradient(loss, variables)]))
    expected = flat[0] @ flat[1] / (np.linalg.norm(flat[0]) * np.linalg.norm(flat[1]))
    assert abs(expected) < 0.99
    assert float(agent.policy_step(batch).metrics["imitation/gradient_cosine"]) == pytest.approx(expected, abs=1e-5)


def test_opposed_halves_are_in_conflict():
    agent, expert = make_agent("discrete", spec=discrete_spec(3, 2)), tf.constant(ALTERNATING)
    same = one(doubled(batches(agent)))
    with agent.watch("policy") as tape:  # both halves see the same; one wants the first action, the other the second
        prob = agent.distribution(same.observation).prob
        loss = tf.where(expert > 0, prob[:, 0], prob[:, 1])
    cosine = sqil_diagnostics.gradient_cosine(agent, loss, expert, tape)
    assert float(cosine) == pytest.approx(-1.0, abs=1e-5)


def test_a_half_without_gradient_has_a_cosine_of_zero():
    agent = make_agent("discrete")
    metrics = named(agent, batches(agent, expert=np.zeros(BATCH)))
    assert metrics["imitation/gradient_cosine"] == metrics["imitation/td_error_expert"] == 0.0
    assert metrics["imitation/td_error_agent"] > 0.0
