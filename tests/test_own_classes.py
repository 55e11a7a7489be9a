"""Custom memories, explorations, heads and agents: in presets, configs, runs and other processes, and errors."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from typing import ClassVar

import keras
import numpy as np
import pytest
import tiny
from pages import ROOT, blocks
from toys import discrete_spec, vector_spec

from tfsac import parameters as p
from tfsac.environments import Filters
from tfsac.errors import TfsacError
from tfsac.memories import PrioritizedMemory, TransitionMemory
from tfsac.networks import GraphForward, PolicyHead, QHead, forward_of
from tfsac.policies import Exploration
from tfsac.preset_lookup import load_preset
from tfsac.training.build import build_agent, build_memory, build_policy
from tfsac.training.run_directory import RunDirectory
from tfsac.types import DiscreteSpec
from tfsac.utils import imports

PAGE = (ROOT / "docs" / "own_networks.md").read_text(encoding="utf-8")
FILES = {block.note[1]: block.text for block in blocks(PAGE) if block.note[0] == "file"}
KIND = "my_parameters:MyAgentParameters"


@p.parameters
class CustomReplay(p.ExperienceReplayParameters):
    """Parameters of a custom memory with an extra field."""

    option: float = 0.5
    path: ClassVar[str] = f"{__name__}:CustomMemory"


@p.parameters
class CustomPrioritized(p.PrioritizedExperienceReplayParameters):
    """Parameters that inherit their memory class."""

    option: float = 0.5


@p.parameters
class CustomNoise(p.AdditiveNoiseParameters):
    """Parameters of a custom exploration."""

    path: ClassVar[str] = f"{__name__}:Shift"


@p.parameters
class CustomHead(p.SACPolicyHeadParameters):
    """Parameters of a custom head."""

    factor: float = 2.0
    path: ClassVar[str] = f"{__name__}:ScaledHead"


class CustomMemory(TransitionMemory):
    """Always samples the oldest transition."""

    def choose(self, shape, rng):
        return np.zeros(shape, int), ()


class Shift(Exploration):
    """Adds `noise_std` to every action."""

    def __call__(self, action, rng, uniform, env_steps):
        return action + self.parameters.noise_std


class ScaledHead(PolicyHead):
    """Multiplies the mean."""

    def __init__(self, parameters, *arguments):
        super().__init__(parameters, *arguments)
        self.factor = parameters.factor

    def __call__(self, features):
        mean, log_std = super().__call__(features)
        return [self.factor * mean, log_std]


def exploration_of(transform):
    """Returns an exploration that applies a function to actions."""

    class Transformed(Exploration):
        def __call__(self, action, rng, uniform, env_steps):
            return transform(action)

    return Transformed(None)


@pytest.mark.parametrize(
    ("spec", "valid", "invalid"),
    [
        (vector_spec(3, 2), lambda a: a, lambda a: a * np.nan),
        (discrete_spec(3, 2), lambda a: a, lambda a: a + 2),
        (discrete_spec(3, 3, masked=True), lambda a: np.full_like(a, 2), np.ones_like),
    ],
)
def test_custom_exploration_output_is_validated(spec, valid, invalid):
    discrete = isinstance(spec.action, DiscreteSpec)
    preset = load_preset("cart_pole_discrete_sac" if discrete else "pendulum_twin_sac")
    policy = build_policy(tiny.shrunk(preset), p.RunParameters(), spec)
    mask = {"action_mask": np.array([[True, False, True]] * 4)} if "action_mask" in spec.observation else {}
    observations = {"observation": np.zeros((4, 3), np.float32), **mask}
    policy.exploration = exploration_of(valid)
    assert policy.act(observations, mode="explore").action.shape[0] == 4
    policy.exploration = exploration_of(invalid)
    with pytest.raises(ValueError, match="Transformed"):
        policy.act(observations, mode="explore")


def with_head(head):
    networks = p.twin_soft_actor_critic_networks(layers=(8,), learning_rate=1e-3, batch_size=4)
    policy = dataclasses.replace(networks["policy"], head_parameters=head)
    return p.TwinSoftActorCriticAgentParameters(networks={**networks, "policy": policy})


AGENTS = {
    "memory": p.SoftActorCriticAgentParameters(memory=CustomReplay(max_size=5000, option=0.25)),
    "prioritized": p.TwinSoftActorCriticAgentParameters(memory=CustomPrioritized(max_size=5000, alpha=0.3)),
    "exploration": p.TwinSoftActorCriticAgentParameters(exploration=CustomNoise(0.3)),
    "head": with_head(CustomHead(factor=3.0)),
}


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS.keys())
def test_custom_parameters_json_round_trip(agent):
    preset = p.Preset(agent=agent)
    text = json.dumps(p.to_json(preset))
    assert f'"kind": "{__name__}:Custom' in text
    assert p.from_json(p.Preset, text) == preset


def test_override_of_custom_fields():
    preset = p.Preset(agent=AGENTS["memory"])
    assert p.override(preset, {"agent.memory.option": 0.75}).agent.memory == CustomReplay(5000, option=0.75)
    changed = p.override(preset, {"agent.memory": {"kind": f"{__name__}:CustomPrioritized", "option": 1.5}})
    assert changed.agent.memory == CustomPrioritized(option=1.5)
    with pytest.raises(p.ParameterError, match="option"):
        p.override(preset, {"agent.memory": {"kind": f"{__name__}:CustomReplay", "optoin": 1}})


def memory_of(agent):
    preset, spec = p.override(p.Preset(agent=agent), {"environment.num_envs": 2}), vector_spec(3, 1)
    return build_memory(preset, spec, Filters(preset.environment.filters, spec))


def test_memory_is_built_from_its_parameters():
    memory = memory_of(AGENTS["memory"])
    assert type(memory) is CustomMemory and (memory.rows, memory.num_envs, memory.discount) == (2500, 2, 0.99)
    observations = {"observation": np.zeros((2, 3), np.float32)}
    for reward in (1.0, 2.0):
        memory.add(
            observations, np.zeros((2, 1)), np.full(2, reward), np.zeros(2, bool), np.zeros(2, bool), observations
        )
    assert (memory.sample(1, 4, np.random.default_rng(0)).reward == 1.0).all()
    prioritized = memory_of(AGENTS["prioritized"])
    assert type(prioritized) is PrioritizedMemory and prioritized.alpha == 0.3


def test_policy_uses_custom_exploration():
    spec = vector_spec(3, 1)
    observations = {"observation": np.ones((4, 3), np.float32)}
    actions = {}
    for mode in ("sample", "explore"):
        policy = build_policy(p.Preset(agent=AGENTS["exploration"]), p.RunParameters(seed=3), spec)
        actions[mode] = policy.act(observations, mode=mode).action
    np.testing.assert_allclose(actions["explore"] - actions["sample"], 0.3, atol=1e-6)


def test_custom_head_acts_in_graphs():
    spec, observations = vector_spec(3, 1), {"observation": np.ones((4, 3), np.float32)}
    custom, default = (
        build_agent(p.Preset(agent=with_head(head)), p.RunParameters(eager=True), spec).networks["policy"]
        for head in (CustomHead(), p.SACPolicyHeadParameters())
    )
    default.model.set_weights(custom.model.get_weights())
    (mean, log_std), expected = custom(observations), default(observations)
    np.testing.assert_allclose(mean, 2 * expected[0], rtol=1e-6)
    np.testing.assert_allclose(log_std, expected[1], rtol=1e-6)
    forward = forward_of(custom, spec)  # NumPyForward ignores the factor
    assert isinstance(forward, GraphForward) and not isinstance(forward_of(default, spec), GraphForward)
    np.testing.assert_allclose(forward(observations)[0], mean, rtol=1e-6)


def test_custom_q_head_cannot_override_call():
    with pytest.raises(TypeError, match="critics"):
        type("CustomCritics", (QHead,), {"__call__": lambda self, features, action: 0.0})


class OneOutput(PolicyHead):
    """Returns no log standard deviation."""

    def __call__(self, features):
        return super().__call__(features)[0]


class DictOutput(PolicyHead):
    def __call__(self, features):
        return dict(zip(("mean", "log_std"), super().__call__(features), strict=True))


class WithLayer(PolicyHead):
    """Contains a layer with state that gradients do not train."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.first = keras.layers.Dropout(0.1)

    def __call__(self, features):
        return super().__call__(self.first(features))


@pytest.mark.parametrize(("head", "words"), [(OneOutput, "outputs"), (DictOutput, "a list"), (WithLayer, "Dropout")])
def test_unsupported_custom_heads_are_rejected(head, words, monkeypatch):
    monkeypatch.setattr(CustomHead, "path", f"{__name__}:{head.__name__}")
    with pytest.raises(ValueError, match=words) as caught:
        build_agent(p.Preset(agent=with_head(CustomHead())), p.RunParameters(eager=True), vector_spec(3, 1))
    assert "'policy'" in str(caught.value)


def test_custom_memory_of_another_agent_is_rejected():
    with pytest.raises(p.ParameterError, match="SequenceReplayParameters"):
        p.TemporallyAbstractActorCriticAgentParameters(memory=CustomReplay())


@pytest.mark.parametrize(
    "path, error, words",
    [
        ("no_such_module:X", TfsacError, "no_such_module"),
        ("tfsac.types:Nothing", TfsacError, "Nothing"),
        ("tfsac.types:Spec", p.ParameterError, "subclass"),
    ],
)
def test_invalid_class_path_is_rejected(path, error, words, monkeypatch):
    monkeypatch.setattr(CustomReplay, "path", path)
    with pytest.raises(error, match=words):
        memory_of(AGENTS["memory"])


@pytest.fixture
def modules(monkeypatch):
    """Allows imports of user modules and removes them afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    import_folders, before = list(imports.IMPORT_FOLDERS), set(sys.modules)
    imports.IMPORT_FOLDERS.clear()
    yield
    imports.IMPORT_FOLDERS[:] = import_folders
    for name in set(sys.modules) - before:
        if name.startswith(("own_", "my_")):
            sys.modules.pop(name)


@pytest.fixture
def folder(modules, tmp_path, monkeypatch):
    """A folder with the files of docs/own_networks.md."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    importlib.invalidate_caches()
    return tmp_path


def test_exploration_from_the_docs(folder):
    preset = p.override(load_preset(folder / "my_exploration.py"), {"agent.exploration.noisy_steps": 10})
    explore = build_policy(preset, p.RunParameters(), vector_spec(3, 1)).exploration
    action, rng = np.zeros((4, 1), np.float32), np.random.default_rng(0)
    assert (explore(action, rng, None, 9) != 0).all() and (explore(action, rng, None, 10) == 0).all()
    renamed = (folder / "my_exploration.py").rename(folder / "my-preset.py")
    with pytest.raises(p.ParameterError, match="FirstNoiseParameters"):
        load_preset(renamed)


def test_preset_file_with_custom_agent(folder):
    preset = load_preset(folder / "my_preset.py")
    assert (preset.agent.kind, preset.agent.path) == (KIND, "my_agent:MyAgent")
    changed = p.override(preset, {"agent.algorithm.location_cost": 5.0, "agent.algorithm.discount": 0.9})
    assert type(changed.agent) is type(preset.agent) and changed.agent.algorithm.location_cost == 5.0
    assert p.override(changed, {"agent.algorithm.location_cost": 1e-3, "agent.algorithm.discount": 0.99}) == preset


@pytest.mark.slow
def test_config_with_custom_agent_in_a_new_process(folder, run_python, tmp_path_factory):
    preset = p.override(load_preset(folder / "my_preset.py"), {"agent.algorithm.location_cost": 7.5})
    RunDirectory(folder / "run").create(preset, p.RunParameters(seed=4))
    assert json.loads((folder / "run" / "config.json").read_text())["preset"]["agent"]["kind"] == KIND
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    printed = run_python(
        f"""
import os, pathlib, sys
os.chdir({str(elsewhere)!r})
from tfsac.preset_lookup import read_config
preset, run = read_config(pathlib.Path({str(folder / "run" / "config.json")!r}))
print(type(preset.agent).__name__, preset.agent.algorithm.location_cost, run.seed, "tensorflow" in sys.modules)
"""
    )
    assert printed.split() == ["MyAgentParameters", "7.5", "4", "False"]


def test_undecorated_parameters_are_rejected():
    class Plain(p.TwinSoftActorCriticAgentParameters):
        path: ClassVar[str] = "some_module:Plain"

    with pytest.raises(p.ParameterError, match=r"@tfsac\.parameters\.parameters"):
        p.Preset(agent=Plain())
