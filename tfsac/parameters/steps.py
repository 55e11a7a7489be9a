"""Units in which schedules count: environment steps, episodes, training steps (Coach's step methods)."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from tfsac.parameters.base import Integer, parameters

Count = Annotated[Integer, Field(ge=0, lt=2**53)]


class _Steps:
    """A number of steps, which JSON and the command line write as Python does: "EnvironmentSteps(1000)"."""

    num_steps: Any

    @pydantic.model_serializer
    def _text(self) -> str:
        return f"{type(self).__name__}({self.num_steps})"


@parameters
class EnvironmentSteps(_Steps):
    """A number of environment transitions, summed over the environments that run side by side."""

    num_steps: Count


@parameters
class EnvironmentEpisodes(_Steps):
    """A number of finished episodes."""

    num_steps: Count


@parameters
class TrainingSteps(_Steps):
    """A number of gradient updates."""

    num_steps: Count


UNITS = {unit.__name__: unit for unit in (EnvironmentSteps, EnvironmentEpisodes, TrainingSteps)}
STEPS = re.compile(rf"({'|'.join(UNITS)})\((\d[\d_]*(?:\.\d+)?(?:[eE]\+?\d+)?)\)")  # unit and number


def _parse(value: Any) -> Any:
    if isinstance(value, tuple(UNITS.values())):
        return value
    if type(value) is int or (isinstance(value, float) and value.is_integer()):
        return EnvironmentSteps(int(value))
    match = STEPS.fullmatch(value) if isinstance(value, str) else None
    number = float(match[2]) if match else math.nan
    if match is None or not number.is_integer():
        raise ValueError(f"expected {', '.join(f'{name}(n)' for name in UNITS)}, or a number of environment steps")
    return UNITS[match[1]](int(number))


def _positive(steps: Any) -> Any:
    if steps.num_steps < 1:
        raise ValueError("must be at least 1")
    return steps


StepMethod = Annotated[EnvironmentSteps | EnvironmentEpisodes | TrainingSteps, BeforeValidator(_parse)]
PlayingSteps = Annotated[EnvironmentSteps | EnvironmentEpisodes, BeforeValidator(_parse)]
Positive = AfterValidator(_positive)
