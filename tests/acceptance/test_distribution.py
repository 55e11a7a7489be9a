"""The wheel and the source distribution install and train in a new virtual environment."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.acceptance
ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = """
import tfsac
preset = tfsac.override(tfsac.load_preset("pendulum_twin_sac"), {
    "schedule.heatup_steps": 300, "schedule.improve_steps": 100, "environment.max_episode_steps": 50,
})
print(tfsac.train(preset, "run", quiet=True).reason)
print(len(tfsac.preset_names()), tfsac.__file__)
"""


def python(version):
    """Returns a Python interpreter of this version, or skips the test."""
    versions = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    for path in (*sorted(versions.glob(f"{version}.*/bin/python")), shutil.which(f"python{version}")):
        if path and subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0:
            return path
    return pytest.skip(f"Python {version} is not installed")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds both distributions from a copy of the tracked files."""
    folder = tmp_path_factory.mktemp("built")
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, files.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("benchmarks/results", "docs", "notebooks")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    subprocess.run([sys.executable, "-m", "venv", folder / ".build"], check=True)
    builder = folder / ".build" / "bin" / "python"
    subprocess.run([builder, "-m", "pip", "install", "--quiet", "build"], check=True)
    subprocess.run([builder, "-m", "build", "--outdir", folder / "dist", folder], check=True, capture_output=True)
    return folder / "dist"


@pytest.mark.parametrize(
    ("version", "kind"), [("3.11", "tar.gz"), ("3.11", "whl"), ("3.12", "whl"), ("3.13", "whl"), ("3.13", "tar.gz")]
)
def test_distribution_installs_and_trains(version, kind, built, tmp_path):
    (distribution,) = built.glob(f"*.{kind}")
    subprocess.run([python(version), "-m", "venv", tmp_path / "venv"], check=True)
    binaries = tmp_path / "venv" / "bin"
    subprocess.run([binaries / "python", "-m", "pip", "install", "--quiet", str(distribution)], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [binaries / "python", "-c", TRAIN], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    reason, rest = result.stdout.splitlines()[-2:]
    presets = {path.stem for path in (ROOT / "presets").glob("*.py")} - {"__init__"}
    assert reason == "finished" and rest.split() == [str(len(presets)), rest.split()[1]]
    assert str(tmp_path / "venv") in rest
    presets_command = subprocess.run(
        [binaries / "tfsac", "presets"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert presets_command.returncode == 0 and "pendulum_sac" in presets_command.stdout
    assert (tmp_path / "run" / "policy" / "saved_model.pb").is_file()
