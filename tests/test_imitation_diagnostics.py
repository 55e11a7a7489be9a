"""Diagnostics of soft Q imitation learning: errors and losses of both halves of a batch, and the cosine of their
gradients.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from agent_tools import assert_same, named, one
from toys import discrete_spec, random_batches, team_spec, vector_spec

from tfsac import parameters as p
from tfsac.agents import DiscreteSoftActorCriticAgent, TwinSoftActorCriticAgent
from tfsac.policies.distributions import MaskedCategorical, SquashedGaussian
from tfsac.training.build import build_agent

pytestmark = pytest.mark.slow  # whole runs: the quick tests of the parts are elsewhere

BATCH, ALPHA = 8, 0.2
SQIL = p.SQILExperienceReplayParameters(demonstrations="not read here")
KINDS = ["discrete", "twin", "v"]
NAMES = [f"imitation/{name}_{half}" for name in ("td_error", "policy_loss") for half in ("agent", "expert")]
NAMES += ["imitation/gradient_cosine"]
ALTERNATING = np.tile(np.float32([0, 1]), BATCH // 2)


def make_agent(kind, memory=SQIL, spec=None, **reads):
    trained, fixed = {"learning_rate": 1e-2, "batch_size": BATCH, **reads}, p.FixedAlphaParameters(ALPHA)
    if kind == "v":
        made = p.SoftActorCriticAgentParameters(networks=p.soft_actor_critic_networks((16,), **trained))
    elif kind == "twin":
        algorithm = p.TwinSoftActorCriticAlgorithmParameters(temperature=fixed)
        made = p.TwinSoftActorCriticAgentParameters(
            algorithm, networks=p.twin_soft_actor_critic_networks((16,), **trained)
        )
    else:
        algorithm = p.DiscreteSoftActorCriticAlgorithmParameters(temperature=fixed)
        networks = p.discrete_soft_actor_critic_networks((16,), **trained)
        made = p.DiscreteSoftActorCriticAgentParameters(algorithm, networks=networks)
    preset = p.Preset(agent=dataclasses.replace(made, memory=memory))
    usual = discrete_spec(3, 4, masked=True) if kind == "discrete" else vector_spec(3, 2)
    return build_agent(preset, p.RunParameters(seed=1, eager=True, updates_between_diagnostics=1), spec or usual)


def batches(agent, updates=1, expert=ALTERNATING, seed=0):
    stacked = random_batches(agent.spec._replace(extras={}), updates, BATCH, seed)
    return stacked._replace(extras={"expert": np.tile(np.float32(expert), (updates, 1))})


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
    imitating, plain = make_agent(kind), make_agent(kind, p.ExperienceReplayParameters())
    stacked = batches(imitating, 2)
    first = imitating.update(stacked).metrics
    second = plain.update(stacked._replace(extras={})).metrics
    assert_same(imitating, plain)
    assert imitating.imitates and not plain.imitates and "expert" not in plain.spec.extras
    kept = [i for i, name in enumerate(imitating.metric_names) if name not in NAMES]
    assert len(kept) + len(NAMES) == len(imitating.metric_names)
    np.testing.assert_array_equal(first[:, kept], second)


# -- means of the halves -----------------------------------------------------------------------------------------------


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
    reads = {"policy_input": "agent_state", "critic_input": "global_state"}
    memories = (SQIL, p.PrioritizedExperienceReplayParameters())
    agent, same = (make_agent("discrete", memory, team_spec(3), **reads) for memory in memories)
    stacked = batches(agent)
    metrics = named(agent, stacked)
    weighted = stacked._replace(extras={}, weight=np.ones((1, BATCH), np.float32))
    error = same.update(weighted).priority[0]  # by team, mean over its agents
    assert metrics["imitation/td_error_agent"] == pytest.approx(error[::2].mean(), rel=1e-5)
    assert metrics["imitation/td_error_expert"] == pytest.approx(error[1::2].mean(), rel=1e-5)


# -- the cosine --------------------------------------------------------------------------------------------------------


def test_a_half_without_gradient_has_a_cosine_of_zero():
    agent = make_agent("discrete")
    metrics = named(agent, batches(agent, expert=np.zeros(BATCH)))
    assert metrics["imitation/gradient_cosine"] == metrics["imitation/td_error_expert"] == 0.0
    assert metrics["imitation/td_error_agent"] > 0.0
