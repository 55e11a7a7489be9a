"""Parameter classes of a user's own agent: in presets, in configs, and in processes that have not seen them."""

from __future__ import annotations

import importlib
import json
import re
import sys
from typing import ClassVar

import pytest
import tiny
from pages import ROOT, blocks

from tfsac.catalog import load_preset
from tfsac.errors import TfsacError
from tfsac.parameters import (
    BaseAgentParameters,
    DiscreteSoftActorCriticAgentParameters,
    EnvironmentParameters,
    ExperienceReplayParameters,
    NetworkParameters,
    OffPolicyAlgorithmParameters,
    ParameterError,
    Preset,
    RunParameters,
    SequenceReplayParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    class_of,
    from_json,
    override,
    parameters,
    soft_actor_critic_networks,
    to_json,
)
from tfsac.utils import imports

PAGE = (ROOT / "docs" / "own_networks.md").read_text(encoding="utf-8")
FILES = {block.note[1]: block.text for block in blocks(PAGE) if block.note[0] == "file"}
KIND = "my_parameters:MyAgentParameters"


@parameters
class Wider(TwinSoftActorCriticAgentParameters):
    """A class of this test's module."""

    path: ClassVar[str] = "some_module:Wider"
    depth: int = 3


@parameters
class DiscreteOwn(DiscreteSoftActorCriticAgentParameters):
    """A class with discrete actions."""

    path: ClassVar[str] = "some_module:DiscreteOwn"


@parameters
class FromTheBase(BaseAgentParameters):
    """A class that shares no fields' defaults with an agent of tfsac."""

    path: ClassVar[str] = "some_module:FromTheBase"
    algorithm: OffPolicyAlgorithmParameters
    exploration: None
    memory: SequenceReplayParameters
    networks: dict[str, NetworkParameters]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files of the page; afterwards what they defined is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(imports, "IMPORT_FOLDERS", [])
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "raises_at_import.py").write_text("\nimport nothing_of_this_name\n")
    importlib.invalidate_caches()
    yield tmp_path
    for name in ("my_agent", "my_parameters", "raises_at_import"):
        sys.modules.pop(name, None)


def test_a_preset_file_holds_an_own_agent_and_set_changes_its_fields(folder):
    preset = load_preset(folder / "my_preset.py")
    assert (preset.agent.kind, preset.agent.path, preset.agent.algorithm.location_cost) == (
        KIND,
        "my_agent:MyAgent",
        1e-3,
    )
    changed = override(preset, {"agent.algorithm.location_cost": 5.0, "agent.algorithm.discount": 0.9})
    assert type(changed.agent) is type(preset.agent) and (
        changed.agent.algorithm.location_cost,
        changed.agent.algorithm.discount,
    ) == (5.0, 0.9)
    assert override(changed, {"agent.algorithm.location_cost": 1e-3, "agent.algorithm.discount": 0.99}) == preset
    with pytest.raises(ParameterError, match="Did you mean 'location_cost'"):
        override(preset, {"agent.algorithm.location_cots": 5.0})


@pytest.mark.slow
def test_a_config_is_read_in_a_process_that_has_not_seen_the_class(folder, run_python, tmp_path_factory):
    run_python(
        f"""
from tfsac.catalog import load_preset
from tfsac.parameters import RunParameters, override
from tfsac.training.run_directory import RunDirectory
preset = override(load_preset({str(folder / "my_preset.py")!r}), {{"agent.algorithm.location_cost": 7.5}})
RunDirectory(__import__("pathlib").Path({str(folder / "run")!r})).create(preset, RunParameters(seed=4))
"""
    )
    assert json.loads((folder / "run" / "config.json").read_text())["preset"]["agent"]["kind"] == KIND
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    printed = run_python(
        f"""
import os, pathlib, sys
os.chdir({str(elsewhere)!r})
from tfsac.catalog import read_config
preset, run = read_config(pathlib.Path({str(folder / "run" / "config.json")!r}))
print(type(preset.agent).__module__, type(preset.agent).__name__, preset.agent.algorithm.location_cost, run.seed, "tensorflow" in sys.modules)
"""
    )
    assert printed.split() == ["my_parameters", "MyAgentParameters", "7.5", "4", "False"]


@pytest.mark.parametrize("agent", [Wider(depth=9), Wider(memory=ExperienceReplayParameters(9000))])
def test_an_own_agent_comes_back_equal_from_json(agent):
    preset = Preset(agent=agent, environment=EnvironmentParameters("Hopper-v5"))
    tree = to_json(preset)
    assert tree["agent"]["kind"] == f"{__name__}:Wider"
    assert from_json(Preset, json.dumps(tree)) == preset
    assert override(preset, {"agent.memory": {"max_size": 700}}).agent.memory == ExperienceReplayParameters(700)


def test_an_own_agent_needs_no_agent_of_tfsac():
    networks = {"policy": soft_actor_critic_networks()["policy"]}
    preset = Preset(
        agent=FromTheBase(OffPolicyAlgorithmParameters(0.5), None, SequenceReplayParameters(9000), networks)
    )
    assert from_json(Preset, json.dumps(to_json(preset))) == preset
    with pytest.raises(ParameterError, match=r"FromTheBase\.algorithm"):
        FromTheBase()
    with pytest.raises(ParameterError, match="memory"):
        FromTheBase(OffPolicyAlgorithmParameters(), None, ExperienceReplayParameters(), networks)


def named(kind):
    return lambda: from_json(Preset, json.dumps({"agent": {"kind": kind}}))


def undecorated():
    class Plain(TwinSoftActorCriticAgentParameters):
        path: ClassVar[str] = "some_module:Plain"

    Preset(agent=Plain())


def inside():
    @parameters
    class Inside(TwinSoftActorCriticAgentParameters):
        """A class that no other process can import."""

        path: ClassVar[str] = "some_module:Inside"

    Preset(agent=Inside())


@parameters
class OwnAlgorithm(TwinSoftActorCriticAlgorithmParameters):
    """An algorithm that no class of an agent names."""

    location_cost: float = 2.0


WRONG = {
    "no module": (named("nothing_of_this_name:Mine"), TfsacError, "nothing_of_this_name"),
    "no class": (named("my_parameters:Mine"), TfsacError, "Mine"),
    "not of an agent": (named("my_parameters:MyAlgorithmParameters"), ParameterError, "BaseAgentParameters"),
    "a module that raises": (named("raises_at_import:Mine"), Exception, "nothing_of_this_name"),
    "a notebook's class": (named("__main__:Mine"), TfsacError, "Mine"),
    "no name": (named("my_agent:"), ValueError, "MODULE:NAME"),
    "an unknown kind": (named("sac"), ParameterError, "MODULE:CLASS"),
    "no decorator": (undecorated, ParameterError, "@tfsac.parameters.parameters"),
    "an algorithm of another agent": (
        lambda: TwinSoftActorCriticAgentParameters(OwnAlgorithm()), ParameterError, "OwnAlgorithm",
    ),
    "a class inside a function": (inside, ParameterError, "top level"),
}  # fmt: skip


@pytest.mark.parametrize("make, error, words", WRONG.values(), ids=WRONG.keys())
def test_what_is_no_agent_of_ones_own_is_refused(folder, make, error, words):
    imports.make_importable(folder)
    with pytest.raises(error, match=words):
        make()


def test_every_agent_of_tfsac_names_another_agent():
    classes = [cls for cls in BaseAgentParameters.__subclasses__() if cls.__module__.startswith("tfsac.")]
    paths = {
        cls.path
        for cls in [*classes, *(below for cls in classes for below in cls.__subclasses__())]
        if hasattr(cls, "path")
    }
    assert len([path for path in paths if re.fullmatch(r"tfsac\.agents\.\w+:\w+Agent", path)]) == 6
    assert DiscreteSoftActorCriticAgentParameters.path == "tfsac.agents.discrete_sac:DiscreteSoftActorCriticAgent"


@pytest.mark.acceptance
def test_an_own_agent_is_trained_and_evaluated_by_commands(folder, run_python, tmp_path_factory):
    short = {**tiny.CHANGES, **tiny.SHORTER}
    changes = tiny.assignments({path: value for path, value in short.items() if ".v." not in path})
    arguments = ["train", f"--preset={folder / 'my_preset.py'}", f"--run_dir={folder / 'run'}", *changes]
    shown = "import sys; from tfsac import cli; "
    printed = run_python(
        shown + f"print(cli.run({arguments!r})); print(sys.modules['my_agent'].MyAgent.__mro__[1].__name__)"
    )
    assert printed.split()[-2:] == ["0", "TwinSoftActorCriticAgent"]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    printed = run_python(
        f"import os; os.chdir({str(elsewhere)!r}); {shown} print(cli.run(['evaluate', '--run_dir={folder / 'run'}', "
        f"'--episodes=2']))"
    )
    assert "over 2 episodes" in printed and printed.split()[-1] == "0"


def test_the_agent_of_the_page_pays_for_its_locations(folder):
    from tfsac.environments import make, spec_of
    from tfsac.training.build import build_agent

    imports.make_importable(folder)
    preset = load_preset(folder / "my_preset.py")
    env = make("Pendulum-v1")
    agent = build_agent(preset, RunParameters(eager=True), spec_of(env))
    env.close()
    assert type(agent).__name__ == "MyAgent" and agent.algorithm.location_cost == 1e-3


@pytest.mark.parametrize("agent, level", [(Wider(), "CartPole-v1"), (DiscreteOwn(), "Pendulum-v1")])
def test_an_own_agent_has_the_actions_of_the_one_above_it(agent, level):
    from tfsac.cli.learning import check_level

    with pytest.raises(TfsacError, match="actions"):
        check_level(Preset(agent=agent, environment=EnvironmentParameters(level)))


@pytest.mark.parametrize(
    "path, error, words",
    [("tfsac.types:Spec", ParameterError, "subclass of Agent"), ("no_module:X", TfsacError, "no module")],
)
def test_a_path_that_leads_to_no_agent_is_refused(path, error, words):
    from tfsac.agents import Agent

    @parameters
    class Lost(TwinSoftActorCriticAgentParameters):
        """A class with another path."""

    Lost.path = path
    with pytest.raises(error, match=words):
        class_of(Lost(), Agent)
