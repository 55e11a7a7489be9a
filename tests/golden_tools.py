"""Reading golden vectors and putting their numbers into an agent."""

import json
import pathlib

import numpy as np
import tensorflow as tf

from tfsac.types import ArraySpec, Spec, Transition

FOLDER = pathlib.Path(__file__).parent / "golden"


def read(name):
    """Returns the arrays and the meta data of a file."""
    arrays = np.load(FOLDER / name)
    return arrays, json.loads(str(arrays["meta"]))


def spec_of(meta):
    return Spec({"observation": ArraySpec((meta["obs"],), "float32")}, ArraySpec((meta["act"],), "float32"))


def names(agent):
    """Pairs every variable of an agent's networks with its name in the file."""
    net, pairs = agent.networks, []

    def dense(layer, name):
        pairs.extend([(layer.kernel, f"{name}/kernel"), (layer.bias, f"{name}/bias")])

    for name in {"policy", "v", "v_target"} & net.keys():
        dense(net[name].embedders["observation"][0], f"{name}/dense_0")
        dense(net[name].middleware[0], f"{name}/dense_1")
    dense(net["policy"].head.mean, "policy/mean")
    dense(net["policy"].head.log_std, "policy/log_std")
    for name in {"v", "v_target"} & net.keys():
        dense(net[name].head.out, f"{name}/out")
    for name, suffix in (("q", ""), ("q_target", "_target")):
        for i, critic in enumerate(net[name].head.critics if name in net else ()):
            for layer, part in zip(critic, ("dense_0", "dense_1", "out"), strict=True):
                dense(layer, f"q{i + 1}{suffix}/{part}")
    return pairs


def put(agent, golden, monkeypatch):
    """Gives an agent the file's first weights and its noise."""
    for variable, name in names(agent):
        variable.assign(golden[f"init/{name}"])
    noise = {key: tf.constant(golden[f"noise/{key}"], tf.float32) for key in ("policy", "next") if f"noise/{key}" in golden}
    monkeypatch.setattr(agent, "noise", lambda name, shape: agent.share_of_replica(noise[name][agent.updates]))


def batches(golden, meta):
    """Returns the file's batches, stacked."""
    z = {key: golden[f"batch/{key}"].astype("float32") for key in ("obs", "action", "reward", "next_obs", "done")}
    weight = golden["batch/weight"].astype("float32") if "batch/weight" in golden else ()
    return Transition(
        {"observation": z["obs"]}, z["action"], z["reward"], np.float32(meta["gamma"]) * (1 - z["done"]),
        {"observation": z["next_obs"]}, weight, {},
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
