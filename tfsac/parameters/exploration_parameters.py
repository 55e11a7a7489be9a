"""Parameters of the exploration beyond a policy's own sampling."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tfsac.parameters.base import Integer, NonNegativeFloat, PositiveInt, UnusedUnless, parameters
from tfsac.parameters.user_classes import ByKind, ClassParameters


@parameters
class AdditiveNoiseParameters(ClassParameters):
    """Gaussian noise added to sampled actions while training, in units of the [-1, 1] action, then clipped."""

    noise_std: NonNegativeFloat = 0.1
    kind: Literal["additive_noise"] = "additive_noise"
    path: ClassVar[str] = "tfsac.policies.exploration:AdditiveNoise"


@parameters
class NoiseRepetitionParameters(ClassParameters):
    """The noise of the policy's samples is used for several steps, so that exploration keeps its direction (FlashSAC).

    How many steps is drawn with the noise, n with a probability proportional to `n ** -mu`, one number for all
    environments. The end of an episode does not cut it off.

    Attributes:
        mu: a larger one repeats less; 0 draws all numbers up to `max_repeats` equally often.
        max_repeats: the most steps with the same noise.
        every: always this many steps, instead of a number that is drawn.
    """

    mu: Annotated[NonNegativeFloat, UnusedUnless("every", None)] = 2.0
    max_repeats: Annotated[Integer, Field(ge=2, le=10**6), UnusedUnless("every", None)] = 16
    every: Annotated[Integer, Field(ge=2)] | None = None
    kind: Literal["noise_repetition"] = "noise_repetition"
    path: ClassVar[str] = "tfsac.policies.exploration:NoiseRepetition"


GaussianExplorationParameters = Annotated[AdditiveNoiseParameters | NoiseRepetitionParameters, ByKind()]


@parameters
class EpsilonGreedyParameters(ClassParameters):
    """With probability epsilon a uniform valid action instead of the policy's, in each environment on its own.

    Attributes:
        initial_epsilon: at first.
        final_epsilon: what it comes to.
        decay_steps: environment steps until it is there ("linear"), or after which the difference has shrunk to 1/e
            ("exponential").
        decay: how it goes down.
    """

    initial_epsilon: Annotated[float, Field(ge=0, le=1)] = 0.95
    final_epsilon: Annotated[float, Field(ge=0, le=1)] = 0.1
    decay_steps: PositiveInt = 10_000
    decay: Literal["linear", "exponential"] = "exponential"
    path: ClassVar[str] = "tfsac.policies.exploration:EpsilonGreedy"

    def epsilon(self, env_steps: int) -> float:
        """Returns epsilon after so many environment steps."""
        gone = env_steps / self.decay_steps
        left = math.exp(-gone) if self.decay == "exponential" else max(0.0, 1.0 - gone)
        return self.final_epsilon + left * (self.initial_epsilon - self.final_epsilon)
