"""Finding presets: by name among those that come with the package, by path, or from the config of a run."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import pathlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfsac.parameters import Preset, RunParameters


def preset_names() -> list[str]:
    """Returns the names of the presets that come with the package."""
    package = importlib.import_module("tfsac.presets")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def describe_preset(name: str) -> str:
    """Returns the first line of a preset's docstring, without running the file."""
    module_spec = importlib.util.find_spec(f"tfsac.presets.{name}")
    assert module_spec is not None and module_spec.origin is not None
    doc = ast.get_docstring(ast.parse(pathlib.Path(module_spec.origin).read_text(encoding="utf-8"))) or ""
    return doc.partition("\n")[0]


def load_preset(name_or_path: str | pathlib.Path) -> Preset:
    """Loads a preset.

    Args:
        name_or_path: a name such as "pendulum_sac", a Python file that defines `preset`, or a run's config.json.

    Raises:
        ParameterError: no such preset (naming the nearest), or the file defines none.
    """
    from tfsac.parameters import ParameterError, Preset
    from tfsac.parameters.base import nearest

    path = pathlib.Path(name_or_path)
    if path.suffix == ".json":
        return read_config(path)[0]
    if path.suffix == ".py":
        if not path.is_file():
            raise ParameterError(f"There is no preset file of this path. Received: {path}")
        module_spec = importlib.util.spec_from_file_location(path.stem, path)
        assert module_spec is not None and module_spec.loader is not None
        module = importlib.util.module_from_spec(module_spec)
        module_spec.loader.exec_module(module)
    else:
        names = preset_names()
        if str(name_or_path) not in names:
            raise ParameterError(
                f"There is no preset of this name.{nearest(str(name_or_path), names)} Presets: {', '.join(names)}. "
                f"Received: {str(name_or_path)!r}"
            )
        module = importlib.import_module(f"tfsac.presets.{name_or_path}")
    preset = getattr(module, "preset", None)
    if not isinstance(preset, Preset):
        raise ParameterError(f"A preset file defines preset = Preset(...). Received: {preset!r} in {name_or_path}")
    return preset


def read_config(path: pathlib.Path) -> tuple[Preset, RunParameters]:
    """Returns the preset and the run parameters of a config.json.

    Raises:
        FileNotFoundError: there is none.
        ParameterError: it cannot be understood.
    """
    from tfsac.parameters import ParameterError, Preset, RunParameters, from_json

    if not path.is_file():
        raise FileNotFoundError(f"A run directory has a config.json. Received: {path.parent}")
    try:
        content = json.loads(path.read_text())
        preset, run = content["preset"], content["run"]
    except (ValueError, KeyError, TypeError) as error:
        raise ParameterError(f"{path} is not the config of a run ({error!r}). Received: {path.stat().st_size} bytes") from error
    return from_json(Preset, json.dumps(preset)), from_json(RunParameters, json.dumps(run))
