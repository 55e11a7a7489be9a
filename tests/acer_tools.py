"""Small agents that learn from segments, batches for them, and what one update computes."""

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
# Every other one in the usual tests, so that each pair of properties is among them.
SOME = [
    given if i in (0, 3, 5, 6) else pytest.param(given, marks=pytest.mark.acceptance) for i, given in enumerate(KINDS)
]
RECURRENT, SOME_RECURRENT = [given for given in KINDS if given["cells"]], [SOME[i] for i in (2, 3, 6, 7)]


def named(given):
    """Returns the name of one of these kinds of agents, for test reports."""
    return ", ".join(
        [given["kind"], "lstm" if given["cells"] else "feed-forward", "shared" if given["shared"] else "separate"]
    )


def make_parameters(
    kind="discrete", cells=None, shared=False, steps=STEPS, columns=COLUMNS, own=None, networks=None, **algorithm
):
    """Small networks and a trust region that some steps leave.

    Args:
        kind, cells, shared: discrete or Gaussian, with LSTMs of this width, with a trunk.
        steps, columns: T and B.
        own: fields of single networks.
        networks: more arguments of the function that makes all of them.
        **algorithm: parameters of the algorithm.
    """
    discrete = kind == "discrete"
    given = {"layers": (5,), "activation": "tanh", "learning_rate": 1e-2, "batch_size": columns, **(networks or {})}
    if discrete:
        made = discrete_acer_networks(lstm_cells=cells, shared=shared, **given)
    else:
        made = gaussian_acer_networks(lstm_cells=cells, shared=shared, advantage_layers=(5,), **given)
    made = {name: dataclasses.replace(network, **(own or {}).get(name, {})) for name, network in made.items()}
    chosen = {"t_max": steps, "beta": 0.1, "truncation_threshold": 1.0}
    if algorithm.get("use_trust_region", True):  # what has no effect is refused
        chosen["trust_region_delta"] = 0.02
    if made["policy"].create_target_network:
        chosen["trust_region_alpha"] = 0.75
    agent, of_algorithm = (
        (DiscreteACERAgentParameters, DiscreteACERAlgorithmParameters)
        if discrete
        else (GaussianACERAgentParameters, GaussianACERAlgorithmParameters)
    )
    memory = EpisodicReplayParameters(max_size=100, replay_start_size=10)
    return agent(of_algorithm(**chosen | algorithm), None, memory, made)


def make_agent(kind="discrete", spec=None, seed=0, eager=True, stirred=True, **parameters):
    """Returns an agent; `stirred` gives all weights, averages and biases too, random values."""
    made = DiscreteACERAgent if kind == "discrete" else GaussianACERAgent
    agent = made(make_parameters(kind, **parameters), spec or SPECS[kind], seed=seed, eager=eager)
    rng = np.random.default_rng(seed + 1)
    for network in agent.networks.values() if stirred else ():
        for variable in network.trainable_variables:
            variable.assign(0.6 * rng.standard_normal(variable.shape))
    agent.policy.refresh()
    return agent


kept_agent = functools.cache(make_agent)  # for tests that leave it as it is


# -- batches -----------------------------------------------------------------------------------------------------------


def fresh_and_replayed(agent, seed=0, columns=COLUMNS):
    """Returns a fresh batch and a replayed one, `[T, B, ...]`."""
    stacked = random_segments(agent.spec, 2, agent.steps, columns, seed, agent.policy.recurrent_state)
    return [tf.nest.map_structure(lambda x, u=u: x[u], stacked) for u in range(2)]


def side_by_side(*batches):
    """Returns batches as one, with the columns of all."""
    states = [batch.initial_state for batch in batches]
    joined = tf.nest.map_structure(
        lambda *x: np.concatenate(x, axis=1), *[batch._replace(initial_state=()) for batch in batches]
    )
    return joined._replace(initial_state=tf.nest.map_structure(lambda *x: np.concatenate(x), *states))


def mixed(agent, seed=5):
    """Returns two fresh columns beside two replayed ones.

    By default the first has three episodes, of which the first goes on from before, the second has one, and the
    replayed ones are cut off after two and three of four steps.
    """
    fresh, replayed = (columns_of(batch, slice(2)) for batch in fresh_and_replayed(agent, seed))
    return side_by_side(fresh, replayed)


def columns_of(batch, which):
    """Returns some columns of a batch."""
    state = {field: x[which] for field, x in batch.initial_state.items()}
    return tf.nest.map_structure(lambda x: x[:, which], batch._replace(initial_state=()))._replace(initial_state=state)


def segments_of(batch):
    """Returns the column and the rows of every segment."""
    found = []
    for b in range(batch.length.shape[1]):
        rows, begins = np.flatnonzero(batch.length[:, b]), np.flatnonzero(batch.is_first[1:, b]) + 1
        found += [(b, part) for part in np.split(rows, begins) if len(part)]
    return found


def alone(batch, b, rows):
    """Returns one segment as a batch of one column: it begins in the first row, and zeros follow it."""

    def moved(x):
        column = np.zeros_like(x[:, :1])
        column[: len(rows), 0] = x[rows, b]
        return column

    observation = {key: moved(x) for key, x in batch.observation.items()}
    for key, x in observation.items():
        x[-1] = batch.observation[key][-1, b]
    first = rows[0] == 0
    state = {field: x[b : b + 1] if first else np.zeros_like(x[b : b + 1]) for field, x in batch.initial_state.items()}
    rest = tf.nest.map_structure(moved, batch._replace(observation=(), initial_state=()))
    return rest._replace(observation=observation, initial_state=state)


# -- updates -----------------------------------------------------------------------------------------------------------


def drawn(name, steps, columns, draws, size):
    """Returns standard normal numbers `[T, B, N, A]` that follow from the name, column by column."""
    shape = (16, steps, draws, size)
    every = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, np.float32)
    return np.swapaxes(every[:columns], 0, 1)


def fix_noise(agent, columns=COLUMNS, where=None):
    """Makes the noise of updates the same for every batch.

    Args:
        agent: whose noise it is.
        columns: of the batch.
        where: column and rows, in another batch, of the segment which is the only one in this batch.
    """

    def noise(name, shape):
        if where is None:
            return tf.constant(drawn(name, agent.steps, columns, *shape[2:]))
        b, rows = where
        whole = drawn(name, agent.steps, b + 1, *shape[2:])
        segment = np.zeros_like(whole[:, :1])
        segment[: len(rows), 0] = whole[rows, b]
        return tf.constant(segment)

    agent.noise = noise


def probe(agent, batch):
    """Returns gradients by network and metrics of an update that moves nothing."""
    found = {}
    agent.apply = lambda *steps: found.update({name: [x.numpy() for x in values] for name, values, _ in steps})
    agent.update_target = lambda name: None
    agent.averages.assign([0.0, 0.0, 0.0])
    metrics, _ = agent.update_once(tf.nest.map_structure(tf.constant, batch))
    del agent.apply, agent.update_target
    return found, {name: float(value) for name, value in metrics.items()}


def assert_gradients(ours, theirs, rtol=1e-3, atol=1e-6):
    """Compares gradients by network."""
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        for a, b in zip(values, theirs[name], strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)


def stack(*batches):
    """Returns batches `[T, B, ...]` stacked, `[U, T, B, ...]`."""
    return tf.nest.map_structure(lambda *x: np.stack(x), *batches)


def metrics_of(agent, stacked):
    """Updates and returns the metrics by name, `[U]` each."""
    rows = agent.update(stacked).metrics
    return dict(zip(agent.metric_names, rows.T, strict=True))
