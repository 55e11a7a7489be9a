"""Finding presets: by name among those that come with the package, by path, or from the config of a run."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import pathlib
import pkgutil
import runpy
import traceback
from typing import TYPE_CHECKING

from tfsac.user_code import calling, make_importable

if TYPE_CHECKING:
    from tfsac.parameters import Preset, RunParameters


def preset_names() -> list[str]:
    """Returns the names of the presets that come with the package."""
    package = importlib.import_module("tfsac.presets")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def describe_preset(name: str) -> str:
    """Returns the first paragraph of a preset's docstring in one line, without running the file."""
    module_spec = importlib.util.find_spec(f"tfsac.presets.{name}")
    assert module_spec is not None and module_spec.origin is not None
    doc = ast.get_docstring(ast.parse(pathlib.Path(module_spec.origin).read_text(encoding="utf-8"))) or ""
    return " ".join(doc.partition("\n\n")[0].split())


def load_preset(name_or_path: str | pathlib.Path, level: str | None = None) -> Preset:
    """Loads a preset.

    Args:
        name_or_path: a name such as "pendulum_sac", a Python file that defines `preset`, or a run's config.json.
        level: id instead of the preset's, with what the preset says of it; see `tfsac.parameters.for_level`.

    Raises:
        ParameterError: no such preset (naming the nearest), or the file defines none.
        UserCodeError: the file raises.
    """
    from tfsac.parameters import for_level

    preset = _found(name_or_path)
    return preset if level is None else for_level(preset, level)


def show(preset: Preset | str | pathlib.Path) -> None:
    """Prints every parameter of a preset as `path=value`, as `tfsac show` does and `tfsac.override` takes them.

    Args:
        preset: a preset, or its name or path.

    Raises:
        ParameterError: as `load_preset` raises it.

    Example:
        >>> tfsac.show("pendulum_sac")
    """
    from tfsac.parameters import Preset
    from tfsac.parameters.overrides import parameter_texts

    found = preset if isinstance(preset, Preset) else load_preset(preset)
    print("\n".join(f"{path}={text}" for path, text in parameter_texts(found).items()))


def _found(name_or_path: str | pathlib.Path) -> Preset:
    from tfsac.parameters import ParameterError, for_level

    if not isinstance(name_or_path, str | pathlib.Path):
        raise ParameterError(f"A preset is loaded by its name or path. Received: {name_or_path!r}")
    path = pathlib.Path(name_or_path)
    if path.suffix in (".py", ".json") and not path.is_file():
        raise ParameterError(f"There is no preset file of this path. Received: {path}")
    if path.suffix == ".json":
        return read_config(path)[0]
    if path.suffix == ".py":
        preset = _defined_in(path)
    elif str(name_or_path) in (names := preset_names()):
        preset = importlib.import_module(f"tfsac.presets.{name_or_path}").preset
    elif path.suffix or path.is_dir() or len(path.parts) > 1:
        config = f" Did you mean {str(path / 'config.json')!r}?" if (path / "config.json").is_file() else ""
        raise ParameterError(
            f"A preset is a name that `tfsac presets` lists, a .py file, or a run's config.json.{config} Received: "
            f"{str(name_or_path)!r}"
        )
    else:
        raise ParameterError(
            f"There is no preset of this name.{_alike(str(name_or_path), names)} `tfsac presets` lists all. "
            f"Received: {str(name_or_path)!r}"
        )
    for level in preset.levels:
        try:
            for_level(preset, level)
        except ParameterError as error:
            raise ParameterError(f"{name_or_path}: levels[{level!r}]: {error}") from error
    return preset


def _alike(name: str, names: list[str]) -> str:
    """Returns presets that somebody may mean by a name that none has."""
    from tfsac.parameters.base import nearest

    containing = [other for other in names if name and name in other]
    shown = sorted(containing, key=lambda other: ("twin" not in other, len(other)))[:3]
    return f" Did you mean {', '.join(shown[:-1])} or {shown[-1]}?" if len(shown) > 1 else nearest(name, names)


def _defined_in(path: pathlib.Path) -> Preset:
    """Runs a preset file, without leaving its bytecode beside it, and returns what it defines."""
    from tfsac.parameters import ParameterError, Preset
    from tfsac.parameters.base import nearest

    make_importable(path.parent)
    try:
        with calling(f"The preset file {path}"):
            defined = runpy.run_path(str(path), run_name=path.stem)
    except ParameterError as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        raise ParameterError(f"{path}, line {lines[-1] if lines else 1}: {error}") from error
    if "preset" not in defined:
        near = nearest("preset", [name for name in defined if "preset" in name])
        raise ParameterError(
            f"A preset file defines preset = Preset(...).{near} The file of an environment is named by the level: "
            f"--level=MODULE:ID. Received: {path}, which defines none"
        )
    preset = defined["preset"]
    if not isinstance(preset, Preset):
        raise ParameterError(f"{path}: a preset file defines preset = Preset(...). Received: {preset!r}")
    return preset


def read_config(path: pathlib.Path) -> tuple[Preset, RunParameters]:
    """Returns the preset and the run parameters of a config.json; the folders with the user's code can be imported from
    then on.

    Raises:
        FileNotFoundError: there is none.
        ParameterError: it cannot be understood, or has parameters that this version does not know.
    """
    from tfsac.files import no_run, read_object
    from tfsac.parameters import ParameterError, Preset, RunParameters, from_json

    if not path.is_file() and (path.parent / "sweep.json").is_file():
        raise FileNotFoundError(f"This is the folder of a sweep; name one of the runs in it. Received: {path.parent}")
    if not path.is_file() and (path.parent / "tuning.json").is_file():
        raise FileNotFoundError(f"This is the folder of a tuning; name one of the runs in it. Received: {path.parent}")
    if not path.is_file():
        raise no_run(path.parent)
    try:
        content = read_object(path)
        preset, run = content["preset"], content["run"]
    except (OSError, ValueError, LookupError) as error:
        copies = sorted(path.parent.glob(f"checkpoints/[0-9]*/{path.name}"))
        advice = f" The newest checkpoint has a copy, {copies[-1]}: put it in its place." if copies else ""
        said = f"no {error}" if isinstance(error, LookupError) else str(error)
        raise ParameterError(
            f"{path} is not the config of a run ({said}).{advice} Received: {path.stat().st_size} bytes"
        ) from error
    for folder in folders if isinstance(folders := content.get("import_folders"), list) else ():
        make_importable(str(folder), first=False)
    try:
        return from_json(Preset, json.dumps(preset)), from_json(RunParameters, json.dumps(run))
    except ParameterError as error:
        version = content.get("versions", {}).get("tfsac") if isinstance(content.get("versions"), dict) else None
        written = f", which tfsac {version} wrote," if version else ""
        raise ParameterError(f"{path}{written} does not fit this version of tfsac: {error}") from error
