"""Units in which schedules count: environment steps, episodes, training steps (Coach's step methods)."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from tfsac.parameters.base import Integer, parameters

Count = Annotated[Integer, Field(ge=0, lt=2**53)]


@parameters
class EnvironmentSteps:
    """A number of environment transitions, summed over the environments that run side by side."""

    num_steps: Count


@parameters
class EnvironmentEpisodes:
    """A number of finished episodes."""

    num_steps: Count


@parameters
class TrainingSteps:
    """A number of gradient updates."""

    num_steps: Count


UNITS = {unit.__name__: unit for unit in (EnvironmentSteps, EnvironmentEpisodes, TrainingSteps)}
STEPS = re.compile(
    rf"({'|'.join(UNITS)})\((\d[\d_]*(?:\.\d+)?(?:[eE]\+?\d+)?)\)"
)  # as JSON and the command line have them: unit and number


def _parse(value: Any) -> Any:
    if isinstance(value, tuple(UNITS.values())):
        return value
    if type(value) is int or (isinstance(value, float) and value.is_integer()):
        return EnvironmentSteps(int(value))
    match = STEPS.fullmatch(value) if isinstance(value, str) else None
    number = float(match[2]) if match else math.nan
    if match is None or not number.is_integer():
        raise ValueError(
            f"expected {', '.join(f'{name}(n)' for name in UNITS)}, or a whole number of environment steps"
        )
    return UNITS[match[1]](int(number))


# In JSON and on the command line a step method is written as it is in Python: "EnvironmentSteps(1000)".
StepMethod = Annotated[
    EnvironmentSteps | EnvironmentEpisodes | TrainingSteps,
    BeforeValidator(_parse),
    PlainSerializer(lambda steps: f"{type(steps).__name__}({steps.num_steps})", return_type=str),
]
