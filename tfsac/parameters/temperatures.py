"""Parameters of the temperature, the weight of entropy against reward: fixed, or learned."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from tfsac.parameters.base import NonNegativeFloat, PositiveFloat, UnusedIf, UnusedUnless, parameters
from tfsac.parameters.networks import LearningRateDecayParameters
from tfsac.parameters.user_classes import ByKind

MOST_PER_DIMENSION = math.log(2.0)  # nats, the entropy of the uniform distribution on [-1, 1]
LEAST_PER_DIMENSION = -5.0  # nats, a standard deviation of 0.002: a lower target was set for more dimensions


@parameters
class FixedAlphaParameters:
    """A temperature that stays.

    Attributes:
        alpha: weight of the entropy against the reward; a larger one explores more.
    """

    alpha: NonNegativeFloat = 0.2
    kind: Literal["fixed"] = "fixed"


@parameters
class LearnedAlphaParameters(LearningRateDecayParameters):
    """What all learned temperatures share.

    Attributes:
        initial_alpha: the first value.
        learning_rate: of its own Adam, at first.
        target_entropy: in nats; None is the default of the kind of actions. A larger one keeps the policy more random.
        log_space: learn log alpha, which cannot become negative; otherwise alpha itself, held at 0 or above.
        loss: in log space, "log" is log alpha times entropy minus target; "alpha" is alpha times that, whose gradient
            is smaller where alpha is.
    """

    initial_alpha: PositiveFloat = 0.2
    learning_rate: PositiveFloat = 3e-4
    target_entropy: float | None = None
    log_space: bool = True
    loss: Annotated[Literal["log", "alpha"], UnusedIf("log_space", False)] = "log"


@parameters
class AutoAlphaParameters(LearnedAlphaParameters):
    """A temperature that is learned so that the policy's entropy stays near a target (arXiv 1812.05905, section 5).

    The entropy is that of all action dimensions in [-1, 1] together. One of three fields gives its target; without any
    it is minus the number of dimensions.

    Attributes:
        target_entropy_factor: the target in nats for each dimension.
        target_entropy_sigma: the target is the entropy of Gaussians of this standard deviation, one for each dimension,
            before any squashing.
    """

    target_entropy_factor: Annotated[float | None, UnusedUnless("target_entropy", None)] = None
    target_entropy_sigma: Annotated[
        PositiveFloat | None, UnusedUnless("target_entropy", None), UnusedUnless("target_entropy_factor", None)
    ] = None
    kind: Literal["auto"] = "auto"

    def target(self, action_size: int) -> float:
        """Returns the target in nats for actions of so many dimensions."""
        if self.target_entropy is not None:
            return self.target_entropy
        if self.target_entropy_sigma is not None:
            return gaussian_entropy(self.target_entropy_sigma, action_size)
        return action_size * (-1.0 if self.target_entropy_factor is None else self.target_entropy_factor)


def gaussian_entropy(sigma: float, action_size: int) -> float:
    """Returns `A / 2 * log(2 pi e sigma^2)`, the entropy in nats of independent Gaussians in A dimensions."""
    return action_size * (0.5 * math.log(2.0 * math.pi * math.e) + math.log(sigma))


TemperatureParameters = Annotated[AutoAlphaParameters | FixedAlphaParameters, ByKind()]


@parameters
class DiscreteAutoAlphaParameters(LearnedAlphaParameters):
    """A learned temperature for discrete actions, whose entropy lies between 0 and the log of the number of valid ones.

    Attributes:
        target_entropy_ratio: target as a part of the log of the number of valid actions in each state, instead of
            `target_entropy`, which is the same in every state; 0.98 where neither is given. A larger one keeps the
            policy more random; from 1 on it could not be reached.
    """

    target_entropy_ratio: Annotated[
        Annotated[float, Field(gt=0, lt=1)] | None, UnusedUnless("target_entropy", None)
    ] = None
    kind: Literal["auto"] = "auto"


DiscreteTemperatureParameters = Annotated[DiscreteAutoAlphaParameters | FixedAlphaParameters, ByKind()]
