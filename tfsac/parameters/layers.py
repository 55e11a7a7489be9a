"""Parameters of a network's layers: embedders, hidden layers, residual blocks, an LSTM, and their activations."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal, get_args

from tfsac.parameters.base import Fraction, ParameterError, PositiveInt, UnusedIf, parameters
from tfsac.parameters.user_classes import ByKind

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

    With Keras's padding "same" a side of n pixels becomes one of n / stride, rounded up, and no border is left out.
    """

    num_filters: PositiveInt
    kernel_size: PositiveInt
    stride: PositiveInt
    padding: Literal["valid", "same"] = "valid"

    def side(self, side: int) -> int:
        """Returns how many pixels it makes of a side of an image; less than 1 where there is no room for the kernel."""
        return -(-side // self.stride) if self.padding == "same" else (side - self.kernel_size) // self.stride + 1


class Scheme(enum.StrEnum):
    """Named layers. Middleware: Empty [], Shallow [64], Medium [512], Deep [128, 128, 128]; of embedders dense layers
    for a vector and convolutions for an image (`networks.embedders`).
    """

    Empty = "Empty"
    Shallow = "Shallow"
    Medium = "Medium"
    Deep = "Deep"


EmbedderScheme = Scheme  # Coach has two
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
        activation_function: after every layer.
        flatten: dense layers, without convolutions, over the entries of an image or of any other array.
    """

    scheme: Scheme | tuple[PositiveInt | Conv2d, ...] = Scheme.Medium
    activation_function: Activation = "relu"
    flatten: bool = False

    def __post_init__(self) -> None:
        scheme = () if isinstance(self.scheme, Scheme) else self.scheme
        convolutions = [isinstance(layer, Conv2d) for layer in scheme]
        if convolutions != sorted(convolutions, reverse=True) or (self.flatten and any(convolutions)):
            raise ParameterError(f"Convolutions come before dense layers, and not with flatten=True, got {scheme}")


USED_BY_LAYERS = UnusedIf("scheme", (), Scheme.Empty)


@parameters
class NormalizationParameters:
    """Normalisation of hidden layers, with a scale (and a bias) for each unit.

    Attributes:
        kind: "layer" over the units of each row (arXiv 1607.06450), "rms" the same without mean and bias
            (arXiv 1910.07467), "batch" over the rows of the batch (arXiv 1502.03167), whose running statistics act;
            "batch_renorm" corrects the batch's statistics towards the running ones (arXiv 1702.03275).
        placement: before the activation of each layer, or after it.
        normalize_input: also normalise what the first layer reads.
    """

    kind: Literal["layer", "rms", "batch", "batch_renorm"]
    placement: Literal["before", "after"] = "before"
    normalize_input: bool = False


class _Layers:
    """Dense layers of a scheme."""

    scheme: Any

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the dense layers."""
        return MIDDLEWARE_WIDTHS[self.scheme] if isinstance(self.scheme, Scheme) else self.scheme


@parameters
class FCMiddlewareParameters(_Layers):
    """Dense layers; as middleware between the merged embeddings and the head.

    Attributes:
        scheme: a named scheme or the widths of the layers.
        activation_function: after every layer.
        normalization: of every layer, or None. A layer before batch normalisation has no bias, which that would remove.
        dropout: rate of units that are left out of every layer before its normalisation and activation while critics
            learn (arXiv 2110.02034); of an ensemble of critics alone.
    """

    scheme: Scheme | tuple[PositiveInt, ...] = Scheme.Medium
    activation_function: Annotated[Activation, USED_BY_LAYERS] = "relu"
    normalization: Annotated[NormalizationParameters | None, USED_BY_LAYERS] = None
    dropout: Annotated[Fraction, USED_BY_LAYERS] = 0.0
    kind: Literal["fc"] = "fc"


@parameters
class ResidualMiddlewareParameters:
    """Residual blocks: a dense layer, blocks `x + f(x)` that are four times as wide inside, a normalisation.

    Attributes:
        block: "simba" has layer normalisation before each block's dense layers and at the end (SimBa, arXiv
            2410.09754). "flash" has batch normalisation of the input and of each dense layer in a block, and RMS
            normalisation at the end (FlashSAC, github.com/Holiday-Robot/FlashSAC); its dense layers have no bias.
        width: of the dense layer and of what each block adds to.
        num_blocks: how many blocks.
    """

    block: Literal["simba", "flash"] = "simba"
    width: PositiveInt = 256
    num_blocks: PositiveInt = 1
    kind: Literal["residual"] = "residual"


@parameters
class LSTMMiddlewareParameters(_Layers):
    """Dense layers as in `FCMiddlewareParameters`, then an LSTM, whose state carries what was observed in the episode.

    Attributes:
        number_of_lstm_cells: width of its hidden state and of its cells.
        scheme: of the dense layers before it.
        activation_function: after every dense layer.
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
    """Returns whether layers, or none, normalise the rows of a batch together."""
    if isinstance(body, ResidualMiddlewareParameters):
        return body.block == "flash"
    normalization = getattr(body, "normalization", None)
    return normalization is not None and normalization.kind in ("batch", "batch_renorm")
