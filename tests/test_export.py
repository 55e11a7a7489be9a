"""Exported policies match live policies, without tfsac or Keras."""

import functools

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import tiny

from tfsac import exporting
from tfsac.environments import Filters, as_arrays, make, spec_of
from tfsac.errors import TfsacError
from tfsac.exporting.litert import litert_interpreter
from tfsac.parameters import LOG_STD_BOUNDS, RunParameters
from tfsac.preset_lookup import load_preset
from tfsac.training import Policy
from tfsac.training.build import build_agent

HEAD = "agent.networks.policy.head_parameters"
NORMALISED = {"environment.filters.observation_normalization": True, "environment.filters.observation_clipping": 1.5}
CASES = {  # preset, level, changes
    "pendulum": ("pendulum_sac", "Pendulum-v1", {}),
    "twin, normalised, log sigma by tanh": (
        "pendulum_twin_sac",
        "Pendulum-v1",
        {**NORMALISED, f"{HEAD}.log_std": "tanh", f"{HEAD}.log_std_bounds": [-10.0, 2.0]},
    ),
    "ensemble of categorical critics, residual blocks, running statistics": (
        "flash_sac_mujoco",
        "Pendulum-v1",
        {f"{HEAD}.log_std_bounds": [-2.0, 2.0]},
    ),
    "ensemble, batch renormalisation": ("crossq_mujoco", "Pendulum-v1", {}),
    "camera, normalised": ("pendulum_sac", "TfsacCameraArm-v0", {**tiny.camera_networks(), **NORMALISED}),
}


class Case:
    """A policy with perturbed weights, and observations of its environment."""

    def __init__(self, name, level, changes):
        tiny.register()
        preset = tiny.shrunk(load_preset(name), **{"environment.level": level, **changes})
        env = make(level)
        self.spec = spec_of(env)
        self.observations, (observation, _) = [], env.reset(seed=11)
        env.action_space.seed(12)
        for _ in range(40):
            self.observations.append(observation)
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                observation, _ = env.reset()
        env.close()
        rows = [as_arrays(observation, self.spec) for observation in self.observations]
        self.batch = {key: np.stack([row[key] for row in rows]) for key in self.spec.observation}
        agent = build_agent(preset, RunParameters(seed=2), self.spec)
        rng = np.random.default_rng(5)
        for network in agent.networks.values():
            for variable in network.variables:
                change = rng.normal(scale=0.1, size=variable.shape)
                variable.assign_add(abs(change) if variable.name == "variance" else change)
        agent.policy.refresh()
        filters = Filters(preset.environment.filters, self.spec)
        filters.learn({key: array[:25] for key, array in self.batch.items()})
        self.policy = Policy(agent.policy, filters, agent)
        self.low, self.high = self.spec.action.low, self.spec.action.high

    def raw(self, rows=slice(None)):
        """Returns a batch of raw observations."""
        batch = {key: array[rows] for key, array in self.batch.items()}
        return batch if isinstance(self.observations[0], dict) else batch["observation"]

    def tensors(self, rows=slice(None)):
        return {key: tf.constant(array[rows]) for key, array in self.batch.items()}

    def gaussian(self, rows=slice(None)):
        """Returns location and scale of the policy before squashing."""
        observation = self.policy.filters.observation({key: array[rows] for key, array in self.batch.items()})
        loc, log_scale = self.policy.acting.forwards["policy"](observation)
        return loc, np.exp(np.clip(log_scale, *LOG_STD_BOUNDS))

    def rescaled(self, action):
        return self.low + (action + 1.0) / 2.0 * (self.high - self.low)

    def live_values(self, action):
        """Returns min Q, and V if there is one, of the agent's networks for actions in the environment's bounds."""
        agent = self.policy.critics
        filtered = {k: tf.constant(x) for k, x in self.policy.filters.observation(self.batch).items()}
        inner = 2.0 * (action - self.low) / (self.high - self.low) - 1.0
        q = agent.networks["q"](filtered, tf.constant(inner, tf.float32)).numpy()
        if hasattr(agent, "critics"):  # distributional critics
            q = np.asarray(agent.critics.q(q))
        v = {"v": agent.networks["v"](filtered).numpy()} if "v" in agent.networks else {}
        return {**v, "q": q.min(axis=-1)}


@functools.cache
def cached_case(name):
    """Returns a case that tests must not change."""
    return Case(*CASES[name])


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return cached_case(request.param)


@pytest.fixture(scope="module")
def saved_model(case, tmp_path_factory):
    return exporting.export(case.policy, tmp_path_factory.mktemp("saved") / "policy", values=True)


@pytest.fixture(scope="module")
def loaded(saved_model):
    return tf.saved_model.load(str(saved_model))


@pytest.fixture(scope="module")
def litert(case, tmp_path_factory):
    pytest.importorskip("ai_edge_litert")
    return exporting.export(case.policy, tmp_path_factory.mktemp("lite") / "policy", "tflite", values=True)


@pytest.mark.slow
def test_saved_model_matches_live_policy(case, saved_model, loaded):
    live = case.policy.act(case.raw())
    assert (np.ptp(live, axis=0) > 0.05 * (case.high - case.low)).all()  # actions vary
    exported = loaded.signatures["serving_default"](**case.tensors())["action"].numpy()
    assert exported.shape == live.shape == (40, len(case.low))
    np.testing.assert_allclose(exported, live, rtol=0, atol=1e-5)
    single = [{key: array[i : i + 1] for key, array in case.batch.items()} for i in range(5)]
    act = exporting.load_exported(saved_model)
    single_actions = np.stack([act(observation)[0] for observation in single])
    np.testing.assert_allclose(single_actions, live[:5], rtol=0, atol=1e-5)
    assert exporting.verify(case.policy, saved_model, case.observations) <= 1e-5


def test_saved_model_samples_follow_the_policy(case, loaded):
    rows = np.full(4000, 7)
    sample = loaded.signatures["sample"]
    sampled = sample(**case.tensors())["action"].numpy()
    assert (sampled >= case.low).all() and (sampled <= case.high).all()
    first, second = (sample(**case.tensors(rows))["action"].numpy() for _ in range(2))
    assert (first != second).mean() > 0.9
    loc, scale = case.gaussian(rows[:1])
    noise = np.random.default_rng(0).standard_normal((100_000, len(case.low)))
    expected = case.rescaled(np.tanh(loc + scale * noise))
    error = expected.std(axis=0) / np.sqrt(len(rows))
    assert (np.abs(first.mean(axis=0) - expected.mean(axis=0)) < 6 * error).all()
    np.testing.assert_allclose(first.std(axis=0), expected.std(axis=0), rtol=0.1)


@pytest.mark.slow
def test_exported_values_match_agent_networks(case, loaded, litert):
    action = np.random.default_rng(3).uniform(case.low, case.high, (40, len(case.low))).astype(np.float32)
    exported = loaded.signatures["values"](**case.tensors(), action=tf.constant(action))
    litert_values = litert_interpreter(litert).get_signature_runner("values")(**case.batch, action=action)
    live = case.live_values(action)
    assert exported.keys() == live.keys()
    for name, value in live.items():
        assert value.shape == (40,) and value.std() > 1e-3
        np.testing.assert_allclose(exported[name].numpy(), value, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(litert_values[name], value, rtol=1e-4, atol=1e-5)
    batched, single = case.policy.values(case.raw(), action), case.policy.values(case.observations[7], action[7])
    assert batched.keys() == single.keys() == live.keys()
    for name, value in exported.items():
        np.testing.assert_allclose(batched[name], value, rtol=1e-5, atol=1e-5)
        assert single[name].shape == ()
        np.testing.assert_allclose(single[name], value[7], rtol=1e-5, atol=1e-5)


class OddKeys(gym.Env):
    """Has observation keys that are not valid Python identifiers."""

    observation_space = gym.spaces.Dict(
        {key: gym.spaces.Box(-1.0, 1.0, (2,)) for key in ("arm.angle", "left-arm", "1")}
    )
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        return {key: np.full(2, 0.5, np.float32) for key in self.observation_space.spaces}, {}

    def step(self, action):
        return self.reset()[0], 0.0, False, True, {}


@pytest.mark.parametrize("format", ["saved_model", pytest.param("tflite", marks=pytest.mark.slow)])
def test_observation_keys_are_renamed_to_valid_input_names(tmp_path, format, monkeypatch):
    monkeypatch.setitem(gym.registry, "TfsacOddKeys-v0", gym.envs.registration.EnvSpec("TfsacOddKeys-v0", OddKeys))
    odd = Case("pendulum_twin_sac", "TfsacOddKeys-v0", {})
    path = exporting.export(odd.policy, tmp_path / "exported", format)
    assert exporting.load_exported(path).input_names == {"arm_angle", "left_arm", "arg_1"}
    assert exporting.verify(odd.policy, path, odd.observations) <= exporting.TOLERANCE


@pytest.mark.slow
def test_saved_model_needs_tensorflow_only(tmp_path, run_python):
    case = cached_case("camera, normalised")
    exporting.export(case.policy, tmp_path / "policy")
    np.savez(tmp_path / "observations.npz", **case.batch)
    program = """
import os, sys
import numpy as np
os.chdir(sys.argv[1])
for absent in ("tfsac", "keras", "tf_keras", "tensorflow_probability", "gymnasium", "pydantic"):
    sys.modules[absent] = None  # importing it raises
import tensorflow as tf
loaded = tf.saved_model.load("policy")
with np.load("observations.npz") as file:
    observations = {key: tf.constant(file[key]) for key in file}
np.save("actions", loaded.signatures["serving_default"](**observations)["action"].numpy())
print(loaded.signatures["sample"](**observations)["action"].shape)
"""
    assert run_python(program, str(tmp_path)) == "(40, 2)\n"
    np.testing.assert_allclose(np.load(tmp_path / "actions.npy"), case.policy.act(case.raw()), rtol=0, atol=1e-5)


def test_verify_tolerance_scales_with_action_bounds(tmp_path, monkeypatch):
    class Scaled(OddKeys):
        action_space = gym.spaces.Box(np.float32([-60.0, -1e-6]), np.float32([400.0, 1e-6]))

    monkeypatch.setitem(gym.registry, "TfsacScaled-v0", gym.envs.registration.EnvSpec("TfsacScaled-v0", Scaled))
    case = Case("pendulum_twin_sac", "TfsacScaled-v0", {})
    path = exporting.export(case.policy, tmp_path / "exported")
    act = case.policy.act
    # float32 rounds large actions; small ones have a small tolerance.
    for added, within in (([3e-5, 0.0], True), ([3e-2, 0.0], False), ([0.0, 1e-9], False), ([np.nan, 0.0], False)):
        monkeypatch.setattr(case.policy, "act", lambda observation, added=added: act(observation) + np.array(added))
        assert (exporting.verify(case.policy, path, case.observations) <= exporting.TOLERANCE) == within


def test_verify_detects_changed_statistics_and_weights(tmp_path):
    case = Case(*CASES["twin, normalised, log sigma by tanh"])
    path = exporting.export(case.policy, tmp_path / "policy")
    case.policy.filters.learn({key: (array * 3 + 1).astype(array.dtype) for key, array in case.batch.items()})
    assert exporting.verify(case.policy, path, case.observations) > 0.01
    path = exporting.export(case.policy, tmp_path / "again")
    assert set(tf.saved_model.load(str(path)).signatures) == {"serving_default", "sample"}  # values are optional
    for variable in case.policy.acting.networks["policy"].trainable_variables:
        variable.assign(variable * 1.1)
    case.policy.acting.refresh()
    assert exporting.verify(case.policy, path, case.observations) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 5])
def test_litert_matches_live_policy_and_uses_given_noise(case, litert, rows):
    interpreter, live = litert_interpreter(litert), case.policy.act(case.raw(slice(rows)))
    inputs = {key: array[:rows] for key, array in case.batch.items()}
    exported = interpreter.get_signature_runner("serving_default")(**inputs)["action"]
    assert exported.shape == live.shape == (rows, len(case.low))
    np.testing.assert_allclose(exported, live, rtol=0, atol=1e-5)
    noise = np.random.default_rng(8).standard_normal((rows, len(case.low)), np.float32)
    sampled = interpreter.get_signature_runner("sample")(**inputs, noise=noise)["action"]
    loc, scale = case.gaussian(slice(rows))
    np.testing.assert_allclose(sampled, case.rescaled(np.tanh(loc + scale * noise)), rtol=0, atol=1e-5)
    assert np.abs(sampled - live).max() > 1e-3


@pytest.mark.parametrize("format", ["saved_model", "litert"])
def test_exported_policy_accepts_and_rejects_inputs_like_act(case, format, request):
    act, observation = exporting.load_exported(request.getfixturevalue(format)), case.observations[3]
    np.testing.assert_allclose(act(case.raw()), case.policy.act(case.raw()), atol=1e-5)
    assert act(observation).shape == case.low.shape
    np.testing.assert_allclose(act(observation), case.policy.act(observation), atol=1e-5)
    *others, last = case.batch
    with pytest.raises(ValueError, match=last):
        act({**{key: case.batch[key] for key in others}, "other": np.zeros((40, 1), np.float32)})
    assert act({**case.batch, "other": np.zeros((40, 1))}).shape == (40, len(case.low))
    if not isinstance(observation, dict):
        np.testing.assert_array_equal(act(case.raw()[:12].reshape(3, 4, -1)), act(case.raw()[:12]).reshape(3, 4, -1))
        for wrong in (observation[:-1], "left", np.full_like(observation, np.nan)):
            with pytest.raises(ValueError):
                act(wrong)


def test_invalid_export_options_and_folders_are_rejected(tmp_path):
    with pytest.raises(TfsacError, match="quantize"):
        exporting.export(cached_case("pendulum").policy, tmp_path / "out", quantize="float16")  # LiteRT only
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "config.json").touch()
    with pytest.raises(FileNotFoundError, match="a run"):
        exporting.load_exported(tmp_path)
