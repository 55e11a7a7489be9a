"""Runs with hybrid actions: learning, resuming, evaluation, export and recording."""

import re

import gymnasium as gym
import numpy as np
import pytest
import tiny
from resume_tools import CHANGES, assert_same_run, complete_run, crash_at, weights
from toys import HybridIdentity

import tfsac
from tfsac import api, cli, exporting
from tfsac import parameters as p
from tfsac.environments import make, spec_of
from tfsac.exporting import loading
from tfsac.exporting.litert import litert_interpreter
from tfsac.memories import load_demonstrations
from tfsac.training import Trainer
from tfsac.types import arrays_of

pytestmark = pytest.mark.slow  # every test trains a run

RUN = p.RunParameters(seed=3, checkpoint_save_steps=50, updates_between_diagnostics=1)
GREEDY = {"agent.exploration": {"initial_epsilon": 0.9, "final_epsilon": 0.05, "decay_steps": 60}}
NORMALISED = {"environment.filters.observation_normalization": True}


def in_level(structure="dict", mask=""):
    return {"environment.kwargs": {"structure": structure, "mask": mask}}


def test_resumed_run_equals_uninterrupted_run(tmp_path):
    changes = {**CHANGES, "schedule.improve_steps": 80, **GREEDY, **in_level("dict", "nested")}
    changes["environment.kwargs"]["steps"] = 7
    preset = tiny.hybrid(**changes)
    uninterrupted = complete_run(tmp_path / "uninterrupted", preset)
    assert {"discrete_temperature/0", "continuous_temperature/0"} <= weights(uninterrupted).keys()
    crash_at(tmp_path / "run", 167, preset)
    resumed = Trainer(preset, tmp_path / "run", RUN, resume=True, quiet=True)
    assert resumed.counters.env_steps == 150 and resumed.environments.length[0] == 3  # in the middle of an episode
    resumed.run()
    assert_same_run(resumed, uninterrupted)


@pytest.fixture(scope="module", params=["dict", "tuple", "multi_discrete", "nested"])
def run_dir(request, tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    mask = "nested" if request.param == "dict" else "flat" if request.param == "multi_discrete" else ""
    changes = {**in_level(request.param, mask), **NORMALISED}
    api.train(tiny.hybrid(**changes), folder, RUN, quiet=True)
    return folder


@pytest.mark.parametrize("format", ["saved_model", "tflite"])
def test_exported_policy_matches_live_policy(run_dir, tmp_path, capsys, format):
    if format == "tflite":
        pytest.importorskip("ai_edge_litert")
    out = tmp_path / "policy"
    flags = [f"--out={out}", f"--format={format}", "--verify", "--values"]
    assert cli.run(["export", f"--run_dir={run_dir}", *flags]) == 0
    assert re.search(r"over \d+ observations: \S+ \(within 1e-05\)", capsys.readouterr().out)
    exported, env = exporting.load_exported(out), loading.environment_of(run_dir)
    observation, _ = env.reset(seed=0)
    live, exported_action = loading.load_policy(run_dir).act(observation), exported(observation)
    assert env.action_space.contains(live)
    assert isinstance(exported_action, type(live)) or np.ndim(live)
    for x, y in zip(arrays_of(live), arrays_of(exported_action), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-4)
        assert np.asarray(y).dtype in (np.int32, np.float32)
    if format == "saved_model":
        assert len(arrays_of(exported(observation, deterministic=False))) == len(arrays_of(live))
    else:
        inputs = litert_interpreter(out / "policy.tflite").get_signature_runner("sample").get_input_details()
        discrete_only = isinstance(env.action_space, gym.spaces.MultiDiscrete)
        assert set(inputs) >= ({"noise"} if discrete_only else {"noise", "uniform"})


def test_policy_acts_on_batches_and_values_them(run_dir):
    policy = loading.load_policy(run_dir, critics=True)
    env = loading.environment_of(run_dir)
    observations = [env.reset(seed=seed)[0] for seed in range(6)]
    if isinstance(observations[0], dict):
        batch = {key: np.stack([observation[key] for observation in observations]) for key in observations[0]}
    else:
        batch = np.stack(observations)
    actions = policy.act(batch)
    assert all(len(x) == 6 for x in arrays_of(actions))
    values = policy.values(batch, actions)["q"]
    assert values.shape == (6,) and np.isfinite(values).all()
    single = policy.values(observations[2], policy.act(observations[2]))["q"]
    np.testing.assert_allclose(single, values[2], rtol=1e-5)
    assert policy.distribution(observations[0]) is not None


def test_recorded_actions_load_as_demonstrations_and_prior_data(run_dir, tmp_path):
    out = tmp_path / "expert.npz"
    assert cli.run(["record", f"--run_dir={run_dir}", f"--out={out}", "--episodes=6", "--seed=2"]) == 0
    preset = tfsac.load_preset(run_dir / "config.json")
    env = make("toys:HybridIdentity-v0", **preset.environment.kwargs)
    spec = spec_of(env)
    loaded = load_demonstrations(out, spec, preset.environment.level)
    np.testing.assert_allclose(loaded.returns, api.evaluate(run_dir, 6, seed=2).returns)
    assert loaded.records["action/discrete" if spec.action.action_size else "action"].dtype == np.int32
    memory = {"kind": "prior_data", "demonstrations": str(out), "max_size": 1000}
    prior = p.override(preset, {"agent.memory": memory, "schedule.improve_steps": "EnvironmentSteps(20)"})
    assert api.train(prior, tmp_path / "prior", RUN, quiet=True).counters.updates == 20


def test_every_part_of_an_action_is_learned(tmp_path):
    changes = {
        "schedule.improve_steps": "EnvironmentSteps(1500)",
        "schedule.evaluation_steps": "EnvironmentEpisodes(20)",
        "schedule.steps_between_evaluation_periods": "EnvironmentSteps(1600)",
        "agent.networks.*.learning_rate": 3e-3,
        "agent.algorithm.discount": 0.0,
        "agent.algorithm.discrete_temperature.initial_alpha": 0.1,
        "agent.algorithm.continuous_temperature.initial_alpha": 0.1,
    }
    preset = tiny.hybrid(**in_level("dict", "nested"), **changes)
    result = api.train(preset, tmp_path / "run", RUN, quiet=True)
    assert result.best_return > -2.0  # five steps; a random policy gets about -11
    policy = loading.load_policy(tmp_path / "run", env_fn=lambda: HybridIdentity("dict", "flat"))
    env = HybridIdentity("dict", "nested")  # flat and nested masks are interchangeable
    assert env.action_space.contains(policy.act(env.reset(seed=0)[0]))


def test_command_line_selects_hybrid_preset(tmp_path, capsys):
    arguments = ["--level=toys:HybridIdentity-v0", f"--run_dir={tmp_path / 'run'}"]
    changes = {path: value for path, value in tiny.CHANGES.items() if path.startswith("schedule.")}
    changes |= {"agent.networks.*.batch_size": 16, "agent.hidden_layers": [16]}
    assert cli.run(["train", *arguments, *tiny.assignments(changes)]) == 0
    assert "--preset=hybrid_sac" in capsys.readouterr().err
    assert (tmp_path / "run" / "policy").is_dir()


def test_policy_rejects_env_with_other_factors(run_dir):
    with pytest.raises(tfsac.TfsacError, match="another environment"):
        loading.load_policy(run_dir, env_fn=OtherSizes)


class OtherSizes(HybridIdentity):
    def __init__(self):
        super().__init__("dict")
        self.action_space = gym.spaces.Dict(choose=gym.spaces.Discrete(4), press=gym.spaces.MultiDiscrete([2, 2]))
