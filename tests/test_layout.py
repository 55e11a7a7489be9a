"""Which room may import which, and other lines that the whole package keeps."""

import ast
import functools
import graphlib
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tfsac"
FILES = sorted(PACKAGE.rglob("*.py"))
# Room -> what it must not import, of tfsac and of other packages.
NEVER = {
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
    """Returns all nodes of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports(path):
    """Returns the dotted names that a file imports anywhere, in functions and under TYPE_CHECKING too."""
    names = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide what is imported"
            names |= {f"tfsac.{alias.name}" for alias in node.names} if node.module == "tfsac" else {node.module}
    return names


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path):
    """Returns the rooms of tfsac that a file imports, its own left out."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("tfsac.")} - {room_of(path)}


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("room", NEVER)
def test_a_room_does_not_import_what_it_must_not(room):
    paths = [path for path in FILES if room_of(path) == room]
    assert paths
    for path in paths:
        others = {name.split(".")[0] for name in imports(path)} - {"tfsac"} | imported_rooms(path)
        assert not others & NEVER[room], path


def test_rooms_do_not_import_each_other_in_a_circle():
    found = {}
    for path in FILES:
        if path.stem != "__init__" or path.parent != PACKAGE:  # that of the package names what users import
            found.setdefault(room_of(path), set()).update(imported_rooms(path))
    graphlib.TopologicalSorter(found).prepare()  # raises CycleError


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_are_never_pickled_or_unpickled(path):
    used = {name.split(".")[0] for name in imports(path)}
    if room_of(path) == "environments":  # what is sent to processes that it starts
        used -= {"pickle", "cloudpickle"}
    assert not used & {"pickle", "shelve", "marshal", "dill", "cloudpickle", "joblib"}
    allowed = [node.value for node in nodes_of(path) if isinstance(node, ast.keyword) and node.arg == "allow_pickle"]
    assert all(isinstance(value, ast.Constant) and value.value is False for value in allowed)


def test_setup_lists_exactly_the_packages_that_there_are():
    listed = next(
        ast.literal_eval(node.value)
        for node in ast.walk(ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.keyword) and node.arg == "packages"
    )
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}
    assert sorted(listed) == sorted(folders | {"tfsac.presets"})


def test_every_name_of_the_package_can_be_imported_from_where_it_says():
    import tfsac

    for name, home in tfsac._HOMES.items():
        assert getattr(tfsac, name) is getattr(sys.modules[home], name)
    with pytest.raises(AttributeError, match="'trian'"):
        tfsac.trian  # noqa: B018
