"""Units of a schedule: environment steps, episodes and training steps (Coach's step methods)."""

from __future__ import annotations

import numbers
import re
from typing import Annotated, Any

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from tfsac.parameters.base import parameters


@parameters
class _Steps:
    """A number of steps, written as in Python in JSON and on the command line: "EnvironmentSteps(1000)"."""

    num_steps: Annotated[int, Field(ge=0, lt=2**53)]

    @pydantic.model_serializer
    def _text(self) -> str:
        return f"{type(self).__name__}({self.num_steps})"


@parameters
class EnvironmentSteps(_Steps):
    """A number of environment steps, summed over parallel environments."""


@parameters
class EnvironmentEpisodes(_Steps):
    """A number of finished episodes."""


@parameters
class TrainingSteps(_Steps):
    """A number of gradient updates."""


UNITS = {unit.__name__: unit for unit in (EnvironmentSteps, EnvironmentEpisodes, TrainingSteps)}
STEPS = re.compile(rf"({'|'.join(UNITS)})\((\d[\d_]*(?:\.\d+)?(?:[eE]\+?\d+)?)\)")  # unit and number


def _in(*units: type[_Steps]) -> BeforeValidator:
    def parse(value: Any) -> Any:
        if isinstance(value, numbers.Real):
            value = EnvironmentSteps(value)  # type: ignore[arg-type]  # a whole float, which becomes an integer
        if isinstance(value, str) and (match := STEPS.fullmatch(value)):
            value = UNITS[match[1]](float(match[2]))  # type: ignore[arg-type]
        if not isinstance(value, units):
            raise ValueError(f"expected {' or '.join(f'{unit.__name__}(n)' for unit in units)}")
        return value

    return BeforeValidator(parse)


def _positive(steps: Any) -> Any:
    if steps.num_steps < 1:
        raise ValueError("must be at least 1")
    return steps


StepMethod = Annotated[
    EnvironmentSteps | EnvironmentEpisodes | TrainingSteps, _in(EnvironmentSteps, EnvironmentEpisodes, TrainingSteps)
]
PlayingSteps = Annotated[EnvironmentSteps | EnvironmentEpisodes, _in(EnvironmentSteps, EnvironmentEpisodes)]
Positive = AfterValidator(_positive)
