"""The agent against the golden vectors: losses, gradients and weights after three updates."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tfsac.agents import SoftActorCriticAgent
from tfsac.parameters import (
    EnvironmentSteps,
    SoftActorCriticAgentParameters,
    SoftActorCriticAlgorithmParameters,
    soft_actor_critic_networks,
)
from tfsac.types import ArraySpec, Spec, Transition

GOLDEN = np.load(pathlib.Path(__file__).parent / "golden" / "sac_v.npz")
META = json.loads(str(GOLDEN["meta"]))


def names(agent):
    """Pairs every variable with its name in the file."""
    net = agent.networks
    policy = net["policy"]
    pairs = []

    def dense(layer, name):
        pairs.extend([(layer.kernel, f"{name}/kernel"), (layer.bias, f"{name}/bias")])

    dense(policy.embedders["observation"][0], "policy/dense_0")
    dense(policy.middleware[0], "policy/dense_1")
    dense(policy.head.mean, "policy/mean")
    dense(policy.head.log_std, "policy/log_std")
    for name in ("v", "v_target"):
        dense(net[name].embedders["observation"][0], f"{name}/dense_0")
        dense(net[name].middleware[0], f"{name}/dense_1")
        dense(net[name].head.out, f"{name}/out")
    for critic, name in zip(net["q"].head.critics, ("q1", "q2"), strict=True):
        for layer, part in zip(critic, ("dense_0", "dense_1", "out"), strict=True):
            dense(layer, f"{name}/{part}")
    return pairs


def golden_agent(monkeypatch, eager, batch_size=META["batch"]):
    parameters = SoftActorCriticAgentParameters(
        algorithm=SoftActorCriticAlgorithmParameters(
            discount=META["gamma"], rate_for_copying_weights_to_target=META["tau"],
            num_steps_between_copying_online_weights_to_target=EnvironmentSteps(1),
        ),
        networks=soft_actor_critic_networks(tuple(META["hidden"]), learning_rate=META["lr"], batch_size=batch_size),
    )
    spec = Spec({"observation": ArraySpec((META["obs"],), "float32")}, ArraySpec((META["act"],), "float32"))
    agent = SoftActorCriticAgent(parameters, spec, eager=eager)
    for variable, name in names(agent):
        variable.assign(GOLDEN[f"init/{name}"])
    noise = tf.constant(GOLDEN["noise/policy"], tf.float32)
    monkeypatch.setattr(agent, "noise", lambda name, shape: agent.share_of_replica(noise[agent.updates]))
    return agent


def batches():
    z = {key: GOLDEN[f"batch/{key}"].astype("float32") for key in ("obs", "action", "reward", "next_obs", "done")}
    return Transition(
        {"observation": z["obs"]}, z["action"], z["reward"], np.float32(META["gamma"]) * (1 - z["done"]),
        {"observation": z["next_obs"]}, (), {},
    )


@pytest.mark.parametrize("eager", [False, True])
def test_three_updates_match(monkeypatch, eager):
    agent = golden_agent(monkeypatch, eager)
    metrics = agent.update(batches())
    column = {name: metrics[:, i] for i, name in enumerate(agent.metric_names)}
    for ours, theirs in {"loss/policy": "policy", "loss/v": "v", "loss/q1": "q1", "loss/q2": "q2"}.items():
        np.testing.assert_allclose(column[ours], GOLDEN[f"loss/{theirs}"], rtol=1e-4, atol=2e-5, err_msg=ours)
    for variable, name in names(agent):
        np.testing.assert_allclose(variable.numpy(), GOLDEN[f"after_keras/{name}"], atol=1e-5, err_msg=name)
    first = {"v/next_target_value": "v_next", "q/target": "y", "policy/log_prob": "logp", "v/value": "v"}
    for ours, theirs in first.items():
        np.testing.assert_allclose(column[ours][0], GOLDEN[f"inter/{theirs}"].mean(), rtol=1e-4, atol=2e-5, err_msg=ours)


def test_gradients_of_the_first_update_match(monkeypatch):
    agent = golden_agent(monkeypatch, eager=True)
    received = {}
    for name, optimizer in agent.optimizers.items():
        def record(gradients, variables, name=name, apply=optimizer.apply):
            received.update({id(v): g.numpy() for v, g in zip(variables, gradients, strict=True)})
            return apply(gradients, variables)
        monkeypatch.setattr(optimizer, "apply", record)
    agent.update(tf.nest.map_structure(lambda x: x[:1], batches()))
    checked = 0
    for variable, name in names(agent):
        if not name.startswith("v_target"):
            np.testing.assert_allclose(received[id(variable)], GOLDEN[f"grad/{name}"], rtol=1e-4, atol=1e-5, err_msg=name)
            checked += 1
    assert checked == 26
