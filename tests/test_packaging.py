"""setup.py: requirements, package data and documented extras."""

import re
import runpy
import sys

import pytest
import setuptools
from packaging.requirements import Requirement
from test_layout import FILES, PACKAGE, ROOT, imports

# Import name -> distribution name, where they differ.
DISTRIBUTIONS = {
    "absl": "absl-py", "cv2": "opencv-python-headless", "pydantic_core": "pydantic", "ale_py": "ale-py",
    "ai_edge_litert": "ai-edge-litert", "imageio_ffmpeg": "imageio-ffmpeg", "mlflow": "mlflow-skinny", "mo_gymnasium": "mo-gymnasium", "mujoco_playground": "playground",
    "tensorflow_probability": "tensorflow-probability",
}  # fmt: skip
NOT_REQUIRED = {"IPython"}  # present in every notebook


@pytest.fixture(scope="module")
def setup_arguments():
    """The arguments of `setuptools.setup` in setup.py."""
    found = {}
    original, setuptools.setup = setuptools.setup, lambda **arguments: found.update(arguments)
    try:
        runpy.run_path(str(ROOT / "setup.py"))
    finally:
        setuptools.setup = original
    return found


def requirements_by_name(names):
    return {requirement.name.lower(): requirement for requirement in map(Requirement, names)}


def test_imported_packages_are_requirements_or_extras(setup_arguments):
    required_names = requirements_by_name(setup_arguments["install_requires"]).keys() | {
        name for extra in setup_arguments["extras_require"].values() for name in requirements_by_name(extra)
    }
    for path in FILES:
        for name in {name.split(".")[0] for name in imports(path)} - sys.stdlib_module_names - {"tfsac"} - NOT_REQUIRED:
            assert DISTRIBUTIONS.get(name, name).lower() in required_names, (path, name)


def test_package_data_exists(setup_arguments):
    assert (PACKAGE / "py.typed").is_file() and setup_arguments["package_data"]["tfsac"] == ["py.typed"]
    for package, patterns in setup_arguments["package_data"].items():
        folder = ROOT / setup_arguments["package_dir"].get(package, package.replace(".", "/"))
        assert all(list(folder.glob(pattern)) for pattern in patterns), package


def test_install_page_lists_every_extra(setup_arguments):
    page = (ROOT / "docs" / "first_steps.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert setup_arguments["extras_require"].keys() <= named
