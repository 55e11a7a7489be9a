"""The running average of the policy's weights: its values, and that evaluations and saved weights use it."""

import numpy as np
import pytest
import strategy_tools as tools
import tensorflow as tf
import tiny
from agent_tools import assert_same_weights
from toys import tiny_preset

import tfsac
from tfsac.training import Trainer

RATE = 0.4
PATH = "agent__algorithm__rate_for_averaging_policy"
OBSERVATION = np.float32([[0.6, 0.8, -1.0], [-0.8, 0.6, 3.0]])


@pytest.mark.parametrize("name", ["v", "ensemble, batch renormalisation, no target"])
def test_average_is_mean_at_first_then_exponential(name):
    agent = tools.make_agent(name)
    batches, policy = tools.global_batches(agent), agent.networks["policy"].variables  # with running statistics

    def act():
        return agent.policy.act({"observation": batches.observation["observation"][0]}, mode="greedy").action

    initial, expected = act(), [0.0] * len(policy)
    with agent.averaged_policy():  # there is no average yet
        np.testing.assert_array_equal(act(), initial)
    for i, rate in enumerate((1.0, 0.5, RATE, RATE, RATE)):
        agent.update(tf.nest.map_structure(lambda x, i=i: x[i : i + 1], batches))
        expected = [(1 - rate) * old + rate * new.numpy() for old, new in zip(expected, policy, strict=True)]
    newest, action = [variable.numpy() for variable in policy], act()
    with pytest.raises(ZeroDivisionError), agent.averaged_policy():
        for variable, value in zip(policy, expected, strict=True):
            np.testing.assert_allclose(variable.numpy(), value, rtol=1e-5, atol=1e-6)
        assert (act() != action).any()
        raise ZeroDivisionError
    for variable, value in zip(policy, newest, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    np.testing.assert_array_equal(act(), action)


@pytest.fixture(scope="module")
def trainers(tmp_path_factory):
    """Returns the trainers of complete runs without and with an averaged policy."""
    both = []
    for rate in (None, 0.05):
        preset = tiny_preset(**{PATH: rate}, schedule__evaluation_steps=3)
        both.append(Trainer(preset, tmp_path_factory.mktemp("averaging") / "run", quiet=True))
        both[-1].run()
    return both


def test_training_does_not_change(trainers):
    assert_same_weights(*(trainer.agent for trainer in trainers))
    one, other = (tiny.rows(trainer.directory.path)[-1] for trainer in trainers)
    assert one["training/return_mean"] == other["training/return_mean"]
    assert one["evaluation/return_mean"] != other["evaluation/return_mean"]


def test_best_and_last_policies_are_the_average(trainers):
    trainer = trainers[1]
    newest = trainer.policy.act(OBSERVATION)
    with trainer.agent.averaged_policy():
        average = trainer.policy.act(OBSERVATION)
    assert (newest != average).all()
    for last in (False, True):
        policy = tfsac.load_policy(trainer.directory.path, last=last)
        np.testing.assert_array_equal(policy.act(OBSERVATION), average)


def test_run_from_initial_weights_begins_with_them(trainers, tmp_path):
    folder = trainers[0].directory.path
    trainer = Trainer(tiny_preset(**{PATH: 0.05}), tmp_path / "run", initial_weights=folder, quiet=True)
    with trainer.agent.averaged_policy():
        np.testing.assert_array_equal(trainer.policy.act(OBSERVATION), tfsac.load_policy(folder).act(OBSERVATION))
