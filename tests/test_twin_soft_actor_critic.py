"""The twin-target agent: update orders, temperatures, periods and delays, weights and priorities."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
from agent_tools import assert_same, changed, named, one, weights
from critic_tools import layers_of_critics
from toys import random_batches, vector_spec

from tfsac.agents import TwinSoftActorCriticAgent
from tfsac.agents.batches import Packing
from tfsac.parameters import (
    AutoAlphaParameters,
    ExperienceReplayParameters,
    FixedAlphaParameters,
    PrioritizedExperienceReplayParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    twin_soft_actor_critic_networks,
)
from tfsac.policies.distributions import SquashedGaussian
from tfsac.types import ArraySpec, Spec, Transition

BATCH = 8
SPEC = vector_spec(3, 2)


def make_agent(
    temperature=None,
    prioritized=False,
    seed=0,
    eager=True,
    spec=SPEC,
    twin_critic=True,
    init_w=None,
    own=None,
    **algorithm,
):
    """Small networks; `own` are fields of single networks, `{"q": {"learning_rate": 1.0}}`."""
    networks = twin_soft_actor_critic_networks(
        (8, 8), twin_critic=twin_critic, init_w=init_w, learning_rate=1e-2, batch_size=BATCH
    )
    networks = {name: dataclasses.replace(network, **(own or {}).get(name, {})) for name, network in networks.items()}
    changes = {"rate_for_copying_weights_to_target": 0.25, **algorithm}
    parameters = TwinSoftActorCriticAgentParameters(
        algorithm=TwinSoftActorCriticAlgorithmParameters(temperature=temperature or AutoAlphaParameters(), **changes),
        memory=PrioritizedExperienceReplayParameters() if prioritized else ExperienceReplayParameters(),
        networks=networks,
    )
    return TwinSoftActorCriticAgent(parameters, spec, seed=seed, eager=eager)


def batches(updates, seed=0, weight=None):
    stacked = random_batches(SPEC, updates, BATCH, seed)
    return (
        stacked
        if weight is None
        else stacked._replace(weight=np.broadcast_to(weight, (updates, BATCH)).astype(np.float32))
    )


# -- steps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["policy", "q", "temperature"])
def test_a_step_has_gradients_of_its_own_weights_and_moves_them_alone(name):
    agent, batch = make_agent(), one(batches(1))
    before = weights(agent)
    steps = [*agent.critic_step(batch).gradients, *agent.policy_step(batch).gradients]
    assert changed(before, weights(agent)) == set()  # computing moves nothing
    assert [gradients.name for gradients in steps] == ["q", "policy", "temperature"]
    gradients = next(gradients for gradients in steps if gradients.name == name)
    agent.apply(gradients)
    assert changed(before, weights(agent)) == {name}
    assert len(gradients.values) == len(agent.trained[name])
    assert all(np.abs(value).max() > 0 for value in gradients.values)


def test_the_target_critics_start_equal_and_the_two_critics_do_not():
    agent = make_agent()
    for target, online in zip(weights(agent)["q_target"], weights(agent)["q"], strict=True):
        np.testing.assert_array_equal(target, online)
    first, second = (critic[0].kernel.numpy() for critic in layers_of_critics(agent.networks["q"]))
    assert np.abs(first - second).min() > 0


# -- order -------------------------------------------------------------------------------------------------------------


RATE = 0.1
SGD = {name: {"learning_rate": RATE, "optimizer_type": "SGD"} for name in ("policy", "q")}
ORDERS = ["critic_first", "policy_first", "simultaneous"]


def make_ordered(order="critic_first"):
    """An agent whose steps can be computed by hand, and that the temperature matters to."""
    return make_agent(AutoAlphaParameters(0.5, RATE), update_order=order, own=SGD)


def updated_by_hand(order, batch):
    """The weights after one update in an order that is written out here, with plain gradient steps."""
    agent = make_ordered()
    policy, q, q_target = (agent.networks[name] for name in ("policy", "q", "q_target"))
    log_alpha = agent.temperature.variable
    noise = {name: agent.noise(name, [BATCH, 2]) for name in ("policy", "next")}

    def gradients_of_critics():
        action, log_prob = SquashedGaussian(*policy(batch.next_observation)).sample_and_log_prob(noise["next"])
        next_value = (
            tf.reduce_min(q_target(batch.next_observation, action), axis=1) - tf.exp(log_alpha.value) * log_prob
        )
        y = batch.reward + batch.discount * next_value
        variables = [variable.value for variable in q.trainable_variables]
        with tf.GradientTape() as tape:
            error = q(batch.observation, batch.action) - y[:, None]
            loss = tf.reduce_sum(error**2) / BATCH
        return tape.gradient(loss, variables)

    def gradients_of_policy_and_temperature():
        variables = [variable.value for variable in policy.trainable_variables]
        with tf.GradientTape() as tape:
            action, log_prob = SquashedGaussian(*policy(batch.observation)).sample_and_log_prob(noise["policy"])
            smaller = tf.reduce_min(q(batch.observation, action), axis=1)
            loss = tf.reduce_mean(tf.exp(log_alpha.value) * log_prob - smaller)
        return tape.gradient(loss, variables), -tf.reduce_mean(log_prob - 2.0)

    def move_critics(gradients):
        for variable, gradient in zip(q.trainable_variables, gradients, strict=True):
            variable.assign_sub(RATE * gradient)

    def move_policy_and_temperature(gradients):
        for variable, gradient in zip(policy.trainable_variables, gradients[0], strict=True):
            variable.assign_sub(RATE * gradient)
        log_alpha.assign_sub(RATE * tf.sign(gradients[1]))  # Adam's first step

    if order == "critic_first":
        move_critics(gradients_of_critics())
        move_policy_and_temperature(gradients_of_policy_and_temperature())
    elif order == "policy_first":
        move_policy_and_temperature(gradients_of_policy_and_temperature())
        move_critics(gradients_of_critics())
    else:
        of_critics, of_policy = gradients_of_critics(), gradients_of_policy_and_temperature()
        move_policy_and_temperature(of_policy)
        move_critics(of_critics)
    for target, online in zip(q_target.trainable_variables, q.trainable_variables, strict=True):
        target.assign(0.75 * target + 0.25 * online)
    return weights(agent)


def furthest(one_agent, other, name):
    """The largest difference between the weights of one network."""
    return max(np.abs(a - b).max() for a, b in zip(one_agent[name], other[name], strict=True))


@pytest.mark.parametrize("order", ORDERS)
def test_an_update_in_each_order_by_hand(order):
    agent = make_ordered(order)
    agent.update(batches(1))
    by_hand = {other: updated_by_hand(other, one(batches(1))) for other in ORDERS}
    for name in by_hand[order]:
        assert furthest(weights(agent), by_hand[order], name) < 1e-5, name
    for other in {*ORDERS} - {
        order
    }:  # only the policy of critic_first sees new critics, only the critics of policy_first a new policy
        sees_new = {"policy": "critic_first", "q": "policy_first", "q_target": "policy_first"}
        differs = {name for name, first in sees_new.items() if first in (order, other)}
        assert {name for name in sees_new if furthest(weights(agent), by_hand[other], name) > 1e-4} == differs


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_without_the_policy_updates_the_critics_as_if_it_were_alone(order):
    agent, alone, batch = make_ordered(order), make_ordered(), one(batches(1))
    before = weights(agent)
    agent.update_critics_once(batch)
    assert changed(before, weights(agent)) == {"q", "q_target"}
    alone.apply(*alone.critic_step(batch).gradients)
    alone.update_target("q")
    assert_same(agent, alone)


# -- temperature -------------------------------------------------------------------------------------------------------


def test_a_fixed_temperature_stays_and_is_used():
    agent = make_agent(FixedAlphaParameters(0.7))
    metrics = named(agent, batches(3))
    assert metrics["temperature/alpha"] == np.float32(0.7)
    assert "loss/temperature" not in metrics and "temperature" not in agent.trained


def test_the_temperature_step_uses_the_draw_of_the_policy_step_and_the_policy_the_old_alpha():
    agent = make_agent(AutoAlphaParameters(0.5, 0.1))
    metrics = named(agent, batches(1))
    assert metrics["temperature/alpha"] == pytest.approx(0.5)  # as the policy step used it
    expected = -math.log(0.5) * (metrics["policy/log_prob"] - 2.0)
    assert metrics["loss/temperature"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_alpha_outside_log_space_is_never_negative_and_learns_again():
    agent = make_agent(AutoAlphaParameters(0.01, 0.5, target_entropy=-9.9, log_space=False))
    for value in agent.update(batches(1)), agent.update(batches(4)):
        assert np.isfinite(value.metrics).all()
    assert float(agent.temperature.value()) == 0.0
    agent.target_entropy = 100.0
    agent.update(batches(30))
    assert float(agent.temperature.value()) > 0.0


def test_the_default_target_entropy_is_minus_the_action_size():
    for size in (1, 2, 6):
        assert make_agent(spec=vector_spec(3, size)).target_entropy == -size


# -- periods and delays ------------------------------------------------------------------------------------------------


# -- critics, weights, priorities --------------------------------------------------------------------------------------


def test_one_critic_is_used_everywhere():
    agent = make_agent(twin_critic=False)
    metrics = named(agent, batches(2))
    assert {name for name in metrics if name.startswith(("loss/q", "q/q"))} == {"loss/q1", "q/q1"}
    q = agent.networks["q"](one(batches(1)).observation, one(batches(1)).action)
    assert q.shape == (BATCH, 1)
    values = agent.value_tensors(one(batches(1)).observation, one(batches(1)).action)
    np.testing.assert_array_equal(values["q"], q[:, 0])


def test_importance_weights_scale_the_critic_loss_row_by_row_and_nothing_else():
    weight = np.array([0, 2, 1, 0.5, 0, 1, 1, 3], np.float32)
    plain, weighted = make_agent(prioritized=True), make_agent(prioritized=True)
    stacked = batches(1, weight=np.ones(BATCH))
    batch = one(stacked)
    target = plain.critic_step(batch).metrics["q/target"].numpy()
    metrics = named(weighted, stacked._replace(weight=weight[None]))
    unweighted = named(plain, stacked)
    assert metrics["q/target"] == pytest.approx(target, rel=1e-6)
    error = plain_errors(make_agent(prioritized=True), batch)
    np.testing.assert_allclose(metrics["loss/q1"], np.mean(weight * error[:, 0] ** 2), rtol=1e-5)
    np.testing.assert_allclose(unweighted["loss/q1"], np.mean(error[:, 0] ** 2), rtol=1e-5)


def plain_errors(agent, batch):
    """Q - y of an agent that was never updated."""
    policy = SquashedGaussian(*agent.networks["policy"](batch.next_observation))
    action, log_prob = policy.sample_and_log_prob(agent.noise("next", [BATCH, 2]))
    q_next = agent.networks["q_target"](batch.next_observation, action).numpy().min(axis=1)
    y = batch.reward + batch.discount * (q_next - 0.2 * log_prob)
    return agent.networks["q"](batch.observation, batch.action).numpy() - y.numpy()[:, None]


@pytest.mark.parametrize("eager", [True, False])
def test_priorities_are_the_mean_absolute_errors_of_the_critics_before_they_moved(eager):
    agent = make_agent(prioritized=True, eager=eager)
    stacked = batches(2, weight=np.linspace(0.1, 1, BATCH))
    error = plain_errors(agent, one(stacked))
    priority = agent.update(stacked).priority
    assert priority.shape == (2, BATCH)
    np.testing.assert_allclose(priority[0], np.abs(error).mean(axis=1), rtol=1e-4, atol=1e-6)


# -- gradients by finite differences -----------------------------------------------------------------------------------


def test_the_policy_gradient_with_the_temperature_agrees_with_finite_differences():
    agent, batch = make_agent(FixedAlphaParameters(0.7)), one(batches(1))
    (gradients,) = agent.policy_step(batch).gradients

    def loss():
        return agent.policy_step(batch).metrics["loss/policy"].numpy()

    bias = agent.networks["policy"].head.output.bias
    index = next(i for i, variable in enumerate(agent.trained["policy"]) if variable is bias)
    for entry in range(4):
        value, step = bias.numpy(), np.zeros(4, np.float32)
        step[entry] = 1e-2
        bias.assign(value + step)
        above = loss()
        bias.assign(value - step)
        below = loss()
        bias.assign(value)
        np.testing.assert_allclose((above - below) / 2e-2, gradients.values[index][entry], rtol=2e-2, atol=2e-3)


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
        ("reward", np.zeros((1, BATCH), np.float64)),
        ("weight", np.ones((1, BATCH), np.float32)),
        ("next_observation", {"observation": np.zeros((2, BATCH, 3), np.float32)}),
    ],
)
def test_a_batch_of_other_fields_is_refused_and_nothing_moves(field, wrong):
    agent = make_agent()
    before = weights(agent)
    with pytest.raises(ValueError):
        agent.update(batches(1)._replace(**{field: wrong}))
    assert changed(before, weights(agent)) == set()
