"""Stateful TAAC policies: acting, evaluation, recording and export."""

import numpy as np
import pytest
import tensorflow as tf
import tiny
from critic_tools import critic_layers

from tfsac import api, exporting
from tfsac.environments import Filters, as_arrays, make, spec_of
from tfsac.exporting import loading
from tfsac.exporting.litert import litert_interpreter
from tfsac.parameters import RunParameters
from tfsac.random_streams import EVALUATION, episode_seed
from tfsac.training import Policy
from tfsac.training.build import build_agent

pytestmark = pytest.mark.slow  # whole runs; unit tests are elsewhere

STEPS = 25
NORMALISED = {"environment.filters.observation_normalization": True, "environment.filters.observation_clipping": 1.5}
IMAGE = {"joints": {"scheme": "Empty"}, "camera": {"scheme": [{"num_filters": 4, "kernel_size": 3, "stride": 2}, 8]}}
CAMERA = {f"agent.networks.{name}.input_embedders_parameters": IMAGE for name in ("policy", "q")}
CASES = {
    "constant": ("Pendulum-v1", {"agent.algorithm.max_repeat_steps": 3}),
    "linear": ("TfsacCameraArm-v0", {"agent.algorithm.trajectory": "linear", **CAMERA, **NORMALISED}),
    "quadratic": (
        "Pendulum-v1",
        {"agent.algorithm.trajectory": "quadratic", "agent.algorithm.b1_advantage_clipping": [-0.2, 0.1], **NORMALISED},
    ),
    "linear, forward": ("Pendulum-v1", {"agent.algorithm.trajectory": "linear", "agent.algorithm.inverse_mode": False}),
}


class Case:
    """A TAAC policy, and observations `[STEPS, 3, ...]` of three environments by key."""

    def __init__(self, name, **changes):
        tiny.register()
        level, own = CASES[name]
        self.preset = tiny.taac(level, **{**own, **changes})
        env = make(level)
        self.spec = spec_of(env)
        # Initial observations: nothing saturates and equal values are rare.
        rows = [as_arrays(env.reset(seed=seed)[0], self.spec) for seed in range(3 * STEPS)]
        env.close()
        self.observations = {
            key: np.stack([row[key] for row in rows]).reshape(STEPS, 3, *array.shape)
            for key, array in self.spec.observation.items()
        }
        agent = build_agent(self.preset, RunParameters(seed=2), self.spec)
        rng = np.random.default_rng(5)
        for network in agent.networks.values():
            for variable in network.trainable_variables:
                variable.assign_add(rng.normal(scale=0.1, size=variable.shape))
        agent.choice_temperature.variable.assign(-1.0)
        agent.policy.choice_alpha.assign(agent.choice_temperature.value())
        agent.policy.refresh()
        filters = Filters(self.preset.environment.filters, self.spec)
        filters.learn({key: array[:, 0] for key, array in self.observations.items()})
        self.policy = Policy(agent.policy, filters, agent)

    def raw(self, step, rows=slice(None)):
        """Returns the raw observation of a step, of all environments or of the given rows."""
        inputs = {key: array[step][rows] for key, array in self.observations.items()}
        return inputs if len(inputs) > 1 else inputs["observation"]

    def by_key(self, step):
        return {key: array[step] for key, array in self.observations.items()}

    def play(self, rows=slice(None)):
        """Acts on all steps; returns a list of (action, state, switched)."""
        self.policy.reset()
        steps = []
        for step in range(STEPS):
            action = self.policy.act(self.raw(step, rows))
            steps.append((action, self.policy.state, self.policy.switched))
        return steps


@pytest.fixture(scope="module")
def pendulum():
    return Case("constant")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.acceptance] if name in ("quadratic", "linear, forward") else [])
        for name in CASES
    ],
)
def case(request):
    return Case(request.param)


def test_policy_keeps_its_state_until_reset(pendulum):
    policy, acting = pendulum.policy, pendulum.policy.acting
    policy.reset()
    assert policy.state == {} and policy.switched is None
    states = [acting.initial_state(1)]
    for step in range(4):
        action = policy.act(pendulum.raw(step, 0))
        expected = acting.act({"observation": pendulum.raw(step, 0)[None]}, states[-1], mode="greedy")
        states.append(expected.state)
        assert action.shape == (1,) and action[0] == pytest.approx(2.0 * expected.action[0, 0], rel=1e-6)
        assert policy.switched is bool(expected.extras["switch"][0])
        for name, value in expected.state.items():
            np.testing.assert_array_equal(policy.state[name], value)
    assert states[-1]["tau_a"].any()
    repeated_action = policy.act(pendulum.raw(0, 0))
    policy.reset()
    assert policy.state == {} and policy.switched is None
    policy.act(pendulum.raw(0, 0))
    np.testing.assert_array_equal(policy.state["tau_a"], states[1]["tau_a"])
    assert repeated_action.shape == (1,) and policy.state["repeats"].tolist() == [1]


def test_batched_acting_matches_single_environments(case):
    batched = case.play()
    for i in range(3):
        for (actions, state, switched), (action, own, switch) in zip(batched, case.play(i), strict=True):
            np.testing.assert_allclose(actions[i], action, atol=1e-5)
            assert switched.dtype == bool and switched.shape == (3,) and switched[i] == switch
            assert state["repeats"][i] == own["repeats"][0]
    switches = np.stack([switched for _, _, switched in batched])
    assert 0.1 < switches.mean() < 0.95  # the policy both keeps and switches
    max_repeats = case.preset.agent.algorithm.max_repeat_steps
    assert max_repeats is None or max(state["repeats"].max() for _, state, _ in batched) == max_repeats


def test_other_batch_size_needs_a_reset(pendulum):
    policy = pendulum.policy
    policy.reset()
    policy.act(pendulum.raw(0))
    before = policy.state
    with pytest.raises(ValueError):
        policy.act(pendulum.raw(1, slice(2)))
    assert policy.state is before
    policy.reset()
    assert policy.act(pendulum.raw(1, slice(2))).shape == (2, 1)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run directory with an untrained TAAC policy."""
    preset = tiny.taac(**{"agent.algorithm.trajectory": "linear", "environment.max_episode_steps": 30})
    return tiny.untrained_run(tmp_path_factory.mktemp("state") / "run", "Pendulum-v1", preset)


def play_episode(run_dir, episode):
    """Plays one episode with a newly loaded policy."""
    policy, env = loading.load_policy(run_dir), loading.environment_of(run_dir)
    observation, _ = env.reset(seed=episode_seed(0, EVALUATION, 1, episode))
    actions, switched, total, done = [], [], 0.0, False
    while not done:
        actions.append(policy.act(observation))
        switched.append(policy.switched)
        observation, reward, terminated, truncated, _ = env.step(actions[-1])
        total, done = total + float(reward), terminated or truncated
    env.close()
    return np.array(actions), np.array(switched), total


def test_evaluate_and_record_reset_the_state(run_dir, tmp_path):
    episodes = [play_episode(run_dir, episode) for episode in range(3)]
    switched = np.concatenate([switched for _, switched, _ in episodes])
    assert 0 < switched.sum() < 90
    done = api.evaluate(run_dir, 3)
    assert done.returns.tolist() == [total for _, _, total in episodes]
    np.testing.assert_array_equal(done.switched, switched)
    recording = api.record(run_dir, tmp_path / "shown.npz", 3)
    np.testing.assert_allclose(
        2.0 * recording.records["action"], np.concatenate([a for a, _, _ in episodes]), atol=1e-6
    )
    np.testing.assert_array_equal(recording.returns, done.returns)


@pytest.fixture(scope="module", params=["saved_model", "tflite"])
def exported(case, tmp_path_factory, request):
    if request.param == "tflite":
        pytest.importorskip("ai_edge_litert")
    return exporting.export(case.policy, tmp_path_factory.mktemp("out") / "policy", request.param, values=True)


def signatures_of(path):
    """Returns a function that calls an exported signature by name."""
    if path.is_dir():
        loaded = tf.saved_model.load(str(path)).signatures
        return lambda name, **given: {key: x.numpy() for key, x in loaded[name](**tensors_of(given)).items()}
    return lambda name, **given: litert_interpreter(path).get_signature_runner(name)(**given)


def tensors_of(arrays):
    return {name: tf.constant(value) for name, value in arrays.items()}


@pytest.mark.parametrize("rows", [slice(1), slice(3)], ids=["one", "three"])
def test_exported_episodes_match_the_policy(case, exported, rows):
    signatures, initial = signatures_of(exported), case.policy.acting.initial_state(rows.stop)
    state = signatures("initial_state", rows=np.int32(rows.stop))
    for name, value in initial.items():
        np.testing.assert_array_equal(state[name], value)
    for step, (action, expected, _) in enumerate(case.play(rows)):
        inputs = {key: array[step][rows] for key, array in case.observations.items()}
        state = dict(signatures("serving_default", **inputs, **state))
        np.testing.assert_allclose(state.pop("action"), np.atleast_2d(action), rtol=0, atol=1e-5)
        assert state.keys() == expected.keys() == initial.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(state[name], value, rtol=0, atol=1e-5)


def test_exported_policy_keeps_its_state_after_errors(case, exported):
    policy, live = exporting.load_exported(exported), case.play()
    *rest, missing = case.observations
    wrong = {key: case.observations[key][0] for key in rest} | {"other": np.zeros((3, 1), np.float32)}
    for step in [*range(4), *range(4)]:
        if step == 0:
            policy.reset()
            assert policy.state == {}
        with pytest.raises(ValueError, match=missing):
            policy(wrong)
        if step:
            with pytest.raises(ValueError, match="reset"):
                policy({key: array[:1] for key, array in case.by_key(step).items()})
        np.testing.assert_allclose(policy(case.by_key(step)), live[step][0], rtol=0, atol=1e-5)
    assert policy.state.keys() == case.policy.acting.initial_state(1).keys()


@pytest.mark.parametrize("tied", [True, False])
def test_verify_ignores_ties_only(tmp_path, monkeypatch, tied):
    case = Case("quadratic")
    acting = case.policy.acting
    if tied:
        for critic in critic_layers(acting.networks["q"]):  # critics ignore the trajectory, so both choices tie
            kernel = critic[0].kernel.numpy()
            kernel[-3 * case.spec.action.shape[0] :] = 0.0
            critic[0].kernel.assign(kernel)
        acting.refresh()
    path = exporting.export(case.policy, tmp_path / "policy")
    observations = [case.raw(step, 0) for step in range(STEPS)]
    limited = acting._limited
    monkeypatch.setattr(
        acting,
        "_limited",
        lambda switch, repeats: ~switch if isinstance(switch, np.ndarray) else limited(switch, repeats),
    )
    assert (exporting.verify(case.policy, path, observations) <= exporting.TOLERANCE) == tied
    if tied:  # the ignored difference
        case.policy.reset()
        action = case.policy.act(observations[0])
        exported_action = exporting.load_exported(path)({"observation": observations[0][None]})[0]
        assert np.abs(action - exported_action).max() > 0.1


def test_verify_rejects_stochastic_policies(tmp_path):
    case = Case("constant", **{"agent.algorithm.epsilon_greedy": 0.25})
    with pytest.raises(ValueError, match="epsilon_greedy"):
        exporting.verify(case.policy, tmp_path, [np.zeros(3)])


def test_litert_sample_uses_the_given_noise(case, exported):
    if exported.is_dir():
        pytest.skip("a SavedModel samples its own noise")
    state = {name: np.repeat(value, 3, axis=0) for name, value in case.play(slice(1))[10][1].items()}
    state["repeats"][:] = 1  # no switch is forced
    inputs = {key: np.repeat(array[11][:1], 3, axis=0) for key, array in case.observations.items()}
    size, rng = case.spec.action.shape[0], np.random.default_rng(8)
    noise = np.concatenate([rng.standard_normal((3, size)), [[0.0], [0.5], [0.999999]]], axis=1).astype(np.float32)
    done = signatures_of(exported)("sample", **inputs, **state, noise=noise)
    filtered = tensors_of(case.policy.filters.observation(inputs))
    action, after = case.policy.acting.act_tensors(filtered, tf.constant(noise), tensors_of(state))
    np.testing.assert_allclose(done["action"], case.policy.to_environment(action.numpy()), rtol=0, atol=1e-5)
    for name, value in after.items():
        np.testing.assert_allclose(done[name], value, rtol=0, atol=1e-5)
    assert done["repeats"][[0, 2]].tolist() == [1, 2]  # the last column of noise samples the switch
