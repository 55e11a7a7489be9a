"""Parameter objects: defaults, JSON, overrides, levels and error messages."""

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
    """Returns a discrete preset with settings that no preset file has."""
    agent = Discrete(
        p.DiscreteSoftActorCriticAlgorithmParameters(),
        p.EpsilonGreedyParameters(0.5, 0.05, 77, "linear"),
        p.SQILExperienceReplayParameters("expert.npz", 3, 9000),
        p.discrete_soft_actor_critic_networks((8,), twin_critic=False, embedder=(p.Conv2d(8, 4, 2), 16)),
    )
    levels = {"Walker2d-v5": {"schedule.improve_steps": p.TrainingSteps(10)}}
    return p.Preset(agent=agent, environment=p.EnvironmentParameters(visible_entries=(3, 0)), levels=levels)


def switching_preset(**filters):
    """Returns a TAAC preset in which the TAAC settings differ from their defaults."""
    algorithm = Trajectories(
        trajectory="quadratic",
        inverse_mode=False,
        b1_advantage_clipping=(None, 0.5),
        target_entropy=(0.3, -2.0),
        reward_discounts=(0.9, 0.5),
    )
    environment = p.EnvironmentParameters(filters=p.FilterParameters(**filters))
    return p.Preset(agent=Switching(algorithm, memory=p.SequenceReplayParameters(90_000, 6)), environment=environment)


def test_defaults_are_unchanged():
    instances = [p.SQILExperienceReplayParameters("x"), p.PriorDataReplayParameters("x")]
    instances += [p.PrioritizedExperienceReplayParameters(), p.NoiseRepetitionParameters(), p.AdditiveNoiseParameters()]
    instances += [p.EpsilonGreedyParameters(), p.AtariPreprocessingParameters(), p.FixedAlphaParameters()]
    instances += [TWIN(), Discrete(), Switching(), p.DiscreteACERAgentParameters(), p.GaussianACERAgentParameters()]
    defaults = {type(each).__name__: each for each in instances} | {"run": p.RunParameters(), "preset": p.Preset()}
    expected = json.loads((pathlib.Path(__file__).parent / "data" / "defaults.json").read_text())
    for name, each in defaults.items():  # new fields are allowed
        now, before = (
            {path: str(x) for path, x in leaves(tree, empty=True)} for tree in (p.to_json(each), expected[name])
        )
        assert {path: now.get(path) for path in before} == before


@pytest.mark.parametrize(
    "preset",
    [discrete_preset(), switching_preset(reward_clipping_range=(-1.0, 10.0))],
    ids=["discrete", "switching"],
)
def test_json_round_trip_is_exact(preset):
    loaded = p.from_json(p.Preset, json.dumps(p.to_json(preset)))
    assert loaded == preset
    for level in preset.levels:  # steps keep their unit
        assert p.for_level(loaded, level).schedule.improve_steps == p.TrainingSteps(10)


@pytest.mark.parametrize(
    "text, words",
    [
        ("[]", "Preset"),
        ('{"agent": {"networks": {"q": {"learnin_rate": 1}}}}', "NetworkParameters has no parameter 'learnin_rate'"),
        ('{"agent": {"kind": "soft_actor"}}', "twin_soft_actor_critic"),
    ],
)
def test_invalid_json_error_names_the_place(text, words):
    with pytest.raises(p.ParameterError, match=re.escape(words)):
        p.from_json(p.Preset, text)


CONFIGS = sorted((pathlib.Path(__file__).parent / "data").glob("config_0_1_0*.json"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_old_configs_are_read(path):
    content = json.loads(path.read_text())
    preset, run = read_config(path)
    assert run.seed == content["run"]["seed"] == 7
    loaded = p.to_json(preset)
    agent = content["preset"]["agent"]
    for section in ("algorithm", "memory", "exploration"):  # newer fields are allowed
        assert (loaded["agent"][section] or {}).items() >= (agent[section] or {}).items()
    for section in ("environment", "schedule", "validation"):
        assert loaded[section] == content["preset"][section]
    assert len(CONFIGS) >= 3


ENCODER_NETWORKS = p.discrete_soft_actor_critic_networks(embedder=(8,))
INVALID = {
    "another library's name": (lambda: Twin(gamma=0.9), "'discount'"),
    "text instead of steps": (lambda: Algorithm(**{PERIOD: "x"}), "EnvironmentSteps(n)"),
    "not a number": (lambda: Algorithm(discount=float("nan")), "discount"),
    "period is not a multiple": (lambda: Agent(Algorithm(num_consecutive_playing_steps=p.EnvironmentSteps(3))), PERIOD),
    "custom section class": (lambda: p.Preset(environment=CustomEnvironment()), "CustomEnvironment"),
    "kwargs that JSON cannot hold": (lambda: p.EnvironmentParameters(kwargs={"x": object()}), "env_fn"),
    "different shared encoders": (
        lambda: Discrete(networks={**ENCODER_NETWORKS, "q": p.discrete_soft_actor_critic_networks(embedder=(9,))["q"]}, shared_encoder=True),
        "shared_encoder",
    ),
    "log_std_bounds in the wrong order": (
        lambda: p.SACPolicyHeadParameters(log_std_bounds=(2.0, -5.0)), "log_std_bounds",
    ),
    "epsilon on continuous actions": (lambda: Agent(exploration=p.EpsilonGreedyParameters()), "AdditiveNoise"),
    "return scaling with several discounts": (
        lambda: switching_preset(return_scaling=p.ReturnScalingParameters()), "reward_discounts",
    ),
    "XLA on several devices": (lambda: p.RunParameters(jit_compile=True, strategy="mirrored"), "jit_compile"),
    "asynchronous workers": (
        lambda: p.RunParameters(asynchronous_collection=True, strategy="multi_worker"), "multi_worker",
    ),
}  # fmt: skip


@p.parameters
class CustomEnvironment(p.EnvironmentParameters):
    """A custom section, whose field a config cannot hold."""

    more: int = 3


@pytest.mark.parametrize("make, words", INVALID.values(), ids=INVALID.keys())
def test_invalid_parameters_are_rejected(make, words):
    with pytest.raises(p.ParameterError, match=re.escape(words)):
        make()


TWIN = p.TwinSoftActorCriticAgentParameters


# An unused field, the field that disables it, and a call that sets both.
UNUSED_FIELDS = {
    "Adam beta with RMSProp": (
        "adam_optimizer_beta1", "RMSProp", lambda: network(optimizer_type="RMSProp", adam_optimizer_beta1=0.5),
    ),
    "two reward scalings": (
        "reward_normalization", "return_scaling",
        lambda: p.FilterParameters(reward_normalization=True, return_scaling=p.ReturnScalingParameters()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name, other, make", UNUSED_FIELDS.values(), ids=UNUSED_FIELDS.keys())
def test_unused_field_error_names_both_fields(name, other, make):
    with pytest.raises(p.ParameterError, match=rf"{name} has no effect with .*{other}"):
        make()


@pytest.mark.parametrize(
    "period, playing, updates, expected",
    [
        (p.EnvironmentSteps(50), p.EnvironmentSteps(50), 1, 1),
        (p.EnvironmentSteps(3), p.EnvironmentSteps(2), 4, 6),
        (p.TrainingSteps(3), p.EnvironmentSteps(7), 5, 3),
        (p.TrainingSteps(3), p.EnvironmentEpisodes(1), 100, 3),
    ],
)
def test_target_period_in_updates(period, playing, updates, expected):
    counts = {"num_consecutive_playing_steps": playing, "num_consecutive_training_steps": updates}
    assert Algorithm(**{PERIOD: period}, **counts).updates_between_target_copies() == expected


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
def test_parse_assignment(text, path, value):
    assert p.parse_assignment(text) == (path, value)


def test_number_keeps_unit_of_steps_and_replaces_text():
    preset = p.override(load_preset("pendulum_sac"), {"environment.kwargs.task": "reach(easy)"})
    changed = p.override(preset, {"environment.kwargs.task": 7, "schedule.heatup_steps": 800})
    assert changed.environment.kwargs == {"task": 7} and changed.schedule.heatup_steps == p.EnvironmentSteps(800)


@pytest.mark.parametrize(
    "assignment, expected",
    [
        ("schedule.evaluation_steps=3", "EnvironmentEpisodes(3)"),  # a bare number keeps the unit
        ("schedule.evaluation_steps=EnvironmentSteps(20)", "EnvironmentSteps(20)"),
        ("schedule.improve_steps=EnvironmentSteps(1.5e5)", "EnvironmentSteps(150000)"),
        ("agent.networks.policy.middleware_parameters.scheme=[3.2e1, 64]", [32, 64]),
        ("agent.exploration={}", {"noise_std": 0.1, "kind": "additive_noise"}),
        ("environment.kwargs.g=10.0", 10.0),  # environment arguments are not converted
    ],
)
def test_override_with_json_values(assignment, expected):
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
def test_invalid_override_is_rejected(text, words):
    with pytest.raises(p.ParameterError, match=re.escape(words)):
        p.override(p.Preset(), dict([p.parse_assignment(text)]))


SCALE = "environment.filters.reward_rescale_factor"


@pytest.mark.parametrize(
    ("level", "changes_of_level", "scale", "threshold", "visible"),
    [
        ("Humanoid-v5", None, 20.0, 4000.0, None),
        ("Pendulum-v1", None, 1.0, None, None),
        ("Pendulum-v1", {"environment.visible_entries": (1, 0)}, 1.0, None, (1, 0)),
    ],
)
def test_for_level_applies_the_changes_of_the_level(level, changes_of_level, scale, threshold, visible):
    environment = p.EnvironmentParameters("Hopper-v5", visible_entries=(0, 2))
    levels = {
        "Humanoid-v5": {SCALE: 20.0, "validation.min_reward_threshold": 4000.0},
        **({level: changes_of_level} if changes_of_level else {}),
    }
    validation = p.PresetValidationParameters(2000.0, 500)
    moved = p.for_level(p.Preset(environment=environment, validation=validation, levels=levels), level)
    assert (moved.environment.level, moved.environment.filters.reward_rescale_factor) == (level, scale)
    assert moved.environment.visible_entries == visible
    assert moved.validation.min_reward_threshold == threshold
    assert moved.validation.max_episodes_to_achieve_reward == (None if threshold is None else 500)


def test_for_level_undoes_changes_of_the_last_level():
    environment = p.EnvironmentParameters("Hopper-v5", visible_entries=(0, 2))
    levels = {"Humanoid-v5": {SCALE: 20.0, "agent.networks.*.learning_rate": 0.1}}
    preset = p.Preset(environment=environment, validation=p.PresetValidationParameters(2000.0), levels=levels)
    discount = {"agent.algorithm.discount": 0.9}
    run = p.from_json(p.Preset, p.to_json(p.override(p.for_level(preset, "Humanoid-v5"), discount)))
    assert p.for_level(run, "Hopper-v5") == p.override(preset, discount)
    assert p.for_level(run, "Ant-v5") == p.for_level(p.override(preset, discount), "Ant-v5")


def test_for_level_and_override_replace_objects():
    fixed = {"agent.algorithm.temperature": {"kind": "fixed", "alpha": 0.2}}
    levels = {
        "Ant-v5": {"environment.kwargs.use_contact_forces": False, **fixed},
        "Humanoid-v5": {"agent.algorithm.temperature.target_entropy": -3.0},
    }
    preset = p.Preset(agent=p.TwinSoftActorCriticAgentParameters(), levels=levels)
    default_level = preset.environment.level
    assert p.for_level(p.for_level(preset, "Ant-v5"), default_level) == preset
    changed = p.override(p.for_level(preset, "Humanoid-v5"), fixed)  # has no target entropy
    assert p.for_level(changed, default_level) == p.override(preset, fixed)


def test_epsilon_schedules():
    exponential = p.EpsilonGreedyParameters(0.9, 0.1, 100)
    assert exponential.epsilon(0) == pytest.approx(0.9)
    assert exponential.epsilon(100) == pytest.approx(0.1 + 0.8 * 0.36787944)
    assert exponential.epsilon(10_000) == pytest.approx(0.1)
    linear = p.EpsilonGreedyParameters(0.9, 0.1, 100, "linear")
    assert [linear.epsilon(steps) for steps in (0, 50, 100, 1000)] == pytest.approx([0.9, 0.5, 0.1, 0.1])


def test_override_uses_earlier_changes():
    changes = {"agent.memory": {"kind": "sqil", "demonstrations": "x.npz"}, "agent.memory.num_episodes": 2}
    memory = p.override(load_preset("cart_pole_discrete_sac"), changes).agent.memory
    assert (memory.demonstrations, memory.num_episodes) == ("x.npz", 2)


def test_tuples_and_infinities_in_environment_kwargs():
    kwargs = {"healthy_z_range": (0.5, float("inf")), "low": {"x": [(-float("inf"), 1)]}}
    preset = p.override(load_preset("mujoco_twin_sac"), {"environment.kwargs": kwargs})
    assert preset.environment.kwargs == {"healthy_z_range": [0.5, float("inf")], "low": {"x": [[-float("inf"), 1]]}}
    assert p.from_json(p.Preset, json.dumps(p.to_json(preset))) == preset
    assert p.override(preset, {"environment.kwargs.high": float("inf")}).environment.kwargs["high"] == float("inf")
    assert p.EnvironmentParameters(kwargs={"size": (3, 4)}).kwargs == {"size": [3, 4]}
    with pytest.raises(p.ParameterError, match="finite"):
        p.override(preset, {"agent.networks.policy.clip_gradients": float("inf")})


def test_discount_of_episodes_matches_golden_values():
    golden, _ = golden_tools.read("modern_tables.npz")
    for steps, expected in zip(golden["gamma/episode_steps"], golden["gamma/value"], strict=True):
        assert p.discount_of_episodes(int(steps)) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("name", PATHS)
def test_parameter_names_of_other_libraries_are_suggested(name):
    with pytest.raises(p.ParameterError, match="Did you mean") as caught:
        p.override(load_preset("redq_mujoco"), {name: 1})
    assert PATHS[name].removeprefix("run.") in str(caught.value) or name == "alpha"


def test_numpy_scalars_become_python_numbers():
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
