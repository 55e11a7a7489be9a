"""Acting with ACER policies: samples and stored behaviour policies, recurrent states and values."""

import numpy as np
import pytest
import tensorflow as tf
from acer_tools import KINDS, RECURRENT, cached_agent, kind_id, make_agent
from toys import discrete_spec

ROWS = 3


def observations(rows=ROWS, seed=0):
    return {"observation": np.random.default_rng(seed).standard_normal((rows, 3)).astype(np.float32)}


def repeated(rows):
    """Returns one observation many times."""
    return {"observation": np.tile(observations(1)["observation"], (rows, 1))}


def random_state(agent):
    """Returns random recurrent states of all networks."""
    rng = np.random.default_rng(1)
    return {
        field: rng.uniform(-1, 1, (ROWS, *array.shape)).astype(np.float32)
        for field, array in agent.policy.recurrent_state.items()
    }


def tensors(arrays):
    return {name: tf.constant(value) for name, value in arrays.items()}


@pytest.mark.parametrize("mode", ["explore", "sample"])
def test_sampled_actions_match_stored_logits(mode):
    agent, rows = make_agent(spec=discrete_spec(3, 3, masked=True)), 20_000
    mask = np.array([True, False, True])
    result = agent.policy.act({**repeated(rows), "action_mask": np.tile(mask, (rows, 1))}, mode=mode)
    logits = result.extras["behaviour/logits"]
    np.testing.assert_allclose(logits[0], agent.networks["policy"](observations(1))[0], rtol=1e-5)
    assert logits.dtype == np.float32 and result.action.dtype == np.int32
    expected = tf.nn.softmax(np.where(mask, logits[0], -np.inf))
    np.testing.assert_allclose(np.bincount(result.action, minlength=3) / rows, expected, atol=0.012)


@pytest.mark.parametrize(("mode", "covariance"), [("explore", "diagonal"), ("sample", "spherical")])
def test_sampled_actions_match_stored_gaussian_unclipped(mode, covariance):
    agent, rows = make_agent("gaussian", networks={"covariance": covariance, "min_variance": 0.3}), 20_000
    result = agent.policy.act(repeated(rows), mode=mode)
    mean, variance = (result.extras[f"behaviour/{name}"] for name in ("mean", "variance"))
    for x in (result.action, mean, variance):
        assert x.shape == (rows, 2) and x.dtype == np.float32
    expected_mean, raw = agent.networks["policy"](observations(1))
    assert raw.shape == (1, 2 if covariance == "diagonal" else 1) and (variance.min() > 0.3)
    np.testing.assert_allclose(mean[0], expected_mean[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance[0], np.log1p(np.exp(raw[0])) + 0.3 * np.ones(2), rtol=1e-5)
    np.testing.assert_allclose(result.action.mean(axis=0), mean[0], atol=0.03)
    np.testing.assert_allclose(result.action.var(axis=0), variance[0], rtol=0.05)
    assert abs(np.corrcoef(result.action.T)[0, 1]) < 0.03
    assert (np.abs(result.action) > 1).mean() > 0.1
    np.testing.assert_array_equal(agent.policy.act(repeated(rows), mode="greedy").action, mean)


@pytest.mark.parametrize("case", RECURRENT, ids=kind_id)
def test_each_network_advances_its_own_recurrent_state(case):
    agent, x = cached_agent(**case), observations()
    before = random_state(agent)
    after = agent.policy.act(x, before, mode="explore").state
    for name in {field.rsplit("_", 1)[0] for field in before}:
        network_state = {field: tf.constant(before[f"{name}_{field}"]) for field in ("hidden", "cell")}
        _, *expected = agent.networks[name].advance({**tensors(x), **network_state})
        for field, value in zip(("hidden", "cell"), expected, strict=True):
            np.testing.assert_allclose(after[f"{name}_{field}"], value, rtol=1e-5, atol=1e-6)


def feed(agent, x, state):
    """Returns the inputs of critics and policy, as tensors, and the outputs of the policy, computed by Keras."""
    inputs = tensors(x)
    for name in ("trunk", "policy"):
        if name in agent.network_parameters:
            memory = {f: tf.constant(state[f"{name}_{f}"]) for f in agent.networks[name].lstm_state}
            outputs = tf.nest.flatten(agent.networks[name]({**inputs, **memory}))
            inputs = {**inputs, "features": outputs[0]} if name == "trunk" else inputs
    return inputs, outputs


@pytest.mark.parametrize("case", [KINDS[4], KINDS[7]], ids=kind_id)
def test_advantage_baseline_is_mean_over_policy(case):
    agent, x = make_agent(**case, networks={"min_variance": 1e-12}), observations()
    state, action = random_state(agent), observations(seed=3)["observation"][:, :2]
    read, (mean, *_) = feed(agent, x, state)

    def excess():
        """Returns Q - V minus the difference between the advantages of the action and the mean action."""
        values = agent.value_tensors(tensors(x), tf.constant(action), tensors(state))
        np.testing.assert_allclose(values["v"], agent.networks["v"](read), rtol=1e-5)
        advantage = agent.networks["advantage"]
        difference = advantage(read, tf.constant(action)) - advantage(read, tf.constant(mean.numpy()))
        return values["q"].numpy() - values["v"].numpy() - difference.numpy()[:, 0]

    assert np.abs(excess()).max() > 1e-2
    width = agent.networks["policy"].head.variance  # samples of a narrow policy are its mean
    width.kernel.assign(0 * width.kernel)
    width.bias.assign([-40.0, -40.0])
    np.testing.assert_allclose(excess(), 0.0, atol=1e-5)
