"""Parameters of the heads: what a network computes, and how its last layers begin."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field

from tfsac.parameters.base import (
    Fraction,
    Integer,
    NonNegativeFloat,
    NonNegativeInt,
    ParameterError,
    PositiveFloat,
    PositiveInt,
    Rising,
    UnusedIf,
    UnusedUnless,
    parameters,
    translate_kinds,
)
from tfsac.parameters.hidden_layers import (
    MIDDLEWARE_WIDTHS,
    FCMiddlewareParameters,
    MiddlewareScheme,
    NormalizationParameters,
    ResidualMiddlewareParameters,
)
from tfsac.parameters.keras_names import Activation, Initializer
from tfsac.parameters.user_classes import ByKind, ClassParameters

LOG_STD_BOUNDS = (-20.0, 2.0)  # inside which the squashed Gaussian keeps every log standard deviation
LogStd = Annotated[float, Field(ge=LOG_STD_BOUNDS[0], le=LOG_STD_BOUNDS[1])]


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
    initializer: Annotated[Initializer, UnusedUnless("init_w", None)] = "xavier"
    init_w: PositiveFloat | None = None
    log_std_bounds: Annotated[tuple[LogStd, LogStd], Rising] = LOG_STD_BOUNDS
    log_std: Literal["clip", "tanh"] = "clip"
    kind: Literal["sac_policy"] = "sac_policy"
    path: ClassVar[str] = "tfsac.networks.heads:PolicyHead"


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
        low, high = self.low, self.high
        if (low is None) != (high is None) or (low is not None and high is not None and low >= high):
            raise ParameterError(f"Atoms need bounds low < high, or None for both, got {low} and {high}")


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
        dropped, all_of_them = self.drop_per_critic, self.num_quantiles
        if dropped >= all_of_them:
            raise ParameterError(f"drop_per_critic must be smaller than num_quantiles={all_of_them}, got {dropped}")


USED_BY_LAYERS = (UnusedUnless("residual_blocks", None), UnusedIf("network_layers_sizes", ()))


@parameters
class QHeadParameters(ClassParameters):
    """N independent Q functions of the embedding, and of the action where it is continuous (arXiv 2101.05982).

    Each has one value; with discrete actions a value for each, and with several rewards one for each.

    Attributes:
        network_layers_sizes: widths of the hidden layers of each Q function.
        activation_function: after every hidden layer.
        loss_weight: factor of the critic loss, which is a sum over the Q functions.
        num_critics: N; 2 are twin critics.
        initializer: of the output layers.
        init_w: bound of uniform first weights and biases of the output layers, instead of `initializer`, or None.
        normalization, dropout: of the hidden layers; see `FCMiddlewareParameters`.
        residual_blocks: instead of hidden layers, or None.
        distribution: of returns, whose mean is Q; None for Q alone.
    """

    network_layers_sizes: tuple[PositiveInt, ...] = (256, 256)
    activation_function: Annotated[Activation, *USED_BY_LAYERS] = "relu"
    loss_weight: NonNegativeFloat = 1.0
    num_critics: PositiveInt = 2
    initializer: Annotated[Initializer, UnusedUnless("init_w", None)] = "xavier"
    init_w: PositiveFloat | None = None
    normalization: Annotated[NormalizationParameters | None, *USED_BY_LAYERS] = None
    dropout: Annotated[Fraction, *USED_BY_LAYERS] = 0.0
    residual_blocks: ResidualMiddlewareParameters | None = None
    distribution: Annotated[CategoricalValueParameters | QuantileValueParameters, Discriminator("kind")] | None = None
    kind: Literal["q"] = "q"
    path: ClassVar[str] = "tfsac.networks.heads:QHead"

    @property
    def body(self) -> FCMiddlewareParameters | ResidualMiddlewareParameters:
        """The hidden layers of each Q function."""
        return self.residual_blocks or FCMiddlewareParameters(
            self.network_layers_sizes, self.activation_function, self.normalization, self.dropout
        )

    @staticmethod
    def with_current_names(fields: dict[str, Any]) -> dict[str, Any]:
        """Returns fields under today's names: earlier versions had `twin_critic`, and an ensemble `body_parameters`."""
        fields = {**fields, "kind": "q"} if fields.get("kind") in EARLIER_KINDS else dict(fields)
        if "twin_critic" in fields:
            fields["num_critics"] = 2 if fields.pop("twin_critic") else 1
        body = fields.pop("body_parameters", {})
        body = dict(body if isinstance(body, dict) else vars(body))
        if body.get("kind") == "residual":
            fields["residual_blocks"] = ResidualMiddlewareParameters(**body)
        elif body:
            fields["network_layers_sizes"] = body.pop("scheme", MiddlewareScheme.Medium)
            fields |= {name: value for name, value in body.items() if name != "kind"}
        if isinstance(scheme := fields.get("network_layers_sizes"), str):
            fields["network_layers_sizes"] = MIDDLEWARE_WIDTHS[MiddlewareScheme(scheme)]
        return fields


SACQHeadParameters = DiscreteQHeadParameters = TrajectoryQHeadParameters = QHeadParameters  # their earlier names
EnsembleQHeadParameters = TwinQHeadParameters = QHeadParameters
EARLIER_KINDS = ("sac_q", "discrete_q", "trajectory_q", "ensemble_q")
translate_kinds(EARLIER_KINDS, QHeadParameters.with_current_names)


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
    """No layer: what the network computes are the features that other networks read under the key "features"."""

    kind: Literal["features"] = "features"
    path: ClassVar[str] = "tfsac.networks.heads:FeaturesHead"


HeadParameters = Annotated[
    SACPolicyHeadParameters
    | QHeadParameters
    | VHeadParameters
    | CategoricalPolicyHeadParameters
    | GaussianPolicyHeadParameters
    | FeaturesHeadParameters,
    ByKind(),
]
