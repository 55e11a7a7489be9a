"""Parameters of the heads: what a network computes, and how its last layers begin."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field

from tfsac.parameters.base import (
    Integer,
    NonNegativeFloat,
    NonNegativeInt,
    ParameterError,
    PositiveFloat,
    PositiveInt,
    parameters,
    refuse_ineffective,
)
from tfsac.parameters.hidden_layers import BodyParameters, FCMiddlewareParameters
from tfsac.parameters.keras_names import Activation, Initializer
from tfsac.parameters.user_classes import ByKind, ClassParameters, is_of_tfsac

LOG_STD_BOUNDS = (-20.0, 2.0)  # inside which the squashed Gaussian keeps every log standard deviation


@parameters
class SACPolicyHeadParameters(ClassParameters):
    """A squashed Gaussian: location and log standard deviation of every action dimension.

    Attributes:
        loss_weight: factor of the policy loss.
        initializer: of the output layer.
        init_w: bound of uniform first weights and biases of the output layer, instead of `initializer`, or None.
        log_std_bounds: (low, high) of the log standard deviation, between -20 and 2.
        log_std: how it stays inside: "clip" cuts off what is beyond, where the gradient is zero; "tanh" is
            `low + (high - low) / 2 * (1 + tanh(raw))`, which begins near the middle.
    """

    loss_weight: NonNegativeFloat = 1.0
    initializer: Initializer = "xavier"
    init_w: PositiveFloat | None = None
    log_std_bounds: tuple[float, float] = LOG_STD_BOUNDS
    log_std: Literal["clip", "tanh"] = "clip"
    kind: Literal["sac_policy"] = "sac_policy"
    path: ClassVar[str] = "tfsac.networks.heads:PolicyHead"

    def __post_init__(self) -> None:
        if self.init_w is not None:
            refuse_ineffective(self, ["initializer"], f"init_w={self.init_w}", "set init_w to None")
        low, high = self.log_std_bounds
        if not LOG_STD_BOUNDS[0] <= low < high <= LOG_STD_BOUNDS[1]:
            raise ParameterError(
                f"log_std_bounds is (low, high) with {LOG_STD_BOUNDS[0]} <= low < high <= {LOG_STD_BOUNDS[1]}. "
                f"Received: log_std_bounds={self.log_std_bounds}"
            )


@parameters
class QHeadParameters(ClassParameters):
    """What the heads of Q functions share: several independent ones.

    Attributes:
        network_layers_sizes: widths of the hidden layers of each.
        activation_function: after every hidden layer.
        loss_weight: factor of the critic loss.
    """

    network_layers_sizes: tuple[PositiveInt, ...] = (256, 256)
    activation_function: Activation = "relu"
    loss_weight: NonNegativeFloat = 1.0

    def __post_init__(self) -> None:
        if not self.network_layers_sizes:
            refuse_ineffective(self, ["activation_function"], "network_layers_sizes=()", "give the head layers")


@parameters
class TwinQHeadParameters(QHeadParameters):
    """Two Q functions, or one.

    Attributes:
        twin_critic: two, whose smaller value counts, instead of one.
        initializer: of the output layers.
    """

    twin_critic: bool = True
    initializer: Initializer = "xavier"

    @property
    def num_critics(self) -> int:
        """Number of Q functions."""
        return 2 if self.twin_critic else 1


@parameters
class SACQHeadParameters(TwinQHeadParameters):
    """Q functions of the concatenated embedding and action."""

    kind: Literal["sac_q"] = "sac_q"
    path: ClassVar[str] = "tfsac.networks.heads:QHead"


@parameters
class DiscreteQHeadParameters(TwinQHeadParameters):
    """Q functions of the embedding, with a value for each discrete action."""

    kind: Literal["discrete_q"] = "discrete_q"
    path: ClassVar[str] = "tfsac.networks.heads:DiscreteQHead"


@parameters
class TrajectoryQHeadParameters(QHeadParameters):
    """Q functions of the concatenated embedding and trajectory, with a value for each reward.

    Attributes:
        num_critics: how many, whose smallest value counts.
        init_w: bound of the uniform first weights and biases of the output layers.
    """

    num_critics: PositiveInt = 2
    init_w: PositiveFloat = 0.003
    kind: Literal["trajectory_q"] = "trajectory_q"
    path: ClassVar[str] = "tfsac.networks.heads:TrajectoryQHead"


@parameters
class CategoricalValueParameters:
    """A categorical distribution of returns over fixed atoms (C51, arXiv 1707.06887).

    Attributes:
        num_atoms: how many, evenly between the bounds.
        low, high: the bounds of scaled returns, beyond which their mass is moved to the bound. None for both where the
            filter `return_scaling` keeps returns within its own bound.
    """

    num_atoms: Annotated[Integer, Field(ge=2)] = 101
    low: float | None = None
    high: float | None = None
    kind: Literal["categorical"] = "categorical"

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise ParameterError(f"Bounds are both given or both None. Received: low={self.low}, high={self.high}")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ParameterError(f"Atoms lie between low < high. Received: low={self.low}, high={self.high}")


@parameters
class QuantileValueParameters:
    """Quantiles of the distribution of returns (QR-DQN, arXiv 1710.10044; TQC, arXiv 2005.04269).

    Attributes:
        num_quantiles: of each critic.
        drop_per_critic: how many of each critic's number of quantiles are dropped from the pool of all target
            quantiles, the largest; more of them estimate lower. It belongs to the target reduction "pool".
    """

    num_quantiles: PositiveInt = 25
    drop_per_critic: NonNegativeInt = 2
    kind: Literal["quantile"] = "quantile"

    def __post_init__(self) -> None:
        if self.drop_per_critic >= self.num_quantiles:
            raise ParameterError(
                "drop_per_critic is smaller than num_quantiles, so that target quantiles are left. "
                f"Received: drop_per_critic={self.drop_per_critic}, num_quantiles={self.num_quantiles}"
            )


@parameters
class EnsembleQHeadParameters(ClassParameters):
    """N independent Q functions of the concatenated embedding and action, whose weights are stacked (arXiv 2101.05982).

    Attributes:
        num_critics: N.
        body_parameters: hidden layers of each Q function, which may be normalised.
        distribution: of returns, whose mean is Q; None for Q alone.
        loss_weight: factor of the critic loss, which is a sum over critics.
        initializer: of the output layers.
    """

    num_critics: PositiveInt = 2
    body_parameters: BodyParameters = Field(default_factory=lambda: FCMiddlewareParameters((256, 256)))
    distribution: Annotated[CategoricalValueParameters | QuantileValueParameters, Discriminator("kind")] | None = None
    loss_weight: NonNegativeFloat = 1.0
    initializer: Initializer = "xavier"
    kind: Literal["ensemble_q"] = "ensemble_q"
    path: ClassVar[str] = "tfsac.networks.critic_ensembles:EnsembleQHead"

    @property
    def outputs(self) -> int:
        """Number of outputs of each critic: its atoms or quantiles, or 1."""
        if isinstance(self.distribution, CategoricalValueParameters):
            return self.distribution.num_atoms
        return self.distribution.num_quantiles if self.distribution else 1


@parameters
class VHeadParameters(ClassParameters):
    """One state value.

    Attributes:
        loss_weight: factor of the value loss.
        initializer: of the output layer.
    """

    loss_weight: NonNegativeFloat = 1.0
    initializer: Initializer = "xavier"
    kind: Literal["v"] = "v"
    path: ClassVar[str] = "tfsac.networks.heads:VHead"


@parameters
class CategoricalPolicyHeadParameters(ClassParameters):
    """A categorical distribution over discrete actions: one logit of each.

    Attributes:
        loss_weight: factor of the policy loss.
        initializer: of the output layer.
    """

    loss_weight: NonNegativeFloat = 1.0
    initializer: Initializer = "xavier"
    kind: Literal["categorical_policy"] = "categorical_policy"
    path: ClassVar[str] = "tfsac.networks.heads:CategoricalHead"


@parameters
class GaussianPolicyHeadParameters(ClassParameters):
    """An unbounded Gaussian: mean and variance of every action dimension.

    Attributes:
        bound_mean: the mean is a tanh, inside the bounds [-1, 1] of the actions; the environment clips samples beyond
            them.
        covariance: "diagonal" has a variance for each dimension, "spherical" one for all.
        min_variance: added to the softplus that makes variances positive.
        loss_weight: factor of the policy loss.
        initializer: of the output layers.
    """

    bound_mean: bool = True
    covariance: Literal["diagonal", "spherical"] = "diagonal"
    min_variance: PositiveFloat = 1e-6
    loss_weight: NonNegativeFloat = 1.0
    initializer: Initializer = "xavier"
    kind: Literal["gaussian_policy"] = "gaussian_policy"
    path: ClassVar[str] = "tfsac.networks.heads:GaussianHead"


@parameters
class FeaturesHeadParameters(ClassParameters):
    """No layer: what the network computes are the features that other networks read under the key "features".

    Raises:
        ParameterError: a user's subclass, whose head nothing would compute.
    """

    kind: Literal["features"] = "features"
    path: ClassVar[str] = "tfsac.networks.heads:FeaturesHead"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not is_of_tfsac(cls):
            raise ParameterError(f"A trunk has no head of its own; its last layers are its middleware. Received: {cls}")


HeadParameters = Annotated[
    SACPolicyHeadParameters
    | SACQHeadParameters
    | VHeadParameters
    | CategoricalPolicyHeadParameters
    | DiscreteQHeadParameters
    | TrajectoryQHeadParameters
    | EnsembleQHeadParameters
    | GaussianPolicyHeadParameters
    | FeaturesHeadParameters,
    ByKind(),
]
