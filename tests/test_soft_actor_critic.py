"""SAC with V: trained networks, target periods, options, exploration and compilation."""

import dataclasses

import golden_tools
import numpy as np
import pytest
import tensorflow as tf
from agent_tools import batch_at, changed, last_metrics, weights
from toys import random_batches, vector_spec

from tfsac.agents import SoftActorCriticAgent
from tfsac.parameters import (
    AdditiveNoiseParameters,
    EnvironmentSteps,
    PrioritizedExperienceReplayParameters,
    QHeadParameters,
    SACPolicyHeadParameters,
    SoftActorCriticAgentParameters,
    SoftActorCriticAlgorithmParameters,
    TrainingSteps,
    VHeadParameters,
    soft_actor_critic_networks,
)

BATCH = 8
SPEC = vector_spec(3, 2)


def make_agent(seed=0, eager=True, period=1, tau=0.25, exploration=None, delay=1, prioritised=False, **changes):
    """Returns a small agent; `changes` are fields of all networks or of one, as in `v__l2_regularization=0.1`."""
    fields = {"learning_rate": 1e-2, "batch_size": BATCH, **{k: v for k, v in changes.items() if "__" not in k}}
    networks = soft_actor_critic_networks((8, 8), **fields)
    for name in networks:
        network_changes = {key.split("__")[1]: value for key, value in changes.items() if key.startswith(f"{name}__")}
        networks[name] = dataclasses.replace(networks[name], **network_changes)
    algorithm = SoftActorCriticAlgorithmParameters(
        rate_for_copying_weights_to_target=tau,
        num_steps_between_copying_online_weights_to_target=TrainingSteps(period) if period > 1 else EnvironmentSteps(1),
        num_updates_between_policy_updates=delay,
    )
    memory = {"memory": PrioritizedExperienceReplayParameters()} if prioritised else {}
    parameters = SoftActorCriticAgentParameters(algorithm, exploration, networks=networks, **memory)
    return SoftActorCriticAgent(parameters, SPEC, seed=seed, eager=eager)


def batches(updates):
    return random_batches(SPEC, updates, BATCH)


STEPS = {
    "policy": lambda agent, batch: agent.apply(*agent.policy_step(batch).gradients),
    "v": lambda agent, batch: agent.apply(*agent.value_step(batch, tf.ones(BATCH)).gradients),
    "q": lambda agent, batch: agent.apply(*agent.critic_step(batch).gradients),
}


@pytest.mark.parametrize("name", STEPS)
def test_each_step_trains_only_its_network(name):
    agent, batch = make_agent(), batch_at(batches(1))
    before = weights(agent)
    STEPS[name](agent, batch)
    after = weights(agent)
    assert changed(before, after) == {name}
    assert all((a != b).any() for a, b in zip(before[name], after[name], strict=True))


def test_critic_bootstraps_from_new_v_without_target_network():
    agent, stacked = make_agent(create_target_network=False, tau=0.005), batches(1)
    assert set(agent.networks) == {"policy", "v", "q"}
    old = agent.networks["v"](batch_at(stacked).next_observation).numpy().mean()
    metrics = last_metrics(agent, stacked)
    new = agent.networks["v"](batch_at(stacked).next_observation).numpy().mean()
    assert metrics["v/next_target_value"] == pytest.approx(new, rel=1e-5, abs=1e-6)
    assert abs(new - old) > 1e-4


def test_target_period_and_policy_delay_across_calls():
    agent, stacked, changes_by_call = make_agent(period=2, delay=3), batches(5), []
    for i in range(5):
        before = weights(agent)
        agent.update(tf.nest.map_structure(lambda x, i=i: x[i : i + 1], stacked))
        changes_by_call.append(changed(before, weights(agent)) - {"v", "q"})
    assert changes_by_call == [set(), {"v_target"}, {"policy"}, {"v_target"}, set()]


def test_importance_weights_affect_only_critics():
    weight = np.linspace(0.1, 1.0, BATCH, dtype=np.float32)[None]
    agent, plain = make_agent(prioritised=True), make_agent()
    weighted, unweighted = last_metrics(agent, batches(1)._replace(weight=weight)), last_metrics(plain, batches(1))
    differing = {name for name in weighted if weighted[name] != unweighted[name]}
    assert differing == {"loss/q1", "loss/q2", "q/gradient_norm"}
    assert changed(weights(agent), weights(plain)) == {"q"}


HEADS = {
    "policy": lambda loss_weight: SACPolicyHeadParameters(loss_weight=loss_weight),
    "v": lambda loss_weight: VHeadParameters(loss_weight=loss_weight),
    "q": lambda loss_weight: QHeadParameters((8, 8), loss_weight=loss_weight),
}


@pytest.mark.parametrize("name", HEADS)
def test_loss_weight_scales_the_gradient(name):
    plain, heavy = (
        last_metrics(make_agent(**{f"{name}__head_parameters": HEADS[name](loss_weight)}), batches(1))
        for loss_weight in (1.0, 3.0)
    )
    assert heavy[f"{name}/gradient_norm"] == pytest.approx(3 * plain[f"{name}/gradient_norm"], rel=1e-4)


@pytest.mark.parametrize("name", HEADS)
def test_l2_regularization_applies_to_kernels_only(monkeypatch, name):
    only_penalty = {f"{name}__head_parameters": HEADS[name](0.0), f"{name}__l2_regularization": 0.5}
    agent = make_agent(**only_penalty)
    variables = agent.networks[name].trainable_variables
    before = [variable.numpy() for variable in variables]
    received = golden_tools.first_gradients(agent, batches(1), monkeypatch)
    for variable, value in zip(variables, before, strict=True):
        expected = 0.5 * value if variable.name == "kernel" else 0.0 * value
        np.testing.assert_allclose(received[id(variable)], expected, rtol=1e-5, atol=1e-7)
    if name != "q":
        penalty = sum(0.5 * 0.5 * (value**2).sum() for value in before)  # initial biases are zero
        assert last_metrics(make_agent(**only_penalty), batches(1))[f"loss/{name}"] == pytest.approx(penalty, rel=1e-5)


@pytest.mark.parametrize("name", ["policy", "q"])
def test_clipped_gradients_and_unclipped_metrics(monkeypatch, name):
    clipped = {f"{name}__clip_gradients": 1e-3}
    agent = make_agent(**clipped)
    received = golden_tools.first_gradients(agent, batches(1), monkeypatch)
    squares = [np.square(received[id(v)]).sum() for v in agent.networks[name].trainable_variables]
    assert np.sqrt(np.sum(squares)) == pytest.approx(1e-3, rel=1e-4)
    norm, expected = (last_metrics(make_agent(**x), batches(1))[f"{name}/gradient_norm"] for x in (clipped, {}))
    assert norm == pytest.approx(expected, rel=1e-5) and norm > 2e-3


def observe(rows, seed=0):
    return {"observation": np.random.default_rng(seed).normal(size=(rows, 3)).astype(np.float32)}


def test_exploration_noise_only_in_explore_mode():
    plain, noisy = make_agent(), make_agent(exploration=AdditiveNoiseParameters(0.1))
    for mode in ("greedy", "sample"):
        np.testing.assert_array_equal(
            plain.policy.act(observe(50), mode=mode).action,
            noisy.policy.act(observe(50), mode=mode).action,
        )
    without_noise, with_noise = (agent.policy.act(observe(5000), mode="explore").action for agent in (plain, noisy))
    inside = np.abs(without_noise) < 0.5
    assert (with_noise - without_noise)[inside].std() == pytest.approx(0.1, rel=0.05)
    assert np.abs(with_noise).max() <= 1.0 and with_noise.dtype == np.float32


@pytest.mark.slow
def test_at_most_two_traces():
    agent = make_agent(eager=False)
    for updates, traces in ((1, 1), (1, 1), (5, 2), (50, 2), (1, 2)):
        assert agent.update(batches(updates)).metrics.shape == (updates, len(agent.metric_names))
        assert agent.compiled.traces == traces
