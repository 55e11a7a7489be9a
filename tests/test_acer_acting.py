"""Acting with policies that may remember: draws and what is stored beside them, states, the same as tensors, values."""

import numpy as np
import pytest
import tensorflow as tf
from acer_tools import KINDS, RECURRENT, kept_agent, make_agent, named
from toys import discrete_spec

ROWS = 3


def observations(rows=ROWS, seed=0):
    return {"observation": np.random.default_rng(seed).standard_normal((rows, 3)).astype(np.float32)}


def repeated(rows):
    """One observation, many times."""
    return {"observation": np.tile(observations(1)["observation"], (rows, 1))}


def a_state(agent):
    """A state in the middle of an episode, of all networks."""
    rng = np.random.default_rng(1)
    return {
        field: rng.uniform(-1, 1, (ROWS, *array.shape)).astype(np.float32)
        for field, array in agent.policy.recurrent_state.items()
    }


def tensors(arrays):
    return {name: tf.constant(value) for name, value in arrays.items()}


# -- draws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["explore", "sample"])
def test_valid_choices_are_drawn_from_the_logits_that_are_stored(mode):
    agent, rows = make_agent(spec=discrete_spec(3, 3, masked=True)), 20_000
    mask = np.array([True, False, True])
    found = agent.policy.act({**repeated(rows), "action_mask": np.tile(mask, (rows, 1))}, mode=mode)
    logits = found.extras["behaviour/logits"]
    np.testing.assert_allclose(logits[0], agent.networks["policy"](observations(1))[0], rtol=1e-5)
    assert logits.dtype == np.float32 and found.action.dtype == np.int32
    expected = tf.nn.softmax(np.where(mask, logits[0], -np.inf))
    np.testing.assert_allclose(np.bincount(found.action, minlength=3) / rows, expected, atol=0.012)


@pytest.mark.parametrize(("mode", "covariance"), [("explore", "diagonal"), ("sample", "spherical")])
def test_numbers_are_drawn_from_the_gaussian_that_is_stored_and_may_lie_outside_the_bounds(mode, covariance):
    agent, rows = make_agent("gaussian", networks={"covariance": covariance, "min_variance": 0.3}), 20_000
    found = agent.policy.act(repeated(rows), mode=mode)
    mean, variance = (found.extras[f"behaviour/{name}"] for name in ("mean", "variance"))
    for x in (found.action, mean, variance):
        assert x.shape == (rows, 2) and x.dtype == np.float32
    expected_mean, raw = agent.networks["policy"](observations(1))
    assert raw.shape == (1, 2 if covariance == "diagonal" else 1) and (variance.min() > 0.3)
    np.testing.assert_allclose(mean[0], expected_mean[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance[0], np.log1p(np.exp(raw[0])) + 0.3 * np.ones(2), rtol=1e-5)
    np.testing.assert_allclose(found.action.mean(axis=0), mean[0], atol=0.03)
    np.testing.assert_allclose(found.action.var(axis=0), variance[0], rtol=0.05)
    assert abs(np.corrcoef(found.action.T)[0, 1]) < 0.03
    assert (np.abs(found.action) > 1).mean() > 0.1


def test_greedy_is_the_mean():
    greedy = kept_agent("gaussian").policy.act(observations(), mode="greedy")
    np.testing.assert_array_equal(greedy.action, greedy.extras["behaviour/mean"])


# -- states ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", RECURRENT, ids=named)
def test_every_network_computes_its_own_next_state(given):
    agent, x = kept_agent(**given), observations()
    before = a_state(agent)
    after = agent.policy.act(x, before, mode="explore").state
    for name in {field.rsplit("_", 1)[0] for field in before}:
        of_network = {field: tf.constant(before[f"{name}_{field}"]) for field in ("hidden", "cell")}
        _, *expected = agent.networks[name].advance({**tensors(x), **of_network})
        for field, value in zip(("hidden", "cell"), expected, strict=True):
            np.testing.assert_allclose(after[f"{name}_{field}"], value, rtol=1e-5, atol=1e-6)


# -- values ------------------------------------------------------------------------------------------------------------


def feed(agent, x, state):
    """What critics and policy read, as tensors, and the policy's outputs, computed by Keras."""
    given = tensors(x)
    for name in ("trunk", "policy"):
        if name in agent.network_parameters:
            memory = {f: tf.constant(state[f"{name}_{f}"]) for f in agent.networks[name].lstm_state}
            outputs = tf.nest.flatten(agent.networks[name]({**given, **memory}))
            given = {**given, "features": outputs[0]} if name == "trunk" else given
    return given, outputs


@pytest.mark.parametrize("given", [KINDS[4], KINDS[7]], ids=named)
def test_the_baseline_of_an_advantage_is_its_mean_over_the_policy(given):
    agent, x = make_agent(**given, networks={"min_variance": 1e-12}), observations()
    state, action = a_state(agent), observations(seed=3)["observation"][:, :2]
    read, (mean, *_) = feed(agent, x, state)

    def excess():
        """Returns how much more Q - V is than the action's advantage over the mean action's."""
        found = agent.value_tensors(tensors(x), tf.constant(action), tensors(state))
        np.testing.assert_allclose(found["v"], agent.networks["v"](read), rtol=1e-5)
        taken, usual = (agent.networks["advantage"](read, tf.constant(a)).numpy()[:, 0] for a in (action, mean.numpy()))
        return found["q"].numpy() - found["v"].numpy() - taken + usual

    assert np.abs(excess()).max() > 1e-2
    width = agent.networks["policy"].head.variance  # draws of a narrow policy are its mean
    width.kernel.assign(0 * width.kernel)
    width.bias.assign([-40.0, -40.0])
    np.testing.assert_allclose(excess(), 0.0, atol=1e-5)
