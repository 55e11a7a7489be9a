"""Why an environment cannot be made: a level that there is not, a module or a package that is missing, code that
raised.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import pathlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

from tfsac.environments.teams import PREFIX
from tfsac.parameters.base import nearest
from tfsac.user_code import FOLDERS, UserCodeError, described, has_users, is_library

MOST_IDS = 10  # in a message
ATARI = "ALE/"  # the beginning of these levels, which `make` registers
# Which of tfsac's extras brings a missing package.
EXTRA_OF_PACKAGE = {
    "mujoco": "mujoco",
    "imageio": "mujoco",
    "Box2D": "box2d",
    "box2d": "box2d",
    "ale_py": "atari",
    "cv2": "atari",
    "mpe2": "multi-agent",
    "pettingzoo": "multi-agent",
    "gymnasium_robotics": "robotics",
    "mo_gymnasium": "multi-objective",
}


def import_module_of(level: str) -> None:
    """Imports the module of a level MODULE:ID, which registers the id.

    Raises:
        ValueError: a level that is not written so.
        Exception: what the module raises, or that there is none.
    """
    module, _, name = level.partition(":")
    if not name or ":" in name or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(
            "A level is the id of a registered environment, such as Pendulum-v1, or MODULE:ID, such as "
            f"my_env:MyEnv-v0, whose module registers it. Received: {level!r}"
        )
    if module.endswith(".py"):
        raise ValueError(
            f"A module is named without .py. Did you mean '{module.removesuffix('.py')}:{name}'? Received: {level!r}"
        )
    importlib.import_module(module)


def why_not_made(level: str, kwargs: dict[str, Any], error: BaseException) -> Exception:
    """Returns an error that says why an environment could not be made, and how to mend it.

    Args:
        level: as it was asked for.
        kwargs: given to its constructor.
        error: what importing its module, or making it, raised.
    """
    if isinstance(error, gym.error.DependencyNotInstalled):
        return _missing_package(level, error)
    if isinstance(error, TypeError) and isinstance(error.__cause__, TypeError):
        error = error.__cause__  # gymnasium says again, with all of kwargs, what the constructor raised
    if isinstance(error, ImportError):
        return _not_imported(level, error)
    if has_users(error):
        return UserCodeError(f"{level} cannot be made. Received: {described(error)}")
    if isinstance(error, gym.error.Error):  # unknown, malformed or withdrawn ids
        return _unknown(level, kwargs, error)
    if isinstance(error, TypeError) and "argument" in str(error):
        return _not_taken(level, kwargs, error)
    return UserCodeError(f"{level} cannot be made. Received: {described(error)}")


def _not_taken(level: str, kwargs: dict[str, Any], error: TypeError) -> ValueError:
    """Returns an error with all arguments of the constructor, those of the registration too, and the constructor's
    place.
    """
    spec = gym.registry.get(level.rpartition(":")[2])
    given = {**spec.kwargs, **kwargs} if spec else kwargs
    registered = (
        f" gymnasium.register(..., kwargs=...) of this level gives {spec.kwargs}." if spec and spec.kwargs else ""
    )
    return ValueError(f"{level} does not take these arguments: {error}{_place_of(spec)}.{registered} Received: {given}")


def _place_of(spec: EnvSpec | None) -> str:
    """Returns file and line of what makes an environment, in brackets, or nothing where Python does not tell."""
    made: Any = spec.entry_point if spec else None
    if isinstance(made, str):
        made = load_env_creator(made)
    code = getattr(made.__init__ if inspect.isclass(made) else made, "__code__", None)
    return f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""


def check_version(level: str) -> None:
    """Refuses a registered level without its version, for which gymnasium takes the newest of the day.

    Raises:
        ValueError: it names the newest.
    """
    module, colon, name = level.rpartition(":")
    if name in gym.registry:
        return
    versions = [
        spec for spec in gym.registry.values() if spec.version is not None and spec.id == f"{name}-v{spec.version}"
    ]
    if versions:
        newest = max(versions, key=lambda spec: spec.version or 0).id
        raise ValueError(
            "A level is named with its version, so that later versions do not change a run. "
            f"Did you mean {module + colon + newest!r}? Received: {level!r}"
        )


def check_render_mode(env: gym.Env, level: str, mode: str | None) -> None:
    """Closes and refuses an environment without the asked for way of drawing; gymnasium makes windows and lists of
    pictures itself.

    Args:
        env: as it was made.
        level: of it.
        mode: `render_mode` in its arguments, or None.

    Raises:
        ValueError: it has no such mode.
    """
    modes = [one for one in (env.metadata or {}).get("render_modes", ()) if one]
    drawn = [one for one in modes if one in ("rgb_array", "rgb_array_list")]
    allowed = [*modes, *(f"{one}_list" for one in modes), *(["human"] if drawn else [])]
    if mode is not None and modes and mode not in allowed:  # metadata without modes are forgotten ones
        with contextlib.suppress(Exception):  # it may not be whole
            env.close()
        raise ValueError(
            f"{level} has the render modes {', '.join(map(repr, modes))}.{nearest(mode, allowed)} Received: "
            f"render_mode={mode!r}"
        )


def _unknown(level: str, kwargs: dict[str, Any], error: Exception) -> ValueError:
    if level in gym.registry:
        return ValueError(f"{level} cannot be made: {error}. Received: {kwargs}")
    module, _, name = level.rpartition(":")
    if module:
        return _not_registered(level, module, name)
    close = [*_registering(level), *difflib.get_close_matches(level, list(gym.registry), n=1, cutoff=0.4)]
    hint = f" Did you mean {close[0]!r}?" if close else ""
    if re.fullmatch(r"[a-z]\w*(\.\w+)+", level):
        first = level.partition(".")[0]
        own = any((pathlib.Path(folder) / f"{first}.py").is_file() for folder in FOLDERS)
        hint = "" if own else f" Did you mean {PREFIX + level!r}?"
    return ValueError(
        f"Gymnasium has no environment of this id.{hint} Your own is named with the module that registers it: "
        f"MODULE:ID. Received: {level!r}"
    )


def refuse_unregistered(level: str, run_dir: pathlib.Path) -> None:
    """Refuses a run's level that this process does not know, with a command that does.

    Raises:
        ValueError: a module that this process has not imported registers it.
    """
    if ":" in level or "." in level or level.startswith(ATARI) or level in gym.registry:
        return
    module = next(_registering(level), "MODULE:").partition(":")[0]
    where = "" if module != "MODULE" else ", with MODULE the one that registers it"
    raise ValueError(
        "The program that trained this run registered its level, and this process does not know it. "
        f"`python -c \"import {module}, tfsac; print(tfsac.evaluate('{run_dir}'))\"` evaluates it{where}; a run of the "
        f"level '{module}:{level}' is found by every command. Received: {level!r}"
    )


def _registering(name: str) -> Iterator[str]:
    """Yields levels MODULE:ID of modules in the user's folders whose text has an id."""
    for folder in FOLDERS:
        for path in sorted(pathlib.Path(folder).glob("*.py")):
            if path.stem.isidentifier() and re.search(
                rf"register\(.*[\"']{re.escape(name)}[\"']", path.read_text(errors="ignore")
            ):
                yield f"{path.stem}:{name}"


def _not_registered(level: str, module: str, name: str) -> ValueError:
    found = sys.modules[module]
    package = module.partition(".")[0]
    ids = sorted(spec.id for spec in gym.registry.values() if _module_of(spec.entry_point).partition(".")[0] == package)
    if inspect.isclass(made := getattr(found, name, None)) or callable(made):
        what = f"{module} has a {name}, which is not the id of an environment"
        advice = (
            f'add gymnasium.register("{name}-v0", entry_point="{module}:{name}") to it, '
            f'and set the level to "{module}:{name}-v0"'
        )
        return ValueError(f"{what}; {advice}. Received: {level!r}")
    more = f" and {len(ids) - MOST_IDS} more" if len(ids) > MOST_IDS else ""
    these = (
        f"It registers {', '.join(ids[:MOST_IDS])}{more}"
        if ids
        else "It registers none: gymnasium.register(ID, entry_point=...) does"
    )
    file = getattr(found, "__file__", None)
    return ValueError(f"{module} ({file}) does not register {name!r}. {these}.{nearest(name, ids)} Received: {level!r}")


def _module_of(entry_point: Any) -> str:
    return (
        entry_point.partition(":")[0]
        if isinstance(entry_point, str)
        else getattr(entry_point, "__module__", None) or ""
    )


def _not_imported(level: str, error: ImportError) -> Exception:
    while isinstance(error.__cause__, ImportError):  # gymnasium raises another one
        error = error.__cause__
    name, module = error.name or "", level.removeprefix(PREFIX).partition(":")[0]
    if name.partition(".")[0] in EXTRA_OF_PACKAGE:
        return _missing_package(level, error)
    if isinstance(error, ModuleNotFoundError) and ":" in level and f"{module}.".startswith(f"{name}."):
        folders = list(dict.fromkeys(str(pathlib.Path(path).absolute()) for path in sys.path if is_own_folder(path)))
        package = name.rpartition(".")[0]
        there = pkgutil.iter_modules(
            getattr(sys.modules[package], "__path__", ()) if package in sys.modules else folders
        )
        return ImportError(
            f"There is no module {name!r}.{nearest(name, _with_package(package, there))} It was searched for in "
            f"{', '.join(folders)} and among the installed packages. Received: {level!r}"
        )
    if "no known parent package" in str(error):
        return ImportError(
            f"{level} cannot be made: its module belongs to a package, so name that too, as in PACKAGE.MODULE:ID, from "
            f"the folder above. Received: {described(error)}"
        )
    if has_users(error):
        return ImportError(
            f"{level} cannot be made: something that its code imports is missing. Received: {described(error)}"
        )
    return ImportError(
        f"{level} needs {name or 'something'} that cannot be imported ({described(error)}). Received: {level!r}"
    )


def _with_package(package: str, modules: Iterable[pkgutil.ModuleInfo]) -> list[str]:
    return [f"{package}.{module.name}".removeprefix(".") for module in modules]


def is_own_folder(path: str) -> bool:
    """Returns whether an entry of `sys.path` is a folder of somebody's own code."""
    folder = pathlib.Path(path).absolute()
    return (
        folder.is_dir() and folder != pathlib.Path(sys.executable).parent and not is_library(str(folder / "module.py"))
    )


def _missing_package(level: str, error: Exception) -> ImportError:
    cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    package = getattr(cause, "name", None) or str(error).split()[0].strip("`'\"")
    extra = next((extra for name, extra in EXTRA_OF_PACKAGE.items() if name in f"{package} {error}"), None)
    command = f"pip install 'tfsac[{extra}]'" if extra else f"pip install {package}"
    return ImportError(f"{level} needs a package that is not installed ({error}); type: {command}. Received: {level!r}")
