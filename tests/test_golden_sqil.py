"""Soft Q imitation learning against the golden vectors: the update, and the diagnostics of both halves of the batch."""

import golden_tools
import numpy as np

from tfsac.agents import TwinSoftActorCriticAgent
from tfsac.parameters import (
    AutoAlphaParameters,
    SQILExperienceReplayParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    twin_soft_actor_critic_networks,
)


def golden_agent(monkeypatch, eager=False, alternating=False):
    """Returns the agent, the file and its batch: as the file has it, or with rows of both halves by turns."""
    golden, meta = golden_tools.read("sqil.npz")
    half = meta["batch"] // 2
    if alternating:
        order = np.arange(2 * half).reshape(2, half).T.ravel()
        golden.update({name: golden[name][:, order] for name in golden if name.startswith(("batch/", "noise/"))})
    temperature = AutoAlphaParameters(
        initial_alpha=meta["alpha"], learning_rate=meta["lr_alpha"], target_entropy=float(meta["target_entropy"])
    )
    agent = TwinSoftActorCriticAgent(
        TwinSoftActorCriticAgentParameters(
            algorithm=TwinSoftActorCriticAlgorithmParameters(
                discount=meta["gamma"], rate_for_copying_weights_to_target=meta["tau"], temperature=temperature
            ),
            memory=SQILExperienceReplayParameters(demonstrations="not read here"),
            networks=twin_soft_actor_critic_networks(
                (meta["hidden"],) * 2, learning_rate=meta["lr"], batch_size=meta["batch"]
            ),
        ),
        golden_tools.spec_of(meta),
        eager=eager,
    )
    golden_tools.put(agent, golden, monkeypatch)
    stacked = golden_tools.batches(golden, meta)
    expert = (np.arange(2 * half) % 2 if alternating else np.arange(2 * half) >= half).astype("float32")[None]
    np.testing.assert_array_equal(stacked.reward, expert)
    return agent, golden, stacked._replace(extras={"expert": expert})


def test_losses_weights_and_diagnostics_match(monkeypatch):
    check(*golden_agent(monkeypatch))


def test_updates_of_alternating_halves_match(monkeypatch):
    check(*golden_agent(monkeypatch, alternating=True))


def check(agent, golden, stacked):
    """Makes the file's update and compares."""
    metrics = agent.update(stacked).metrics
    column = dict(zip(agent.metric_names, metrics[0], strict=True))
    expected = {f"loss/{name}": golden[f"loss_stable/{name}"] for name in ("q1", "q2", "policy")}
    expected["loss/temperature"] = golden["loss_stable/alpha"]
    for half in ("agent", "expert"):
        expected[f"imitation/policy_loss_{half}"] = golden[f"loss_stable/policy_{half}"]
    expected["imitation/gradient_cosine"] = golden["cos_similarity"]
    half = len(golden["inter/priority"]) // 2
    error = np.sqrt(golden["inter/priority"])  # the file has squared errors, of which each critic's is the half's mean
    for name, value in expected.items():
        np.testing.assert_allclose(column[name], np.squeeze(value), rtol=1e-4, atol=2e-5, err_msg=name)
    for variable, name in golden_tools.names(agent):
        np.testing.assert_allclose(variable.numpy(), golden[f"after_keras/{name}"], atol=1e-5, err_msg=name)
    assert column["imitation/td_error_agent"] <= error[:half].mean() + 1e-4  # mean of |errors| <= root of mean square
    assert column["imitation/td_error_expert"] <= error[half:].mean() + 1e-4
    both = 0.5 * (column["imitation/td_error_agent"] + column["imitation/td_error_expert"])
    np.testing.assert_allclose(both, 0.5 * (column["q/td_error1"] + column["q/td_error2"]), rtol=1e-5)


def test_the_policy_gradient_is_the_mean_of_the_halves(monkeypatch):
    agent, golden, stacked = golden_agent(monkeypatch, eager=True)
    received = golden_tools.first_gradients(agent, stacked, monkeypatch)
    for variable, name in golden_tools.names(agent):
        if name.startswith("policy"):
            mean = 0.5 * (golden[f"grad_agent/{name}"] + golden[f"grad_expert/{name}"])
            np.testing.assert_allclose(received[id(variable)], mean, rtol=1e-4, atol=1e-5, err_msg=name)
