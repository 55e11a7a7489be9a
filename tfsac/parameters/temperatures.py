"""Parameters of the temperature, the weight of entropy against reward: fixed, or learned."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from tfsac.parameters.base import ParameterError, PositiveFloat, by_kind, parameters
from tfsac.parameters.learning_rates import LearningRateDecayParameters


@parameters
class FixedAlphaParameters:
    """A temperature that stays.

    Attributes:
        alpha: weight of the entropy against the reward; a larger one explores more.
    """

    alpha: Annotated[float, Field(ge=0)] = 0.2
    kind: Literal["fixed"] = "fixed"


@parameters
class LearnedAlphaParameters(LearningRateDecayParameters):
    """What all learned temperatures share.

    Attributes:
        initial_alpha: the first value.
        learning_rate: of its own Adam, at first.
        target_entropy: in nats; None is the default of the kind of actions. A larger one keeps the policy more random.
        log_space: learn log alpha, which cannot become negative; otherwise alpha itself, held at 0 or above.
    """

    initial_alpha: PositiveFloat = 0.2
    learning_rate: PositiveFloat = 3e-4
    target_entropy: float | None = None
    log_space: bool = True


@parameters
class AutoAlphaParameters(LearnedAlphaParameters):
    """A temperature that is learned so that the policy's entropy stays near a target (arXiv 1812.05905, section 5).

    The entropy is that of all action dimensions in [-1, 1] together; without a target it is minus their number.
    """

    kind: Literal["auto"] = "auto"


TemperatureParameters = Annotated[
    Annotated[FixedAlphaParameters, Tag("fixed")] | Annotated[AutoAlphaParameters, Tag("auto")],
    by_kind("auto", "fixed"),
]


@parameters
class DiscreteAutoAlphaParameters(LearnedAlphaParameters):
    """A learned temperature for discrete actions, whose entropy lies between 0 and the log of the number of valid ones.

    Attributes:
        target_entropy_ratio: target as a part of the log of the number of valid actions in each state, instead of
            `target_entropy`, which is the same in every state; 0.98 where neither is given. A larger one keeps the
            policy more random; from 1 on it could not be reached.
    """

    target_entropy_ratio: Annotated[float, Field(gt=0)] | None = None
    kind: Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_entropy_ratio is not None and self.target_entropy_ratio >= 1:
            raise ParameterError(
                "The entropy of a discrete policy is at most the log of the number of valid actions, so "
                f"target_entropy_ratio lies between 0 and 1. Received: {self.target_entropy_ratio}"
            )
        if self.target_entropy is not None and self.target_entropy_ratio is not None:
            raise ParameterError(
                "The target is given by target_entropy or by target_entropy_ratio; the other one is None (null). "
                f"Received: target_entropy={self.target_entropy}, target_entropy_ratio={self.target_entropy_ratio}"
            )


DiscreteTemperatureParameters = Annotated[
    Annotated[FixedAlphaParameters, Tag("fixed")] | Annotated[DiscreteAutoAlphaParameters, Tag("auto")],
    by_kind("auto", "fixed"),
]
