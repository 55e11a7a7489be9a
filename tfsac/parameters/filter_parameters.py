"""Parameters of the filters between the memory and the agent."""

from __future__ import annotations

from typing import Annotated

from tfsac.parameters.base import PositiveFloat, Rising, UnusedIf, UnusedUnless, parameters


@parameters
class ReturnScalingParameters:
    """Rewards are divided by the running standard deviation of the discounted returns of training.

    Attributes:
        bound: rewards are divided by at least the largest absolute return over it, so that no return of training
            exceeds it; None for no bound.
    """

    bound: PositiveFloat | None = None


@parameters
class FilterParameters:
    """What happens to rewards and observations between the memory, which keeps them raw, and the agent.

    Attributes:
        reward_rescale_factor: rewards are multiplied by it; in soft actor-critic with a fixed temperature of 1 this is
            the inverse temperature: a larger one explores less.
        reward_clipping_range: (low, high) after rescaling, or None.
        observation_normalization: subtract the running mean and divide by the running deviation, per dimension.
        observation_clipping: bound of normalised observations, in deviations.
        reward_normalization: divide by the running standard deviation of the rewards of training, before rescaling.
        return_scaling: divide by the running standard deviation of the returns of training, before rescaling, or None.
    """

    reward_rescale_factor: PositiveFloat = 1.0
    reward_clipping_range: Annotated[tuple[float, float], Rising] | None = None
    observation_normalization: bool = False
    observation_clipping: Annotated[PositiveFloat, UnusedIf("observation_normalization", False)] = 10.0
    reward_normalization: Annotated[bool, UnusedUnless("return_scaling", None)] = False
    return_scaling: ReturnScalingParameters | None = None
