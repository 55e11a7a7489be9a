"""Users' memories, explorations, heads and agents: in presets, in configs, in runs, in processes that have not seen
them, and where they lead nowhere.
"""

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
class OwnReplay(p.ExperienceReplayParameters):
    """Parameters of a memory with an option."""

    option: float = 0.5
    path: ClassVar[str] = f"{__name__}:OwnMemory"


@p.parameters
class OwnPrioritized(p.PrioritizedExperienceReplayParameters):
    """Parameters that name the class above."""

    option: float = 0.5


@p.parameters
class OwnNoise(p.AdditiveNoiseParameters):
    """Parameters of an exploration."""

    path: ClassVar[str] = f"{__name__}:Shift"


@p.parameters
class OwnHead(p.SACPolicyHeadParameters):
    """Parameters of a head."""

    factor: float = 2.0
    path: ClassVar[str] = f"{__name__}:ScaledHead"


class OwnMemory(TransitionMemory):
    """Samples the oldest transition alone."""

    def choose(self, shape, rng):
        return np.zeros(shape, int), ()


class Shift(Exploration):
    """Adds `noise_std`."""

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


def returning(changed):
    """Returns an exploration that changes actions so."""

    class Changed(Exploration):
        def __call__(self, action, rng, uniform, env_steps):
            return changed(action)

    return Changed(None)


@pytest.mark.parametrize(
    ("spec", "allowed", "changed"),
    [
        (vector_spec(3, 2), lambda a: a, lambda a: a * np.nan),
        (discrete_spec(3, 2), lambda a: a, lambda a: a + 2),
        (discrete_spec(3, 3, masked=True), lambda a: np.full_like(a, 2), np.ones_like),
    ],
)
def test_what_an_own_exploration_returns_is_checked(spec, allowed, changed):
    discrete = isinstance(spec.action, DiscreteSpec)
    preset = load_preset("cart_pole_discrete_sac" if discrete else "pendulum_twin_sac")
    policy = build_policy(tiny.shrunk(preset), p.RunParameters(), spec)
    mask = {"action_mask": np.array([[True, False, True]] * 4)} if "action_mask" in spec.observation else {}
    seen = {"observation": np.zeros((4, 3), np.float32), **mask}
    policy.exploration = returning(allowed)
    assert policy.act(seen, mode="explore").action.shape[0] == 4
    policy.exploration = returning(changed)
    with pytest.raises(ValueError, match="Changed"):
        policy.act(seen, mode="explore")


def with_head(head):
    networks = p.twin_soft_actor_critic_networks(layers=(8,), learning_rate=1e-3, batch_size=4)
    policy = dataclasses.replace(networks["policy"], head_parameters=head)
    return p.TwinSoftActorCriticAgentParameters(networks={**networks, "policy": policy})


AGENTS = {
    "memory": p.SoftActorCriticAgentParameters(memory=OwnReplay(max_size=5000, option=0.25)),
    "prioritized": p.TwinSoftActorCriticAgentParameters(memory=OwnPrioritized(max_size=5000, alpha=0.3)),
    "exploration": p.TwinSoftActorCriticAgentParameters(exploration=OwnNoise(0.3)),
    "head": with_head(OwnHead(factor=3.0)),
}


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS.keys())
def test_own_parameters_come_back_equal_from_json(agent):
    preset = p.Preset(agent=agent)
    text = json.dumps(p.to_json(preset))
    assert f'"kind": "{__name__}:Own' in text
    assert p.from_json(p.Preset, text) == preset


def test_set_changes_own_fields_and_names_mistakes():
    preset = p.Preset(agent=AGENTS["memory"])
    assert p.override(preset, {"agent.memory.option": 0.75}).agent.memory == OwnReplay(5000, option=0.75)
    changed = p.override(preset, {"agent.memory": {"kind": f"{__name__}:OwnPrioritized", "option": 1.5}})
    assert changed.agent.memory == OwnPrioritized(option=1.5)
    with pytest.raises(p.ParameterError, match="option"):
        p.override(preset, {"agent.memory": {"kind": f"{__name__}:OwnReplay", "optoin": 1}})


def memory_of(agent):
    preset, spec = p.override(p.Preset(agent=agent), {"environment.num_envs": 2}), vector_spec(3, 1)
    return build_memory(preset, spec, Filters(preset.environment.filters, spec))


def test_a_memory_is_built_from_its_parameters():
    memory = memory_of(AGENTS["memory"])
    assert type(memory) is OwnMemory and (memory.rows, memory.num_envs, memory.discount) == (2500, 2, 0.99)
    seen = {"observation": np.zeros((2, 3), np.float32)}
    for reward in (1.0, 2.0):
        memory.add(seen, np.zeros((2, 1)), np.full(2, reward), np.zeros(2, bool), np.zeros(2, bool), seen)
    assert (memory.sample(1, 4, np.random.default_rng(0)).reward == 1.0).all()
    prioritized = memory_of(AGENTS["prioritized"])
    assert type(prioritized) is PrioritizedMemory and prioritized.alpha == 0.3


def test_a_policy_explores_by_an_own_exploration():
    spec = vector_spec(3, 1)
    seen = {"observation": np.ones((4, 3), np.float32)}
    actions = {}
    for mode in ("sample", "explore"):
        policy = build_policy(p.Preset(agent=AGENTS["exploration"]), p.RunParameters(seed=3), spec)
        actions[mode] = policy.act(seen, mode=mode).action
    np.testing.assert_allclose(actions["explore"] - actions["sample"], 0.3, atol=1e-6)


def test_an_own_head_computes_what_it_says_in_graphs():
    spec, seen = vector_spec(3, 1), {"observation": np.ones((4, 3), np.float32)}
    own, usual = (
        build_agent(p.Preset(agent=with_head(head)), p.RunParameters(eager=True), spec).networks["policy"]
        for head in (OwnHead(), p.SACPolicyHeadParameters())
    )
    usual.model.set_weights(own.model.get_weights())
    (mean, log_std), expected = own(seen), usual(seen)
    np.testing.assert_allclose(mean, 2 * expected[0], rtol=1e-6)
    np.testing.assert_allclose(log_std, expected[1], rtol=1e-6)
    forward = forward_of(own, spec)  # NumPy would leave the factor out
    assert isinstance(forward, GraphForward) and not isinstance(forward_of(usual, spec), GraphForward)
    np.testing.assert_allclose(forward(seen)[0], mean, rtol=1e-6)


def test_a_head_of_an_ensemble_changes_its_layers_alone():
    with pytest.raises(TypeError, match="critics"):
        type("OwnCritics", (QHead,), {"__call__": lambda self, features, action: 0.0})


class OneOutput(PolicyHead):
    """Leaves out the log standard deviation."""

    def __call__(self, features):
        return super().__call__(features)[0]


class WithLayer(PolicyHead):
    """Has a layer that gradients do not train in whole."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.first = keras.layers.Dropout(0.1)

    def __call__(self, features):
        return super().__call__(self.first(features))


@pytest.mark.parametrize(("head", "words"), [(OneOutput, "outputs"), (WithLayer, "Dropout")])
def test_an_own_head_that_would_act_in_part_is_refused_by_its_name_and_its_networks(head, words, monkeypatch):
    monkeypatch.setattr(OwnHead, "path", f"{__name__}:{head.__name__}")
    with pytest.raises(ValueError, match=words) as caught:
        build_agent(p.Preset(agent=with_head(OwnHead())), p.RunParameters(eager=True), vector_spec(3, 1))
    assert "'policy'" in str(caught.value)


def test_own_parameters_where_they_do_not_belong_are_refused():
    with pytest.raises(p.ParameterError, match="SequenceReplayParameters"):
        p.TemporallyAbstractActorCriticAgentParameters(memory=OwnReplay())


@pytest.mark.parametrize(
    "path, error, words",
    [
        ("no_such_module:X", TfsacError, "no_such_module"),
        ("tfsac.types:Nothing", TfsacError, "Nothing"),
        ("tfsac.types:Spec", p.ParameterError, "subclass"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path, error, words, monkeypatch):
    monkeypatch.setattr(OwnReplay, "path", path)
    with pytest.raises(error, match=words):
        memory_of(AGENTS["memory"])


@pytest.fixture
def modules(monkeypatch):
    """Lets a test import modules of users, which are forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(imports, "IMPORT_FOLDERS", [])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("own_", "my_", "raises_")):
            sys.modules.pop(name)


@pytest.fixture
def folder(modules, tmp_path, monkeypatch):
    """A folder with the files of the page."""
    monkeypatch.chdir(tmp_path)
    for name, text in {**FILES, "raises_at_import.py": "import nothing_of_this_name"}.items():
        (tmp_path / name).write_text(text)
    importlib.invalidate_caches()
    return tmp_path


def test_the_exploration_of_the_page_ends_and_one_that_no_config_can_find_again_is_refused(folder):
    preset = p.override(load_preset(folder / "my_exploration.py"), {"agent.exploration.noisy_steps": 10})
    explore = build_policy(preset, p.RunParameters(), vector_spec(3, 1)).exploration
    action, rng = np.zeros((4, 1), np.float32), np.random.default_rng(0)
    assert (explore(action, rng, None, 9) != 0).all() and (explore(action, rng, None, 10) == 0).all()
    renamed = (folder / "my_exploration.py").rename(folder / "my-preset.py")
    with pytest.raises(p.ParameterError, match="FirstNoiseParameters"):
        load_preset(renamed)


# -- own agents --------------------------------------------------------------------------------------------------------


def test_a_preset_file_holds_an_own_agent_and_set_changes_its_fields(folder):
    preset = load_preset(folder / "my_preset.py")
    assert (preset.agent.kind, preset.agent.path) == (KIND, "my_agent:MyAgent")
    changed = p.override(preset, {"agent.algorithm.location_cost": 5.0, "agent.algorithm.discount": 0.9})
    assert type(changed.agent) is type(preset.agent) and changed.agent.algorithm.location_cost == 5.0
    assert p.override(changed, {"agent.algorithm.location_cost": 1e-3, "agent.algorithm.discount": 0.99}) == preset


@pytest.mark.slow
def test_a_config_is_read_in_a_process_that_has_not_seen_the_class(folder, run_python, tmp_path_factory):
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


def undecorated():
    class Plain(p.TwinSoftActorCriticAgentParameters):
        path: ClassVar[str] = "some_module:Plain"

    p.Preset(agent=Plain())


WRONG = {
    "a module that raises": (
        lambda: p.from_json(p.Preset, '{"agent": {"kind": "raises_at_import:Mine"}}'), Exception, "nothing_of_this_name",
    ),
    "no decorator": (undecorated, p.ParameterError, "@tfsac.parameters.parameters"),
}  # fmt: skip


@pytest.mark.parametrize("make, error, words", WRONG.values(), ids=WRONG.keys())
def test_what_is_no_agent_of_ones_own_is_refused(folder, make, error, words):
    imports.make_importable(folder)
    with pytest.raises(error, match=words):
        make()
