"""What an unknown argument of a Python function is called here, or where it belongs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from tfsac.parameters.agents import TwinSoftActorCriticAgentParameters
from tfsac.parameters.base import nearest, shortened, to_json
from tfsac.parameters.experiment import EnvironmentParameters, Preset, RunParameters, ScheduleParameters
from tfsac.parameters.other_names import meant_argument, meant_paths, meant_run_parameter

P = ParamSpec("P")
R = TypeVar("R")


def explains_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Lets a function answer an argument that it does not have with what it is called here.

    Raises:
        TypeError: by the function, where a keyword is unknown.
    """
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in kwargs.items():
            if name not in names:
                raise TypeError(
                    f"{function.__name__} has no argument {name!r}.{_meant(name, names)} Its arguments are "
                    f"{', '.join(names)}. Received: {name}={shortened(value)}"
                )
        return function(*args, **kwargs)

    return checked


def _meant(name: str, arguments: Sequence[str]) -> str:
    run_parameter = meant_run_parameter(name)
    if run_parameter in RunParameters.__dataclass_fields__:
        return f" It belongs to a run: tfsac.RunParameters({run_parameter}=...), which tfsac.train takes as run."
    if (meant := meant_argument(name)) in arguments:
        return f" Did you mean {meant!r}?"
    agent, environment = TwinSoftActorCriticAgentParameters(), EnvironmentParameters("Pendulum-v1")
    if paths := meant_paths(name, to_json(Preset(agent, environment, ScheduleParameters()))):
        changes = ", ".join(f'"{path.partition("=")[0]}": ...' for path in paths)
        return f" It belongs to a preset: tfsac.override(preset, {{{changes}}})."
    return nearest(name, arguments)
