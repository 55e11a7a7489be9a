"""SAC with twin critics: update orders, temperatures and batches."""

import numpy as np
import pytest
import strategy_tools
import tensorflow as tf
from agent_tools import assert_same_weights, batch_at, changed, weights
from toys import random_batches

from tfsac.agents import TwinSoftActorCriticAgent
from tfsac.agents.batches import Packing
from tfsac.parameters import AutoAlphaParameters
from tfsac.types import ArraySpec, Spec, Transition

BATCH, SPEC = strategy_tools.BATCH, strategy_tools.SPEC


def make_agent(temperature=None, **algorithm):
    """Returns a small agent."""
    parameters, spec = strategy_tools.twin(temperature or AutoAlphaParameters(), **algorithm)
    return TwinSoftActorCriticAgent(parameters, spec, eager=True)


def batches(updates):
    return random_batches(SPEC, updates, BATCH)


def test_policy_first_uses_the_new_policy():  # golden tests cover the other orders
    agent, by_hand, batch = make_agent(update_order="policy_first"), make_agent(), batch_at(batches(1))
    agent.update(batches(1))
    by_hand.apply(*by_hand.policy_step(batch).gradients)
    by_hand.apply(*by_hand.critic_step(batch).gradients)
    by_hand.update_target("q")
    assert_same_weights(agent, by_hand)


@pytest.mark.parametrize("order", ["critic_first", "policy_first", "simultaneous"])
def test_update_critics_once_for_every_order(order):
    agent, critics_only, batch = make_agent(update_order=order), make_agent(), batch_at(batches(1))
    before = weights(agent)
    agent.update_critics_once(batch)
    assert changed(before, weights(agent)) == {"q", "q_target"}
    critics_only.apply(*critics_only.critic_step(batch).gradients)
    critics_only.update_target("q")
    assert_same_weights(agent, critics_only)


@pytest.mark.slow
def test_alpha_outside_log_space_stays_nonnegative():
    agent = make_agent(AutoAlphaParameters(0.01, 0.5, target_entropy=-9.9, log_space=False))
    for value in agent.update(batches(1)), agent.update(batches(4)):
        assert np.isfinite(value.metrics).all()
    assert float(agent.temperature.value()) == 0.0
    agent.target_entropy = 100.0
    agent.update(batches(8))
    assert float(agent.temperature.value()) > 0.0


def test_packing_round_trip():
    images = Spec(
        {"camera": ArraySpec((4, 4, 3), "uint8"), "speed": ArraySpec((2,), "float32")}, ArraySpec((3,), "float32")
    )
    observation = {key: tf.TensorSpec([BATCH, *array.shape], array.dtype) for key, array in images.observation.items()}
    vector = tf.TensorSpec([BATCH])
    packing = Packing(Transition(observation, tf.TensorSpec([BATCH, 3]), vector, vector, dict(observation), vector))
    for updates in (3, 1, 5, 2):  # the buffer is reused
        stacked = random_batches(images, updates, BATCH, seed=updates)._replace(
            weight=np.random.default_rng(updates).random((updates, BATCH), np.float32), extras=()
        )
        packed = packing.pack(stacked)
        for i in range(updates):
            tf.nest.map_structure(np.testing.assert_array_equal, packing.unpack(packed, i), batch_at(stacked, i))


INVALID = {"action": np.zeros((1, BATCH, 3), np.float32), "weight": np.ones((1, BATCH), np.float32)}


@pytest.mark.parametrize(("field", "invalid"), INVALID.items(), ids=INVALID)
def test_invalid_batch_changes_nothing(field, invalid):
    agent = make_agent()
    before = weights(agent)
    with pytest.raises(ValueError):
        agent.update(batches(1)._replace(**{field: invalid}))
    assert changed(before, weights(agent)) == set()
