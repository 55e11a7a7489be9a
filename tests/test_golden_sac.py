"""SAC with V, twin SAC, discrete SAC, teams and SQIL match golden vectors: losses, gradients, weights and alpha."""

import golden_tools
import numpy as np
import pytest

from tfsac.agents import DiscreteSoftActorCriticAgent, SoftActorCriticAgent, TwinSoftActorCriticAgent
from tfsac.parameters import (
    AutoAlphaParameters,
    DiscreteAutoAlphaParameters,
    DiscreteSoftActorCriticAgentParameters,
    DiscreteSoftActorCriticAlgorithmParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FixedAlphaParameters,
    PrioritizedExperienceReplayParameters,
    SoftActorCriticAgentParameters,
    SoftActorCriticAlgorithmParameters,
    SQILExperienceReplayParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    discrete_soft_actor_critic_networks,
    soft_actor_critic_networks,
    twin_soft_actor_critic_networks,
)

FIXED, WEIGHTED = ["sac_fixed_alpha", "discrete_sac_fixed"], "sac_auto_alpha_is_single"
CASES = ["sac_v", *FIXED, "sac_auto_alpha", WEIGHTED, "discrete_sac", "discrete_sac_masked"]
CASES += ["multi_agent_discrete", "multi_agent_continuous", "sqil", "sqil, alternating"]


def sac_with_v(meta, shared):
    algorithm = SoftActorCriticAlgorithmParameters(
        num_steps_between_copying_online_weights_to_target=EnvironmentSteps(1), **shared
    )
    networks = soft_actor_critic_networks(tuple(meta["hidden"]), learning_rate=meta["lr"], batch_size=meta["batch"])
    return SoftActorCriticAgent, SoftActorCriticAgentParameters(algorithm=algorithm, networks=networks)


def twin(case, meta, temperature, shared, trained, layers):
    fixed = case in FIXED
    algorithm = TwinSoftActorCriticAlgorithmParameters(
        update_order="simultaneous" if fixed else "critic_first", temperature=temperature, **shared
    )
    networks = twin_soft_actor_critic_networks(
        layers, twin_critic=meta.get("twin", True), critic_loss_weight=0.5 if fixed else 1.0, **trained
    )
    memory = PrioritizedExperienceReplayParameters() if case == WEIGHTED else ExperienceReplayParameters()
    if case.startswith("sqil"):
        memory = SQILExperienceReplayParameters(demonstrations="unused")
    parameters = TwinSoftActorCriticAgentParameters(algorithm=algorithm, memory=memory, networks=networks)
    return TwinSoftActorCriticAgent, parameters


def discrete(temperature, shared, trained, layers):
    algorithm = DiscreteSoftActorCriticAlgorithmParameters(temperature=temperature, **shared)
    networks = discrete_soft_actor_critic_networks(layers, **trained)
    return DiscreteSoftActorCriticAgent, DiscreteSoftActorCriticAgentParameters(algorithm=algorithm, networks=networks)


def golden_agent(case, monkeypatch, eager):
    """Returns an agent with the initial weights of a file, the arrays of the file, and its batches."""
    golden, meta = golden_tools.read(f"{case.partition(',')[0]}.npz")
    expert = np.repeat(np.float32([[0, 1]]), meta["batch"] // 2, axis=1)
    if case == "sqil, alternating":  # entries of both halves
        order = np.argsort(np.arange(meta["batch"]) % (meta["batch"] // 2), kind="stable")
        golden.update({name: golden[name][:, order] for name in golden if name.startswith(("batch/", "noise/"))})
        expert = expert[:, order]
    rate = 1 - meta["polyak"] if "polyak" in meta else meta["tau"]
    shared = {"discount": meta["gamma"], "rate_for_copying_weights_to_target": rate}
    if case == "sac_v":
        agent_class, parameters = sac_with_v(meta, shared)
    else:
        trained = {"learning_rate": meta["lr"], "batch_size": meta["batch"]}
        if "agents" in meta:
            trained |= {"policy_input": "agent_state", "critic_input": "global_state"}
        layers = tuple(meta["hidden"]) if isinstance(meta["hidden"], list) else (meta["hidden"],) * 2
        if case in FIXED:
            temperature = FixedAlphaParameters(meta["alpha"])
        else:
            automatic = DiscreteAutoAlphaParameters if "discrete" in case else AutoAlphaParameters
            temperature = automatic(meta["alpha"], meta["lr_alpha"], target_entropy=float(meta["target_entropy"]))
        if "discrete" in case:
            agent_class, parameters = discrete(temperature, shared, trained, layers)
        else:
            agent_class, parameters = twin(case, meta, temperature, shared, trained, layers)
    agent = agent_class(parameters, golden_tools.spec_of(meta), eager=eager)
    golden_tools.load_weights(agent, golden, monkeypatch)
    stacked = golden_tools.batches(golden, meta)
    return agent, golden, stacked._replace(extras={"expert": expert}) if agent.imitates else stacked


@pytest.mark.parametrize("case", CASES)
def test_updates_match(case, monkeypatch):
    agent, golden, stacked = golden_agent(case, monkeypatch, eager=False)
    result = agent.update(stacked)
    column = {name: result.metrics[:, i] for i, name in enumerate(agent.metric_names)}
    # DI-engine approximates the log-density; its files also have the losses with the exact one.
    prefix = "loss_stable" if "loss_stable/policy" in golden else "loss"
    losses = golden.with_prefix(f"{prefix}/")
    assert len(losses) >= 3 and ("alpha" in losses) == (case not in ["sac_v", *FIXED])
    special = {"alpha": "loss/temperature", "cosine": "imitation/gradient_cosine"}
    if agent.imitates:
        special |= {f"policy_{half}": f"imitation/policy_loss_{half}" for half in ("agent", "expert")}
        losses["cosine"] = golden["cos_similarity"]
    for name, theirs in losses.items():
        ours = column[special.get(name, f"loss/{name}")]
        np.testing.assert_allclose(ours, np.atleast_1d(theirs), rtol=1e-4, atol=2e-5, err_msg=name)
    for variable, name in golden_tools.names(agent):
        np.testing.assert_allclose(variable.numpy(), golden[f"after_keras/{name}"], atol=1e-5, err_msg=name)
    first = {"q/target": "y", **({"policy/entropy": "entropy"} if "inter/entropy" in golden else {})}
    if case == "sac_v":
        first |= {"v/next_target_value": "v_next", "policy/log_prob": "logp", "v/value": "v"}
    for ours, theirs in first.items():
        mean = golden[f"inter/{theirs}"].mean()
        np.testing.assert_allclose(column[ours][0], mean, rtol=1e-4, atol=2e-5, err_msg=ours)
    if "alpha" in losses:
        np.testing.assert_allclose(agent.temperature.variable.numpy(), golden["after_keras/log_alpha"], atol=1e-5)
    if "alpha/log_alpha_after" in golden:
        alpha_before = [golden["init/log_alpha"], *golden["alpha/log_alpha_after"][:-1]]
        np.testing.assert_allclose(column["temperature/alpha"], np.exp(alpha_before), atol=1e-5)
    if agent.imitates:
        errors = [column[f"imitation/td_error_{half}"] for half in ("agent", "expert")]
        np.testing.assert_allclose(np.sum(errors, axis=0), column["q/td_error1"] + column["q/td_error2"], rtol=1e-5)
    if case == WEIGHTED:
        # DI-engine's priority is the squared error, ours the absolute error.
        np.testing.assert_allclose(result.priority[0], np.sqrt(golden["inter/priority"]), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_the_first_update_match(case, monkeypatch):
    agent, golden, stacked = golden_agent(case, monkeypatch, eager=True)
    received = golden_tools.first_gradients(agent, stacked, monkeypatch)
    expected = {id(variable): f"grad/{name}" for variable, name in golden_tools.names(agent) if "_target" not in name}
    assert len(expected) == (18 if case == "sac_v" else 12)
    if "grad/log_alpha" in golden:
        expected[id(agent.temperature.variable)] = "grad/log_alpha"
    for variable, name in expected.items():
        np.testing.assert_allclose(received[variable], golden[name], rtol=1e-4, atol=1e-5, err_msg=name)
