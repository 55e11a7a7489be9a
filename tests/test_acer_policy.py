"""Exported ACER policies return the same actions and values as the live policies."""

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

pytestmark = pytest.mark.slow  # every test exports a policy

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


class Case:
    """A policy and observations of three environments, `[STEPS, 3, ...]` by key."""

    def __init__(self, name):
        tiny.register()
        level, lstm, shared, changes = CASES[name]
        self.preset = tiny.acer(level, lstm, shared, **changes)
        env = make(level, **self.preset.environment.kwargs)
        self.spec = spec_of(env)
        rows = [as_arrays(env.reset(seed=seed)[0], self.spec) for seed in range(3 * STEPS)]
        env.close()
        stacked = {key: np.stack([row[key] for row in rows]) for key in self.spec.observation}
        self.observations = {key: x.reshape(STEPS, 3, *x.shape[1:]) for key, x in stacked.items()}
        agent = build_agent(self.preset, RunParameters(seed=2), self.spec)
        self.discrete, rng = "q" in agent.networks, np.random.default_rng(5)
        for network in agent.networks.values():
            for variable in network.trainable_variables:
                if len(variable.shape) > 1:  # not biases, which could favour one action everywhere
                    variable.assign_add(rng.normal(scale=1.0 if self.discrete else 0.5, size=variable.shape))
        agent.policy.refresh()
        filters = Filters(self.preset.environment.filters, self.spec)
        filters.learn({key: array[:, 0] for key, array in self.observations.items()})
        self.policy, recurrent = Policy(agent.policy, filters, agent), "trunk" if shared else "policy"
        self.fields = {f"{recurrent}_hidden", f"{recurrent}_cell"} if lstm else set()
        self.has_values = shared or not lstm

    def raw(self, step, rows=slice(None)):
        """Returns the raw observations of a step, of all three environments or some of them."""
        observation = {key: array[step][rows] for key, array in self.observations.items()}
        return observation if len(observation) > 1 else observation["observation"]


def signature(path, name):
    """Returns a signature of a SavedModel or LiteRT file as a function of arrays."""
    if path.suffix == ".tflite":
        return litert_interpreter(path).get_signature_runner(name)
    loaded = tf.saved_model.load(str(path))
    return lambda **arrays: loaded.signatures[name](**tensors_of(arrays))


def tensors_of(arrays):
    return {name: tf.constant(value) for name, value in arrays.items()}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return Case(request.param)


@pytest.fixture(scope="module")
def saved_model(case, tmp_path_factory):
    return exporting.export(case.policy, tmp_path_factory.mktemp("saved") / "policy", values=case.has_values)


@pytest.fixture(scope="module")
def litert(case, tmp_path_factory):
    pytest.importorskip("ai_edge_litert")
    return exporting.export(case.policy, tmp_path_factory.mktemp("lite") / "policy", "tflite", values=case.has_values)


@pytest.mark.parametrize("format", ["saved_model", "litert"])
def test_exported_episodes_match_live_policy(case, format, request):
    path = request.getfixturevalue(format)
    assert exporting.load_exported(path).fields == case.fields == case.policy.acting.state.keys()
    for rows in (slice(1), slice(3)):
        observations = [case.raw(step, rows) for step in range(STEPS)]
        assert exporting.verify(case.policy, path, observations) < 1e-5


def test_litert_samples_use_given_noise(case, litert):
    case.policy.reset()
    for step in range(STEPS // 2):
        case.policy.act(case.raw(step, slice(1)))
    state = {name: np.repeat(value, 20, axis=0) for name, value in case.policy.state.items()}
    observation = {key: np.repeat(array[STEPS // 2][:1], 20, axis=0) for key, array in case.observations.items()}
    acting, rng = case.policy.acting, np.random.default_rng(8)
    size = case.spec.action.num_actions if case.discrete else case.spec.action.shape[0]
    noise = (rng.random((20, size)) if case.discrete else rng.standard_normal((20, size))).astype(np.float32)
    exported = dict(signature(litert, "sample")(**observation, **state, noise=noise))
    filtered = tensors_of(case.policy.filters.observation(observation))
    action, after = acting.act_tensors(filtered, tf.constant(noise), tensors_of(state))
    action = case.policy.to_environment(action.numpy())
    np.testing.assert_allclose(exported.pop("action"), action, rtol=0, atol=1e-5)
    assert len(np.unique(action)) > 1 and exported.keys() == after.keys() == case.fields
    for name, value in after.items():
        np.testing.assert_allclose(exported[name], value, rtol=0, atol=1e-5)
    assert case.discrete or (np.abs(case.policy.to_environment.inverse(action)) <= 1.0 + 1e-6).all()


@pytest.mark.parametrize("format", ["saved_model", "litert"])
def test_exported_values_match_live_policy(case, format, request):
    path = request.getfixturevalue(format)
    if not case.has_values:
        pytest.skip("the critics have their own LSTM")
    case.policy.reset()
    action = case.policy.act(case.raw(0))
    expected = case.policy.values(case.raw(1), action)
    observation = {key: array[1] for key, array in case.observations.items()}
    action = action.astype(np.int32 if case.discrete else np.float32)
    exported = signature(path, "values")(**observation, **case.policy.state, action=action)
    assert exported.keys() == expected.keys() == {"q", "v"}
    for name, value in expected.items():
        np.testing.assert_allclose(exported[name], value, rtol=1e-4, atol=1e-4)
