"""Parameters of the hidden layers of networks: widths, normalisation, dropout, residual blocks, an LSTM."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

from pydantic import Field

from tfsac.parameters.base import Fraction, PositiveInt, UnusedIf, parameters
from tfsac.parameters.keras_names import Activation
from tfsac.parameters.user_classes import ByKind


class MiddlewareScheme(enum.StrEnum):
    """Named middleware: Empty [], Shallow [64], Medium [512], Deep [128, 128, 128]."""

    Empty = "Empty"
    Shallow = "Shallow"
    Medium = "Medium"
    Deep = "Deep"


MIDDLEWARE_WIDTHS: dict[MiddlewareScheme, tuple[int, ...]] = {
    MiddlewareScheme.Empty: (),
    MiddlewareScheme.Shallow: (64,),
    MiddlewareScheme.Medium: (512,),
    MiddlewareScheme.Deep: (128, 128, 128),
}
MiddlewareName = Annotated[MiddlewareScheme, Field(strict=False)]  # a scheme may also be given by its name
USED_BY_LAYERS = UnusedIf("scheme", (), MiddlewareScheme.Empty)


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
        return MIDDLEWARE_WIDTHS[self.scheme] if isinstance(self.scheme, MiddlewareScheme) else self.scheme


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

    scheme: MiddlewareName | tuple[PositiveInt, ...] = MiddlewareScheme.Medium
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
    scheme: MiddlewareName | tuple[PositiveInt, ...] = MiddlewareScheme.Empty
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
