"""A policy with a state as its user has it: acting, evaluated, recorded and exported."""

import numpy as np
import pytest
import tensorflow as tf
import tiny
from critic_tools import layers_of_critics

from tfsac import api, exporting
from tfsac.environments import Filters, as_arrays, make, spec_of
from tfsac.exporting import loading
from tfsac.exporting.litert import litert_interpreter
from tfsac.parameters import RunParameters
from tfsac.random_streams import EVALUATION, episode_seed
from tfsac.training import Policy
from tfsac.training.build import build_agent

pytestmark = pytest.mark.slow  # whole runs: the quick tests of the parts are elsewhere

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
    """A policy that keeps and switches, and what three environments show it, `[STEPS, 3, ...]` by key."""

    def __init__(self, name, **changes):
        tiny.register()
        level, own = CASES[name]
        self.preset = tiny.taac(level, **{**own, **changes})
        env = make(level)
        self.spec = spec_of(env)
        # Where episodes begin, so that all is of a size at which nothing saturates and equal values are rare.
        rows = [as_arrays(env.reset(seed=seed)[0], self.spec) for seed in range(3 * STEPS)]
        env.close()
        self.seen = {
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
        filters.learn({key: array[:, 0] for key, array in self.seen.items()})
        self.policy = Policy(agent.policy, filters, agent)

    def raw(self, step, rows=slice(None)):
        """Returns what the environments would give at a step: all three, or one of them."""
        seen = {key: array[step][rows] for key, array in self.seen.items()}
        return seen if len(seen) > 1 else seen["observation"]

    def given(self, step):
        return {key: array[step] for key, array in self.seen.items()}

    def live(self, rows=slice(None)):
        """Plays the episodes with the policy: actions, states, and where it switched, by step."""
        self.policy.reset()
        played = []
        for step in range(STEPS):
            action = self.policy.act(self.raw(step, rows))
            played.append((action, self.policy.state, self.policy.switched))
        return played


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


# -- acting ------------------------------------------------------------------------------------------------------------


def test_a_policy_remembers_its_state_until_it_is_reset(pendulum):
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
    again = policy.act(pendulum.raw(0, 0))
    policy.reset()
    assert policy.state == {} and policy.switched is None
    policy.act(pendulum.raw(0, 0))
    np.testing.assert_array_equal(policy.state["tau_a"], states[1]["tau_a"])
    assert again.shape == (1,) and policy.state["repeats"].tolist() == [1]


def test_environments_side_by_side_act_as_each_alone(case):
    together = case.live()
    for i in range(3):
        for (actions, state, switched), (action, own, switch) in zip(together, case.live(i), strict=True):
            np.testing.assert_allclose(actions[i], action, atol=1e-5)
            assert switched.dtype == bool and switched.shape == (3,) and switched[i] == switch
            assert state["repeats"][i] == own["repeats"][0]
    switches = np.stack([switched for _, _, switched in together])
    assert 0.1 < switches.mean() < 0.95  # of both, or little would be tested
    most = case.preset.agent.algorithm.max_repeat_steps
    assert most is None or max(state["repeats"].max() for _, state, _ in together) == most


def test_another_number_of_environments_needs_a_reset(pendulum):
    policy = pendulum.policy
    policy.reset()
    policy.act(pendulum.raw(0))
    before = policy.state
    with pytest.raises(ValueError):
        policy.act(pendulum.raw(1, slice(2)))
    assert policy.state is before
    policy.reset()
    assert policy.act(pendulum.raw(1, slice(2))).shape == (2, 1)


# -- evaluated and recorded --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run directory whose policy keeps and switches."""
    preset = tiny.taac(**{"agent.algorithm.trajectory": "linear", "environment.max_episode_steps": 30})
    return tiny.untrained_run(tmp_path_factory.mktemp("state") / "run", "Pendulum-v1", preset)


def alone(run_dir, episode, seed=0, where=1):
    """Plays one episode with a policy that was never used before."""
    policy, env = loading.load_policy(run_dir), loading.environment_of(run_dir)
    observation, _ = env.reset(seed=episode_seed(seed, EVALUATION, where, episode))
    actions, switched, total, done = [], [], 0.0, False
    while not done:
        actions.append(policy.act(observation))
        switched.append(policy.switched)
        observation, reward, terminated, truncated, _ = env.step(actions[-1])
        total, done = total + float(reward), terminated or truncated
    env.close()
    return np.array(actions), np.array(switched), total


def test_every_episode_of_an_evaluation_and_a_recording_begins_with_a_new_state(run_dir, tmp_path):
    one_by_one = [alone(run_dir, episode) for episode in range(3)]
    switched = np.concatenate([switched for _, switched, _ in one_by_one])
    assert 0 < switched.sum() < 90
    done = api.evaluate(run_dir, 3)
    assert done.returns.tolist() == [total for _, _, total in one_by_one]
    np.testing.assert_array_equal(done.switched, switched)
    made = api.record(run_dir, tmp_path / "shown.npz", 3)
    np.testing.assert_allclose(2.0 * made.records["action"], np.concatenate([a for a, _, _ in one_by_one]), atol=1e-6)
    np.testing.assert_array_equal(made.returns, done.returns)


# -- exported ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["saved_model", "tflite"])
def exported(case, tmp_path_factory, request):
    if request.param == "tflite":
        pytest.importorskip("ai_edge_litert")
    return exporting.export(case.policy, tmp_path_factory.mktemp("out") / "policy", request.param, values=True)


def signatures_of(path):
    """Returns a function that calls an exported signature, by its name, with arrays."""
    if path.is_dir():
        loaded = tf.saved_model.load(str(path)).signatures
        return lambda name, **given: {key: x.numpy() for key, x in loaded[name](**tensors_of(given)).items()}
    return lambda name, **given: litert_interpreter(path).get_signature_runner(name)(**given)


def tensors_of(arrays):
    return {name: tf.constant(value) for name, value in arrays.items()}


@pytest.mark.parametrize("rows", [slice(1), slice(3)], ids=["one", "three"])
def test_whole_episodes_of_an_export_are_those_of_the_live_policy(case, exported, rows):
    signatures, initial = signatures_of(exported), case.policy.acting.initial_state(rows.stop)
    state = signatures("initial_state", rows=np.int32(rows.stop))
    for name, value in initial.items():
        np.testing.assert_array_equal(state[name], value)
    for step, (action, expected, _) in enumerate(case.live(rows)):
        seen = {key: array[step][rows] for key, array in case.seen.items()}
        state = dict(signatures("serving_default", **seen, **state))
        np.testing.assert_allclose(state.pop("action"), np.atleast_2d(action), rtol=0, atol=1e-5)
        assert state.keys() == expected.keys() == initial.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(state[name], value, rtol=0, atol=1e-5)


def test_an_exported_policy_keeps_its_state_after_errors_until_it_is_reset(case, exported):
    policy, live = exporting.load_exported(exported), case.live()
    *rest, missing = case.seen
    wrong = {key: case.seen[key][0] for key in rest} | {"other": np.zeros((3, 1), np.float32)}
    for step in [*range(4), *range(4)]:
        if step == 0:
            policy.reset()
            assert policy.state == {}
        with pytest.raises(ValueError, match=missing):
            policy(wrong)
        if step:
            with pytest.raises(ValueError, match="reset"):
                policy({key: array[:1] for key, array in case.given(step).items()})
        np.testing.assert_allclose(policy(case.given(step)), live[step][0], rtol=0, atol=1e-5)
    assert policy.state.keys() == case.policy.acting.initial_state(1).keys()


@pytest.mark.parametrize("tie", [True, False])
def test_verifying_leaves_out_what_rounding_decides_and_nothing_else(tmp_path, monkeypatch, tie):
    case = Case("quadratic")
    acting = case.policy.acting
    if tie:
        for critic in layers_of_critics(acting.networks["q"]):  # these ignore the trajectory, beside the observation
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
    assert (exporting.verify(case.policy, path, observations) <= exporting.TOLERANCE) == tie
    if tie:  # that is what was left out
        case.policy.reset()
        action = case.policy.act(observations[0])
        kept = exporting.load_exported(path)({"observation": observations[0][None]})[0]
        assert np.abs(action - kept).max() > 0.1


def test_verifying_refuses_a_policy_that_draws(tmp_path):
    case = Case("constant", **{"agent.algorithm.epsilon_greedy": 0.25})
    with pytest.raises(ValueError, match="epsilon_greedy"):
        exporting.verify(case.policy, tmp_path, [np.zeros(3)])


def test_a_sample_of_the_litert_file_is_made_with_the_given_noise(case, exported):
    if exported.is_dir():
        pytest.skip("a SavedModel draws its own")
    state = {name: np.repeat(value, 3, axis=0) for name, value in case.live(slice(1))[10][1].items()}
    state["repeats"][:] = 1  # so that no switch is forced
    seen = {key: np.repeat(array[11][:1], 3, axis=0) for key, array in case.seen.items()}
    size, rng = case.spec.action.shape[0], np.random.default_rng(8)
    noise = np.concatenate([rng.standard_normal((3, size)), [[0.0], [0.5], [0.999999]]], axis=1).astype(np.float32)
    done = signatures_of(exported)("sample", **seen, **state, noise=noise)
    filtered = tensors_of(case.policy.filters.observation(seen))
    action, after = case.policy.acting.act_tensors(filtered, tf.constant(noise), tensors_of(state))
    np.testing.assert_allclose(done["action"], case.policy.to_environment(action.numpy()), rtol=0, atol=1e-5)
    for name, value in after.items():
        np.testing.assert_allclose(done[name], value, rtol=0, atol=1e-5)
    assert done["repeats"][[0, 2]].tolist() == [1, 2]  # the last column draws the choice
