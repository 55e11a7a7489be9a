"""What an installation gets: one version number, the packages that are imported, type hints."""

import re
import runpy
import sys

import pytest
import setuptools
from packaging.requirements import Requirement
from test_layout import FILES, PACKAGE, ROOT, imports

# Import name -> name in the package index, where they differ.
DISTRIBUTIONS = {
    "absl": "absl-py", "cv2": "opencv-python-headless", "pydantic_core": "pydantic", "ale_py": "ale-py",
    "ai_edge_litert": "ai-edge-litert", "imageio_ffmpeg": "imageio-ffmpeg", "mlflow": "mlflow-skinny", "mo_gymnasium": "mo-gymnasium", "mujoco_playground": "playground",
    "tensorflow_probability": "tensorflow-probability",
}  # fmt: skip
NOT_OURS = {"IPython"}  # is there wherever a notebook runs


@pytest.fixture(scope="module")
def given():
    """The arguments that setup.py gives to setuptools."""
    found = {}
    kept, setuptools.setup = setuptools.setup, lambda **arguments: found.update(arguments)
    try:
        runpy.run_path(str(ROOT / "setup.py"))
    finally:
        setuptools.setup = kept
    return found


def required(names):
    return {requirement.name.lower(): requirement for requirement in map(Requirement, names)}


def test_everything_that_is_imported_is_required_or_an_extra(given):
    needed = required(given["install_requires"]).keys() | {
        name for extra in given["extras_require"].values() for name in required(extra)
    }
    for path in FILES:
        for name in {name.split(".")[0] for name in imports(path)} - sys.stdlib_module_names - {"tfsac"} - NOT_OURS:
            assert DISTRIBUTIONS.get(name, name).lower() in needed, (path, name)


def test_type_hints_and_demonstrations_come_along(given):
    assert (PACKAGE / "py.typed").is_file() and given["package_data"]["tfsac"] == ["py.typed"]
    for package, patterns in given["package_data"].items():
        folder = ROOT / given["package_dir"].get(package, package.replace(".", "/"))
        assert all(list(folder.glob(pattern)) for pattern in patterns), package


def test_the_page_about_installing_has_every_extra(given):
    page = (ROOT / "docs" / "first_steps.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert given["extras_require"].keys() <= named
