"""Small ACER agents, batches of segments, and the gradients and metrics of one update."""

import dataclasses
import functools
import zlib

import numpy as np
import pytest
import tensorflow as tf
from toys import discrete_spec, random_segments, vector_spec

from tfsac.agents import DiscreteACERAgent, GaussianACERAgent
from tfsac.parameters import (
    DiscreteACERAgentParameters,
    DiscreteACERAlgorithmParameters,
    EpisodicReplayParameters,
    GaussianACERAgentParameters,
    GaussianACERAlgorithmParameters,
    discrete_acer_networks,
    gaussian_acer_networks,
)

STEPS, COLUMNS = 4, 4
SPECS = {"discrete": discrete_spec(3, 3), "gaussian": vector_spec(3, 2)}
KINDS = [
    {"kind": kind, "cells": cells, "shared": shared}
    for kind in ("discrete", "gaussian")
    for cells in (None, 3)
    for shared in (False, True)
]
# The usual tests cover every pair of properties; the other combinations are acceptance tests.
QUICK_KINDS = [
    case if i in (0, 3, 5, 6) else pytest.param(case, marks=pytest.mark.acceptance) for i, case in enumerate(KINDS)
]
RECURRENT = [case for case in KINDS if case["cells"]]
QUICK_RECURRENT = [QUICK_KINDS[i] for i in (2, 3, 6, 7)]


def kind_id(case):
    """Returns the parametrize id of an entry of KINDS."""
    cells, trunk = "lstm" if case["cells"] else "feed-forward", "shared" if case["shared"] else "separate"
    return f"{case['kind']}, {cells}, {trunk}"


def make_parameters(
    kind="discrete", cells=None, shared=False, steps=STEPS, columns=COLUMNS, overrides=None, networks=None, **algorithm
):
    """Returns parameters with small networks, whose updates exceed the trust region in some steps.

    Args:
        kind, cells, shared: "discrete" or "gaussian", the LSTM width, whether there is a shared trunk.
        steps, columns: T and B.
        overrides: fields by network name.
        networks: more arguments of the function that creates the networks.
        **algorithm: algorithm parameters.
    """
    discrete = kind == "discrete"
    options = {"layers": (5,), "activation": "tanh", "learning_rate": 1e-2, "batch_size": columns, **(networks or {})}
    if discrete:
        created = discrete_acer_networks(lstm_cells=cells, shared=shared, **options)
    else:
        created = gaussian_acer_networks(lstm_cells=cells, shared=shared, advantage_layers=(5,), **options)
    created = {
        name: dataclasses.replace(network, **(overrides or {}).get(name, {})) for name, network in created.items()
    }
    chosen = {"t_max": steps, "beta": 0.1, "truncation_threshold": 1.0}
    if algorithm.get("use_trust_region", True):  # fields without effect are rejected
        chosen["trust_region_delta"] = 0.02
    if created["policy"].create_target_network:
        chosen["trust_region_alpha"] = 0.75
    memory = EpisodicReplayParameters(max_size=100, replay_start_size=10)
    if discrete:
        return DiscreteACERAgentParameters(DiscreteACERAlgorithmParameters(**chosen | algorithm), None, memory, created)
    return GaussianACERAgentParameters(GaussianACERAlgorithmParameters(**chosen | algorithm), None, memory, created)


def make_agent(kind="discrete", spec=None, seed=0, eager=True, randomize=True, **parameters):
    """Returns an agent; with `randomize`, all weights and biases, also of the average policy, are random."""
    agent_class = DiscreteACERAgent if kind == "discrete" else GaussianACERAgent
    agent = agent_class(make_parameters(kind, **parameters), spec or SPECS[kind], seed=seed, eager=eager)
    rng = np.random.default_rng(seed + 1)
    for network in agent.networks.values() if randomize else ():
        for variable in network.trainable_variables:
            variable.assign(0.6 * rng.standard_normal(variable.shape))
    agent.policy.refresh()
    return agent


cached_agent = functools.cache(make_agent)  # for tests that do not change the agent


def fresh_and_replayed(agent, seed=0, columns=COLUMNS):
    """Returns a fresh batch and a replayed one, `[T, B, ...]`."""
    stacked = random_segments(agent.spec, 2, agent.steps, columns, seed, agent.policy.recurrent_state)
    return [tf.nest.map_structure(lambda x, u=u: x[u], stacked) for u in range(2)]


def concat_columns(*batches):
    """Concatenates batches along the column axis."""
    states = [batch.initial_state for batch in batches]
    joined = tf.nest.map_structure(
        lambda *x: np.concatenate(x, axis=1), *[batch._replace(initial_state=()) for batch in batches]
    )
    return joined._replace(initial_state=tf.nest.map_structure(lambda *x: np.concatenate(x), *states))


def mixed_batch(agent, seed=5):
    """Returns a batch of two fresh and two replayed columns.

    With the default seed, the first column has three episodes and continues the first of them, the second column has
    one episode, and the replayed columns are truncated after two and three of four steps.
    """
    fresh, replayed = (select_columns(batch, slice(2)) for batch in fresh_and_replayed(agent, seed))
    return concat_columns(fresh, replayed)


def select_columns(batch, which):
    """Selects columns of a batch."""
    state = {field: x[which] for field, x in batch.initial_state.items()}
    return tf.nest.map_structure(lambda x: x[:, which], batch._replace(initial_state=()))._replace(initial_state=state)


def segments_of(batch):
    """Returns the column and the step indices of every segment."""
    segments = []
    for b in range(batch.length.shape[1]):
        rows, begins = np.flatnonzero(batch.length[:, b]), np.flatnonzero(batch.is_first[1:, b]) + 1
        segments += [(b, part) for part in np.split(rows, begins) if len(part)]
    return segments


def single_segment(batch, b, rows):
    """Returns one segment as a batch of one column, shifted to step 0 and padded with zeros."""

    def shift(x):
        column = np.zeros_like(x[:, :1])
        column[: len(rows), 0] = x[rows, b]
        return column

    observation = {key: shift(x) for key, x in batch.observation.items()}
    for key, x in observation.items():
        x[-1] = batch.observation[key][-1, b]
    first = rows[0] == 0
    state = {field: x[b : b + 1] if first else np.zeros_like(x[b : b + 1]) for field, x in batch.initial_state.items()}
    rest = tf.nest.map_structure(shift, batch._replace(observation=(), initial_state=()))
    return rest._replace(observation=observation, initial_state=state)


def fixed_noise(name, steps, columns, draws, size):
    """Returns standard normal noise `[T, B, N, A]`, seeded by the name; each column has its own values."""
    shape = (16, steps, draws, size)
    noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, np.float32)
    return np.swapaxes(noise[:columns], 0, 1)


def fix_noise(agent, columns=COLUMNS, segment=None):
    """Makes an agent draw the same noise in every update.

    Args:
        agent: the agent.
        columns: columns of the batch.
        segment: (column, steps) in a larger batch, if this batch holds that one segment only.
    """

    def noise(name, shape):
        if segment is None:
            return tf.constant(fixed_noise(name, agent.steps, columns, *shape[2:]))
        b, rows = segment
        full = fixed_noise(name, agent.steps, b + 1, *shape[2:])
        shifted = np.zeros_like(full[:, :1])
        shifted[: len(rows), 0] = full[rows, b]
        return tf.constant(shifted)

    agent.noise = noise


def compute_gradients(agent, batch):
    """Returns the gradients by network and the metrics of an update, without applying it."""
    gradients = {}
    agent.apply = lambda *steps: gradients.update({name: [x.numpy() for x in values] for name, values, _ in steps})
    agent.update_target = lambda name: None
    agent.averages.assign([0.0, 0.0, 0.0])
    metrics, _ = agent.update_once(tf.nest.map_structure(tf.constant, batch))
    del agent.apply, agent.update_target
    return gradients, {name: float(value) for name, value in metrics.items()}


def assert_gradients(ours, theirs, rtol=1e-3, atol=1e-6):
    """Asserts that two dicts of gradients by network agree."""
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        for a, b in zip(values, theirs[name], strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)


def stack(*batches):
    """Stacks batches `[T, B, ...]` to `[U, T, B, ...]`."""
    return tf.nest.map_structure(lambda *x: np.stack(x), *batches)


def update_metrics(agent, stacked):
    """Updates an agent and returns the metrics by name, `[U]` each."""
    metrics = agent.update(stacked).metrics
    return dict(zip(agent.metric_names, metrics.T, strict=True))
