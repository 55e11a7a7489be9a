"""Diagnostics of SQIL: errors and losses of both halves of a batch, and the cosine of their gradients."""

import dataclasses

import numpy as np
import pytest
import strategy_tools
from agent_tools import assert_same_weights, batch_at, last_metrics
from toys import random_batches

from tfsac import parameters as p

pytestmark = pytest.mark.slow

BATCH = strategy_tools.BATCH
SQIL = strategy_tools.SQIL
AGENTS = ["discrete, imitation", "twin, imitation", "v, imitation"]
NAMES = [f"imitation/{name}_{half}" for name in ("td_error", "policy_loss") for half in ("agent", "expert")]
NAMES += ["imitation/gradient_cosine"]
ALTERNATING = np.tile(np.float32([0, 1]), BATCH // 2)


def make_agent(name, memory=SQIL):
    agent_class, parameters, spec = strategy_tools.CASES[name]
    return agent_class(dataclasses.replace(parameters, memory=memory), spec, seed=1, eager=True)


def batches(agent, updates=1, expert=ALTERNATING):
    stacked = random_batches(agent.spec._replace(extras={}), updates, BATCH)
    return stacked._replace(extras={"expert": np.tile(np.float32(expert), (updates, 1))})


@pytest.mark.parametrize("name", AGENTS)
def test_imitation_metrics_do_not_change_learning(name):
    imitating, plain = make_agent(name), make_agent(name, p.ExperienceReplayParameters())
    stacked = batches(imitating, 2)
    first = imitating.update(stacked).metrics
    second = plain.update(stacked._replace(extras={})).metrics
    assert_same_weights(imitating, plain)
    assert imitating.imitates and not plain.imitates and "expert" not in plain.spec.extras
    common = [i for i, metric in enumerate(imitating.metric_names) if metric not in NAMES]
    assert len(common) + len(NAMES) == len(imitating.metric_names)
    np.testing.assert_array_equal(first[:, common], second)


@pytest.mark.parametrize("name", AGENTS)
def test_errors_and_losses_are_means_over_each_half(name):
    agent, expert = make_agent(name), np.array([1, 0, 0, 1, 1, 1, 0, 0], bool)
    batch = batch_at(batches(agent, expert=expert))
    for step, metric in ((agent.critic_step(batch), "td_error"), (agent.policy_step(batch), "policy_loss")):
        for half, rows in (("agent", ~expert), ("expert", expert)):
            mean = step.values_B.numpy()[rows].mean()
            assert float(step.metrics[f"imitation/{metric}_{half}"]) == pytest.approx(mean, rel=1e-4)
    assert float(step.metrics["loss/policy"]) == pytest.approx(step.values_B.numpy().mean(), rel=1e-4)


def test_team_errors_are_means_over_members():
    agent, same = (make_agent("discrete, team", memory) for memory in (SQIL, p.PrioritizedExperienceReplayParameters()))
    stacked = batches(agent)
    metrics = last_metrics(agent, stacked)
    weighted = stacked._replace(extras={}, weight=np.ones((1, BATCH), np.float32))
    error = same.update(weighted).priority[0]  # per team, mean over its members
    assert metrics["imitation/td_error_agent"] == pytest.approx(error[::2].mean(), rel=1e-5)
    assert metrics["imitation/td_error_expert"] == pytest.approx(error[1::2].mean(), rel=1e-5)


def test_empty_half_has_zero_gradient_cosine():
    agent = make_agent("discrete, imitation")
    metrics = last_metrics(agent, batches(agent, expert=np.zeros(BATCH)))
    assert metrics["imitation/gradient_cosine"] == metrics["imitation/td_error_expert"] == 0.0
    assert metrics["imitation/td_error_agent"] > 0.0
