"""Every preset is complete and trains in a short run."""

import ast
import json
import pathlib

import numpy as np
import pytest
import tiny
from resume_tools import weights

from tfsac import parameters as p
from tfsac.environments import as_arrays, make, spec_of
from tfsac.preset_lookup import describe_preset, load_preset, preset_names
from tfsac.training import Trainer
from tfsac.training.build import build_agent

# From Box2D's SWIG wrapper; as an error, this warning crashes the interpreter.
pytestmark = pytest.mark.filterwarnings("ignore:builtin type .* has no __module__ attribute:DeprecationWarning")

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "presets"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
# One preset for each kind of agent and memory.
QUICK = ("acer_cartpole", "acer_pendulum", "atari_discrete_sac", "cart_pole_discrete_sac", "crossq_mujoco")
QUICK += ("pendulum_sac", "pendulum_sqil", "pendulum_twin_sac", "recurrent_discrete_sac", "rlpd", "taac_simple_control")
MULTI_LEVEL = [name for name in NAMES if load_preset(name).levels]
ENSEMBLES = [name for name in NAMES if getattr(load_preset(name).agent, "has_ensemble", False)]


def skip_unless_installed(name):
    """Skips the test unless the preset's environments are installed."""
    needs = {"images": "minatar", "hybrid_sac": "gym_platform"}
    needs |= dict.fromkeys(("flash_sac_many_environments", "many_environments_sac"), "mujoco_playground")
    if name in needs:
        pytest.importorskip(needs[name], reason=f"needs {needs[name]}")
    if name in ("fetch_hindsight", "taac_manipulation"):
        pytest.importorskip("gymnasium_robotics", reason="needs tfsac[robotics]")
        version = pytest.importorskip("mujoco", reason="needs tfsac[robotics]").__version__
        if tuple(map(int, version.split(".")[:2])) >= (3, 4):
            pytest.skip(f"the Fetch tasks fail with MuJoCo {version}; tfsac[robotics] brings an older one")


def short_run(preset):
    """Returns a preset with six collection steps and a few updates, or six rollouts."""
    preset = tiny.shrunk(preset)
    algorithm, steps = preset.agent.algorithm, 20
    changes = {
        "schedule.evaluation_steps": "EnvironmentEpisodes(1)",
        "schedule.steps_between_evaluation_periods": "EnvironmentSteps(1_000_000)",
        "environment.num_envs": min(2, preset.environment.num_envs),
        "environment.max_episode_steps": 15,
    }
    if isinstance(preset.agent.memory, p.EpisodicReplayParameters):
        steps = 2 * algorithm.t_max
        changes |= {"environment.num_envs": 2, "environment.max_episode_steps": algorithm.t_max}
        changes |= {"agent.algorithm.n_times_replay": 1}
    else:
        changes |= {
            "schedule.heatup_steps": "EnvironmentSteps(40)",
            "agent.algorithm.num_consecutive_playing_steps": f"EnvironmentSteps({steps})",
            "agent.algorithm.num_consecutive_training_steps": min(2, algorithm.num_consecutive_training_steps),
            "agent.algorithm.num_updates_between_policy_updates": min(2, algorithm.num_updates_between_policy_updates),
        }
        if any(network.create_target_network for network in preset.agent.networks.values()):
            changes["agent.algorithm.num_steps_between_copying_online_weights_to_target"] = "TrainingSteps(1)"
    if getattr(preset.agent, "has_ensemble", False):
        critics = preset.agent.networks["q"].head_parameters.num_critics
        changes["agent.networks.q.head_parameters.num_critics"] = min(3, critics)
    return p.override(preset, {**changes, "schedule.improve_steps": f"EnvironmentSteps({6 * steps})"})


def test_preset_names_match_the_folder():
    assert preset_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_preset_is_complete_and_survives_json(name):
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    preset = load_preset(name)
    assert isinstance(preset, p.Preset)
    assert preset.environment.level in ast.get_docstring(ast.parse(source)) or preset.levels
    assert describe_preset(name) == " ".join(ast.get_docstring(ast.parse(source)).split("\n\n")[0].split())
    assert np.isfinite(preset.validation.min_reward_threshold)
    assert "run_preset(__file__)" in source
    assert p.from_json(p.Preset, json.dumps(p.to_json(preset))) == preset
    for level, changes in preset.levels.items():
        assert np.isfinite(p.for_level(preset, level).validation.min_reward_threshold)
        assert level != preset.environment.level or p.override(preset, changes) == preset


# Eager, as tracing takes most of such a short run; tests/acceptance/README.md has the others.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "eager"),
    [
        *((name, True) for name in QUICK),
        *(pytest.param(name, True, marks=pytest.mark.acceptance) for name in NAMES if name not in QUICK),
        *(pytest.param(name, False, marks=pytest.mark.acceptance) for name in ("crossq_mujoco", "taac_simple_control")),
    ],
)
def test_short_run_updates_every_network(name, eager, tmp_path):
    skip_unless_installed(name)
    preset = short_run(load_preset(name))
    run = p.RunParameters(seed=3, eager=eager, updates_between_diagnostics=1)
    trainer = Trainer(preset, tmp_path / "run", run, quiet=True)
    before = weights(trainer)
    assert {key.split("/")[0] for key in before} >= preset.agent.networks.keys()
    result = trainer.run()
    after = weights(trainer)
    assert result.counters.updates >= 6
    assert [key for key in before if np.array_equal(before[key], after[key])] == []
    assert all(np.isfinite(value).all() for value in after.values())
    assert load_preset(tmp_path / "run" / "config.json") == preset
    assert float(tiny.rows(tmp_path / "run")[-1]["evaluation/return_mean"]) == result.best_return


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "level"),
    [
        (name, level)
        for name in MULTI_LEVEL
        for i, level in enumerate(load_preset(name).levels)
        if not i or name not in ENSEMBLES  # their levels differ in one or two numbers
    ],
)
def test_agent_acts_in_every_level(name, level):
    skip_unless_installed(name)
    preset = p.for_level(load_preset(name), level)
    assert preset.environment.level == level
    env = make(level)
    spec = spec_of(env)
    agent = build_agent(short_run(preset), p.RunParameters(seed=1), spec)
    observation, _ = env.reset(seed=1)
    rows = {key: np.repeat(array[None], 20, axis=0) for key, array in as_arrays(observation, spec).items()}
    action = agent.policy.act(rows, mode="sample").action
    assert action.shape == (20, *env.action_space.shape)
    bound = np.inf if preset.agent.kind == "gaussian_acer" else 1.0  # Gaussian ACER leaves clipping to the environment
    assert 0.0 < np.abs(action).max() <= bound
    env.close()
