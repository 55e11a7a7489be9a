"""Discrete agent and several agents against the golden vectors: losses, gradients, weights and alpha."""

import golden_tools
import numpy as np
import pytest

from tfsac.agents import DiscreteSoftActorCriticAgent, TwinSoftActorCriticAgent
from tfsac.parameters import (
    AutoAlphaParameters,
    DiscreteAutoAlphaParameters,
    DiscreteSoftActorCriticAgentParameters,
    DiscreteSoftActorCriticAlgorithmParameters,
    FixedAlphaParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    discrete_soft_actor_critic_networks,
    twin_soft_actor_critic_networks,
)

CASES = ["discrete_sac", "discrete_sac_fixed", "discrete_sac_masked", "multi_agent_discrete", "multi_agent_continuous"]
TEAM = {"policy_input": "agent_state", "critic_input": "global_state"}


def golden_agent(case, monkeypatch, eager):
    golden, meta = golden_tools.read(f"{case}.npz")
    team, continuous = case.startswith("multi_agent"), case == "multi_agent_continuous"
    target = {
        "target_entropy": float(meta["target_entropy"]),
        "learning_rate": meta["lr_alpha"],
        "initial_alpha": meta["alpha"],
    }
    trained = {"learning_rate": meta["lr"], "batch_size": meta["batch"], **(TEAM if team else {})}
    shared = {"discount": meta["gamma"], "rate_for_copying_weights_to_target": meta["tau"]}
    if continuous:
        agent = TwinSoftActorCriticAgent(
            TwinSoftActorCriticAgentParameters(
                algorithm=TwinSoftActorCriticAlgorithmParameters(temperature=AutoAlphaParameters(**target), **shared),
                networks=twin_soft_actor_critic_networks((meta["hidden"],) * 2, **trained),
            ),
            golden_tools.team_spec_of(meta, discrete=False),
            eager=eager,
        )
    else:
        fixed = case == "discrete_sac_fixed"
        temperature = FixedAlphaParameters(meta["alpha"]) if fixed else DiscreteAutoAlphaParameters(**target)
        agent = DiscreteSoftActorCriticAgent(
            DiscreteSoftActorCriticAgentParameters(
                algorithm=DiscreteSoftActorCriticAlgorithmParameters(temperature=temperature, **shared),
                networks=discrete_soft_actor_critic_networks((meta["hidden"],) * 2, **trained),
            ),
            golden_tools.team_spec_of(meta, discrete=True) if team else golden_tools.discrete_spec_of(meta),
            eager=eager,
        )
    golden_tools.put(agent, golden, monkeypatch)
    return agent, golden, golden_tools.batches(golden, meta)


@pytest.mark.parametrize("case", CASES)
def test_updates_match(case, monkeypatch):
    agent, golden, stacked = golden_agent(case, monkeypatch, eager=False)
    result = agent.update(stacked)
    column = {name: result.metrics[:, i] for i, name in enumerate(agent.metric_names)}
    # DI-engine's log-density is an approximation; the file has its losses with the exact one too.
    prefix = "loss_stable" if case == "multi_agent_continuous" else "loss"
    expected = {name.removeprefix(f"{prefix}/"): golden[name] for name in golden if name.startswith(f"{prefix}/")}
    assert expected.keys() == {"q1", "q2", "policy", "alpha"} - ({"alpha"} if case == "discrete_sac_fixed" else set())
    for name, values in expected.items():
        ours = column["loss/temperature" if name == "alpha" else f"loss/{name}"]
        np.testing.assert_allclose(ours, np.atleast_1d(values), rtol=1e-4, atol=2e-5, err_msg=name)
    for variable, name in golden_tools.names(agent):
        np.testing.assert_allclose(variable.numpy(), golden[f"after_keras/{name}"], atol=1e-5, err_msg=name)
    np.testing.assert_allclose(column["q/target"][0], golden["inter/y"].mean(), rtol=1e-4, atol=2e-5)
    if "inter/entropy" in golden:
        np.testing.assert_allclose(column["policy/entropy"][0], golden["inter/entropy"].mean(), rtol=1e-4, atol=2e-5)
    if case != "discrete_sac_fixed":
        np.testing.assert_allclose(agent.temperature.variable.numpy(), golden["after_keras/log_alpha"], atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_the_first_update_match(case, monkeypatch):
    agent, golden, stacked = golden_agent(case, monkeypatch, eager=True)
    received = golden_tools.first_gradients(agent, stacked, monkeypatch)
    checked = 0
    for variable, name in golden_tools.names(agent):
        if "_target" not in name:
            np.testing.assert_allclose(
                received[id(variable)], golden[f"grad/{name}"], rtol=1e-4, atol=1e-5, err_msg=name
            )
            checked += 1
    assert checked == 12
    if case != "discrete_sac_fixed":
        np.testing.assert_allclose(
            received[id(agent.temperature.variable)], golden["grad/log_alpha"], rtol=1e-4, atol=1e-5
        )
