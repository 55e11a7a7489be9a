"""Parameter objects: defaults, JSON, overrides, one refusal of each kind."""

import json
import pathlib
import re

import golden_tools
import numpy as np
import pytest

from tfsac import parameters as p
from tfsac.parameters.other_names import PATHS
from tfsac.preset_lookup import load_preset, read_config
from tfsac.utils.files import leaves

Algorithm = p.SoftActorCriticAlgorithmParameters
Agent = p.SoftActorCriticAgentParameters
Twin = p.TwinSoftActorCriticAlgorithmParameters
Discrete = p.DiscreteSoftActorCriticAgentParameters
Switching = p.TemporallyAbstractActorCriticAgentParameters
Trajectories = p.TemporallyAbstractActorCriticAlgorithmParameters
PERIOD = "num_steps_between_copying_online_weights_to_target"


def network(**fields):
    return p.NetworkParameters(p.VHeadParameters(), **fields)


def discrete_preset():
    """A preset of discrete actions, with what no preset file has."""
    agent = Discrete(
        p.DiscreteSoftActorCriticAlgorithmParameters(),
        p.EpsilonGreedyParameters(0.5, 0.05, 77, "linear"),
        p.SQILExperienceReplayParameters("expert.npz", 3, 9000),
        p.discrete_soft_actor_critic_networks((8,), twin_critic=False, embedder=(p.Conv2d(8, 4, 2), 16)),
    )
    levels = {"Walker2d-v5": {"schedule.improve_steps": p.TrainingSteps(10)}}
    return p.Preset(agent=agent, environment=p.EnvironmentParameters(visible_entries=(3, 0)), levels=levels)


def switching_preset(**filters):
    """A preset of trajectories in which what only such presets have differs from the defaults."""
    algorithm = Trajectories(
        trajectory="quadratic",
        inverse_mode=False,
        b1_advantage_clipping=(None, 0.5),
        target_entropy=(0.3, -2.0),
        reward_discounts=(0.9, 0.5),
    )
    environment = p.EnvironmentParameters(filters=p.FilterParameters(**filters))
    return p.Preset(agent=Switching(algorithm, memory=p.SequenceReplayParameters(90_000, 6)), environment=environment)


# -- defaults ----------------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_version_before():
    made = [p.SQILExperienceReplayParameters("x"), p.PriorDataReplayParameters("x")]
    made += [p.PrioritizedExperienceReplayParameters(), p.NoiseRepetitionParameters(), p.AdditiveNoiseParameters()]
    made += [p.EpsilonGreedyParameters(), p.AtariPreprocessingParameters(), p.FixedAlphaParameters()]
    made += [TWIN(), Discrete(), Switching(), p.DiscreteACERAgentParameters(), p.GaussianACERAgentParameters()]
    defaults = {type(each).__name__: each for each in made} | {"run": p.RunParameters(), "preset": p.Preset()}
    expected = json.loads((pathlib.Path(__file__).parent / "data" / "defaults.json").read_text())
    for name, each in defaults.items():  # which may have new fields
        now, before = (
            {path: str(x) for path, x in leaves(tree, empty=True)} for tree in (p.to_json(each), expected[name])
        )
        assert {path: now.get(path) for path in before} == before


# -- JSON --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "preset",
    [discrete_preset(), switching_preset(reward_clipping_range=(-1.0, 10.0))],
    ids=["discrete", "switching"],
)
def test_json_round_trip_is_exact(preset):
    read = p.from_json(p.Preset, json.dumps(p.to_json(preset)))
    assert read == preset
    for level in preset.levels:  # whose steps keep their unit
        assert p.for_level(read, level).schedule.improve_steps == p.TrainingSteps(10)


@pytest.mark.parametrize(
    "text, words",
    [
        ("[]", "Preset"),
        ('{"agent": {"networks": {"q": {"learnin_rate": 1}}}}', "NetworkParameters has no parameter 'learnin_rate'"),
        ('{"agent": {"kind": "soft_actor"}}', "twin_soft_actor_critic"),
    ],
)
def test_bad_json_is_refused_with_the_place_of_the_mistake(text, words):
    with pytest.raises(p.ParameterError, match=re.escape(words)):
        p.from_json(p.Preset, text)


CONFIGS = sorted((pathlib.Path(__file__).parent / "data").glob("config_0_1_0*.json"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configs_of_the_version_before_are_read(path):
    content = json.loads(path.read_text())
    preset, run = read_config(path)
    assert run.seed == content["run"]["seed"] == 7
    read = p.to_json(preset)
    agent = content["preset"]["agent"]
    if agent["memory"]["kind"] not in ("sequences", "episodes"):
        agent["memory"]["device"] = "cpu"  # which is newer
    for section in ("algorithm", "memory", "exploration"):
        assert read["agent"][section] == agent[section]
    for section in ("environment", "schedule", "validation"):
        assert read[section] == content["preset"][section]
    assert len(CONFIGS) >= 3


# -- mistakes ----------------------------------------------------------------------------------------------------------

ENCODED = p.discrete_soft_actor_critic_networks(embedder=(8,))
MISTAKES = {
    "another library's name": (lambda: Twin(gamma=0.9), "'discount'"),
    "text for steps": (lambda: Algorithm(**{PERIOD: "x"}), "EnvironmentSteps(n)"),
    "not a number": (lambda: Algorithm(discount=float("nan")), "discount"),
    "period not whole": (lambda: Agent(Algorithm(num_consecutive_playing_steps=p.EnvironmentSteps(3))), PERIOD),
    "part of a user's class": (lambda: p.Preset(environment=OwnEnvironment()), "OwnEnvironment"),
    "an argument that no config keeps": (lambda: p.EnvironmentParameters(kwargs={"x": object()}), "env_fn"),
    "unequal shared encoders": (
        lambda: Discrete(networks={**ENCODED, "q": p.discrete_soft_actor_critic_networks(embedder=(9,))["q"]}, shared_encoder=True),
        "shared_encoder",
    ),
    "epsilon on continuous actions": (lambda: Agent(exploration=p.EpsilonGreedyParameters()), "AdditiveNoise"),
    "scaled returns of several discounts": (
        lambda: switching_preset(return_scaling=p.ReturnScalingParameters()), "reward_discounts",
    ),
    "XLA on several devices": (lambda: p.RunParameters(jit_compile=True, strategy="mirrored"), "jit_compile"),
    "workers that collect alone": (
        lambda: p.RunParameters(asynchronous_collection=True, strategy="multi_worker"), "multi_worker",
    ),
}  # fmt: skip


@p.parameters
class OwnEnvironment(p.EnvironmentParameters):
    """A class whose field no config would keep."""

    more: int = 3


@pytest.mark.parametrize("make, words", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_refused_with_words_that_help(make, words):
    with pytest.raises(p.ParameterError, match=re.escape(words)):
        make()


# -- what has no effect ------------------------------------------------------------------------------------------------

TWIN = p.TwinSoftActorCriticAgentParameters


# A field, the one that leaves it without effect, and how both are set.
WITHOUT_EFFECT = {
    "betas of RMSProp": (
        "adam_optimizer_beta1", "RMSProp", lambda: network(optimizer_type="RMSProp", adam_optimizer_beta1=0.5),
    ),
    "rewards divided twice": (
        "reward_normalization", "return_scaling",
        lambda: p.FilterParameters(reward_normalization=True, return_scaling=p.ReturnScalingParameters()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name, other, make", WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT.keys())
def test_a_field_that_another_one_leaves_without_effect_is_refused_with_both_names(name, other, make):
    with pytest.raises(p.ParameterError, match=rf"{name} has no effect with .*{other}"):
        make()


# -- target period -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "period, playing, updates, expected",
    [
        (p.EnvironmentSteps(50), p.EnvironmentSteps(50), 1, 1),
        (p.EnvironmentSteps(3), p.EnvironmentSteps(2), 4, 6),
        (p.TrainingSteps(3), p.EnvironmentSteps(7), 5, 3),
        (p.TrainingSteps(3), p.EnvironmentEpisodes(1), 100, 3),
    ],
)
def test_target_period_becomes_a_number_of_updates(period, playing, updates, expected):
    counts = {"num_consecutive_playing_steps": playing, "num_consecutive_training_steps": updates}
    assert Algorithm(**{PERIOD: period}, **counts).updates_between_target_copies() == expected


# -- overrides ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, path, value",
    [
        ("a.b=1e-3", "a.b", 0.001),
        ("a=x=y", "a", "x=y"),
        ("environment.kwargs.a=False", "environment.kwargs.a", False),
        ("a=None", "a", None),
        ('a="run_1_2"', "a", "run_1_2"),
    ],
)
def test_an_assignment_is_split_into_path_and_json_value(text, path, value):
    assert p.parse_assignment(text) == (path, value)


def test_a_number_keeps_the_unit_of_steps_and_replaces_any_other_text():
    preset = p.override(load_preset("pendulum_sac"), {"environment.kwargs.task": "reach(easy)"})
    changed = p.override(preset, {"environment.kwargs.task": 7, "schedule.heatup_steps": 800})
    assert changed.environment.kwargs == {"task": 7} and changed.schedule.heatup_steps == p.EnvironmentSteps(800)


def test_tuples_in_kwargs_are_lists_from_the_start_as_a_config_brings_them_back():
    given = p.EnvironmentParameters(kwargs={"size": (3, 4), "more": {"a": [(1, 2)]}})
    assert given.kwargs == {"size": [3, 4], "more": {"a": [[1, 2]]}}
    assert p.from_json(p.EnvironmentParameters, json.dumps(p.to_json(given))) == given


@pytest.mark.parametrize(
    "assignment, expected",
    [
        ("schedule.evaluation_steps=3", "EnvironmentEpisodes(3)"),  # a bare number keeps the unit
        ("schedule.evaluation_steps=EnvironmentSteps(20)", "EnvironmentSteps(20)"),
        ("schedule.improve_steps=EnvironmentSteps(1.5e5)", "EnvironmentSteps(150000)"),
        ("agent.networks.policy.middleware_parameters.scheme=[3.2e1, 64]", [32, 64]),
        ("agent.exploration={}", {"noise_std": 0.1, "kind": "additive_noise"}),
        ("environment.kwargs.g=10.0", 10.0),  # what an environment takes stays as it is
    ],
)
def test_override_takes_json_values(assignment, expected):
    path, value = p.parse_assignment(assignment)
    node = p.to_json(p.override(load_preset("pendulum_twin_sac"), {path: value}))
    for key in path.split("."):
        node = node[key]
    assert node == expected and type(node) is type(expected)


@pytest.mark.parametrize(
    "text, words",
    [
        ("agent.networks.*.learnin_rate=0.1", "Did you mean 'learning_rate'?"),
        ("agent.networks.w.batch_size=3", "policy, v, q"),
        ("environment.kwargs.*=5", "'environment.kwargs.*'"),
        ("agent.networks.q.batch_size=8", "batch_size"),
        ("schedule.improve_steps", "path=value"),
        ("environment.kwargs=[1, 2", "JSON"),
    ],
)
def test_a_wrong_override_is_refused_with_words_that_help(text, words):
    with pytest.raises(p.ParameterError, match=re.escape(words)):
        p.override(p.Preset(), dict([p.parse_assignment(text)]))


# -- levels ------------------------------------------------------------------------------------------------------------


SCALE = "environment.filters.reward_rescale_factor"


@pytest.mark.parametrize(
    ("level", "listed", "scale", "threshold", "visible"),
    [
        ("Humanoid-v5", None, 20.0, 4000.0, None),
        ("Pendulum-v1", None, 1.0, None, None),
        ("Pendulum-v1", {"environment.visible_entries": (1, 0)}, 1.0, None, (1, 0)),
    ],
)
def test_a_level_has_what_is_listed_of_it_and_no_other_levels_threshold(level, listed, scale, threshold, visible):
    environment = p.EnvironmentParameters("Hopper-v5", visible_entries=(0, 2))
    levels = {
        "Humanoid-v5": {SCALE: 20.0, "validation.min_reward_threshold": 4000.0},
        **({level: listed} if listed else {}),
    }
    validation = p.PresetValidationParameters(2000.0, 500)
    new = p.for_level(p.Preset(environment=environment, validation=validation, levels=levels), level)
    assert (new.environment.level, new.environment.filters.reward_rescale_factor) == (level, scale)
    assert new.environment.visible_entries == visible
    assert new.validation.min_reward_threshold == threshold
    assert new.validation.max_episodes_to_achieve_reward == (None if threshold is None else 500)


def test_a_run_moves_to_a_third_level_without_what_the_second_had():
    environment = p.EnvironmentParameters("Hopper-v5", visible_entries=(0, 2))
    levels = {"Humanoid-v5": {SCALE: 20.0, "agent.networks.*.learning_rate": 0.1}}
    preset = p.Preset(environment=environment, validation=p.PresetValidationParameters(2000.0), levels=levels)
    discount = {"agent.algorithm.discount": 0.9}
    run = p.from_json(p.Preset, p.to_json(p.override(p.for_level(preset, "Humanoid-v5"), discount)))
    assert p.for_level(run, "Hopper-v5") == p.override(preset, discount)
    assert p.for_level(run, "Ant-v5") == p.for_level(p.override(preset, discount), "Ant-v5")


def test_a_level_may_replace_objects_and_so_may_what_is_set_afterwards():
    fixed = {"agent.algorithm.temperature": {"kind": "fixed", "alpha": 0.2}}
    levels = {
        "Ant-v5": {"environment.kwargs.use_contact_forces": False, **fixed},
        "Humanoid-v5": {"agent.algorithm.temperature.target_entropy": -3.0},
    }
    preset = p.Preset(agent=p.TwinSoftActorCriticAgentParameters(), levels=levels)
    own = preset.environment.level
    assert p.for_level(p.for_level(preset, "Ant-v5"), own) == preset
    changed = p.override(p.for_level(preset, "Humanoid-v5"), fixed)  # which has no target entropy
    assert p.for_level(changed, own) == p.override(preset, fixed)


def test_epsilon_goes_down_as_described():
    exponential = p.EpsilonGreedyParameters(0.9, 0.1, 100)
    assert exponential.epsilon(0) == pytest.approx(0.9)
    assert exponential.epsilon(100) == pytest.approx(0.1 + 0.8 * 0.36787944)
    assert exponential.epsilon(10_000) == pytest.approx(0.1)
    linear = p.EpsilonGreedyParameters(0.9, 0.1, 100, "linear")
    assert [linear.epsilon(steps) for steps in (0, 50, 100, 1000)] == pytest.approx([0.9, 0.5, 0.1, 0.1])


def test_a_change_may_set_what_an_earlier_one_left_to_its_default():
    changes = {"agent.memory": {"kind": "sqil", "demonstrations": "x.npz"}, "agent.memory.num_episodes": 2}
    memory = p.override(load_preset("cart_pole_discrete_sac"), changes).agent.memory
    assert (memory.demonstrations, memory.num_episodes) == ("x.npz", 2)


def test_infinities_among_the_arguments_of_a_level_stay_as_they_are():
    kwargs = {"healthy_z_range": [0.5, float("inf")], "low": {"x": [-float("inf")]}}
    preset = p.override(load_preset("mujoco_twin_sac"), {"environment.kwargs": kwargs})
    assert preset.environment.kwargs == kwargs
    assert p.from_json(p.Preset, json.dumps(p.to_json(preset))) == preset
    assert p.override(preset, {"environment.kwargs.high": float("inf")}).environment.kwargs["high"] == float("inf")
    with pytest.raises(p.ParameterError, match="finite"):
        p.override(preset, {"agent.networks.policy.clip_gradients": float("inf")})


def test_the_discount_of_episodes_is_the_golden_one():
    golden, _ = golden_tools.read("modern_tables.npz")
    for steps, expected in zip(golden["gamma/episode_steps"], golden["gamma/value"], strict=True):
        assert p.discount_of_episodes(int(steps)) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("name", PATHS)
def test_a_name_of_another_library_leads_to_a_parameter(name):
    with pytest.raises(p.ParameterError, match="Did you mean") as caught:
        p.override(load_preset("redq_mujoco"), {name: 1})
    assert PATHS[name].removeprefix("run.") in str(caught.value) or name == "alpha"


def test_scalars_of_numpy_become_numbers_of_python():
    changes = {
        "environment.kwargs": {"g": np.float32(0.5), "parts": [np.int64(1), (np.bool_(True),)]},
        "agent.networks.*.batch_size": np.int16(16),
        "schedule.improve_steps": np.int64(5000),
    }
    preset = p.override(load_preset("pendulum_twin_sac"), changes)
    assert preset.environment.kwargs == {"g": 0.5, "parts": [1, [True]]}
    assert (preset.agent.batch_size, preset.schedule.improve_steps) == (16, p.EnvironmentSteps(5000))
    run = p.RunParameters(seed=np.int64(3), tensorboard=np.bool_(False), checkpoint_save_steps=np.array(500))
    assert [type(x) for x in (run.seed, run.tensorboard, run.checkpoint_save_steps)] == [int, bool, int]
