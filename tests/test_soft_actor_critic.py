"""The agent: what each step trains, the order, periods, options, acting, compilation and seeds."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from agent_tools import changed, named, one, weights
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
    """Small networks; `changes` are fields of one network, `v__l2_regularization=0.1`, or of all."""
    fields = {"learning_rate": 1e-2, "batch_size": BATCH, **{k: v for k, v in changes.items() if "__" not in k}}
    networks = soft_actor_critic_networks((8, 8), **fields)
    for name in networks:
        own = {key.split("__")[1]: value for key, value in changes.items() if key.startswith(f"{name}__")}
        networks[name] = dataclasses.replace(networks[name], **own)
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


# -- gradients stop where they should ----------------------------------------------------------------------------------


STEPS = {
    "policy": lambda agent, batch: agent.apply(*agent.policy_step(batch).gradients),
    "v": lambda agent, batch: agent.apply(*agent.value_step(batch, tf.ones(BATCH)).gradients),
    "q": lambda agent, batch: agent.apply(*agent.critic_step(batch).gradients),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_trains_its_own_network_and_leaves_the_others_bit_identical(name):
    agent, batch = make_agent(), one(batches(1))
    before = weights(agent)
    STEPS[name](agent, batch)
    after = weights(agent)
    assert changed(before, after) == {name}
    assert all((a != b).any() for a, b in zip(before[name], after[name], strict=True))


# -- the order ---------------------------------------------------------------------------------------------------------


def test_without_a_target_network_the_critic_bootstraps_from_the_new_v():
    agent, stacked = make_agent(create_target_network=False, tau=0.005), batches(1)
    assert set(agent.networks) == {"policy", "v", "q"}
    old = agent.networks["v"](one(stacked).next_observation).numpy().mean()
    metrics = named(agent, stacked)
    new = agent.networks["v"](one(stacked).next_observation).numpy().mean()
    assert metrics["v/next_target_value"] == pytest.approx(new, rel=1e-5, abs=1e-6)
    assert abs(new - old) > 1e-4


# -- periods, one update per call --------------------------------------------------------------------------------------


def test_the_target_network_and_a_delayed_policy_wait_for_their_turn_also_with_one_update_per_call():
    agent, stacked, moved = make_agent(period=2, delay=3), batches(5), []
    for i in range(5):
        before = weights(agent)
        agent.update(tf.nest.map_structure(lambda x, i=i: x[i : i + 1], stacked))
        moved.append(changed(before, weights(agent)) - {"v", "q"})
    assert moved == [set(), {"v_target"}, {"policy"}, {"v_target"}, set()]


# -- priorities and importance weights ---------------------------------------------------------------------------------


def test_importance_weights_multiply_the_critics_losses_alone_and_priorities_are_mean_errors():
    weight = np.linspace(0.1, 1.0, BATCH, dtype=np.float32)[None]
    agent, plain, stacked = make_agent(prioritised=True), make_agent(), batches(1)
    batch = one(stacked)
    q = agent.networks["q"](batch.observation, batch.action).numpy()
    target = stacked.reward[0] + stacked.discount[0] * agent.networks["v_target"](batch.next_observation).numpy()
    error = np.abs(q - target[:, None]).mean(axis=1)
    result, unweighted = agent.update(stacked._replace(weight=weight)), named(plain, stacked)
    np.testing.assert_allclose(result.priority[0], error, rtol=1e-4, atol=1e-5)
    found = dict(zip(agent.metric_names, result.metrics[0], strict=True))
    for i in range(2):
        loss = (weight[0] * 0.5 * (q[:, i] - target) ** 2).mean()
        np.testing.assert_allclose(found[f"loss/q{i + 1}"], loss, rtol=1e-5)
    differing = {name for name in found if found[name] != unweighted[name]}
    assert differing == {"loss/q1", "loss/q2", "q/gradient_norm"}
    assert changed(weights(agent), weights(plain)) == {"q"}


# -- options -----------------------------------------------------------------------------------------------------------


def head(kind, **fields):
    return {"policy": SACPolicyHeadParameters, "v": VHeadParameters, "q": QHeadParameters}[kind](**fields)


@pytest.mark.parametrize("name", ["policy", "v", "q"])
def test_a_loss_weight_multiplies_the_gradient(name):
    layers = {"network_layers_sizes": (8, 8)} if name == "q" else {}
    plain = named(make_agent(**{f"{name}__head_parameters": head(name, **layers)}), batches(1))
    heavy = named(make_agent(**{f"{name}__head_parameters": head(name, loss_weight=3.0, **layers)}), batches(1))
    assert heavy[f"{name}/gradient_norm"] == pytest.approx(3 * plain[f"{name}/gradient_norm"], rel=1e-4)


@pytest.mark.parametrize("name", ["policy", "v", "q"])
def test_l2_regularization_pulls_kernels_and_no_biases(monkeypatch, name):
    layers = {"network_layers_sizes": (8, 8)} if name == "q" else {}
    only_penalty = {
        f"{name}__head_parameters": head(name, loss_weight=0.0, **layers),
        f"{name}__l2_regularization": 0.5,
    }
    agent = make_agent(**only_penalty)
    kernels = {variable.path: variable.numpy() for variable in agent.networks[name].trainable_variables}
    received = gradients_received(monkeypatch, agent, name)
    metrics = named(agent, batches(1))
    for variable, gradient in received:
        expected = 0.5 * kernels[variable.path] if variable.name == "kernel" else 0.0 * gradient
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)
    penalty = sum(0.5 * 0.5 * (kernel**2).sum() for kernel in kernels.values())
    if name != "q":
        assert metrics[f"loss/{name}"] == pytest.approx(penalty, rel=1e-5)


def gradients_received(monkeypatch, agent, name):
    """Pairs of variable and gradient that the optimizer of a network is given from now on."""
    received, optimizer = [], agent.optimizers[name]
    apply = optimizer.apply

    def record(gradients, variables):
        received.extend(zip(variables, [gradient.numpy() for gradient in gradients], strict=True))
        return apply(gradients, variables)

    monkeypatch.setattr(optimizer, "apply", record)
    return received


@pytest.mark.parametrize("name", ["policy", "q"])
def test_gradients_are_clipped_and_reported_unclipped(monkeypatch, name):
    agent = make_agent(**{f"{name}__clip_gradients": 1e-3})
    received = gradients_received(monkeypatch, agent, name)
    metrics = named(agent, batches(1))
    norm = np.sqrt(sum((gradient.astype(np.float64) ** 2).sum() for _, gradient in received))
    assert norm == pytest.approx(1e-3, rel=1e-4)
    assert metrics[f"{name}/gradient_norm"] > 2e-3
    assert metrics[f"{name}/gradient_norm"] == pytest.approx(
        named(make_agent(), batches(1))[f"{name}/gradient_norm"], rel=1e-5
    )


# -- acting ------------------------------------------------------------------------------------------------------------


def see(rows, seed=0):
    return {"observation": np.random.default_rng(seed).normal(size=(rows, 3)).astype(np.float32)}


def test_random_actions_are_uniform_over_the_action_space():
    action = make_agent().policy.act(see(4000), mode="random").action
    assert action.shape == (4000, 2) and action.dtype == np.float32
    assert np.abs(action).max() <= 1.0
    counts = np.histogram(action, bins=10, range=(-1, 1))[0]
    np.testing.assert_allclose(counts, 800, atol=6 * np.sqrt(800))


def test_sampled_actions_have_the_distribution_of_the_policy():
    agent = make_agent()
    same = {"observation": np.repeat(see(1)["observation"], 20_000, axis=0)}
    loc, log_scale = (x.numpy() for x in agent.networks["policy"](see(1)))
    u = np.arctanh(np.clip(agent.policy.act(same, mode="sample").action.astype(np.float64), -1 + 1e-7, 1 - 1e-7))
    np.testing.assert_allclose(np.median(u, axis=0), loc[0], atol=0.05 * np.exp(log_scale).max())
    spread = (np.quantile(u, 0.8413, axis=0) - np.quantile(u, 0.1587, axis=0)) / 2
    np.testing.assert_allclose(spread, np.exp(log_scale[0]), rtol=0.05)


def test_exploration_adds_clipped_noise_while_training_only():
    plain, noisy = make_agent(), make_agent(exploration=AdditiveNoiseParameters(0.1))
    for mode in ("greedy", "sample"):
        np.testing.assert_array_equal(
            plain.policy.act(see(50), mode=mode).action, noisy.policy.act(see(50), mode=mode).action
        )
    quiet, loud = (agent.policy.act(see(5000), mode="explore").action for agent in (plain, noisy))
    inside = np.abs(quiet) < 0.5
    assert (loud - quiet)[inside].std() == pytest.approx(0.1, rel=0.05)
    assert np.abs(loud).max() <= 1.0 and loud.dtype == np.float32


def test_the_policy_is_clipped_when_acting_as_when_learning():
    agent = make_agent()
    agent.networks["policy"].head.output.bias.assign([0.0, 0.0, -100.0, 100.0])
    agent.policy.refresh()
    action = agent.policy.act(see(1000), mode="sample").action
    greedy = agent.policy.act(see(1000), mode="greedy").action
    np.testing.assert_allclose(action[:, 0], greedy[:, 0], atol=1e-6)
    # A scale of exp(2), not exp(100), still leaves some actions inside.
    assert 0.05 < (np.abs(action[:, 1]) < 0.9).mean() < 0.5


# -- compilation -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_single_updates_run_in_one_trace_and_any_number_in_another():
    agent = make_agent(eager=False)
    for updates, traces in ((1, 1), (1, 1), (5, 2), (50, 2), (1, 2)):
        assert agent.update(batches(updates)).metrics.shape == (updates, len(agent.metric_names))
        assert agent.compiled.traces == traces


def test_noise_depends_on_the_update_and_the_name_and_nothing_else():
    agent = make_agent(seed=7)
    first = agent.noise("policy", [500, 2]).numpy()
    np.testing.assert_array_equal(first, agent.noise("policy", [500, 2]))
    another_name = agent.noise("critic", [500, 2]).numpy()
    agent.updates.assign_add(1)
    for noise in (another_name, agent.noise("policy", [500, 2]).numpy()):
        assert abs(np.corrcoef(first.ravel(), noise.ravel())[0, 1]) < 0.15
    assert first.mean() == pytest.approx(0, abs=0.15) and first.std() == pytest.approx(1, abs=0.1)
