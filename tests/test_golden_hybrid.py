"""Hybrid SAC matches golden vectors; its degenerate cases match those of discrete SAC and twin SAC."""

import golden_tools
import numpy as np
import pytest
import tensorflow as tf
from agent_tools import batch_at
from toys import hybrid_spec

from tfsac.agents import HybridSoftActorCriticAgent
from tfsac.losses import soft_actor_critic as losses
from tfsac.parameters import (
    AutoAlphaParameters,
    DiscreteAutoAlphaParameters,
    ExperienceReplayParameters,
    FixedAlphaParameters,
    HybridSoftActorCriticAgentParameters,
    HybridSoftActorCriticAlgorithmParameters,
    PrioritizedExperienceReplayParameters,
    hybrid_soft_actor_critic_networks,
)

CASES = ["family_hybrid", "family_hybrid_fixed", "family_hybrid_masked", "family_factored"]
DEGENERATE = ["discrete_sac", "discrete_sac_masked", "sac_auto_alpha"]
TOLERANCE = {"rtol": 5e-5, "atol": 5e-5}


def parameters_of(meta, **algorithm):
    networks = hybrid_soft_actor_critic_networks(
        tuple(meta["hidden"]),
        meta.get("critics", 2),
        meta.get("loss_weight", 1.0),
        learning_rate=meta["lr"],
        batch_size=meta["batch"],
    )
    memory = PrioritizedExperienceReplayParameters() if meta.get("weighted") else ExperienceReplayParameters()
    shared = {"discount": meta["gamma"], "rate_for_copying_weights_to_target": meta["tau"]}
    algorithm = HybridSoftActorCriticAlgorithmParameters(**shared, **algorithm)
    return HybridSoftActorCriticAgentParameters(algorithm=algorithm, memory=memory, networks=networks)


def hybrid_agent(case, monkeypatch, eager):
    """Returns an agent with the initial weights of a file, the arrays of the file, and its batches."""
    golden, meta = golden_tools.read(f"{case}.npz")
    algorithm, size = {}, meta["act"]
    for part, automatic, target in (
        ("discrete", DiscreteAutoAlphaParameters, {"target_entropy_ratio": meta["ratio"]}),
        ("continuous", AutoAlphaParameters, {"target_entropy": meta["target_entropy_continuous"]}),
    ):
        config = meta["temperatures"].get(part)
        if config is not None:
            learned = automatic(config["alpha"], meta["lr_alpha"], **target)
            algorithm[f"{part}_temperature"] = learned if config["learned"] else FixedAlphaParameters(config["alpha"])
    reductions = {name: meta[name] for name in ("target_reduction", "policy_reduction")}
    spec = hybrid_spec(meta["factors"], size, meta["obs"], meta["masked"])
    agent = HybridSoftActorCriticAgent(parameters_of(meta, **algorithm, **reductions), spec, eager=eager)
    golden_tools.load_weights(agent, golden, monkeypatch)
    for part in learned_parts(golden):
        temperature_of(agent, part).variable.assign(golden[f"init/log_alpha_{part}"])
    return agent, golden, batches(golden, meta)


def learned_parts(golden):
    return [part for part in ("discrete", "continuous") if f"init/log_alpha_{part}" in golden]


def temperature_of(agent, part):
    return getattr(agent, f"{part}_temperature")


def batches(golden, meta):
    action = golden["batch/action_discrete"].astype("int32")
    if meta["act"]:
        action = {"discrete": action, "continuous": np.float32(golden["batch/action_continuous"])}
    return golden_tools.batches(golden, meta, action)


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
@pytest.mark.parametrize("case", CASES)
def test_updates_match(case, eager, monkeypatch):
    agent, golden, stacked = hybrid_agent(case, monkeypatch, eager)
    result = agent.update(stacked)
    column = {name: result.metrics[:, i] for i, name in enumerate(agent.metric_names)}
    ours = {"loss/q": column["loss/q1"] + column["loss/q2"], "loss/policy": column["loss/policy"]}
    ours |= {f"loss/alpha_{part}": column[f"loss/{part}_temperature"] for part in learned_parts(golden)}
    assert {name for name in golden if name.startswith("loss/")} == set(ours)
    for name, values in ours.items():
        np.testing.assert_allclose(values, golden[name], **TOLERANCE, err_msg=name)
    for variable, name in golden_tools.names(agent):
        np.testing.assert_allclose(variable.numpy(), golden[f"after_keras/{name}"], atol=1e-5, rtol=0, err_msg=name)
    for part in learned_parts(golden):
        log_alpha = temperature_of(agent, part).variable.numpy()
        np.testing.assert_allclose(log_alpha, golden[f"after_keras/log_alpha_{part}"], atol=1e-5, rtol=0)
    np.testing.assert_allclose(column["q/target"][0], golden["inter/y"].mean(), **TOLERANCE)
    entropy, target = (f"policy/{name}" for name in ("discrete_entropy", "discrete_target_entropy"))
    np.testing.assert_allclose(column[entropy][0], golden["inter/entropy_discrete"].mean(), **TOLERANCE)
    assert (target in column) == ("discrete" in learned_parts(golden))
    if target in column:
        np.testing.assert_allclose(column[target][0], golden["inter/target_entropy_discrete"].mean(), **TOLERANCE)
    if agent.prioritized:
        np.testing.assert_allclose(result.priority[0], golden["inter/td_error"], **TOLERANCE)


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_the_first_update_match(case, monkeypatch):
    agent, golden, stacked = hybrid_agent(case, monkeypatch, eager=True)
    received = golden_tools.first_gradients(agent, stacked, monkeypatch)
    expected = {id(variable): f"grad/{name}" for variable, name in golden_tools.names(agent) if "_target" not in name}
    for part in learned_parts(golden):
        expected[id(temperature_of(agent, part).variable)] = f"grad/log_alpha_{part}"
    assert len(expected) == 12 + 2 * (case != "family_factored") + len(learned_parts(golden))
    for variable, name in expected.items():
        np.testing.assert_allclose(received[variable], golden[name], **TOLERANCE, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_intermediate_values_of_the_first_update_match(case, monkeypatch):
    agent, golden, stacked = hybrid_agent(case, monkeypatch, eager=True)
    batch = batch_at(stacked)

    def assert_policy(policy, prefix, sample):
        prob, log_prob = policy.joint()
        ours = {f"{prefix}prob": prob, f"{prefix}log_prob_discrete": log_prob}
        if policy.continuous is not None:
            ours |= {f"{prefix}action": sample[0], f"{prefix}log_prob_continuous": sample[1]}
        for name, value in ours.items():
            np.testing.assert_allclose(value, golden[f"inter/{name}"], **TOLERANCE, err_msg=name)

    policy = agent.distribution(batch.next_observation)
    action, log_prob = agent.sampled(policy, "next")
    assert_policy(policy, "next_", (action, log_prob))
    next_q = agent.q("q_target", batch.next_observation, action)
    np.testing.assert_allclose(next_q, golden["inter/next_q"], **TOLERANCE)
    value = agent.soft_value(tf.reduce_min(next_q, axis=1), policy, log_prob)
    np.testing.assert_allclose(value, golden["inter/next_value"], **TOLERANCE)
    discrete, continuous = agent.action.parts(batch.action)
    q = agent.q("q", batch.observation, continuous)
    np.testing.assert_allclose(q, golden["inter/q"], **TOLERANCE)
    np.testing.assert_array_equal(agent.joint_index(discrete, q), golden["batch/joint_action"][0])
    td_error = abs(losses.q_of_actions(q, agent.joint_index(discrete, q)) - golden["inter/y"][:, None])
    np.testing.assert_allclose(tf.reduce_mean(td_error, -1), golden["inter/td_error"], **TOLERANCE)
    agent.apply(*agent.critic_step(batch).gradients)
    _, policy, log_prob, q_policy = agent.policy_loss(batch)
    assert_policy(policy, "", agent.sampled(policy, "policy"))
    np.testing.assert_allclose(q_policy, golden["inter/q_policy"], **TOLERANCE)


@pytest.mark.parametrize("case", CASES)
def test_actions_match(case, monkeypatch):
    agent, golden, stacked = hybrid_agent(case, monkeypatch, eager=True)
    observation = batch_at(stacked).observation
    numpy = {key: value.numpy() for key, value in observation.items()}
    noise = np.float32(golden["act/uniform"])
    if agent.action.action_size:
        noise = {"discrete": noise, "continuous": np.float32(golden["noise/policy"][0])}
    monkeypatch.setattr(agent.policy, "noise", lambda rows: noise)
    agent.policy.refresh()
    for mode in ("mode", "sample"):
        live = agent.policy.act(numpy, mode="greedy" if mode == "mode" else "sample").action
        tensors, _ = agent.policy.act_tensors(
            observation, None if mode == "mode" else tf.nest.map_structure(tf.constant, noise)
        )
        for action in (live, tf.nest.map_structure(np.asarray, tensors)):
            discrete, continuous = agent.action.parts(action)
            np.testing.assert_array_equal(discrete, golden[f"act/{mode}_discrete"])
            assert discrete.dtype == np.int32
            if continuous is not None:
                np.testing.assert_allclose(continuous, golden[f"act/{mode}_continuous"], **TOLERANCE)


def degenerate_agent(case, monkeypatch, eager):
    """Returns an agent with one factor or none and the initial weights of another algorithm's file, and its batches."""
    golden, meta = golden_tools.read(f"{case}.npz")
    rate = 1 - meta["polyak"] if "polyak" in meta else meta["tau"]
    hidden = meta["hidden"] if isinstance(meta["hidden"], list) else [meta["hidden"]] * 2
    discrete = case.startswith("discrete")
    automatic = DiscreteAutoAlphaParameters if discrete else AutoAlphaParameters
    learned = automatic(meta["alpha"], meta["lr_alpha"], target_entropy=float(meta["target_entropy"]))
    part = "discrete_temperature" if discrete else "continuous_temperature"
    sizes, size = ((meta["actions"],), 0) if discrete else ((), meta["act"])
    spec = hybrid_spec(sizes, size, meta["obs"], bool(meta.get("masked")))
    parameters = parameters_of({**meta, "tau": rate, "hidden": hidden}, **{part: learned})
    agent = HybridSoftActorCriticAgent(parameters, spec, eager=eager)
    golden_tools.load_weights(agent, golden, monkeypatch)
    stacked = golden_tools.batches(golden, meta)
    return agent, golden, stacked._replace(action=stacked.action[..., None]) if discrete else stacked


@pytest.mark.parametrize("case", DEGENERATE)
def test_one_factor_equals_discrete_sac_and_none_twin_sac(case, monkeypatch):
    agent, golden, stacked = degenerate_agent(case, monkeypatch, eager=False)
    result = agent.update(stacked)
    column = {name: result.metrics[:, i] for i, name in enumerate(agent.metric_names)}
    prefix = "loss_stable" if "loss_stable/policy" in golden else "loss"
    part = "discrete" if case.startswith("discrete") else "continuous"
    for name in ("q1", "q2", "policy"):
        expected = golden[f"{prefix}/{name}"]
        np.testing.assert_allclose(column[f"loss/{name}"], expected, rtol=1e-4, atol=2e-5, err_msg=name)
    np.testing.assert_allclose(column[f"loss/{part}_temperature"], golden[f"{prefix}/alpha"], rtol=1e-4, atol=2e-5)
    for variable, name in golden_tools.names(agent):
        np.testing.assert_allclose(variable.numpy(), golden[f"after_keras/{name}"], atol=1e-5, err_msg=name)
    log_alpha = temperature_of(agent, part).variable.numpy()
    np.testing.assert_allclose(log_alpha, golden["after_keras/log_alpha"], atol=1e-5)
