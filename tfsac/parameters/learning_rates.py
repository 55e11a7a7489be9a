"""Parameters of a learning rate that falls with the number of updates."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from tfsac.parameters.base import (
    NonNegativeFloat,
    NonNegativeInt,
    ParameterError,
    PositiveFloat,
    UnusedIf,
    UnusedUnless,
    parameters,
    reject_unused_fields,
)

DecayType = Literal["exponential", "linear", "cosine"]
Factor = Annotated[PositiveFloat, UnusedUnless("learning_rate_decay_type", "exponential")]
End = Annotated[NonNegativeFloat, UnusedIf("learning_rate_decay_type", "exponential")]


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
    learning_rate_decay_rate: Factor = dataclasses.field(default=1.0, kw_only=True)
    learning_rate_decay_steps: NonNegativeInt | Literal["run"] = dataclasses.field(default=0, kw_only=True)
    learning_rate_end: End = dataclasses.field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        kind, rate, steps = self.learning_rate_decay_type, self.learning_rate_decay_rate, self.learning_rate_decay_steps
        if kind == "exponential" and rate == 1.0:
            reject_unused_fields(self, ["learning_rate_decay_steps"], "learning_rate_decay_rate=1.0")
        elif steps == 0 or (kind == "exponential" and steps == "run"):
            allowed = "at least 1" if kind == "exponential" else "at least 1 or 'run'"
            raise ParameterError(f"learning_rate_decay_steps of a decay of type {kind!r} is {allowed}, got {steps!r}")
