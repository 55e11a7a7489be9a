"""Acting with policies that may remember: draws and what is stored beside them, states, the same as tensors, values."""

import numpy as np
import pytest
import tensorflow as tf
from acer_tools import KINDS, RECURRENT, SOME, kept_agent, make_agent, mixed, named, stack
from toys import discrete_spec

from tfsac.networks import NumpyForward

ROWS = 3
of_recurrent = pytest.mark.parametrize("given", RECURRENT, ids=named)


def observations(rows=ROWS, seed=0):
    return {"observation": np.random.default_rng(seed).standard_normal((rows, 3)).astype(np.float32)}


def repeated(rows):
    """One observation, many times."""
    return {"observation": np.tile(observations(1)["observation"], (rows, 1))}


def a_state(agent, rows=ROWS, names=None, seed=1):
    """A state in the middle of an episode, of what acts, or of these networks."""
    rng = np.random.default_rng(seed)
    every = {
        field: rng.uniform(-1, 1, (rows, *array.shape)).astype(np.float32)
        for field, array in agent.policy.recurrent_state.items()
    }
    return {field: x for field, x in every.items() if field.rsplit("_", 1)[0] in (names or agent.policy.acts_through)}


def everything(agent, rows=ROWS, seed=1):
    return a_state(agent, rows, agent.networks, seed)


def tensors(arrays):
    return {name: tf.constant(value) for name, value in arrays.items()}


def assert_all_close(ours, theirs, atol=1e-6):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-5, atol=atol, err_msg=name)


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


# -- draws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["explore", "sample"])
def test_valid_choices_are_drawn_from_the_logits_that_are_stored(mode):
    agent, rows = make_agent(spec=discrete_spec(3, 3, masked=True)), 20_000
    mask = np.array([True, False, True])
    found = agent.policy.act({**repeated(rows), "action_mask": np.tile(mask, (rows, 1))}, mode=mode)
    logits = found.extras["behaviour/logits"]
    np.testing.assert_allclose(logits[0], agent.networks["policy"](observations(1))[0], rtol=1e-5)
    assert logits.dtype == np.float32 and found.action.dtype == np.int32
    expected = softmax(np.where(mask, logits[0], -np.inf))
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


def test_greedy_is_the_mean_and_random_is_uniform():
    agent, rows = kept_agent("gaussian"), 20_000
    greedy, random = agent.policy.act(observations(50), mode="greedy"), agent.policy.act(repeated(rows), mode="random")
    np.testing.assert_array_equal(greedy.action, greedy.extras["behaviour/mean"])
    quantiles = np.quantile(random.action, [0.1, 0.5, 0.9], axis=0)
    np.testing.assert_allclose(quantiles, [[-0.8] * 2, [0.0] * 2, [0.8] * 2], atol=0.03)
    assert random.extras == {}


@pytest.mark.parametrize("given", SOME, ids=named)
def test_acting_sees_new_weights_after_an_update(given):
    agent = make_agent(**given)
    agent.update(stack(mixed(agent)))
    assert all(isinstance(forward, NumpyForward) for forward in agent.policy.forwards.values())
    after = agent.policy.act(observations(), mode="explore")
    for forward in agent.policy.forwards.values():
        forward.load([variable.numpy() for variable in forward.variables])
    assert_all_close(after.state, agent.policy.act(observations(), mode="explore").state, atol=0)
    _, (first, *_) = feed(agent, observations(), agent.policy.initial_state(ROWS))
    np.testing.assert_allclose(next(iter(after.extras.values())), first, rtol=1e-5, atol=1e-6)  # logits, or the mean


# -- states ------------------------------------------------------------------------------------------------------------


@of_recurrent
def test_all_states_go_along_while_exploring_and_those_of_acting_otherwise(given):
    agent, fields = kept_agent(**given), ("hidden", "cell")
    if given["shared"]:
        names, acting = ["trunk", "trunk_target"], ["trunk"]
    else:
        names, acting = (
            ["policy", "policy_target", *(name for name in agent.network_parameters if name != "policy")],
            ["policy"],
        )
    every = {f"{name}_{field}": (3,) for name in names for field in fields}
    assert {field: array.shape for field, array in agent.policy.recurrent_state.items()} == every
    assert {field: x.shape for field, x in agent.policy.initial_state(ROWS).items()} == {
        f"{name}_{field}": (ROWS, 3) for name in acting for field in fields
    }
    assert not any(x.any() for x in agent.policy.initial_state(ROWS).values())
    for mode in ("random", "explore"):
        explored = agent.policy.act(observations(), mode=mode)
        assert explored.state.keys() == every.keys()
        assert {name for name in explored.extras if name.startswith("state/")} == {f"state/{field}" for field in every}
    for mode in ("sample", "greedy"):
        found = agent.policy.act(observations(), mode=mode)
        assert_all_close(
            found.state, {field: x for field, x in explored.state.items() if field in agent.policy.initial_state(1)}
        )
        assert not any(name.startswith("state/") for name in found.extras)


@of_recurrent
def test_a_state_goes_on_and_begins_anew_with_an_episode(given):
    agent, x = kept_agent(**given), observations()
    for mode, state in (("explore", everything(agent)), ("greedy", a_state(agent))):
        on, anew = agent.policy.act(x, state, mode=mode), agent.policy.act(x, mode=mode)
        some = agent.policy.act(x, state, np.array([True, False, True]), mode)
        for field, value in some.state.items():
            np.testing.assert_array_equal(value[1], on.state[field][1])
            np.testing.assert_array_equal(value[[0, 2]], anew.state[field][[0, 2]])
            assert np.abs(on.state[field] - anew.state[field]).max() > 0.01
            if mode == "explore":
                np.testing.assert_array_equal(some.extras[f"state/{field}"], state[field] * np.float32([[0], [1], [0]]))
                assert not anew.extras[f"state/{field}"].any()
        for empty in ((), {}, None):
            assert_all_close(agent.policy.act(x, empty, mode=mode).state, anew.state, atol=0)


@of_recurrent
def test_every_network_computes_its_own_next_state(given):
    agent, x = kept_agent(**given), observations()
    before = everything(agent)
    after = agent.policy.act(x, before, mode="explore").state
    for name in {field.rsplit("_", 1)[0] for field in before}:
        network = agent.networks[name]
        of_network = {field: tf.constant(before[f"{name}_{field}"]) for field in ("hidden", "cell")}
        _, hidden, cell = network.advance({**tensors(x), **of_network})
        assert_all_close({f: after[f"{name}_{f}"] for f in ("hidden", "cell")}, {"hidden": hidden, "cell": cell})


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
