"""Parameter classes of a user's own agent: in presets, in configs, and in processes that have not seen them."""

from __future__ import annotations

import importlib
import json
import sys
from typing import ClassVar

import pytest
import tiny
from pages import ROOT, blocks

from tfsac import parameters as p
from tfsac.catalog import load_preset
from tfsac.errors import TfsacError
from tfsac.training.run_directory import RunDirectory
from tfsac.utils import imports

PAGE = (ROOT / "docs" / "own_networks.md").read_text(encoding="utf-8")
FILES = {block.note[1]: block.text for block in blocks(PAGE) if block.note[0] == "file"}
KIND = "my_parameters:MyAgentParameters"


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
    assert (preset.agent.kind, preset.agent.path) == (KIND, "my_agent:MyAgent")
    changed = p.override(preset, {"agent.algorithm.location_cost": 5.0, "agent.algorithm.discount": 0.9})
    assert type(changed.agent) is type(preset.agent) and changed.agent.algorithm.location_cost == 5.0
    assert p.override(changed, {"agent.algorithm.location_cost": 1e-3, "agent.algorithm.discount": 0.99}) == preset
    with pytest.raises(p.ParameterError, match="Did you mean 'location_cost'"):
        p.override(preset, {"agent.algorithm.location_cots": 5.0})


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
from tfsac.catalog import read_config
preset, run = read_config(pathlib.Path({str(folder / "run" / "config.json")!r}))
print(type(preset.agent).__module__, type(preset.agent).__name__, preset.agent.algorithm.location_cost, run.seed, "tensorflow" in sys.modules)
"""
    )
    assert printed.split() == ["my_parameters", "MyAgentParameters", "7.5", "4", "False"]


def named(kind):
    return lambda: p.from_json(p.Preset, json.dumps({"agent": {"kind": kind}}))


def undecorated():
    class Plain(p.TwinSoftActorCriticAgentParameters):
        path: ClassVar[str] = "some_module:Plain"

    p.Preset(agent=Plain())


def inside():
    @p.parameters
    class Inside(p.TwinSoftActorCriticAgentParameters):
        """A class that no other process can import."""

        path: ClassVar[str] = "some_module:Inside"

    p.Preset(agent=Inside())


@p.parameters
class OwnAlgorithm(p.TwinSoftActorCriticAlgorithmParameters):
    """An algorithm that no class of an agent names."""

    location_cost: float = 2.0


WRONG = {
    "no module": (named("nothing_of_this_name:Mine"), TfsacError, "nothing_of_this_name"),
    "a module that raises": (named("raises_at_import:Mine"), Exception, "nothing_of_this_name"),
    "no decorator": (undecorated, p.ParameterError, "@tfsac.parameters.parameters"),
    "an algorithm of another agent": (
        lambda: p.TwinSoftActorCriticAgentParameters(OwnAlgorithm()), p.ParameterError, "OwnAlgorithm",
    ),
    "a class inside a function": (inside, p.ParameterError, "top level"),
}  # fmt: skip


@pytest.mark.parametrize("make, error, words", WRONG.values(), ids=WRONG.keys())
def test_what_is_no_agent_of_ones_own_is_refused(folder, make, error, words):
    imports.make_importable(folder)
    with pytest.raises(error, match=words):
        make()


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
