"""The agent with a value network against the golden vectors: losses, gradients and weights after three updates."""

import golden_tools
import numpy as np

from tfsac.agents import SoftActorCriticAgent
from tfsac.parameters import (
    EnvironmentSteps,
    SoftActorCriticAgentParameters,
    SoftActorCriticAlgorithmParameters,
    soft_actor_critic_networks,
)

GOLDEN, META = golden_tools.read("sac_v.npz")


def golden_agent(monkeypatch, eager, batch_size=META["batch"]):
    parameters = SoftActorCriticAgentParameters(
        algorithm=SoftActorCriticAlgorithmParameters(
            discount=META["gamma"],
            rate_for_copying_weights_to_target=META["tau"],
            num_steps_between_copying_online_weights_to_target=EnvironmentSteps(1),
        ),
        networks=soft_actor_critic_networks(tuple(META["hidden"]), learning_rate=META["lr"], batch_size=batch_size),
    )
    agent = SoftActorCriticAgent(parameters, golden_tools.spec_of(META), eager=eager)
    golden_tools.put(agent, GOLDEN, monkeypatch)
    return agent


def batches():
    return golden_tools.batches(GOLDEN, META)


def test_three_updates_match(monkeypatch):
    agent = golden_agent(monkeypatch, eager=False)
    metrics = agent.update(batches()).metrics
    column = {name: metrics[:, i] for i, name in enumerate(agent.metric_names)}
    for ours, theirs in {"loss/policy": "policy", "loss/v": "v", "loss/q1": "q1", "loss/q2": "q2"}.items():
        np.testing.assert_allclose(column[ours], GOLDEN[f"loss/{theirs}"], rtol=1e-4, atol=2e-5, err_msg=ours)
    for variable, name in golden_tools.names(agent):
        np.testing.assert_allclose(variable.numpy(), GOLDEN[f"after_keras/{name}"], atol=1e-5, err_msg=name)
    first = {"v/next_target_value": "v_next", "q/target": "y", "policy/log_prob": "logp", "v/value": "v"}
    for ours, theirs in first.items():
        np.testing.assert_allclose(
            column[ours][0], GOLDEN[f"inter/{theirs}"].mean(), rtol=1e-4, atol=2e-5, err_msg=ours
        )


def test_gradients_of_the_first_update_match(monkeypatch):
    agent = golden_agent(monkeypatch, eager=True)
    received = golden_tools.first_gradients(agent, batches(), monkeypatch)
    checked = 0
    for variable, name in golden_tools.names(agent):
        if not name.startswith("v_target"):
            np.testing.assert_allclose(
                received[id(variable)], GOLDEN[f"grad/{name}"], rtol=1e-4, atol=1e-5, err_msg=name
            )
            checked += 1
    assert checked == 18
