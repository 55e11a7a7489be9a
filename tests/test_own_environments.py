"""Levels: Gymnasium ids, user modules and errors."""

import importlib
import json
import pathlib
import sys

import gymnasium as gym
import numpy as np
import pytest
import tiny
from pages import ROOT, run_page

from tfsac import cli
from tfsac.environments import make
from tfsac.errors import TfsacError
from tfsac.preset_lookup import load_preset, read_config
from tfsac.utils import imports

ENVIRONMENT = """
import gymnasium
import numpy as np


class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


gymnasium.register("Mine-v0", entry_point=f"{__name__}:Mine", max_episode_steps=5)
"""
USER_MODULES = ("own_mine", "own_missing", "own_raising", "own_sibling")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with user modules; their imports are undone afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    import_folders = list(imports.IMPORT_FOLDERS)
    imports.IMPORT_FOLDERS.clear()
    (tmp_path / "own_mine.py").write_text(ENVIRONMENT)
    (tmp_path / "own_missing.py").write_text("\nimport nothing_of_this_name\n")
    (tmp_path / "own_raising.py").write_text("{}['key']\n")
    importlib.invalidate_caches()
    yield tmp_path
    imports.IMPORT_FOLDERS[:] = import_folders
    gym.registry.pop("Mine-v0", None)
    for name in [name for name in sys.modules if name.partition(".")[0] in USER_MODULES]:
        del sys.modules[name]


def test_module_in_current_folder_is_found(folder):
    assert cli.run(["check", "--level=own_mine:Mine-v0", "--num_steps=10"]) == 0


WRONG_LEVELS = {
    "Pendulun-v1": "MODULE:ID",
    "own_missing:X-v0": "nothing_of_this_name",
    "env_fn:Mine": "env_fn",
    "pettingzoo:no_such_package.football_v1": "no_such_package",
}


@pytest.mark.parametrize("level", WRONG_LEVELS)
@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
def test_unknown_level_is_rejected(folder, level):
    imports.make_importable(folder)
    with pytest.raises(TfsacError, match=WRONG_LEVELS[level]):
        make(level)


def test_error_in_user_module_keeps_its_type(folder):
    imports.make_importable(folder)
    with pytest.raises(KeyError, match="key"):
        make("own_raising:X-v0")


def test_make_applies_kwargs_and_time_limit():
    env = make("Pendulum-v1", max_episode_steps=2, g=1.5)
    assert env.unwrapped.g == 1.5
    env.reset(seed=0)
    assert [env.step(np.zeros(1, np.float32))[3] for _ in range(2)] == [False, True]
    env.close()
    with pytest.raises(TfsacError, match="gravty"):
        make("Pendulum-v1", gravty=3)


def test_preset_imports_are_found_on_resume(folder, tmp_path, monkeypatch):
    presets = folder / "my_presets"
    presets.mkdir()
    (presets / "own_sibling.py").write_text(ENVIRONMENT)
    (presets / "preset.py").write_text(
        "import own_sibling\nfrom tfsac.parameters import EnvironmentParameters, Preset\n"
        "preset = Preset(environment=EnvironmentParameters('own_sibling:Mine-v0'))\n"
    )
    preset = load_preset(presets / "preset.py")
    from tfsac.parameters import RunParameters
    from tfsac.training import RunDirectory

    RunDirectory(folder / "run").create(preset, RunParameters())
    assert json.loads((folder / "run" / "config.json").read_text())["import_folders"] == [str(presets)]
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(presets)])
    del sys.modules["own_sibling"]
    del gym.registry["Mine-v0"]
    make(read_config(folder / "run" / "config.json")[0].environment.level).close()
    (folder / "own_sibling.py").write_text(ENVIRONMENT)
    sys.path.insert(0, str(folder))
    with pytest.warns(UserWarning, match=r"own_sibling.py is imported, not .*my_presets"):
        read_config(folder / "run" / "config.json")


SHORT = {
    "improve_steps=10_000": "improve_steps=20",
    '"schedule.improve_steps": 2_000': '"schedule.improve_steps": 20, **SHORT',
}


@pytest.mark.slow
def test_docs_page_runs(tmp_path, monkeypatch):
    changes = {
        path: value
        for path, value in {**tiny.CHANGES, **tiny.SHORTER}.items()
        if path != "schedule.improve_steps" and not path.startswith("agent.networks.v.")
    }
    page = tmp_path / "page.md"
    text = (ROOT / "docs" / "own_environments.md").read_text().partition("## A real robot")[0]
    page.write_text(text.replace("import tfsac\n", f"import tfsac\n\nSHORT = {changes!r}\n"))
    run_page(page, tmp_path / "folder", SHORT, tiny.assignments(changes))
    assert pathlib.Path(tmp_path / "folder" / "exported" / "point").is_dir()
