"""Every preset: data only, complete, and it learns something in a short run."""

import ast
import json
import pathlib

import numpy as np
import pytest
import tiny

from tfsac import parameters as p
from tfsac.catalog import describe_preset, load_preset, preset_names
from tfsac.environments import as_arrays, make, spec_of
from tfsac.training import Trainer
from tfsac.training.build import build_agent

# Box2D is wrapped by an old SWIG; as an error this warning ends the interpreter.
pytestmark = pytest.mark.filterwarnings("ignore:builtin type .* has no __module__ attribute:DeprecationWarning")

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "presets"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
# One of each kind of agent and memory.
USUAL = ("acer_cartpole", "acer_pendulum", "atari_discrete_sac", "cart_pole_discrete_sac", "crossq_mujoco")
USUAL += ("pendulum_sac", "pendulum_sqil", "pendulum_twin_sac", "rlpd", "taac_simple_control")
OF_SEVERAL_LEVELS = [name for name in NAMES if load_preset(name).levels]
ENSEMBLES = [name for name in NAMES if getattr(load_preset(name).agent, "has_ensemble", False)]
NETWORKS = {  # of each kind of agent
    "soft_actor_critic": {"policy", "v", "v_target", "q"},
    "twin_soft_actor_critic": {"policy", "q", "q_target"},
    "discrete_soft_actor_critic": {"policy", "q", "q_target"},
    "temporally_abstract_actor_critic": {"policy", "q", "q_target"},
    "discrete_acer": {"policy", "policy_target", "q"},
    "gaussian_acer": {"policy", "policy_target", "v", "advantage"},
}


def needs_its_packages(name):
    """Skips the test where an environment of the preset cannot be made."""
    if name == "taac_manipulation":
        pytest.importorskip("gymnasium_robotics", reason="needs tfsac[robotics]")
        version = pytest.importorskip("mujoco", reason="needs tfsac[robotics]").__version__
        if tuple(map(int, version.split(".")[:2])) >= (3, 4):
            pytest.skip(f"the Fetch tasks fail with MuJoCo {version}; tfsac[robotics] brings an older one")


def heatup_of(preset):
    """Enough for a batch, and for a sequence of every environment where the memory has sequences."""
    return max(40, preset.environment.num_envs * getattr(preset.agent.memory, "sequence_length", 1))


def short(preset):
    """Six times of collecting and training after the warm-up, or six rollouts, each of which ends with its episodes."""
    shorter = {
        "schedule.evaluation_steps": "EnvironmentEpisodes(1)",
        "schedule.steps_between_evaluation_periods": "EnvironmentSteps(1_000_000)",
    }
    if isinstance(preset.agent.memory, p.EpisodicReplayParameters):
        preset = tiny.shrunk(preset, **{**shorter, "environment.num_envs": 2})
        steps = preset.agent.algorithm.t_max
        rollouts = {"schedule.improve_steps": f"EnvironmentSteps({6 * 2 * steps})"}
        return p.override(preset, {**rollouts, "environment.max_episode_steps": steps})
    algorithm, sooner = preset.agent.algorithm, {}
    if algorithm.updates_between_target_copies() > 6:  # as of Atari's targets, which are copied every 8000 steps
        sooner = {"agent.algorithm.num_steps_between_copying_online_weights_to_target": "TrainingSteps(1)"}
    if preset.environment.num_envs > 32:  # of the Fetch tasks, with 40 updates after each collection
        sooner |= {"environment.num_envs": 2, "agent.algorithm.num_consecutive_training_steps": 10}
        sooner |= {"agent.algorithm.num_consecutive_playing_steps": "EnvironmentSteps(20)"}
    preset = p.override(preset, sooner)
    playing = preset.agent.algorithm.num_consecutive_playing_steps.num_steps
    return tiny.shrunk(
        preset,
        **{
            **shorter,
            "schedule.heatup_steps": f"EnvironmentSteps({heatup_of(preset)})",
            "schedule.improve_steps": f"EnvironmentSteps({6 * playing})",
            "environment.max_episode_steps": 15,
        },
    )


def fewer_updates(preset):
    """At most two updates after each collection, and one replay after a rollout."""
    algorithm = preset.agent.algorithm
    if isinstance(preset.agent.memory, p.EpisodicReplayParameters):
        return p.override(preset, {"agent.algorithm.n_times_replay": 1})
    fewer = {"agent.algorithm.num_consecutive_training_steps": min(2, algorithm.num_consecutive_training_steps)}
    if algorithm.num_updates_between_policy_updates > 3:
        fewer["agent.algorithm.num_updates_between_policy_updates"] = 2
    if algorithm.num_consecutive_training_steps > 2:  # a period in environment steps may be no whole number of updates
        fewer["agent.algorithm.num_steps_between_copying_online_weights_to_target"] = "TrainingSteps(1)"
    return p.override(preset, fewer)


def counts(preset):
    """Environment steps and updates of a short run."""
    algorithm, steps = preset.agent.algorithm, preset.schedule.improve_steps.num_steps
    if isinstance(preset.agent.memory, p.EpisodicReplayParameters):
        return steps, 6 * (1 + algorithm.n_times_replay)
    return heatup_of(preset) + steps, 6 * algorithm.num_consecutive_training_steps


def weights(trainer):
    agent = trainer.agent
    variables = {name: network.trainable_variables for name, network in agent.networks.items()}
    named = {**variables, **agent.trained}  # an automatic temperature is no network
    return {f"{name}/{i}": variable.numpy() for name, some in named.items() for i, variable in enumerate(some)}


def test_the_presets_of_the_folder_are_the_presets_of_the_package():
    assert preset_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_has_a_docstring_a_threshold_and_a_line_that_runs_it_and_is_the_same_after_json(name):
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    preset = load_preset(name)
    assert isinstance(preset, p.Preset)
    assert preset.environment.level in ast.get_docstring(ast.parse(source)) or preset.levels
    assert describe_preset(name) == " ".join(ast.get_docstring(ast.parse(source)).split("\n\n")[0].split())
    assert np.isfinite(preset.validation.min_reward_threshold)
    assert "run_preset(__file__)" in source
    assert p.from_json(p.Preset, json.dumps(p.to_json(preset))) == preset


def test_loading_every_preset_imports_no_tensorflow_and_makes_no_environment(run_python):
    printed = run_python(
        """
import sys
from tfsac.catalog import load_preset, preset_names
levels = [load_preset(name).environment.level for name in preset_names()]
heavy = {"tensorflow", "keras", "tensorflow_probability", "gymnasium", "mujoco", "matplotlib", "absl"}
print(len(levels), sorted(heavy & set(sys.modules)))
"""
    )
    assert printed.split(None, 1) == [str(len(NAMES)), "[]\n"]


# Without graphs, which take most of the time of so short a run; tests/acceptance/README.md has the others.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "eager"),
    [
        *((name, True) for name in USUAL),
        *(pytest.param(name, True, marks=pytest.mark.acceptance) for name in NAMES if name not in USUAL),
        *(pytest.param(name, False, marks=pytest.mark.acceptance) for name in ("crossq_mujoco", "taac_simple_control")),
    ],
)
def test_a_short_run_makes_updates_that_change_the_weights_of_every_network(name, eager, tmp_path):
    needs_its_packages(name)
    preset = short(load_preset(name))
    preset = fewer_updates(preset) if eager else preset
    trainer = Trainer(
        preset, tmp_path / "run", p.RunParameters(seed=3, eager=eager, updates_between_diagnostics=1), quiet=True
    )
    before, algorithm = weights(trainer), preset.agent.algorithm
    temperature = getattr(algorithm, "temperature", None)
    learned = {"temperature"} if temperature and temperature.kind == "auto" else set()
    if preset.agent.kind == "temporally_abstract_actor_critic":
        learned = {"proposal_temperature", "choice_temperature"}
    if "trunk" in preset.agent.networks:
        learned = {"trunk", "trunk_target"}
    networks = NETWORKS[preset.agent.kind]
    if not any(network.create_target_network for network in preset.agent.networks.values()):
        networks = networks - {"q_target"}
    assert {key.split("/")[0] for key in before} == networks | learned
    result = trainer.run()
    after = weights(trainer)
    env_steps, updates = counts(preset)
    assert (result.counters.env_steps, result.counters.updates) == (env_steps, updates)
    assert [key for key in before if np.array_equal(before[key], after[key])] == []
    assert all(np.isfinite(value).all() for value in after.values())
    assert load_preset(tmp_path / "run" / "config.json") == preset
    row = tiny.rows(tmp_path / "run")[-1]
    assert (row["env_steps"], row["updates"]) == (str(env_steps), str(updates))
    assert float(row["evaluation/return_mean"]) == result.best_return


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "level"),
    [
        (name, level)
        for name in OF_SEVERAL_LEVELS
        for i, level in enumerate(load_preset(name).levels)
        if not i or name not in ENSEMBLES  # which differ in a number or two from level to level
    ],
)
def test_every_level_has_a_threshold_and_an_agent_that_acts_in_it(name, level):
    needs_its_packages(name)
    preset = p.for_level(load_preset(name), level)
    assert preset.environment.level == level
    assert np.isfinite(preset.validation.min_reward_threshold)
    env = make(level)
    spec = spec_of(env)
    agent = build_agent(short(preset), p.RunParameters(seed=1), spec)
    observation, _ = env.reset(seed=1)
    rows = {key: np.repeat(array[None], 20, axis=0) for key, array in as_arrays(observation, spec).items()}
    action = agent.policy.act(rows, mode="sample").action
    assert action.shape == (20, *env.action_space.shape)
    bound = np.inf if preset.agent.kind == "gaussian_acer" else 1.0  # whose samples the environment clips
    assert 0.0 < np.abs(action).max() <= bound
    env.close()


@pytest.mark.parametrize("name", OF_SEVERAL_LEVELS)
def test_the_level_that_the_preset_names_itself_equals_its_entry_in_the_table(name):
    preset = load_preset(name)
    assert p.override(preset, preset.levels[preset.environment.level]) == preset
    thresholds = [p.for_level(preset, level).validation.min_reward_threshold for level in preset.levels]
    assert np.isfinite(thresholds).all()
