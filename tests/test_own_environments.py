"""Environments in somebody's own modules are found, and what is wrong with their levels is told."""

import importlib
import json
import pathlib
import re
import sys
import threading

import cloudpickle
import gymnasium as gym
import pytest
import tiny
from pages import ROOT, run_page

import tfsac
from tfsac import cli, user_code
from tfsac.catalog import load_preset, read_config
from tfsac.environments import make
from tfsac.environments.env_fn import making

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
OWN = ("own_mine", "own_broken", "own_missing", "own_empty", "own_raising", "own_beside", "own_package")


class Locked(gym.Env):
    """Has what no other process can have."""

    observation_space = action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self):
        self.lock = threading.Lock()


def test_environments_that_were_made_stay_in_their_process():
    one = making(Locked)
    kept = one()
    copy = cloudpickle.loads(cloudpickle.dumps(one))
    assert isinstance(copy(), Locked) and list(one.made.values()) == [kept]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with modules, that is the current one; afterwards none of them is imported any more."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    kept = list(user_code.FOLDERS)
    user_code.FOLDERS.clear()
    (tmp_path / "own_mine.py").write_text(ENVIRONMENT)
    (tmp_path / "own_broken.py").write_text("x = (\n")
    (tmp_path / "own_missing.py").write_text("\nimport nothing_of_this_name\n")
    (tmp_path / "own_raising.py").write_text("{}['key']\n")
    (tmp_path / "own_empty.py").write_text("")
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("")
    (tmp_path / "own_package" / "inner.py").write_text("")
    importlib.invalidate_caches()
    yield tmp_path
    user_code.FOLDERS[:] = kept
    gym.registry.pop("Mine-v0", None)
    for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
        del sys.modules[name]


def test_a_module_of_the_current_folder_is_found(folder, capsys):
    assert cli.run(["check", "--level=own_mine:Mine-v0", "--num_steps=10"]) == 0
    assert [str(folder)] == user_code.FOLDERS


WRONG_LEVELS = {
    "own_mine:Mine-v1": (
        ValueError,
        r"own_mine \(.*own_mine\.py\) does not register 'Mine-v1'\. It registers Mine-v0\. Did you mean 'Mine-v0'\?",
    ),
    "own_mine:Other": (ValueError, r"does not register 'Other'\. It registers Mine-v0\."),
    "own_empty:Mine-v0": (ValueError, r"It registers none: gymnasium\.register\(ID, entry_point=\.\.\.\) does\."),
    "own_mime:Mine-v0": (
        ImportError,
        r"There is no module 'own_mime'\. Did you mean 'own_mine'\? It was searched for in .* and among",
    ),
    "own_package.innner:X-v0": (ImportError, r"no module 'own_package\.innner'\. Did you mean 'own_package\.inner'\?"),
    "own_missing:X-v0": (
        ImportError,
        r"is missing\. Received: ModuleNotFoundError: .*'nothing_of_this_name' \(.*own_missing\.py, line 2, in "
        r"<module>\)",
    ),
    "own_broken:X-v0": (
        user_code.UserCodeError,
        r"cannot be made\. Received: SyntaxError: .* \(.*own_broken\.py, line 1\)",
    ),
    "own_raising:X-v0": (
        user_code.UserCodeError,
        r"cannot be made\. Received: KeyError: 'key' \(.*own_raising\.py, line 1, in <module>\)",
    ),
    "own_mine.py:Mine-v0": (ValueError, r"named without \.py\. Did you mean 'own_mine:Mine-v0'\?"),
    "own_mine:": (ValueError, r"or MODULE:ID, such as my_env:MyEnv-v0"),
    "a:b:c": (ValueError, r"or MODULE:ID, such as my_env:MyEnv-v0"),
    "Mine-v0": (ValueError, r"no environment of this id\. Did you mean 'own_mine:Mine-v0'\?"),
    "mujoco_of_mine:X-v0": (ImportError, r"There is no module 'mujoco_of_mine'"),
}


@pytest.mark.parametrize("level", WRONG_LEVELS)
def test_a_level_that_is_not_there_is_explained(folder, level):
    user_code.make_importable(folder)
    folder.joinpath("own_mine.py").write_text(ENVIRONMENT.replace('f"{__name__}:Mine"', '"own_mine:Mine"'))
    kind, words = WRONG_LEVELS[level]
    with pytest.raises(kind, match=words) as error:
        make(level)
    assert "pip install" not in str(error.value) and "Received: " in str(error.value)


@pytest.mark.filterwarnings("ignore:.*latest versioned environment:UserWarning")
def test_a_class_that_is_not_registered_is_answered_with_how_to_register_it(folder):
    user_code.make_importable(folder)
    (folder / "own_empty.py").write_text("class Mine: pass\n")
    words = 'own_empty has a Mine, which is not the id of an environment; add gymnasium.register("Mine-v0", entry_point="own_empty:Mine") to it'
    with pytest.raises(ValueError, match=re.escape(words)):
        make("own_empty:Mine")


def test_a_run_whose_level_only_its_program_registered_says_how_to_evaluate_it(folder):
    user_code.make_importable(folder)
    run = tiny.untrained_run(folder / "run", "Pendulum-v1")
    config = run / "config.json"
    config.write_text(config.read_text().replace('"Pendulum-v1"', '"Mine-v0"'))
    with pytest.raises(ValueError) as refused:
        tfsac.evaluate(run)
    said = str(refused.value)
    assert f"""python -c "import own_mine, tfsac; print(tfsac.evaluate('{run}'))\"""" in said
    assert "'own_mine:Mine-v0'" in said and said.endswith("Received: 'Mine-v0'")
    (folder / "own_mine.py").unlink()
    with pytest.raises(ValueError, match="MODULE the one that registers it"):
        tfsac.load_policy(run)


def test_known_packages_keep_the_command_that_installs_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "mo_gymnasium", None)
    with pytest.raises(ImportError, match=r"type: pip install 'tfsac\[multi-objective\]'"):
        make("mo_gymnasium:mo-hopper-v5")


def test_a_preset_imports_the_modules_beside_it_and_its_run_finds_them_again(folder, tmp_path, monkeypatch):
    presets = folder / "presets_of_mine"
    presets.mkdir()
    (presets / "own_beside.py").write_text(ENVIRONMENT)
    (presets / "preset.py").write_text(
        "import own_beside\nfrom tfsac.parameters import EnvironmentParameters, Preset\n"
        "preset = Preset(environment=EnvironmentParameters('own_beside:Mine-v0'))\n"
    )
    preset = load_preset(presets / "preset.py")
    from tfsac.parameters import RunParameters
    from tfsac.training import RunDirectory

    RunDirectory(folder / "run").create(preset, RunParameters())
    assert json.loads((folder / "run" / "config.json").read_text())["import_folders"] == [str(presets)]
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(presets)])
    del sys.modules["own_beside"]
    del gym.registry["Mine-v0"]
    make(read_config(folder / "run" / "config.json")[0].environment.level).close()


def test_a_folder_that_is_gone_is_left_alone(folder):
    before = list(sys.path)
    user_code.make_importable(folder / "gone")
    assert sys.path == before and user_code.FOLDERS == []


SHORT = {
    "improve_steps=5_000": "improve_steps=20",
    '"schedule.improve_steps": 2_000': '"schedule.improve_steps": 20, **SHORT',
}


@pytest.mark.slow
def test_the_page_about_own_environments_does_what_it_says(tmp_path, monkeypatch):
    changes = {
        path: value
        for path, value in {**tiny.CHANGES, **tiny.SHORTER}.items()
        if path != "schedule.improve_steps" and not path.startswith("agent.networks.v.")
    }
    page = tmp_path / "page.md"
    text = (ROOT / "docs" / "own_environments.md").read_text()
    page.write_text(text.replace("import tfsac\n", f"import tfsac\n\nSHORT = {changes!r}\n"))
    namespace = run_page(page, tmp_path / "folder", SHORT, tiny.assignments(changes))
    assert namespace["report"].usable
    assert pathlib.Path(tmp_path / "folder" / "exported" / "point").is_dir()
