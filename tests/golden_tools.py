"""Reading golden vectors and putting their numbers into an agent."""

import json
import pathlib
import re

import keras
import numpy as np
import tensorflow as tf

from tfsac.types import NEXT_STATE, STATE, SWITCH, ArraySpec, DiscreteSpec, Sequence, Spec, Transition

FOLDER = pathlib.Path(__file__).parent / "golden"


class Golden(dict):
    """The arrays of a file, which has the layers of mean and log_std and the critics apart, and by their names also our
    one layer, and the critics stacked.
    """

    def __missing__(self, name):
        critic = re.search(r"(^|/)q(_target)?/", name)
        if critic:
            at = critic.end(1) + 1
            return np.stack([self[one] for i in (1, 2) if (one := f"{name[:at]}{i}{name[at:]}") in self])
        parts = [name.replace("/mean_and_log_std/", f"/{part}/") for part in ("mean", "log_std")]
        if name in parts:
            raise KeyError(name)
        return np.concatenate([self[part] for part in parts], axis=-1)

    def under(self, place):
        """Returns the arrays whose names begin with a place, by the rest of their names."""
        return {name.removeprefix(place): self[name] for name in self if name.startswith(place)}


def read(name):
    """Returns the arrays and the meta data of a file."""
    arrays = Golden(np.load(FOLDER / name))
    return arrays, json.loads(str(arrays["meta"]))


def spec_of(meta):
    """Returns the spec of a file's agent, or team."""
    team, discrete = (meta["agents"],) if "agents" in meta else (), "discrete" in meta.get("case", "")
    sizes = {"agent_state": "agent_obs", "global_state": "global_obs"} if team else {"observation": "obs"}
    observation = {key: ArraySpec((*team, meta[size]), "float32") for key, size in sizes.items()}
    if discrete and meta.get("masked", team):
        observation["action_mask"] = ArraySpec((*team, meta["actions"]), "bool")
    action = DiscreteSpec(meta["actions"], team) if discrete else ArraySpec((*team, meta["act"]), "float32")
    return Spec(observation, action, num_agents=meta.get("agents"))


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
        for layer in net[name].head.critics.layers if name in net else ():
            if layer.weights:
                dense(layer, f"q{suffix}/{layer.name}")
    return pairs


def put(agent, golden, monkeypatch):
    """Gives an agent the file's first weights and its noise, which has the updates on its first axis."""
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
    """Returns the file's batches, stacked, with other actions than the file's if they are given."""
    z = {name: x.astype("float32") for name, x in golden.under("batch/").items()}
    if "obs" not in z:  # several agents; their file has one update without an axis for it
        z = {key: value[None] for key, value in z.items()}
    now = {"obs": "observation", "agent_state": "agent_state", "global_state": "global_state", "mask": "action_mask"}
    now["action_mask"] = "action_mask"

    def observation(prefix):
        found = {ours: z[prefix + theirs] for theirs, ours in now.items() if prefix + theirs in z}
        return {key: value.astype(bool) if key == "action_mask" else value for key, value in found.items()}

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
    """Makes the first update and returns what each optimizer received, by id of the variable."""
    received = {}
    for optimizer in agent.optimizers.values():

        def record(gradients, variables, apply=optimizer.apply):
            received.update({id(v): g.numpy() for v, g in zip(variables, gradients, strict=True)})
            return apply(gradients, variables)

        monkeypatch.setattr(optimizer, "apply", record)
    agent.update(tf.nest.map_structure(lambda x: x[:1], stacked))
    return received


def record(seen, monkeypatch, owner, name):
    """Keeps the arguments and the result of the last call of a function, by its name."""
    compute = getattr(owner, name)

    def recorded(*arguments):
        seen[name] = arguments, compute(*arguments)
        return seen[name][1]

    monkeypatch.setattr(owner, name, recorded)


# -- temporally abstract actor-critic ----------------------------------------------------------------------------------


def beside_actions(arrived_TB):
    """Shifts what ALF has in the row after an action, where it arrived with the observation, beside the action."""
    return np.concatenate([arrived_TB[1:], np.zeros_like(arrived_TB[:1])])


def sequence_of(golden, meta):
    """Returns the file's stretches as one update, `[1, T, B, ...]`."""
    z = {name: x.astype("float32")[None] for name, x in golden.under("batch/").items()}
    reward, discount = (beside_actions(z[name][0])[None] for name in ("reward", "discount"))
    extras = {f"{STATE}tau_{part}": z[f"prev_{part}"] for part in meta["components"]}
    extras |= {f"{NEXT_STATE}tau_{part}": z[f"tau_{part}"] for part in meta["components"]}
    extras[SWITCH] = z["rollout_b"]
    return Sequence({"observation": z["obs"]}, z["tau_a"], reward, discount, z["step_type"].astype("int32"), extras)


def models_of(meta):
    """Makes the file's networks, which read observation and trajectory side by side; layers are named as in the
    file.
    """

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
        seen, tau = (
            keras.Input(observation, name="observation"),
            keras.Input((meta["act"] * len(parts),), name="action"),
        )
        both = keras.layers.Concatenate()([seen, tau])
        q = [keras.layers.Dense(1, name=f"{name}_out")(layers(name, both)) for name in ("q1", "q2")]
        q_BND = keras.ops.stack(q, axis=1)
        return {"policy": keras.Model(inputs, outputs), "q": keras.Model([{"observation": seen}, tau], q_BND)}

    return models


def names_of_models(agent):
    """Pairs every variable of `models_of` with its name in the file."""
    pairs = []
    for network in ("policy", "q", "q_target"):
        for layer in agent.networks[network].model.layers:
            if isinstance(layer, keras.layers.Dense):
                name, part = layer.name.split("_", 1)
                name += "_target" if network == "q_target" else ""
                pairs.extend([(layer.kernel, f"{name}/{part}/kernel"), (layer.bias, f"{name}/{part}/bias")])
    return pairs


def put_into_switching(agent, golden, monkeypatch):
    """Gives a temporally abstract agent the file's first weights, temperatures and draws."""
    for variable, name in names_of_models(agent):
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
