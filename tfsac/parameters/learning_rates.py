"""Parameters of a learning rate that falls with the number of updates."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from tfsac.parameters.base import (
    NonNegativeFloat,
    NonNegativeInt,
    ParameterError,
    PositiveFloat,
    parameters,
    refuse_ineffective,
)

DecayType = Literal["exponential", "linear", "cosine"]


def _check_updates(value: Any) -> Any:
    if value == "run" or type(value) in (int, float):
        return value
    raise ValueError("expected a number of updates, or 'run' for all of the run")


DecaySteps = Annotated[NonNegativeInt | Literal["run"], BeforeValidator(_check_updates)]


@parameters
class LearningRateDecayParameters:
    """How a `learning_rate`, which subclasses have, falls. What counts are the agent's updates, also
    those in which a policy delay leaves out a step.

    Attributes:
        learning_rate_decay_type: "exponential" multiplies by `learning_rate_decay_rate` every
            `learning_rate_decay_steps` updates; "linear" goes evenly to `learning_rate_end` over so many updates, and
            "cosine" along half a cosine.
        learning_rate_decay_rate: factor of the exponential decay.
        learning_rate_decay_steps: number of updates; "run" is all of the run (linear and cosine), 0 a constant rate.
        learning_rate_end: where a linear or cosine decay ends and stays.
    """

    learning_rate_decay_type: DecayType = dataclasses.field(default="exponential", kw_only=True)
    learning_rate_decay_rate: PositiveFloat = dataclasses.field(default=1.0, kw_only=True)
    learning_rate_decay_steps: DecaySteps = dataclasses.field(default=0, kw_only=True)
    learning_rate_end: NonNegativeFloat = dataclasses.field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        kind, rate, steps = self.learning_rate_decay_type, self.learning_rate_decay_rate, self.learning_rate_decay_steps
        if kind == "exponential":
            because, other = "learning_rate_decay_type='exponential'", "set it to 'linear' or 'cosine'"
            refuse_ineffective(self, ["learning_rate_end"], because, other)
            if steps == "run":
                raise ParameterError(
                    "learning_rate_decay_steps='run' belongs to a linear or a cosine decay; an exponential one has a "
                    "number of updates between its steps. Received: learning_rate_decay_steps='run'"
                )
        if rate == 1.0 and kind == "exponential":
            advice = "set learning_rate_decay_rate below 1, or learning_rate_decay_type='linear'"
            refuse_ineffective(self, ["learning_rate_decay_steps"], "learning_rate_decay_rate=1.0", advice)
        elif steps == 0:
            needs = "learning_rate_decay_rate" if kind == "exponential" else f"learning_rate_decay_type={kind!r}"
            raise ParameterError(f"{needs} needs learning_rate_decay_steps >= 1. Received: learning_rate_decay_steps=0")
        if kind == "exponential":
            return
        if rate != 1.0:
            raise ParameterError(
                f"A {kind} decay goes to learning_rate_end, so learning_rate_decay_rate belongs to the exponential "
                f"one. Received: learning_rate_decay_rate={rate}"
            )
        first = vars(self)["learning_rate"]
        if self.learning_rate_end >= first:
            raise ParameterError(
                f"A learning rate falls, so learning_rate_end is below learning_rate, {first}. "
                f"Received: learning_rate_end={self.learning_rate_end}"
            )
