"""The twin-target agent: update orders, temperatures, periods and delays, weights and priorities."""

import numpy as np
import pytest
import strategy_tools
import tensorflow as tf
from agent_tools import assert_same, changed, one, weights
from toys import random_batches

from tfsac.agents import TwinSoftActorCriticAgent
from tfsac.agents.batches import Packing
from tfsac.parameters import AutoAlphaParameters
from tfsac.types import ArraySpec, Spec, Transition

BATCH, SPEC = strategy_tools.BATCH, strategy_tools.SPEC


def make_agent(temperature=None, **algorithm):
    """Returns an agent of small networks."""
    parameters, spec = strategy_tools.twin(temperature or AutoAlphaParameters(), **algorithm)
    return TwinSoftActorCriticAgent(parameters, spec, eager=True)


def batches(updates):
    return random_batches(SPEC, updates, BATCH)


# -- order -------------------------------------------------------------------------------------------------------------


def test_the_critics_of_policy_first_see_the_new_policy():  # golden vectors prove the other orders
    agent, by_hand, batch = make_agent(update_order="policy_first"), make_agent(), one(batches(1))
    agent.update(batches(1))
    by_hand.apply(*by_hand.policy_step(batch).gradients)
    by_hand.apply(*by_hand.critic_step(batch).gradients)
    by_hand.update_target("q")
    assert_same(agent, by_hand)


@pytest.mark.parametrize("order", ["critic_first", "policy_first", "simultaneous"])
def test_an_order_without_the_policy_updates_the_critics_as_if_it_were_alone(order):
    agent, alone, batch = make_agent(update_order=order), make_agent(), one(batches(1))
    before = weights(agent)
    agent.update_critics_once(batch)
    assert changed(before, weights(agent)) == {"q", "q_target"}
    alone.apply(*alone.critic_step(batch).gradients)
    alone.update_target("q")
    assert_same(agent, alone)


# -- temperature -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_alpha_outside_log_space_is_never_negative_and_learns_again():
    agent = make_agent(AutoAlphaParameters(0.01, 0.5, target_entropy=-9.9, log_space=False))
    for value in agent.update(batches(1)), agent.update(batches(4)):
        assert np.isfinite(value.metrics).all()
    assert float(agent.temperature.value()) == 0.0
    agent.target_entropy = 100.0
    agent.update(batches(8))
    assert float(agent.temperature.value()) > 0.0


# -- batches -----------------------------------------------------------------------------------------------------------


def test_packing_keeps_every_field_of_every_update():
    images = Spec(
        {"camera": ArraySpec((4, 4, 3), "uint8"), "speed": ArraySpec((2,), "float32")}, ArraySpec((3,), "float32")
    )
    observation = {key: tf.TensorSpec([BATCH, *array.shape], array.dtype) for key, array in images.observation.items()}
    row = tf.TensorSpec([BATCH])
    packing = Packing(Transition(observation, tf.TensorSpec([BATCH, 3]), row, row, dict(observation), row))
    for updates in (3, 1, 5, 2):  # the buffer is used again
        stacked = random_batches(images, updates, BATCH, seed=updates)._replace(
            weight=np.random.default_rng(updates).random((updates, BATCH), np.float32), extras=()
        )
        packed = packing.pack(stacked)
        for i in range(updates):
            tf.nest.map_structure(np.testing.assert_array_equal, packing.unpack(packed, i), one(stacked, i))


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("action", np.zeros((1, BATCH, 3), np.float32)),
        ("weight", np.ones((1, BATCH), np.float32)),
    ],
)
def test_a_batch_of_other_fields_is_refused_and_nothing_moves(field, wrong):
    agent = make_agent()
    before = weights(agent)
    with pytest.raises(ValueError):
        agent.update(batches(1)._replace(**{field: wrong}))
    assert changed(before, weights(agent)) == set()
