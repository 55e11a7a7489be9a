"""What may import what, and other lines that the whole package keeps."""

import ast
import functools
import graphlib
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tfsac"
FILES = sorted(PACKAGE.rglob("*.py"))
TENSORFLOW = {"tensorflow"}

# Room -> other packages it may import, rooms of tfsac it may import. Only what users call sees everything.
MAY_IMPORT = {
    "types": ({"numpy"}, set()),
    "files": ({"numpy"}, {"machine"}),
    "parameters": ({"numpy", "pydantic", "pydantic_core"}, {"files", "user_code"}),
    "user_code": (set(), set()),
    "argument_checks": ({"numpy"}, set()),
    "random_streams": (set(), set()),
    "machine": (set(), set()),
    "tensorflow_start": (TENSORFLOW, set()),
    "losses": (TENSORFLOW, {"types"}),
    "distributions": ({"numpy", *TENSORFLOW}, {"types"}),
    "policies": ({"numpy", *TENSORFLOW}, {"types", "parameters", "networks", "distributions", "random_streams"}),
    "environments": (
        {"numpy", "gymnasium", "imageio", "imageio_ffmpeg"},
        {"types", "parameters", "user_code", "argument_checks", "machine"},
    ),
    "memories": ({"numpy", "gymnasium", "minari"}, {"types", "parameters", "files", "argument_checks", "machine"}),
    "networks": ({"numpy", "keras", *TENSORFLOW}, {"types", "parameters", "user_code", "machine"}),
    "agents": (
        {"numpy", "keras", *TENSORFLOW},
        {
            "types",
            "parameters",
            "networks",
            "losses",
            "distributions",
            "policies",
        },
    ),
    "metrics": ({"rich", "tensorboard", "IPython"}, {"types", "files"}),
    "testing": ({"numpy", "gymnasium", *TENSORFLOW}, {"types", "parameters", "environments", "agents"}),
    "catalog": (set(), {"parameters", "presets", "user_code", "files", "networks"}),
    "spinning_up": (
        {"numpy", "gymnasium", "keras", "tensorflow", "pydantic"},
        {
            "types",
            "parameters",
            "environments",
            "networks",
            "agents",
            "training",
            "metrics",
            "exporting",
            "exported",
            "files",
            "api",
            "user_code",
            "argument_checks",
        },
    ),
    # Checked before TensorFlow loads: see also test_what_answers_without_tensorflow_imports_none.
    "experiments": ({"numpy", "matplotlib", "scipy", "optuna"}, {"parameters", "files", "machine"}),
    # What is to be run is given to it: a function that starts the process of a job, a class of actors that collect.
    "distributed": ({"numpy", "tensorflow", "ray"}, {"types", "parameters", "environments", "files"}),
    # Of distributed: which worker this process is, what workers tell each other, and environments on a Ray cluster.
    "training": (
        {"numpy", "gymnasium", *TENSORFLOW},
        {
            "types",
            "parameters",
            "environments",
            "memories",
            "agents",
            "policies",
            "networks",
            "metrics",
            "catalog",
            "distributed",
            "experiments",
            "files",
            "machine",
            "user_code",
            "argument_checks",
            "random_streams",
        },
    ),
    "loading": (
        {"numpy", "gymnasium"},
        {
            "types",
            "parameters",
            "environments",
            "networks",
            "agents",
            "training",
            "argument_checks",
            "files",
            "user_code",
        },
    ),
    "exporting": (
        {"numpy", "tensorflow"},
        {
            "types",
            "environments",
            "policies",
            "training",
            "files",
            "argument_checks",
            "user_code",
            "litert",
            "exported",
            "machine",
        },
    ),
    "exported": ({"numpy", "tensorflow"}, {"types", "environments", "files", "argument_checks", "litert", "machine"}),
    "litert": ({"numpy", "ai_edge_litert", *TENSORFLOW}, {"types", "environments", "training"}),
    "cards": (
        {"numpy", "gymnasium"},
        {
            "types",
            "parameters",
            "environments",
            "networks",
            "training",
            "exporting",
            "exported",
            "experiments",
            "catalog",
            "files",
            "api",
            "loading",
            "argument_checks",
            "user_code",
        },
    ),
}
SEE_EVERYTHING = {"api", "cli", "__init__", "__main__"}


@functools.cache
def nodes_of(path):
    """Returns all nodes of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def imports(path):
    """Returns the dotted names that a file imports anywhere, in functions and under TYPE_CHECKING too."""
    names = []
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide what is imported"
            # `from tfsac import api` imports tfsac.api, `from tfsac.agents import critics` tfsac.agents.critics.
            whole = node.module in ("tfsac", "tfsac.agents") and path.name != "__init__.py"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            named = [
                name
                for name in inner
                if (ROOT / name.replace(".", "/")).with_suffix(".py").is_file() or node.module == "tfsac"
            ]
            names += named if whole and named else [node.module]
    return names


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def foreign(path):
    """Returns the top-level packages outside the standard library and tfsac that a file imports."""
    return {name.split(".")[0] for name in imports(path)} - sys.stdlib_module_names - {"tfsac"}


def rooms(path):
    """Returns the rooms of tfsac that a file imports, its own left out."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("tfsac.")} - {room_of(path)}


def name_of(path):
    return str(path.relative_to(ROOT))


def test_every_room_has_its_line_and_every_line_its_room():
    assert {room_of(path) for path in FILES} == MAY_IMPORT.keys() | SEE_EVERYTHING


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) in MAY_IMPORT], ids=name_of)
def test_a_file_imports_only_what_its_room_may(path):
    packages, others = MAY_IMPORT[room_of(path)]
    assert foreign(path) <= packages
    assert rooms(path) <= others


def test_rooms_do_not_import_each_other_in_a_circle():
    found = {}
    for path in FILES:
        if path.stem != "__init__" or path.parent != PACKAGE:  # that of the package names what users import
            found.setdefault(room_of(path), set()).update(rooms(path))
    graphlib.TopologicalSorter(found).prepare()  # raises CycleError


def test_what_answers_without_tensorflow_imports_none():
    own = [
        PACKAGE / "distributed" / name
        for name in ("__init__.py", "tf_config.py", "partition.py", "ray_cluster.py", "ray_jobs.py")
    ]
    for path in own:
        assert not foreign(path) & TENSORFLOW, path
        assert rooms(path) <= {"parameters"}, path


def test_agents_import_no_other_agent_but_what_all_share():
    paths = [path for path in (PACKAGE / "agents").glob("*.py") if path.stem != "__init__"]
    shared = {"learner", "temperature", "critic_values", "sqil_diagnostics", "batches", "compiled_updates"}
    assert {path.stem for path in paths} == shared | {"sac_v", "sac", "ensemble_sac", "discrete_sac", "taac", "acer"}
    for path in paths:
        allowed = {"tfsac.agents.learner", "tfsac.agents.temperature", "tfsac.agents.batches"}
        allowed -= {f"tfsac.agents.{path.stem}"}
        if path.stem == "ensemble_sac":
            allowed |= {"tfsac.agents.sac", "tfsac.agents.critic_values"}
        if path.stem == "learner":
            allowed = {f"tfsac.agents.{name}" for name in ("sqil_diagnostics", "batches", "compiled_updates")}
        if path.stem == "compiled_updates":
            allowed = {"tfsac.agents.batches"}
        assert {name for name in imports(path) if name.startswith("tfsac.agents")} <= allowed, path


def test_only_the_command_line_and_its_entry_points_import_the_command_line():
    users = {name_of(path) for path in FILES if "cli" in rooms(path)}
    assert users == {"tfsac/__main__.py"}


def test_no_two_modules_and_no_two_classes_have_the_same_name():
    stems = [path.parent.name if path.stem == "__init__" else path.stem for path in FILES]
    nodes = [node for path in FILES for node in nodes_of(path)]
    names = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    named_as_what_they_describe = {"agents", "heads", "memories", "networks"}  # parameters
    assert {stem for stem in stems if stems.count(stem) > 1} <= named_as_what_they_describe
    assert {name for name in names if names.count(name) > 1} == set()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_are_never_pickled_or_unpickled(path):
    used = {name.split(".")[0] for name in imports(path)}
    if path.name in ("film.py", "groups.py", "isolated.py"):  # what they send to processes that they start
        used -= {"pickle"}
    assert not used & {"pickle", "shelve", "marshal", "dill", "cloudpickle", "joblib"}
    allowed = [node.value for node in nodes_of(path) if isinstance(node, ast.keyword) and node.arg == "allow_pickle"]
    assert all(isinstance(value, ast.Constant) and value.value is False for value in allowed)


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *ROOT.glob("*/*.md")], ids=name_of)
def test_no_place_is_left_to_be_filled_in(path):
    assert not re.findall(r"@[A-Z]+@", path.read_text(encoding="utf-8"))


def test_setup_lists_exactly_the_packages_that_there_are():
    listed = next(
        ast.literal_eval(node.value)
        for node in ast.walk(ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.keyword) and node.arg == "packages"
    )
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}
    assert sorted(listed) == sorted(folders | {"tfsac.presets"})
    assert (ROOT / "presets" / "__init__.py").is_file()


def documented(tree):
    """Yields the public functions and classes of a module, and the public methods of its public classes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from documented(node)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_everything_public_has_a_docstring(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    assert [node.name for node in documented(tree) if not ast.get_docstring(node)] == []


TESTS = sorted(ROOT.glob("tests/**/*.py"))


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_no_module_of_tests_imports_another(path):
    # In programs for other processes too. What several modules need stands in files that hold no tests.
    written = re.findall(r"^\s*(?:import|from)\s+((?:\w+, )*\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    names = {name for line in written for name in line.split(", ")}
    assert not {name for name in names if name.startswith("test_")} - {path.stem}


def test_every_name_of_the_package_can_be_imported_from_where_it_says():
    import tfsac

    for name, home in tfsac._HOMES.items():
        assert getattr(tfsac, name) is getattr(sys.modules[home], name)
    with pytest.raises(AttributeError, match="'trian'"):
        tfsac.trian  # noqa: B018
