"""Reading golden vectors and putting their numbers into an agent."""

import json
import pathlib

import numpy as np
import tensorflow as tf

from tfsac.types import ArraySpec, DiscreteSpec, Spec, Transition

FOLDER = pathlib.Path(__file__).parent / "golden"


def read(name):
    """Returns the arrays and the meta data of a file."""
    arrays = np.load(FOLDER / name)
    return arrays, json.loads(str(arrays["meta"]))


def spec_of(meta):
    return Spec({"observation": ArraySpec((meta["obs"],), "float32")}, ArraySpec((meta["act"],), "float32"))


def discrete_spec_of(meta):
    observation = {"observation": ArraySpec((meta["obs"],), "float32")}
    if meta["masked"]:
        observation["action_mask"] = ArraySpec((meta["actions"],), "bool")
    return Spec(observation, DiscreteSpec(meta["actions"]))


def team_spec_of(meta, discrete):
    agents = meta["agents"]
    observation = {
        "agent_state": ArraySpec((agents, meta["agent_obs"]), "float32"),
        "global_state": ArraySpec((agents, meta["global_obs"]), "float32"),
    }
    if discrete:
        observation["action_mask"] = ArraySpec((agents, meta["actions"]), "bool")
        return Spec(observation, DiscreteSpec(meta["actions"], (agents,)), num_agents=agents)
    return Spec(observation, ArraySpec((agents, meta["act"]), "float32"), num_agents=agents)


def names(agent):
    """Pairs every variable of an agent's networks with its name in the file."""
    net, pairs = agent.networks, []

    def dense(layer, name):
        pairs.extend([(layer.kernel, f"{name}/kernel"), (layer.bias, f"{name}/bias")])

    for name in {"policy", "v", "v_target"} & net.keys():
        hidden = [layer for layers in net[name].embedders.values() for layer in layers] + net[name].middleware
        for i, layer in enumerate(hidden):
            dense(layer, f"{name}/dense_{i}")
    for layer in net["policy"].head.outputs:
        dense(layer, f"policy/{layer.name}")
    for name in {"v", "v_target"} & net.keys():
        dense(net[name].head.out, f"{name}/out")
    for name, suffix in (("q", ""), ("q_target", "_target")):
        for i, critic in enumerate(net[name].head.critics if name in net else ()):
            for layer, part in zip(critic, ("dense_0", "dense_1", "out"), strict=True):
                dense(layer, f"q{i + 1}{suffix}/{part}")
    return pairs


def put(agent, golden, monkeypatch):
    """Gives an agent the file's first weights and its noise, which has the updates on its first axis."""
    for variable, name in names(agent):
        variable.assign(golden[f"init/{name}"])
    noise = {key: tf.constant(golden[f"noise/{key}"], tf.float32) for key in ("policy", "next") if f"noise/{key}" in golden}
    if agent.spec.num_agents:  # one update, `[B, N, A]`
        noise = {key: tf.reshape(value, [1, -1, value.shape[-1]]) for key, value in noise.items()}
    monkeypatch.setattr(agent, "noise", lambda name, shape: agent.share_of_replica(noise[name][agent.updates]))


def batches(golden, meta):
    """Returns the file's batches, stacked."""
    z = {name.removeprefix("batch/"): golden[name].astype("float32") for name in golden if name.startswith("batch/")}
    if "obs" not in z:  # several agents; their file has one update without an axis for it
        z = {key: value[None] for key, value in z.items()}
    now = {"obs": "observation", "agent_state": "agent_state", "global_state": "global_state", "mask": "action_mask"}

    def observation(prefix):
        found = {ours: z[prefix + theirs] for theirs, ours in now.items() if prefix + theirs in z}
        return {key: value.astype(bool) if key == "action_mask" else value for key, value in found.items()}

    action = z["action"].astype("int32") if "actions" in meta and "noise/policy" not in golden else z["action"]
    return Transition(
        observation(""), action, z["reward"], np.float32(meta["gamma"]) * (1 - z["done"]), observation("next_"),
        z.get("weight", ()), {},
    )


def first_gradients(agent, stacked, monkeypatch):
    """Makes the first update and returns what each optimizer received, by id of the variable."""
    received = {}
    for optimizer in agent.optimizers.values():
        def record(gradients, variables, apply=optimizer.apply):
            received.update({id(v): g.numpy() for v, g in zip(variables, gradients, strict=True)})
            return apply(gradients, variables)
        monkeypatch.setattr(optimizer, "apply", record)
    agent.update(tf.nest.map_structure(lambda x: x[:1], stacked))
    return received
