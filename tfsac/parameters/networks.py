"""Parameters of the networks: layers, heads and training (Coach's vocabulary)."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from tfsac.parameters.base import (
    ByKind,
    ClassParameters,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    ParameterError,
    PositiveFloat,
    PositiveInt,
    Rising,
    UnusedIf,
    UnusedUnless,
    parameters,
    reject_unused_fields,
)
from tfsac.parameters.optimizers import MOMENTS, OPTIMIZERS, LearningRateDecayParameters, OptimizerName

Activation = Literal[
    "celu", "elu", "exponential", "gelu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_tanh", "leaky_relu",
    "linear", "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink",
    "softmax", "softplus", "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus", "swish", "tanh",
    "tanh_shrink",
]  # fmt: skip
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
Initializer = Literal["xavier", "he", "orthogonal", "normalized_columns", "lecun_normal", "fan_in_uniform"]


@parameters
class Conv2d:
    """One convolution over an image: number of filters, side of the square kernel and stride in pixels.

    With Keras's padding "same", a side of n pixels becomes ceil(n / stride), and no border is dropped.
    """

    num_filters: PositiveInt
    kernel_size: PositiveInt
    stride: PositiveInt
    padding: Literal["valid", "same"] = "valid"

    def side(self, side: int) -> int:
        """Returns the output side in pixels for an input side; less than 1 if the kernel does not fit."""
        return -(-side // self.stride) if self.padding == "same" else (side - self.kernel_size) // self.stride + 1


class Scheme(enum.StrEnum):
    """Named layers: `MIDDLEWARE_WIDTHS` for middleware; `networks.observations` defines those of embedders."""

    Empty = "Empty"
    Shallow = "Shallow"
    Medium = "Medium"
    Deep = "Deep"


EmbedderScheme = Scheme  # Coach has two separate enums
MiddlewareScheme = Scheme
MIDDLEWARE_WIDTHS: dict[Scheme, tuple[int, ...]] = {
    Scheme.Empty: (),
    Scheme.Shallow: (64,),
    Scheme.Medium: (512,),
    Scheme.Deep: (128, 128, 128),
}


@parameters
class InputEmbedderParameters:
    """Turns one observation into features.

    Attributes:
        scheme: a named scheme, or the layers themselves: widths of dense layers and, for images, `Conv2d` before them.
        activation_function: activation after every layer.
        flatten: use dense layers, without convolutions, on the flattened image or array.
    """

    scheme: Scheme | tuple[PositiveInt | Conv2d, ...] = Scheme.Medium
    activation_function: Activation = "relu"
    flatten: bool = False

    def __post_init__(self) -> None:
        scheme = () if isinstance(self.scheme, Scheme) else self.scheme
        convolutions = [isinstance(layer, Conv2d) for layer in scheme]
        if convolutions != sorted(convolutions, reverse=True) or (self.flatten and any(convolutions)):
            raise ParameterError(f"Convolutions must precede dense layers and need flatten=False, got {scheme}")


USED_BY_LAYERS = UnusedIf("scheme", (), Scheme.Empty)


@parameters
class NormalizationParameters:
    """Normalisation of hidden layers, with a scale (and a bias) for each unit.

    Attributes:
        kind: "layer" over the units of each batch entry (arXiv 1607.06450), "rms" the same without mean and bias
            (arXiv 1910.07467), "batch" over the batch (arXiv 1502.03167), with running statistics for acting;
            "batch_renorm" corrects the batch statistics towards the running ones (arXiv 1702.03275).
        placement: before the activation of each layer, or after it.
        normalize_input: also normalise the input of the first layer.
    """

    kind: Literal["layer", "rms", "batch", "batch_renorm"]
    placement: Literal["before", "after"] = "before"
    normalize_input: bool = False


class _Layers:
    """Dense layers of a scheme."""

    scheme: Any

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the dense layers."""
        return MIDDLEWARE_WIDTHS[self.scheme] if isinstance(self.scheme, Scheme) else self.scheme


@parameters
class FCMiddlewareParameters(_Layers):
    """Dense layers; as middleware, between the merged embeddings and the head.

    Attributes:
        scheme: a named scheme or the widths of the layers.
        activation_function: activation after every layer.
        normalization: for every layer, or None. A layer before batch normalisation, which cancels a bias, has none.
        dropout: dropout rate of every layer before its normalisation and activation, in critic updates (arXiv
            2110.02034); only for ensembles of critics.
    """

    scheme: Scheme | tuple[PositiveInt, ...] = Scheme.Medium
    activation_function: Annotated[Activation, USED_BY_LAYERS] = "relu"
    normalization: Annotated[NormalizationParameters | None, USED_BY_LAYERS] = None
    dropout: Annotated[Fraction, USED_BY_LAYERS] = 0.0
    kind: Literal["fc"] = "fc"


@parameters
class ResidualMiddlewareParameters:
    """Residual blocks: a dense layer, blocks `x + f(x)` with four times the width inside, and a final normalisation.

    Attributes:
        block: "simba" has layer normalisation before each block's dense layers and at the end (SimBa, arXiv
            2410.09754). "flash" has batch normalisation of the input and of each dense layer in a block, and RMS
            normalisation at the end (FlashSAC, github.com/Holiday-Robot/FlashSAC); its dense layers have no bias.
        width: width of the dense layer and of the residual stream.
        num_blocks: number of blocks.
    """

    block: Literal["simba", "flash"] = "simba"
    width: PositiveInt = 256
    num_blocks: PositiveInt = 1
    kind: Literal["residual"] = "residual"


@parameters
class LSTMMiddlewareParameters(_Layers):
    """Dense layers as in `FCMiddlewareParameters`, then an LSTM whose state summarises the episode so far.

    Attributes:
        number_of_lstm_cells: width of the hidden state and of the cell state.
        scheme: dense layers before the LSTM.
        activation_function: activation after every dense layer.
    """

    number_of_lstm_cells: PositiveInt = 256
    scheme: Scheme | tuple[PositiveInt, ...] = Scheme.Empty
    activation_function: Annotated[Activation, USED_BY_LAYERS] = "relu"
    kind: Literal["lstm"] = "lstm"


BodyParameters = Annotated[FCMiddlewareParameters | ResidualMiddlewareParameters, ByKind()]
MiddlewareParameters = Annotated[
    FCMiddlewareParameters | ResidualMiddlewareParameters | LSTMMiddlewareParameters, ByKind()
]


def normalizes_batches(body: Any) -> bool:
    """Returns whether the layers use batch normalisation; False for None."""
    if isinstance(body, ResidualMiddlewareParameters):
        return body.block == "flash"
    normalization = getattr(body, "normalization", None)
    return normalization is not None and normalization.kind in ("batch", "batch_renorm")


OBSERVATION_KEY = "observation"  # the key of an observation that is not a Dict; presets read it
FEATURES = "features"  # the key of the shared trunk's output in the networks that read it
MADE_BY = "made by "  # prefix of the only observation key of a network that a Python function creates
LOG_STD_BOUNDS = (-20.0, 2.0)  # widest range of the squashed Gaussian's log standard deviation
ATOM_BOUND = 5.0  # default bound of the atoms, for scaled returns
LogStd = Annotated[float, Field(ge=LOG_STD_BOUNDS[0], le=LOG_STD_BOUNDS[1])]


@parameters
class SACPolicyHeadParameters(ClassParameters):
    """A squashed Gaussian: location and log standard deviation of every action dimension.

    Attributes:
        loss_weight: factor of the policy loss.
        init_w: bound of the uniform initial weights and biases of the output layer, replacing `initializer`, or None.
        log_std_bounds: (low, high) of the log standard deviation, between -20 and 2.
        log_std: how the bounds are enforced: "clip" has no gradient outside them; "tanh" is
            `low + (high - low) / 2 * (1 + tanh(raw))`, which starts near the middle.
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
        num_atoms: number of atoms, evenly spaced between the bounds.
        low, high: bounds of the scaled returns; probability mass beyond them moves to the nearest bound. None for both
            is -5 and 5, for which the filter `return_scaling` (bound 5 or None) is required.
    """

    num_atoms: Annotated[PositiveInt, Field(ge=2)] = 101
    low: float | None = None
    high: float | None = None
    kind: Literal["categorical"] = "categorical"

    def __post_init__(self) -> None:
        low, high = self.low, self.high
        if (low is None) != (high is None) or (low is not None and high is not None and low >= high):
            raise ParameterError(f"Atoms need low < high, or None for both, got {low} and {high}")


@parameters
class QuantileValueParameters:
    """Quantiles of the distribution of returns (QR-DQN, arXiv 1710.10044; TQC, arXiv 2005.04269).

    Attributes:
        num_quantiles: number of quantiles of each critic.
        drop_per_critic: number of largest quantiles per critic that the target reduction "pool" drops; larger values
            lower the estimate.
    """

    num_quantiles: PositiveInt = 25
    drop_per_critic: NonNegativeInt = 2
    kind: Literal["quantile"] = "quantile"

    def __post_init__(self) -> None:
        if self.drop_per_critic >= self.num_quantiles:
            raise ParameterError(f"drop_per_critic must be < num_quantiles={self.num_quantiles}, got {self}")


WITHOUT_BLOCKS = UnusedUnless("residual_blocks", None)
USED_BY_HIDDEN_LAYERS = (WITHOUT_BLOCKS, UnusedIf("network_layers_sizes", ()))


@parameters
class QHeadParameters(ClassParameters):
    """N independent Q functions of the embedding and of continuous actions (arXiv 2101.05982).

    Each outputs one value, or one per discrete action or per reward.

    Attributes:
        network_layers_sizes: widths of the hidden layers of each Q function.
        activation_function: activation after every hidden layer.
        loss_weight: factor of the critic loss, which is a sum over the Q functions.
        num_critics: N; 2 for twin critics.
        initializer: initializer of the output layers.
        init_w: bound of the uniform initial weights and biases of the output layers, replacing `initializer`, or None.
        normalization, dropout: see `FCMiddlewareParameters`; for the hidden layers.
        residual_blocks: residual blocks instead of hidden layers, or None.
        distribution: distribution of returns, with Q as its mean; None for a scalar Q.
    """

    network_layers_sizes: Annotated[tuple[PositiveInt, ...], WITHOUT_BLOCKS] = (256, 256)
    activation_function: Annotated[Activation, *USED_BY_HIDDEN_LAYERS] = "relu"
    loss_weight: NonNegativeFloat = 1.0
    num_critics: PositiveInt = 2
    initializer: Annotated[Initializer, UnusedUnless("init_w", None)] = "xavier"
    init_w: PositiveFloat | None = None
    normalization: Annotated[NormalizationParameters | None, *USED_BY_HIDDEN_LAYERS] = None
    dropout: Annotated[Fraction, *USED_BY_HIDDEN_LAYERS] = 0.0
    residual_blocks: ResidualMiddlewareParameters | None = None
    distribution: Annotated[CategoricalValueParameters | QuantileValueParameters, ByKind()] | None = None
    kind: Literal["q"] = "q"
    path: ClassVar[str] = "tfsac.networks.heads:QHead"
    earlier_kinds: ClassVar[tuple[str, ...]] = ("sac_q", "discrete_q", "trajectory_q", "ensemble_q")

    @property
    def body(self) -> FCMiddlewareParameters | ResidualMiddlewareParameters:
        """The hidden layers of each Q function."""
        return self.residual_blocks or FCMiddlewareParameters(
            self.network_layers_sizes, self.activation_function, self.normalization, self.dropout
        )

    @classmethod
    def with_current_names(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Converts the fields `twin_critic` and `body_parameters` of earlier versions."""
        fields = {**fields, "kind": "q"} if fields.get("kind") in cls.earlier_kinds else dict(fields)
        if "twin_critic" in fields:
            fields["num_critics"] = 2 if fields.pop("twin_critic") else 1
        body = fields.pop("body_parameters", {})
        body = dict(body if isinstance(body, dict) else vars(body))
        if body.get("kind") == "residual":
            fields["residual_blocks"] = body
        elif body:
            fields["network_layers_sizes"] = body.pop("scheme", Scheme.Medium)
            fields |= {name: value for name, value in body.items() if name != "kind"}
        if isinstance(scheme := fields.get("network_layers_sizes"), str):
            fields["network_layers_sizes"] = MIDDLEWARE_WIDTHS[Scheme(scheme)]
        return fields


SACQHeadParameters = DiscreteQHeadParameters = TrajectoryQHeadParameters = QHeadParameters  # earlier names
EnsembleQHeadParameters = TwinQHeadParameters = QHeadParameters


@parameters
class VHeadParameters(ClassParameters):
    """One state value. `loss_weight` scales its loss; `initializer` is for the output layer."""

    loss_weight: NonNegativeFloat = 1.0
    initializer: Initializer = "xavier"
    kind: Literal["v"] = "v"
    path: ClassVar[str] = "tfsac.networks.heads:VHead"


@parameters
class CategoricalPolicyHeadParameters(ClassParameters):
    """A categorical distribution over discrete actions with one logit per action; fields as in `VHeadParameters`."""

    loss_weight: NonNegativeFloat = 1.0
    initializer: Initializer = "xavier"
    kind: Literal["categorical_policy"] = "categorical_policy"
    path: ClassVar[str] = "tfsac.networks.heads:CategoricalHead"


@parameters
class HybridPolicyHeadParameters(ClassParameters):
    """Categorical distributions over discrete factors, with one logit per value, and a squashed Gaussian over
    continuous dimensions; fields as in `SACPolicyHeadParameters`.
    """

    loss_weight: NonNegativeFloat = 1.0
    initializer: Initializer = "xavier"
    log_std_bounds: Annotated[tuple[LogStd, LogStd], Rising] = LOG_STD_BOUNDS
    log_std: Literal["clip", "tanh"] = "clip"
    kind: Literal["hybrid_policy"] = "hybrid_policy"
    path: ClassVar[str] = "tfsac.networks.heads:HybridHead"


@parameters
class GaussianPolicyHeadParameters(ClassParameters):
    """An unbounded Gaussian: mean and variance of every action dimension.

    Attributes:
        bound_mean: squash the mean with tanh into the action bounds [-1, 1]; the environment clips samples beyond them.
        covariance: "diagonal" has one variance per dimension, "spherical" one for all.
        min_variance: added to the softplus output that gives the variances.
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
    """No layer: the network's output is the observation "features" of other networks."""

    kind: Literal["features"] = "features"
    path: ClassVar[str] = "tfsac.networks.heads:FeaturesHead"


HeadParameters = Annotated[
    SACPolicyHeadParameters
    | QHeadParameters
    | VHeadParameters
    | CategoricalPolicyHeadParameters
    | HybridPolicyHeadParameters
    | GaussianPolicyHeadParameters
    | FeaturesHeadParameters,
    ByKind(),
]


@parameters
class NetworkParameters(LearningRateDecayParameters):
    """One network and its training.

    Attributes:
        head_parameters: output layers of the network.
        input_embedders_parameters: an embedder for each observation key that the network reads.
        observation_keys: the keys that the network reads, in this order; keys without an embedder use that of
            "observation". None reads the embedders' keys, or every key of a Dict if "observation" is the only one.
        embedding_merger_type: how several embeddings are merged; "sum" needs equal widths.
        middleware_parameters: layers after the merger.
        initializer: initializer of all layers except the head's output.
        optimizer_type: class name of a Keras optimizer: "Adam", "AdamW", "RMSProp" or another supported one.
        learning_rate: initial learning rate.
        weight_decay: decoupled, times the learning rate (arXiv 1711.05101); None for Keras's default, 0.004 for AdamW.
        optimizer_epsilon: added to the square root of the second moment; RMSProp adds it inside the root.
        adam_optimizer_beta1, adam_optimizer_beta2: decay of the two moments of Adam, AdamW and Adamax.
        rms_prop_optimizer_decay: decay of RMSProp's second moment.
        optimizer_kwargs: other arguments of the Keras class by name, such as {"momentum": 0.9} for SGD.
        batch_size: batch entries per update; the same for all networks of an agent.
        clip_gradients: bound for `gradients_clipping_method`, or None.
        l2_regularization: factor of half the squared kernels, added to the loss.
        replace_mse_with_huber_loss: use a Huber loss, linear beyond an error of 1, for V and Q.
        unit_weights: "kernels" scales each unit's kernel column to norm 1 at the start and after every step (XQC);
            "all" also scales the scales and biases of each normalisation, jointly, to norm sqrt(units) (FlashSAC);
            "none" does neither. Only for ensembles.
        create_target_network: keep a target network; otherwise the critic's target uses the online network.
    """

    head_parameters: HeadParameters
    input_embedders_parameters: Annotated[dict[str, InputEmbedderParameters], Field(min_length=1)] = Field(
        default_factory=lambda: {OBSERVATION_KEY: InputEmbedderParameters()}
    )
    observation_keys: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    embedding_merger_type: Literal["concat", "sum"] = "concat"
    middleware_parameters: MiddlewareParameters = Field(default_factory=FCMiddlewareParameters)
    initializer: Initializer = "xavier"
    optimizer_type: OptimizerName = "Adam"
    learning_rate: PositiveFloat = 3e-4
    weight_decay: NonNegativeFloat | None = None
    optimizer_epsilon: PositiveFloat = 1e-8
    adam_optimizer_beta1: Fraction = 0.9
    adam_optimizer_beta2: Fraction = 0.999
    rms_prop_optimizer_decay: Fraction = 0.9
    optimizer_kwargs: dict[str, Any] = Field(default_factory=dict)
    batch_size: PositiveInt = 256
    clip_gradients: PositiveFloat | None = None
    gradients_clipping_method: Annotated[Literal["global_norm", "norm", "value"], UnusedIf("clip_gradients", None)] = (
        "global_norm"
    )
    l2_regularization: NonNegativeFloat = 0.0
    replace_mse_with_huber_loss: bool = False
    unit_weights: Literal["none", "kernels", "all"] = "none"
    create_target_network: bool = False

    @property
    def made_by(self) -> str | None:
        """The Python function that creates the network; None if these parameters describe its layers."""
        key = next(iter(self.input_embedders_parameters))
        return key.removeprefix(MADE_BY) if key.startswith(MADE_BY) else None

    @property
    def special_layers(self) -> str | None:
        """The feature of the layers that only updates of critic ensembles support, or None."""
        bodies = [self.middleware_parameters, getattr(self.head_parameters, "body", None)]
        if any(map(normalizes_batches, bodies)):
            return "batch normalisation"
        if any(getattr(body, "dropout", 0.0) for body in bodies):
            return "dropout"
        return "unit_weights" if self.unit_weights != "none" else None

    @property
    def loss_weight(self) -> float:
        """Factor of the head's loss."""
        return getattr(self.head_parameters, "loss_weight", 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.observation_keys and len({*self.observation_keys}) < len(self.observation_keys):
            raise ParameterError(f"observation_keys must be distinct, got {self.observation_keys}")
        read = {OBSERVATION_KEY, *(self.observation_keys or self.input_embedders_parameters)}
        if not self.made_by and (unread := sorted(self.input_embedders_parameters.keys() - read)):
            raise ParameterError(
                f"observation_keys must contain the embedders' keys; {self.observation_keys} lacks {unread}"
            )
        head = self.head_parameters
        distribution = getattr(head, "distribution", None)
        policies = SACPolicyHeadParameters, CategoricalPolicyHeadParameters, HybridPolicyHeadParameters
        if distribution or isinstance(head, policies):
            because = f"distribution={distribution}" if distribution else "a policy, which does not regress"
            reject_unused_fields(self, ["replace_mse_with_huber_loss"], because)
        unused = {*MOMENTS, "rms_prop_optimizer_decay"} - set(OPTIMIZERS[self.optimizer_type])
        reject_unused_fields(self, unused, f"optimizer_type={self.optimizer_type!r}")


def network_of(
    head: Any,
    embedder: Scheme | tuple[int | Conv2d, ...] = (),
    layers: tuple[int, ...] = (),
    key: str = OBSERVATION_KEY,
    activation: Activation = "relu",
    lstm_cells: int | None = None,
    **fields: Any,
) -> NetworkParameters:
    """Returns a network with an embedder, hidden layers and an optional LSTM, with the same activation throughout."""
    # Q for continuous actions reads the raw observation and the action, so all its layers belong to the head.
    dense: dict[str, Any] = {"scheme": Scheme.Empty}
    if layers:
        dense = {"scheme": layers, "activation_function": activation}
    lstm = LSTMMiddlewareParameters(lstm_cells, **dense) if lstm_cells else None
    body: dict[str, Any] = {
        "input_embedders_parameters": {key: InputEmbedderParameters(embedder or Scheme.Empty, activation)},
        "middleware_parameters": lstm or FCMiddlewareParameters(**dense),
    }
    return NetworkParameters(head, **{**body, **fields})


def with_q(policy: NetworkParameters, q: QHeadParameters, *body: Any, **fields: Any) -> dict[str, NetworkParameters]:
    """Returns a policy and critics with a target network."""
    return {"policy": policy, "q": network_of(q, *body, **{"create_target_network": True, **fields})}


def networks_made_by(function: str, networks: Mapping[str, NetworkParameters]) -> dict[str, NetworkParameters]:
    """Returns the training parameters of networks that a Python function creates.

    Their observation key exists in no environment, so that layers are never built in place of the function's.
    """
    reads = {f"{MADE_BY}{function}": InputEmbedderParameters()}
    return {name: dataclasses.replace(network, input_embedders_parameters=reads) for name, network in networks.items()}
