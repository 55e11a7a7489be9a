"""Runs with `env_fn` and `models`: config, resume, evaluate, export, record and other environments."""

import collections
import json

import gymnasium as gym
import keras
import numpy as np
import pytest
import tiny
import user_code
from cli_tools import error_line
from tiny import short_preset as short
from user_code import Arm, Keys, arm

import tfsac
from tfsac import api, cli
from tfsac.environments import spec_of
from tfsac.errors import TfsacError
from tfsac.networks import Network
from tfsac.parameters import NetworkParameters, ParameterError, SACPolicyHeadParameters
from tfsac.training import Trainer


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A run with `env_fn` and `models`."""
    folder = tmp_path_factory.mktemp("own") / "run"
    result = tfsac.train(short(environment__num_envs=2), folder, quiet=True, env_fn=arm, models=user_code.models_with_v)
    assert result.counters.env_steps == 60 and result.counters.updates > 0
    return folder


FUNCTIONS = {"env_fn": arm, "models": user_code.models_with_v}
INVALID_FUNCTIONS = [
    ({}, "env_fn"),
    ({"env_fn": arm}, "models"),
    ({"env_fn": lambda: Arm(low=-3.0), "models": user_code.models_with_v}, r"action.low is \[-5.0\], got \[-3.0\]"),
]


@pytest.mark.slow
def test_config_has_functions_and_spaces(own):
    config = json.loads((own / "config.json").read_text())
    assert (config["env_fn"], config["models"]) == ("user_code.arm", "user_code.models_with_v")
    assert config["preset"]["environment"]["level"] == "env_fn:Arm"
    assert config["spaces"]["action"] == {"shape": [1], "low": [-5.0], "high": [-1.0]}
    assert config["spaces"]["observation"] == {"observation": {"shape": [3], "dtype": "float32"}}


class TwoParts(gym.ObservationWrapper):
    """The arm's observation and its negative, with keys in the given order."""

    def __init__(self, order):
        super().__init__(arm())
        box = self.env.observation_space
        both = gym.spaces.Box(-np.abs(box.low), np.abs(box.low), box.shape, np.float32)
        self.observation_space = gym.spaces.Dict(collections.OrderedDict((key, both) for key in order))

    def observation(self, observation):
        parts = {"ahead": observation, "behind": -observation}
        return {key: np.asarray(parts[key], np.float32) for key in self.observation_space}


@pytest.mark.slow
def test_observation_key_order(tmp_path):
    one, other = (lambda: TwoParts(["behind", "ahead"])), (lambda: TwoParts(["ahead", "behind"]))
    run, preset = tmp_path / "run", short()
    tfsac.train(preset, run, quiet=True, env_fn=one)
    seen = {"ahead": np.float32([0.5, -1.0, 2.0]), "behind": np.float32([-0.5, 1.0, -2.0])}
    policies = [tfsac.load_policy(run, env_fn=env_fn) for env_fn in (one, other)]
    np.testing.assert_array_equal(policies[0].act(seen), policies[1].act(seen))
    assert np.abs(policies[0].act(seen) - policies[0].act({"ahead": seen["behind"], "behind": seen["ahead"]})) > 1e-6
    assert tfsac.verify(policies[1], run / "policy", [seen]) < 1e-5
    with pytest.raises(TfsacError, match=r"order|other fields"):
        tfsac.train(preset, run, quiet=True, env_fn=other, resume=True)


@pytest.mark.parametrize(("functions", "message"), INVALID_FUNCTIONS)
@pytest.mark.slow
def test_missing_functions_are_named(own, functions, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        tfsac.record(own, tmp_path / "new" / "played.npz", 1, **functions)
    with pytest.raises((ValueError, RuntimeError), match=message):
        tfsac.train(short(environment__num_envs=2), own, resume=True, quiet=True, **functions)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_run_with_functions_is_evaluated_exported_and_resumed(own, tmp_path):
    policy = tfsac.load_policy(own, **FUNCTIONS, critics=True)
    actions = [policy.act(np.float32([x, -x, 0.3])) for x in np.linspace(-1, 1, 9)]
    assert user_code.LOW <= min(actions) < max(actions) <= user_code.HIGH
    observations = api.observations_of(own, policy, env_fn=arm)
    for format in ("saved_model", "tflite"):
        out = tfsac.export(policy, tmp_path / format, format, values=True)
        assert tfsac.verify(policy, out, observations) < 1e-5
    assert tfsac.verify(policy, own / "policy", observations) < 1e-5  # exported at the end of training
    first = tfsac.evaluate(own, 2, **FUNCTIONS)
    np.testing.assert_array_equal(first.returns, tfsac.evaluate(own, 2, **FUNCTIONS).returns)
    recording = tfsac.record(own, tmp_path / "played.npz", 2, **FUNCTIONS)
    assert recording.level == "Arm" and recording.returns.tolist() == pytest.approx(first.returns.tolist(), rel=1e-5)
    assert tfsac.test_policy(own, arm, episodes=2).returns.tolist() == pytest.approx(first.returns.tolist(), rel=1e-4)
    longer = short(environment__num_envs=2, schedule__improve_steps=30)
    result = tfsac.train(longer, own, resume=True, quiet=True, **FUNCTIONS)
    assert result.counters.env_steps == 70
    assert json.loads((own / "config.json").read_text())["env_fn"] == "user_code.arm"


def test_models_of_a_run_without_models_are_rejected(tmp_path):
    folder = tiny.untrained_run(tmp_path / "run", "Pendulum-v1", short())
    for call in (tfsac.load_policy, tfsac.evaluate):
        with pytest.raises(TfsacError, match="trained without models"):
            call(folder, models=user_code.models_with_v)


def test_env_fn_must_return_new_environments(tmp_path):
    one = Arm()
    with pytest.raises(ValueError, match="same one twice"):
        tfsac.train(short(), tmp_path / "run", quiet=True, env_fn=lambda: one)
    assert not list(tmp_path.iterdir())


def one_model_twice():
    made = user_code.models_with_v()
    return {**made, "v": keras.Model(made["policy"].input, keras.layers.Reshape(())(made["policy"].output[0]))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("models", "word"),
    [(user_code.sac_models, "v"), (one_model_twice, "weights")],
    ids=["missing name", "shared weights"],
)
def test_invalid_models_are_rejected(models, word, tmp_path):
    with pytest.raises(ValueError, match=word):
        tfsac.train(short(), tmp_path / "run", quiet=True, env_fn=arm, models=models)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_custom_models_of_twin_sac(tmp_path):
    preset = tiny.shrunk(tfsac.load_preset("pendulum_twin_sac"), **tiny.SHORTER)
    functions = {"env_fn": arm, "models": user_code.sac_models}
    tfsac.train(preset, tmp_path / "run", quiet=True, **functions)
    policy = tfsac.load_policy(tmp_path / "run", **functions, critics=True)
    for format in ("saved_model", "tflite"):
        out = tfsac.export(policy, tmp_path / format, format, values=True)
        assert tfsac.verify(policy, out, api.observations_of(tmp_path / "run", policy, env_fn=arm)) < 1e-5


@pytest.mark.usefixtures("no_tracing")
@pytest.mark.slow
def test_seed_determines_initial_weights_of_custom_models(tmp_path):
    def first_weights(seed):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        trainer = Trainer(short(), folder, tfsac.RunParameters(seed=seed), quiet=True, models=user_code.models_with_v)
        return trainer.agent.networks["policy"].model.get_weights()[0]

    initial_weights = [first_weights(seed) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(initial_weights[0], initial_weights[1])
    assert not np.array_equal(initial_weights[0], initial_weights[2])


def test_model_may_read_some_observation_keys():
    seen = {"joints": keras.Input((3,), name="joints")}
    model = keras.Model(seen, [keras.layers.Dense(2)(seen["joints"]) for _ in range(2)])
    network = Network("policy", NetworkParameters(SACPolicyHeadParameters()), spec_of(tiny.CameraArm()), 0, model)
    observation = {"joints": np.ones((4, 3), np.float32), "camera": np.ones((4, 8, 8, 3), np.uint8)}
    assert network(observation)[0].shape == (4, 2) and [*network.embedders] == ["joints"]


def test_video_of_env_fn(own, tmp_path):
    imageio = pytest.importorskip("imageio.v2")
    video = tmp_path / "video.gif"
    tfsac.evaluate(own, 2, dump_mp4=video, env_fn=lambda: Arm("rgb_array"), models=user_code.models_with_v)
    assert len(imageio.mimread(video)) == 20


LEVEL, OTHER = "user_code:Keys-v0", "user_code:OtherKeys-v0"


@pytest.fixture(scope="module")
def privileged_run(tmp_path_factory):
    """A run in which the policy reads "state" and the critics read both keys, with normalised observations."""
    folder = tmp_path_factory.mktemp("asymmetric") / "run"
    changes = {"environment__level": LEVEL, "environment__filters__observation_normalization": True}
    preset = tfsac.override(
        short(**changes, environment__max_episode_steps=None),
        {
            "agent.networks.*.input_embedders_parameters": {"state": {"scheme": [8]}, "hidden": {"scheme": [8]}},
            "agent.networks.policy.input_embedders_parameters": {"state": {"scheme": [8]}},
        },
    )
    tfsac.train(preset, folder, quiet=True)
    return folder


def test_policy_and_critics_need_only_their_keys(privileged_run):
    policy, exported = tfsac.load_policy(privileged_run, critics=True), tfsac.load_exported(privileged_run / "policy")
    state = np.float32([0.7, -1.5])
    action = policy.act({"state": state})
    assert action != policy.act({"state": -state})
    for extra_keys in ({"hidden": np.full((2, 7), np.nan)}, {"more": "text"}):
        np.testing.assert_array_equal(policy.act({"state": state, **extra_keys}), action)
        np.testing.assert_allclose(exported({"state": state, **extra_keys}), action, atol=1e-6)
    assert tfsac.verify(policy, privileged_run / "policy", [{"state": state}]) < 1e-5
    with pytest.raises(ValueError, match=r"keys \['state'\]"):
        policy.act({"hidden": np.zeros(3)})
    values = policy.values({"state": state, "hidden": np.zeros(3), "more": "text"}, action)
    assert values["q"] == policy.values({"state": state, "hidden": np.zeros(3)}, action)["q"]
    with pytest.raises(ValueError, match=r"keys \['state', 'hidden'\]|keys \['hidden', 'state'\]"):
        policy.values({"state": state}, action)


def test_evaluate_and_record_in_other_environments(privileged_run, tmp_path, capsys):
    own = tfsac.evaluate(privileged_run, 2)
    assert own.lengths.tolist() == [20, 20] and capsys.readouterr().out == ""
    rougher = tfsac.evaluate(privileged_run, 2, changes={"environment.kwargs.friction": 0.25})
    np.testing.assert_allclose(rougher.returns, own.returns - 20 * 0.25, rtol=1e-4)
    assert "kwargs.friction=0.25" in capsys.readouterr().out
    np.testing.assert_allclose(tfsac.evaluate(privileged_run, 2, env_fn=Keys).returns, own.returns, rtol=1e-4)
    assert "env_fn=user_code.Keys" in capsys.readouterr().out
    for shorter in (
        {"env_fn": lambda: gym.wrappers.TimeLimit(Keys(keys=("state", "extra")), 7)},
        {"changes": {"environment.max_episode_steps": 7}},
    ):
        assert tfsac.evaluate(privileged_run, 1, **shorter).lengths.tolist() == [7], shorter
    recording = tfsac.record(privileged_run, tmp_path / "other.npz", 1, changes={"environment.level": OTHER})
    assert recording.level == OTHER and len(recording.records) == 7 and recording.returns[0] < -7 * 3


@pytest.mark.parametrize(
    ("made", "named"),
    [({"high": 1.0}, "action.high"), ({"size": 3}, "observation.state"), ({"keys": ("hidden",)}, "observation.state")],
)
def test_incompatible_environments_are_rejected(privileged_run, made, named, tmp_path):
    env_fn, out = lambda: Keys(**made), tmp_path / "played.npz"
    with pytest.raises(TfsacError, match=named):
        tfsac.record(privileged_run, out, 1, env_fn=env_fn)
    with pytest.raises(ParameterError, match="reward_rescale_factor"):  # not a property of the environment
        tfsac.evaluate(privileged_run, 1, changes={"environment.filters.reward_rescale_factor": 0.5})
    assert not out.exists()


def test_commands_with_another_environment(privileged_run, own, tmp_path, capsys):
    run = f"--run_dir={privileged_run} --episodes=1"
    changes = "--set=environment.kwargs.friction=9 --set=environment.max_episode_steps=6"
    assert cli.run(f"evaluate {run} {changes}".split()) == 0
    printed = capsys.readouterr().out
    assert "kwargs.friction=9 (in training None)" in printed and "of 6 steps on average" in printed
    assert cli.run(f"record {run} --level={OTHER} --out={tmp_path}/played.npz".split()) == 0
    printed = capsys.readouterr().out
    assert f"level={OTHER} (in training {LEVEL})" in printed and "7 transitions" in printed
    assert "belongs to another environment" in error_line(f"evaluate {run} --level=Pendulum-v1".split(), capsys)
    assert "env_fn=" in error_line(["evaluate", f"--run_dir={own}"], capsys)
    assert "env_fn=" in error_line(["train", f"--run_dir={own}", "--resume"], capsys)
