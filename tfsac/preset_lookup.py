"""Finds presets by name among those of the package, by path, or in the config of a run."""

from __future__ import annotations

import ast
import importlib
import importlib.resources
import json
import pathlib
import pkgutil
import runpy
from typing import TYPE_CHECKING

from tfsac.utils.imports import make_importable, warn_if_shadowed

if TYPE_CHECKING:
    from tfsac.parameters import Preset, RunParameters


def preset_names() -> list[str]:
    """Returns the names of the presets that come with the package."""
    return sorted(module.name for module in pkgutil.iter_modules(importlib.import_module("tfsac.presets").__path__))


def describe_preset(name: str) -> str:
    """Returns the first paragraph of a preset's docstring, without running the file."""
    source = importlib.resources.files("tfsac.presets").joinpath(f"{name}.py").read_text(encoding="utf-8")
    doc = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(doc.partition("\n\n")[0].split())


def load_preset(name_or_path: str | pathlib.Path, level: str | None = None) -> Preset:
    """Loads a preset.

    Args:
        name_or_path: a name such as "pendulum_sac", a Python file that defines `preset`, or a run's config.json.
        level: environment id that replaces the preset's, with the preset's settings for it; see
            `tfsac.parameters.for_level`.

    Raises:
        ParameterError: no such preset (the message suggests the nearest name), or the file defines none.

    Example:
        >>> preset = tfsac.load_preset("mujoco_sac", level="Hopper-v5")
    """
    from tfsac.parameters import ParameterError, Preset, for_level
    from tfsac.parameters.base import nearest

    path, names = pathlib.Path(name_or_path), preset_names()
    if path.suffix == ".json":
        preset, _ = read_config(path)
    elif path.suffix == ".py":
        make_importable(path.parent)
        defined = runpy.run_path(str(path), run_name=path.stem).get("preset")  # writes no bytecode next to it
        if not isinstance(defined, Preset):
            requirement = "define preset = Preset(...); to name a level, use --level=MODULE:ID"
            raise ParameterError(f"{path} must {requirement}, got {defined!r}")
        preset = defined
    elif str(path) in names:
        preset = importlib.import_module(f"tfsac.presets.{path}").preset
    else:
        raise ParameterError(
            f"{str(path)!r} is not a preset that `tfsac presets` lists, a .py file or a run's config.json."
            f"{nearest(str(path), names)}"
        )
    return preset if level is None else for_level(preset, level)


def show(preset: Preset | str | pathlib.Path) -> None:
    """Prints every parameter of a preset as `path=value`, like `tfsac show`; `tfsac.override` takes these paths.

    Example:
        >>> tfsac.show("pendulum_sac")
    """
    from tfsac.parameters import Preset
    from tfsac.parameters.overrides import parameter_texts

    loaded = preset if isinstance(preset, Preset) else load_preset(preset)
    print("\n".join(f"{path}={text}" for path, text in parameter_texts(loaded).items()))


def read_config(path: pathlib.Path) -> tuple[Preset, RunParameters]:
    """Returns the preset and run parameters of a config.json, and makes the folders with the user's code importable.

    Raises:
        FileNotFoundError: the file does not exist.
        ParameterError: the file is damaged, or has parameters that this version does not know.
    """
    from tfsac.parameters import ParameterError, Preset, RunParameters, from_json
    from tfsac.utils.files import read_object

    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} is not a run directory: it has no config.json")
    try:
        content = read_object(path)
        preset, run = (json.dumps(content[name]) for name in ("preset", "run"))
    except (ValueError, LookupError) as error:
        copies = sorted(path.parent.glob(f"checkpoints/[0-9]*/{path.name}"))
        advice = f"; {copies[-1]} is a copy that can replace it" if copies else ""
        raise ParameterError(f"{path} is not the config of a run ({error!r}){advice}") from error
    folders = content.get("import_folders", ())
    for folder in folders:
        make_importable(folder, first=False)
    try:
        parameters = from_json(Preset, preset), from_json(RunParameters, run)
    except ParameterError as error:
        version = content.get("versions", {}).get("tfsac", "another version")
        raise ParameterError(f"{path}, of tfsac {version}, does not fit this version: {error}") from error
    warn_if_shadowed(parameters[0].environment.level.rpartition(":")[0], folders)
    return parameters
