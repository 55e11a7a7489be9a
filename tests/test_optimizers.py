"""Keras optimizers and activations by name: updates, checkpoints and several devices."""

import dataclasses
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from toys import random_batches, vector_spec

from tfsac import parameters as p
from tfsac.agents import TwinSoftActorCriticAgent
from tfsac.networks.optimizers import build_optimizer

SPEC, UPDATES, BATCH = vector_spec(3, 2), 3, 8
AMSGRAD = {"amsgrad": {"optimizer_type": "Adam", "optimizer_kwargs": {"amsgrad": True}}}
CASES = {name: {"optimizer_type": name} for name in p.OPTIMIZERS} | AMSGRAD


def network_parameters(**fields):
    return p.NetworkParameters(p.VHeadParameters(), **fields)


def variable(*values):
    return keras.Variable(np.float32(values))


def apply_gradients(settings, variables, gradients):
    """Applies each list of gradients and returns the optimizer."""
    optimizer = build_optimizer(settings, variables)
    for step in gradients:
        optimizer.apply([tf.constant(gradient, tf.float32) for gradient in step], variables)
    return optimizer


def make_agent(case, seed=0, eager=False):
    networks = p.twin_soft_actor_critic_networks(
        (8,), twin_critic=False, batch_size=BATCH, learning_rate=1e-3, weight_decay=0.1, **CASES[case]
    )
    return TwinSoftActorCriticAgent(p.TwinSoftActorCriticAgentParameters(networks=networks), SPEC, seed, eager=eager)


def agent_arrays(agent):
    """Returns the weights of both networks and the optimizer variables."""
    weights = [*agent.networks["policy"].trainable_variables, *agent.networks["q"].trainable_variables]
    return [v.numpy() for v in [*weights, *(v for o in agent.optimizers.values() for v in o.variables)]]


@pytest.mark.parametrize(
    "fields",
    [{"optimizer_type": "AdamW"}, {"optimizer_type": "AdamW", "weight_decay": 0.5}, {"weight_decay": 0.03}, {}],
    ids=str,
)
def test_fused_step_matches_keras(fields):
    changes = {"adam_optimizer_beta1": 0.8, "adam_optimizer_beta2": 0.7, "optimizer_epsilon": 1.0}
    settings, rng = network_parameters(learning_rate=0.05, **changes, **fields), np.random.default_rng(0)
    ours, theirs = ([variable(1.0, -2.0, 3.0), variable(0.5)] for _ in range(2))
    keras_class = keras.optimizers.AdamW if fields.get("optimizer_type") == "AdamW" else keras.optimizers.Adam
    decay = {"weight_decay": fields["weight_decay"]} if "weight_decay" in fields else {}
    reference = keras_class(0.05, beta_1=0.8, beta_2=0.7, epsilon=1.0, **decay)
    gradients = [[rng.normal(size=3), rng.normal(size=1)] for _ in range(6)]
    apply_gradients(settings, ours, gradients)
    for step in gradients:
        reference.apply([tf.constant(g, tf.float32) for g in step], theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)


def test_weight_decay_follows_learning_rate_schedule():
    weight, falls = variable(1.0), {"learning_rate_decay_type": "linear", "learning_rate_decay_steps": 2}
    settings = network_parameters(optimizer_type="AdamW", learning_rate=0.5, weight_decay=0.5, **falls)
    apply_gradients(settings, [weight], [[[0.0]]] * 3)
    assert weight.numpy()[0] == pytest.approx(0.75 * 0.875, rel=1e-6)


@pytest.mark.parametrize(
    "case", [case if case == "AdamW" else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_optimizer_checkpoint_round_trip(case, tmp_path):
    eager = case != "AdamW"  # slots are created alike in graphs
    agent, batches = make_agent(case, eager=eager), random_batches(SPEC, 1 if eager else UPDATES, BATCH)
    first = agent_arrays(agent)
    agent.update(batches)
    assert all(np.isfinite(x).all() for x in agent_arrays(agent))
    changed = [not np.array_equal(a, b) for a, b in zip(first, agent_arrays(agent), strict=True)]
    assert sum(changed[: len(agent.networks["policy"].trainable_variables)]) > 2
    tf.train.Checkpoint(agent=agent).write(str(tmp_path / "agent"))
    agent.update(batches)
    other = make_agent(case, seed=1, eager=eager)
    tf.train.Checkpoint(agent=other).read(str(tmp_path / "agent")).assert_consumed()
    other.update(batches)
    for a, b in zip(agent_arrays(agent), agent_arrays(other), strict=True):
        np.testing.assert_array_equal(a, b)


MIRRORED = """
import sys
import numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
sys.path.insert(0, sys.argv[1])
import test_optimizers as t
for case in t.CASES:
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        agent = t.make_agent(case)
    agent.noise = lambda name, shape, agent=agent: agent.replica_slice(tf.constant(np.ones(shape), tf.float32), agent.replicas)
    agent.update(t.random_batches(t.SPEC, t.UPDATES, t.BATCH))
    np.savez(sys.argv[2] + "/" + case, *t.agent_arrays(agent))
import keras
from tfsac.networks.optimizers import apply_on_replicas
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    layer, optimizer = keras.layers.Dense(2, kernel_constraint="non_neg"), keras.optimizers.RMSprop(0.5)
    layer.build((None, 3))
    optimizer.build(layer.trainable_variables)
gradients = [tf.ones_like(variable.value) for variable in layer.trainable_variables]
tf.function(lambda: strategy.run(apply_on_replicas, args=(optimizer, gradients, layer.trainable_variables)))()
assert (layer.kernel.numpy() == 0).all() and (layer.bias.numpy() < 0).all()
"""


@pytest.mark.acceptance
def test_two_devices_match_one(run_python, tmp_path):
    run_python(MIRRORED, str(pathlib.Path(__file__).parent), str(tmp_path))
    for case in CASES:
        agent = make_agent(case)
        agent.noise = lambda name, shape: tf.ones(shape)
        agent.update(random_batches(SPEC, UPDATES, BATCH))
        actual = np.load(tmp_path / f"{case}.npz")
        for i, value in enumerate(agent_arrays(agent)):
            np.testing.assert_allclose(actual[f"arr_{i}"], value, rtol=1e-4, atol=2e-6, err_msg=f"{case} {i}")


@pytest.mark.slow
@pytest.mark.parametrize("name", p.ACTIVATIONS)
def test_every_activation_acts_and_trains(name):
    embedder = {"observation": p.InputEmbedderParameters((8,), name)}
    networks = p.twin_soft_actor_critic_networks((8,), batch_size=BATCH)
    networks["policy"] = dataclasses.replace(networks["policy"], input_embedders_parameters=embedder)
    agent = TwinSoftActorCriticAgent(p.TwinSoftActorCriticAgentParameters(networks=networks), SPEC, eager=True)
    agent.update(random_batches(SPEC, 1, BATCH))
    x = {"observation": np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)}
    loc, _ = agent.networks["policy"](x)
    np.testing.assert_allclose(agent.policy.act(x, mode="greedy").action, np.tanh(loc), rtol=1e-5, atol=1e-6)
