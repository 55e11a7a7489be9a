"""Recurrent SAC matches golden vectors: hidden states, targets, losses, gradients, weights and acting."""

import golden_tools
import numpy as np
import pytest
import tensorflow as tf

from tfsac.agents import RecurrentDiscreteSoftActorCriticAgent, RecurrentSoftActorCriticAgent
from tfsac.parameters import (
    AutoAlphaParameters,
    DiscreteAutoAlphaParameters,
    RecurrentDiscreteSoftActorCriticAgentParameters,
    RecurrentDiscreteSoftActorCriticAlgorithmParameters,
    RecurrentSoftActorCriticAgentParameters,
    RecurrentSoftActorCriticAlgorithmParameters,
    SequenceReplayParameters,
    recurrent_soft_actor_critic_networks,
)
from tfsac.policies.base_policy import with_reward
from tfsac.types import EMPTY, PREVIOUS_ACTION, PREVIOUS_REWARD, STATE, Sequence

KINDS = ("recurrent", "recurrent_discrete")
COLUMNS = 6  # the discrete file has five; an empty column has no effect, and two replicas can share six
LOSSES = {"loss/q": "loss/q", "loss/policy": "loss/policy", "loss/temperature": "loss/alpha"}


def close(got, expected, name, atol=5e-5):
    got, scale = np.asarray(got), np.maximum(1.0, np.abs(expected))
    assert got.shape == expected.shape, name
    np.testing.assert_allclose(got / scale, expected / scale, rtol=0.0, atol=atol, err_msg=name)


def names(agent):
    """Pairs each variable of an agent's networks with its name in the file."""
    pairs = []
    for name, network in agent.networks.items():
        is_policy = name == "policy"
        layers = {"dense_0": network.middleware[0], "lstm": network.lstm.layer}
        if is_policy:
            layers |= {layer.name: layer for layer in network.head.outputs}
        else:
            hidden, out = (layer for layer in network.head.critics.layers if layer.weights)
            layers |= {"dense_1": hidden, "out": out}
        for part, layer in layers.items():
            weights = ("kernel", "recurrent_kernel", "bias") if part == "lstm" else ("kernel", "bias")
            pairs += [(getattr(layer, weight), f"{name}/{part}/{weight}") for weight in weights]
    return [*pairs, (agent.temperature.variable, "log_alpha")]


def golden_agent(kind, monkeypatch, **more):
    """Returns an agent with the initial weights and noise of a file, the arrays and metadata of the file, and its batches."""
    golden, meta = golden_tools.read(f"family_{kind}.npz")
    shared = {
        "memory": SequenceReplayParameters(sequence_length=meta["steps"] + 1),
        "networks": recurrent_soft_actor_critic_networks(
            (meta["embed"],),
            meta["units"],
            (meta["embed"],),
            discrete=kind == "recurrent_discrete",
            learning_rate=meta["lr"],
            batch_size=COLUMNS,
        ),
    }
    algorithm = {"burn_in": meta["burn_in"], "initial_state": meta["initial_state"], "discount": meta["gamma"]}
    algorithm["rate_for_copying_weights_to_target"] = meta["tau"]
    alpha = meta["temperatures"]["alpha"]["alpha"], meta["lr_alpha"]
    if kind == "recurrent":
        algorithm["temperature"] = AutoAlphaParameters(*alpha, target_entropy=meta["target_entropy"])
        shared["algorithm"] = RecurrentSoftActorCriticAlgorithmParameters(**algorithm)
        agent_class, parameters = RecurrentSoftActorCriticAgent, RecurrentSoftActorCriticAgentParameters(**shared)
    else:
        algorithm["temperature"] = DiscreteAutoAlphaParameters(*alpha, target_entropy_ratio=meta["ratio"])
        shared["algorithm"] = RecurrentDiscreteSoftActorCriticAlgorithmParameters(**algorithm)
        agent_class = RecurrentDiscreteSoftActorCriticAgent
        parameters = RecurrentDiscreteSoftActorCriticAgentParameters(**shared)
    agent = agent_class(parameters, golden_tools.spec_of(meta), **more)
    for variable, name in names(agent):
        variable.assign(golden[f"init/{name}"])
    agent.policy.refresh()
    if kind == "recurrent":
        noise = {key: tf.constant(golden[f"noise/{key}"][:, meta["burn_in"] :]) for key in ("policy", "next")}

        def golden_noise(name, shape):
            now = noise[name][agent.updates]
            assert now.shape == shape
            return agent.replica_slice(now, agent.replicas)

        monkeypatch.setattr(agent, "noise", golden_noise)
    return agent, golden, meta, sequences(golden)


def sequences(golden):
    """Returns the stacked batches of a file."""
    z = golden.with_prefix("batch/")
    empty = COLUMNS - z["reward"].shape[2]
    if empty:
        z = {name: np.pad(x, [(0, 0), (0, 0), (0, empty), *[(0, 0)] * (x.ndim - 3)]) for name, x in z.items()}
    step_type = np.where(z["valid"] == 1, z["step_type"], EMPTY).astype(np.int32)
    extras = {STATE + name: z[name] for name in (PREVIOUS_ACTION, PREVIOUS_REWARD)}
    prefix = "initial_state/"
    fields = {"policy_hidden": "hidden", "policy_cell": "cell", "q_hidden": "q_hidden", "q_cell": "q_cell"}
    state = {ours: z[prefix + theirs] for theirs, ours in fields.items() if prefix + theirs in z}
    observation = {"observation": z["obs"]}
    return Sequence(observation, z["action"], z["reward"], z["nonterminal"], step_type, extras, state or ())


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_of_the_first_update_match(kind, monkeypatch):
    agent, golden, meta, stacked = golden_agent(kind, monkeypatch, eager=True)
    burn_in, calls, states = meta["burn_in"], {}, []
    golden_tools.record(calls, monkeypatch, agent, "critic_result")
    golden_tools.record(calls, monkeypatch, agent, "policy_step")
    values, compute = [], agent.value
    monkeypatch.setattr(agent, "value", lambda *args: values.append((args, compute(*args))) or values[-1][1])
    features = agent.features
    monkeypatch.setattr(agent, "features", lambda *args: states.append(features(*args)) or states[-1])
    received = golden_tools.first_gradients(agent, stacked, monkeypatch)
    columns = slice(meta["batch"])
    mask = golden["inter/loss_mask"][burn_in:]
    # In order: the policy, the target critics, the critics, and the critics after their step.
    close(states[0][:, columns], golden["inter/policy_hidden"][burn_in:], "policy_hidden")
    close(states[1][:, columns], golden["inter/q_target_hidden"][burn_in:], "q_target_hidden")
    close(states[2][:-1, columns], golden["inter/q_hidden"][burn_in:], "q_hidden")
    assert len(states) == 4 and np.abs(states[3] - states[2]).max() > 1e-5
    is_step = mask > 0

    def close_steps(got, name, scale=1.0, atol=5e-5):
        got = np.asarray(got).reshape(len(mask), COLUMNS, *got.shape[1:])[:, columns]
        close(got[is_step], scale * golden[f"inter/{name}"][burn_in:][is_step], name, atol)

    weight = mask.shape[0] * COLUMNS / mask.sum()  # weight of a step in means over all entries
    (_, q, y, *_), _ = calls["critic_result"]
    close_steps(q, "q", weight)
    close_steps(y, "y", weight)
    ((_, policy, _, _), following), ((_, current, _, _), now) = values
    close_steps(following.soft_R, "next_value")
    if kind == "recurrent":
        close_steps(following.log_prob_R, "next_log_prob")
        close_steps(now.log_prob_R, "log_prob")
        close_steps(current.sample(tf.reshape(golden["noise/policy"][0, burn_in:], [-1, meta["act"]])), "action")
    else:
        close_steps(policy.prob, "next_prob")
        close_steps(current.prob, "prob")
        close_steps(-now.log_prob_R, "entropy")
    checked = {name for variable, name in names(agent) if "_target" not in name}
    for variable, name in names(agent):
        if name in checked:
            close(received[id(variable)], golden[f"grad/{name}"], name)
    assert len(checked) == 17


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
@pytest.mark.parametrize("kind", KINDS)
def test_updates_match(kind, eager, monkeypatch):
    agent, golden, _, stacked = golden_agent(kind, monkeypatch, eager=eager)
    result = agent.update(stacked)
    metrics = dict(zip(agent.metric_names, result.metrics.T, strict=True))
    metrics["loss/q"] = metrics["loss/q1"] + metrics["loss/q2"]
    for ours, theirs in LOSSES.items():
        close(metrics[ours], golden[theirs], theirs)
    for variable, name in names(agent):
        close(variable.numpy(), golden[f"after_keras/{name}"], name, 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_acting_step_by_step_matches(kind, monkeypatch):
    agent, golden, _, _ = golden_agent(kind, monkeypatch, eager=True)
    z, state = golden.with_prefix("act/"), None
    for t, observation in enumerate(z["obs"]):
        result = agent.policy.act({"observation": observation}, state, z["is_first"][t] == 1, "greedy")
        for field, expected in (("hidden", z["hidden"]), ("cell", z["cell"])):
            close(result.state[field], expected[t], field)
        close(result.action, z["mode"][t], "mode")
        np.testing.assert_array_equal(result.state[PREVIOUS_ACTION], result.action)
        state = with_reward(result.state, z["reward"][t])
