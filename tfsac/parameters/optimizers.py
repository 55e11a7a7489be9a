"""Parameters of optimizers and learning rate decay (Coach's vocabulary)."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from pydantic import BeforeValidator

from tfsac.parameters.base import (
    NonNegativeFloat,
    NonNegativeInt,
    ParameterError,
    PositiveFloat,
    UnusedIf,
    UnusedUnless,
    parameters,
)

EPSILON = {"optimizer_epsilon": "epsilon"}
MOMENTS = EPSILON | {"adam_optimizer_beta1": "beta_1", "adam_optimizer_beta2": "beta_2"}
# Maps an optimizer to {field of `NetworkParameters`: argument of the Keras class}. These optimizers update each weight
# independently, as stacked critics need, and can start from another run's weights. No other Keras class is supported.
OPTIMIZERS: dict[str, dict[str, str]] = {
    "Adam": MOMENTS,
    "AdamW": MOMENTS,
    "RMSProp": {**EPSILON, "rms_prop_optimizer_decay": "rho"},
    "SGD": {},
    "Adadelta": EPSILON,
    "Adagrad": EPSILON,
    "Adamax": MOMENTS,
    "Lion": {},
}


OptimizerName = Annotated[
    Literal["Adam", "AdamW", "RMSProp", "SGD", "Adadelta", "Adagrad", "Adamax", "Lion"],
    BeforeValidator(lambda name: "RMSProp" if name == "RMSprop" else name),  # as Keras writes it
]


@parameters
class LearningRateDecayParameters:
    """Decay of a subclass's `learning_rate` over the agent's updates.

    Attributes:
        learning_rate_decay_type: "exponential" multiplies by `learning_rate_decay_rate` every
            `learning_rate_decay_steps` updates; "linear" falls linearly to `learning_rate_end` over that many updates,
            "cosine" along half a cosine.
        learning_rate_decay_rate: factor of the exponential decay.
        learning_rate_decay_steps: number of updates; "run" is the whole run (linear and cosine), 0 a constant rate.
        learning_rate_end: final value of a linear or cosine decay.
    """

    _: dataclasses.KW_ONLY
    learning_rate_decay_type: Literal["exponential", "linear", "cosine"] = "exponential"
    learning_rate_decay_rate: Annotated[PositiveFloat, UnusedUnless("learning_rate_decay_type", "exponential")] = 1.0
    learning_rate_decay_steps: NonNegativeInt | Literal["run"] = 0
    learning_rate_end: Annotated[NonNegativeFloat, UnusedIf("learning_rate_decay_type", "exponential")] = 0.0

    def __post_init__(self) -> None:
        steps, exponential = self.learning_rate_decay_steps, self.learning_rate_decay_type == "exponential"
        falls = not exponential or self.learning_rate_decay_rate != 1.0
        if falls != bool(steps) or (exponential and steps == "run"):
            allowed = "0 for a constant rate, at least 1 for a decay, or 'run' for a linear or cosine decay"
            raise ParameterError(f"learning_rate_decay_steps must be {allowed}, got {steps!r}")
