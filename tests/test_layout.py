"""Allowed imports between the packages of tfsac, and other rules for the whole source."""

import ast
import functools
import graphlib
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tfsac"
FILES = sorted(PACKAGE.rglob("*.py"))
# Package -> forbidden imports, from tfsac and other libraries.
FORBIDDEN = {
    "errors": {"tensorflow", "keras"},
    "types": {"tensorflow", "keras"},
    "parameters": {"tensorflow", "keras"},
    "environments": {"tensorflow", "keras", "agents", "memories", "training"},
    "memories": {"tensorflow", "keras", "agents", "training"},
    "losses": {"keras", "networks", "policies", "agents", "memories", "environments", "training"},
    "networks": {"policies", "agents", "memories", "environments", "training"},
    "policies": {"agents", "memories", "environments", "training"},
    "agents": {"memories", "environments", "training"},
    "training": {"api", "exporting"},
    "experiments": {"tensorflow", "keras"},
}


@functools.cache
def nodes_of(path):
    """Returns all nodes of the syntax tree of a file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports(path):
    """Returns the dotted names that a file imports, also in functions and under TYPE_CHECKING."""
    names = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide what is imported"
            names |= {f"tfsac.{alias.name}" for alias in node.names} if node.module == "tfsac" else {node.module}
    return names


def package_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_packages(path):
    """Returns the other packages of tfsac that a file imports."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("tfsac.")} - {package_of(path)}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_packages_do_not_import_forbidden_packages(package):
    paths = [path for path in FILES if package_of(path) == package]
    assert paths
    for path in paths:
        others = {name.split(".")[0] for name in imports(path)} - {"tfsac"} | imported_packages(path)
        assert not others & FORBIDDEN[package], path


def test_packages_have_no_circular_imports():
    graph = {}
    for path in FILES:
        if path.stem != "__init__" or path.parent != PACKAGE:  # the top-level one re-exports public names
            graph.setdefault(package_of(path), set()).update(imported_packages(path))
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pickle_is_not_used(path):
    used = {name.split(".")[0] for name in imports(path)}
    if package_of(path) == "environments":  # sends data to subprocesses
        used -= {"pickle", "cloudpickle"}
    assert not used & {"pickle", "shelve", "marshal", "dill", "cloudpickle", "joblib"}
    allowed = [node.value for node in nodes_of(path) if isinstance(node, ast.keyword) and node.arg == "allow_pickle"]
    assert all(isinstance(value, ast.Constant) and value.value is False for value in allowed)


def test_setup_lists_all_packages():
    listed = next(
        ast.literal_eval(node.value)
        for node in ast.walk(ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.keyword) and node.arg == "packages"
    )
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}
    assert sorted(listed) == sorted(folders | {"tfsac.presets"})


def test_public_names_are_importable():
    import tfsac

    for name, home in tfsac._HOMES.items():
        assert getattr(tfsac, name) is getattr(sys.modules[home], name)
    with pytest.raises(AttributeError, match="'trian'"):
        tfsac.trian  # noqa: B018
