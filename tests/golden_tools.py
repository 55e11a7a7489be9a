"""Reads golden vectors and loads their weights and noise into agents."""

import json
import pathlib
import re

import keras
import numpy as np
import tensorflow as tf

from tfsac.types import NEXT_STATE, STATE, SWITCH, ArraySpec, DiscreteSpec, Sequence, Spec, Transition

FOLDER = pathlib.Path(__file__).parent / "golden"


class Golden(dict):
    """The arrays of a file; also offers mean and log_std as one layer, and the critics stacked, as in our networks."""

    def __missing__(self, name):
        critic = re.search(r"(^|/)q(_target)?/", name)
        if critic:
            at = critic.end(1) + 1
            return np.stack([self[single] for i in (1, 2) if (single := f"{name[:at]}{i}{name[at:]}") in self])
        parts = [name.replace("/mean_and_log_std/", f"/{part}/") for part in ("mean", "log_std")]
        if name in parts:
            raise KeyError(name)
        return np.concatenate([self[part] for part in parts], axis=-1)

    def with_prefix(self, prefix):
        """Returns the arrays whose names have a prefix, by name without it."""
        return {name.removeprefix(prefix): self[name] for name in self if name.startswith(prefix)}


def read(name):
    """Returns the arrays and the metadata of a file."""
    arrays = Golden(np.load(FOLDER / name))
    return arrays, json.loads(str(arrays["meta"]))


def spec_of(meta):
    """Returns the spec of the agent, or team, of a file."""
    team, discrete = (meta["agents"],) if "agents" in meta else (), "discrete" in meta.get("case", "")
    sizes = {"agent_state": "agent_obs", "global_state": "global_obs"} if team else {"observation": "obs"}
    observation = {key: ArraySpec((*team, meta[size]), "float32") for key, size in sizes.items()}
    if discrete and meta.get("masked", team):
        observation["action_mask"] = ArraySpec((*team, meta["actions"]), "bool")
    action = DiscreteSpec(meta["actions"], team) if discrete else ArraySpec((*team, meta["act"]), "float32")
    return Spec(observation, action, num_agents=meta.get("agents"))


def names(agent):
    """Pairs each variable of an agent's networks with its name in the file."""
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
        for layer in net[name].head.critics.layers if name in net else ():
            if layer.weights:
                dense(layer, f"q{suffix}/{layer.name}")
    return pairs


def load_weights(agent, golden, monkeypatch):
    """Loads the initial weights of a file, and makes the agent use the noise of the file, `[U, ...]`."""
    for variable, name in names(agent):
        variable.assign(golden[f"init/{name}"])
    noise = {
        key: tf.constant(golden[f"noise/{key}"], tf.float32) for key in ("policy", "next") if f"noise/{key}" in golden
    }
    if agent.spec.num_agents:  # one update, `[B, N, A]`
        noise = {key: tf.reshape(value, [1, -1, value.shape[-1]]) for key, value in noise.items()}
    monkeypatch.setattr(
        agent, "noise", lambda name, shape: agent.replica_slice(noise[name][agent.updates], agent.replicas)
    )


def batches(golden, meta, action=None):
    """Returns the stacked batches of a file; `action` replaces the actions of the file."""
    z = {name: x.astype("float32") for name, x in golden.with_prefix("batch/").items()}
    if "obs" not in z:  # a team: its file has one update and no axis for updates
        z = {key: value[None] for key, value in z.items()}
    now = {"obs": "observation", "agent_state": "agent_state", "global_state": "global_state", "mask": "action_mask"}
    now["action_mask"] = "action_mask"

    def observation(prefix):
        arrays = {ours: z[prefix + theirs] for theirs, ours in now.items() if prefix + theirs in z}
        return {key: value.astype(bool) if key == "action_mask" else value for key, value in arrays.items()}

    if action is None:
        action = z["action"].astype("int32") if "actions" in meta and "noise/policy" not in golden else z["action"]
    return Transition(
        observation(""),
        action,
        z["reward"],
        np.float32(meta["gamma"]) * (1 - z["done"]),
        observation("next_"),
        z.get("weight", ()),
        {},
    )


def first_gradients(agent, stacked, monkeypatch):
    """Makes the first update and returns the gradients that the optimizers received, by variable id."""
    received = {}
    for optimizer in agent.optimizers.values():

        def record(gradients, variables, apply=optimizer.apply):
            received.update({id(v): g.numpy() for v, g in zip(variables, gradients, strict=True)})
            return apply(gradients, variables)

        monkeypatch.setattr(optimizer, "apply", record)
    agent.update(tf.nest.map_structure(lambda x: x[:1], stacked))
    return received


def record(calls, monkeypatch, owner, name):
    """Records the arguments and the result of the last call of a function, by its name."""
    compute = getattr(owner, name)

    def recorded(*arguments):
        calls[name] = arguments, compute(*arguments)
        return calls[name][1]

    monkeypatch.setattr(owner, name, recorded)


def align_with_actions(arrived_TB):
    """Shifts values by one step: ALF stores the result of an action with the next observation."""
    return np.concatenate([arrived_TB[1:], np.zeros_like(arrived_TB[:1])])


def load_sequence(golden, meta):
    """Returns the sequences of a file as one update, `[1, T, B, ...]`."""
    z = {name: x.astype("float32")[None] for name, x in golden.with_prefix("batch/").items()}
    reward, discount = (align_with_actions(z[name][0])[None] for name in ("reward", "discount"))
    extras = {f"{STATE}tau_{part}": z[f"prev_{part}"] for part in meta["components"]}
    extras |= {f"{NEXT_STATE}tau_{part}": z[f"tau_{part}"] for part in meta["components"]}
    extras[SWITCH] = z["rollout_b"]
    return Sequence({"observation": z["obs"]}, z["tau_a"], reward, discount, z["step_type"].astype("int32"), extras)


def make_models(meta):
    """Returns a function that creates the file's networks; layers are named as in the file."""

    def layers(name, x):
        for part in ("dense_0", "dense_1"):
            x = keras.layers.Dense(meta["hidden"], activation="relu", name=f"{name}_{part}")(x)
        return x

    def models():
        observation, parts = (meta["obs"],), meta["components"]
        inputs = {"observation": keras.Input(observation, name="observation")}
        inputs |= {f"tau_{part}": keras.Input((meta["act"],), name=f"tau_{part}") for part in parts}
        hidden = layers("policy", keras.layers.Concatenate()([*inputs.values()]))
        outputs = [keras.layers.Dense(meta["act"], name=f"policy_{part}")(hidden) for part in ("mean", "log_std")]
        observed, tau = (
            keras.Input(observation, name="observation"),
            keras.Input((meta["act"] * len(parts),), name="action"),
        )
        both = keras.layers.Concatenate()([observed, tau])
        q = [keras.layers.Dense(1, name=f"{name}_out")(layers(name, both)) for name in ("q1", "q2")]
        q_BND = keras.ops.stack(q, axis=1)
        return {"policy": keras.Model(inputs, outputs), "q": keras.Model([{"observation": observed}, tau], q_BND)}

    return models


def model_names(agent):
    """Pairs each variable of `make_models` with its name in the file."""
    pairs = []
    for network in ("policy", "q", "q_target"):
        for layer in agent.networks[network].model.layers:
            if isinstance(layer, keras.layers.Dense):
                name, part = layer.name.split("_", 1)
                name += "_target" if network == "q_target" else ""
                pairs.extend([(layer.kernel, f"{name}/{part}/kernel"), (layer.bias, f"{name}/{part}/bias")])
    return pairs


def load_taac_weights(agent, golden, monkeypatch):
    """Loads the initial weights, temperatures and noise of a file into a TAAC agent."""
    for variable, name in model_names(agent):
        variable.assign(golden[f"init/{name}"])
    for temperature, log_alpha in zip(
        (agent.choice_temperature, agent.proposal_temperature), golden["init/log_alpha"], strict=True
    ):
        temperature.variable.assign(log_alpha)
    draws = {
        name: tf.constant(golden[key], tf.float32) for name, key in (("policy", "batch/eps"), ("choice", "batch/u"))
    }
    monkeypatch.setattr(
        agent,
        "noise",
        lambda name, shape, draw=None: agent.replica_slice(tf.reshape(draws[name], shape), agent.replicas),
    )
