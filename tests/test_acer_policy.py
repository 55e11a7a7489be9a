"""Policies of actor-critic with experience replay as their user has them: acting, evaluated, recorded, exported."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tiny

from tfsac import exporting
from tfsac.environments import Filters, as_arrays, make, spec_of
from tfsac.exporting.litert import litert_interpreter
from tfsac.parameters import RunParameters
from tfsac.training import Policy
from tfsac.training.build import build_agent

pytestmark = pytest.mark.slow  # whole runs: the quick tests of the parts are elsewhere

STEPS = 12
NORMALISED = {"environment.filters.observation_normalization": True, "environment.filters.observation_clipping": 1.5}
HEAD = "agent.networks.policy.head_parameters"
SPHERICAL = {f"{HEAD}.covariance": "spherical", f"{HEAD}.bound_mean": False}
CAMERA = {
    "agent.networks.trunk.input_embedders_parameters": {
        "joints": {"scheme": "Empty"},
        "camera": {"scheme": [{"num_filters": 4, "kernel_size": 3, "stride": 2}, 8]},
    }
}
MASKED = {"environment.kwargs": {"masked": True}}
CASES = {  # level, LSTM, trunk, changes
    "discrete": ("CartPole-v1", False, False, NORMALISED),
    "discrete, LSTM in a trunk": ("toys:DiscreteIdentity-v0", True, True, MASKED),
    "Gaussian, LSTM in a trunk": ("TfsacCameraArm-v0", True, True, {**CAMERA, **NORMALISED, **SPHERICAL}),
    "Gaussian, LSTMs": ("Pendulum-v1", True, False, NORMALISED),
    "Gaussian in a trunk": ("Pendulum-v1", False, True, {}),
}
CELLS = {"hidden", "cell"}


class Case:
    """A policy, and what three environments show it, `[STEPS, 3, ...]` by key."""

    def __init__(self, name):
        tiny.register()
        level, self.lstm, self.shared, changes = CASES[name]
        self.preset = tiny.acer(level, self.lstm, self.shared, **changes)
        env = make(level, **self.preset.environment.kwargs)
        self.spec = spec_of(env)
        rows = [as_arrays(env.reset(seed=seed)[0], self.spec) for seed in range(3 * STEPS)]
        env.close()
        arrays = self.spec.observation.items()
        self.seen = {key: np.stack([row[key] for row in rows]).reshape(STEPS, 3, *array.shape) for key, array in arrays}
        agent = build_agent(self.preset, RunParameters(seed=2), self.spec)
        self.discrete, rng = "q" in agent.networks, np.random.default_rng(5)
        for network in agent.networks.values():
            for variable in network.trainable_variables:
                if len(variable.shape) > 1:  # without biases, with which one choice might be the likeliest everywhere
                    variable.assign_add(rng.normal(scale=1.0 if self.discrete else 0.5, size=variable.shape))
        agent.policy.refresh()
        filters = Filters(self.preset.environment.filters, self.spec)
        filters.learn({key: array[:, 0] for key, array in self.seen.items()})
        self.policy, remembers = Policy(agent.policy, filters, agent), "trunk" if self.shared else "policy"
        self.fields = {f"{remembers}_{name}" for name in CELLS} if self.lstm else set()
        self.loaded = {}

    def raw(self, step, rows=slice(None)):
        """Returns what the environments would give at a step: all three, or one of them."""
        seen = {key: array[step][rows] for key, array in self.seen.items()}
        return seen if len(seen) > 1 else seen["observation"]

    def live(self, rows=slice(None)):
        """Plays the episodes with the policy: actions and states by step."""
        self.policy.reset()
        return [(self.policy.act(self.raw(step, rows)), self.policy.state) for step in range(STEPS)]

    def signatures(self, path):
        """Returns functions of arrays, by signature name, of a SavedModel or a LiteRT file."""
        if path not in self.loaded:
            self.loaded[path] = self._load(path)
        return self.loaded[path]

    def _load(self, path):
        if path.suffix == ".tflite":
            interpreter = litert_interpreter(path)
            return {name: interpreter.get_signature_runner(name) for name in interpreter.get_signature_list()}
        loaded = tf.saved_model.load(str(path))

        def call(name, **given):
            return {field: x.numpy() for field, x in loaded.signatures[name](**tensors_of(given)).items()}

        return {name: functools.partial(call, name) for name in loaded.signatures}


def tensors_of(arrays):
    return {name: tf.constant(value) for name, value in arrays.items()}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return Case(request.param)


# -- exported ----------------------------------------------------------------------------------------------------------


def values_of(case):
    """Returns whether the values of this policy can be told."""
    return case.shared or not case.lstm


@pytest.fixture(scope="module")
def saved_model(case, tmp_path_factory):
    return exporting.export(case.policy, tmp_path_factory.mktemp("saved") / "policy", values=values_of(case))


@pytest.fixture(scope="module")
def litert(case, tmp_path_factory):
    pytest.importorskip("ai_edge_litert")
    return exporting.export(case.policy, tmp_path_factory.mktemp("lite") / "policy", "tflite", values=values_of(case))


@pytest.mark.parametrize("format", ["saved_model", "litert"])
def test_whole_episodes_of_the_export_are_those_of_the_live_policy(case, format, request):
    signatures = case.signatures(request.getfixturevalue(format))
    for rows in (slice(1), slice(3)):
        state = signatures["initial_state"](rows=np.int32(rows.stop)) if case.lstm else {}
        for step, (action, expected) in enumerate(case.live(rows)):
            done = dict(signatures["serving_default"](**{key: x[step][rows] for key, x in case.seen.items()}, **state))
            np.testing.assert_allclose(done.pop("action"), action, rtol=0, atol=1e-5)
            assert done.keys() == expected.keys()
            for name, value in expected.items():
                np.testing.assert_allclose(done[name], value, rtol=0, atol=1e-5)
            state = done


def middle(case, rows):
    """Returns the state in the middle of the first episode and what is seen there, in so many equal rows."""
    state = {name: np.repeat(value, rows, axis=0) for name, value in case.live(slice(1))[STEPS // 2][1].items()}
    return state, {key: np.repeat(array[STEPS // 2 + 1][:1], rows, axis=0) for key, array in case.seen.items()}


def test_a_sample_of_the_litert_file_is_made_with_the_given_noise(case, litert):
    (state, seen), rng = middle(case, 20), np.random.default_rng(8)
    acting, size = case.policy.acting, case.spec.action.num_actions if case.discrete else case.spec.action.shape[0]
    noise = (rng.random((20, size)) if case.discrete else rng.standard_normal((20, size))).astype(np.float32)
    done = dict(case.signatures(litert)["sample"](**seen, **state, noise=noise))
    action, after = acting.act_tensors(
        tensors_of(case.policy.filters.observation(seen)), tf.constant(noise), tensors_of(state)
    )
    action = case.policy.to_environment(action.numpy())
    np.testing.assert_allclose(done.pop("action"), action, rtol=0, atol=1e-5)
    assert len(np.unique(action)) > 1 and done.keys() == after.keys() == case.fields
    for name, value in after.items():
        np.testing.assert_allclose(done[name], value, rtol=0, atol=1e-5)
    assert case.discrete or (np.abs(case.policy.to_environment.inverse(action)) <= 1.0 + 1e-6).all()


@pytest.mark.parametrize("format", ["saved_model", "litert"])
def test_exported_values_are_those_of_the_critics(case, format, request, tmp_path):
    signatures, rng = case.signatures(request.getfixturevalue(format)), np.random.default_rng(3)
    acting, critics = case.policy.acting, case.policy.critics.networks
    assert ("values" in signatures) == values_of(case)
    if not values_of(case):
        with pytest.raises(ValueError):
            exporting.export(case.policy, tmp_path / "out", values=True)
        assert not list(tmp_path.iterdir())
        return
    state, seen = case.live()[5][1], {key: array[6] for key, array in case.seen.items()}
    filtered = case.policy.filters.observation(seen)
    if case.discrete:
        inner = given = acting.act(filtered, state, mode="sample").action
    else:
        inner = rng.uniform(-1, 1, (3, *case.spec.action.shape)).astype(np.float32)
        given = case.policy.to_environment(inner).astype(np.float32)
    found = signatures["values"](**seen, **state, action=given)
    assert found.keys() == {"q", "v"}
    outputs, _, read = acting.advance_tensors(tensors_of(filtered), tensors_of(state))
    if case.discrete:
        policy = acting.distribution(outputs, tensors_of(filtered))
        q = critics["q"](read).numpy()[:, 0]
        np.testing.assert_allclose(found["q"], q[np.arange(3), inner], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["v"], (policy.prob.numpy() * q).sum(axis=1), rtol=1e-4, atol=1e-4)
    else:
        v = critics["v"](read).numpy()
        np.testing.assert_allclose(found["v"], v, rtol=1e-4, atol=1e-4)
        # With the same baseline for all actions, values differ as advantages do.
        other = case.policy.to_environment(-inner).astype(np.float32)
        difference = found["q"] - signatures["values"](**seen, **state, action=other)["q"]
        advantages = [critics["advantage"](read, tf.constant(a)).numpy()[:, 0] for a in (inner, -inner)]
        np.testing.assert_allclose(difference, advantages[0] - advantages[1], rtol=1e-3, atol=1e-3)
        assert (np.abs(difference) > 1e-3).all()
