"""Parameters of the networks: embedders by observation key, middleware, one head, optimizer (Coach's vocabulary)."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

from pydantic import Field

from tfsac.parameters.base import (
    Fraction,
    NonNegativeFloat,
    ParameterError,
    PositiveFloat,
    PositiveInt,
    UnusedIf,
    parameters,
    reject_unused_fields,
)
from tfsac.parameters.head_parameters import CategoricalPolicyHeadParameters, HeadParameters, SACPolicyHeadParameters
from tfsac.parameters.hidden_layers import FCMiddlewareParameters, MiddlewareParameters
from tfsac.parameters.keras_names import OPTIMIZERS, Activation, Initializer, OptimizerName
from tfsac.parameters.learning_rates import LearningRateDecayParameters

FEATURES = "features"  # the key under which networks read what a common one computes
OPTIMIZER_FIELDS = ("optimizer_epsilon", "adam_optimizer_beta1", "adam_optimizer_beta2", "rms_prop_optimizer_decay")


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


class EmbedderScheme(enum.StrEnum):
    """Named embedders: dense layers for a vector, convolutions for an image (`networks.embedders`)."""

    Empty = "Empty"
    Shallow = "Shallow"
    Medium = "Medium"
    Deep = "Deep"


# A scheme may also be given by its name.
EmbedderName = Annotated[EmbedderScheme, Field(strict=False)]


@parameters
class InputEmbedderParameters:
    """Turns one observation into features.

    Attributes:
        scheme: a named scheme, or the layers themselves: widths of dense layers and, for images, `Conv2d` before them.
        activation_function: after every layer.
        flatten: dense layers, without convolutions, over the entries of an image or of any other array.
    """

    scheme: EmbedderName | tuple[PositiveInt | Conv2d, ...] = EmbedderScheme.Medium
    activation_function: Activation = "relu"
    flatten: bool = False

    def __post_init__(self) -> None:
        scheme = () if isinstance(self.scheme, EmbedderScheme) else self.scheme
        convolutions = [isinstance(layer, Conv2d) for layer in scheme]
        if convolutions != sorted(convolutions, reverse=True) or (self.flatten and any(convolutions)):
            raise ParameterError(f"Convolutions come before dense layers, and not with flatten=True, got {scheme}")


MADE_BY = "made by "  # begins the one observation key of a network that a Python function makes


@parameters
class NetworkParameters(LearningRateDecayParameters):
    """One network and how it is trained.

    Attributes:
        head_parameters: what the network computes.
        input_embedders_parameters: an embedder for each observation key that the network reads.
        embedding_merger_type: how several embeddings become one; "sum" wants equal widths.
        middleware_parameters: layers after the merger.
        initializer: of all layers but the head's output.
        optimizer_type: "Adam", "AdamW", "RMSProp" or another one of Keras, by the name of its class.
        learning_rate: step size, at first.
        weight_decay: every step takes this part of the weights, times the learning rate, beside what the gradients
            change (decoupled, arXiv 1711.05101); None for Keras's usual one, 0.004 of AdamW and Muon and nothing of the
            others.
        optimizer_epsilon: added to the root of the second moment; by RMSProp inside the root.
        adam_optimizer_beta1, adam_optimizer_beta2: decay of the two moments of Adam, AdamW, Adamax, Lamb and Nadam.
        rms_prop_optimizer_decay: decay of RMSProp's second moment.
        optimizer_kwargs: other arguments of Keras's class by name, such as {"momentum": 0.9} of SGD.
        batch_size: rows of an update; the same for all networks of an agent.
        clip_gradients: bound for `gradients_clipping_method`, or None.
        l2_regularization: factor of half the squared kernels, added to the loss.
        replace_mse_with_huber_loss: linear beyond an error of 1 (networks that regress: V and Q).
        unit_weights: "kernels" scales each unit's column of every kernel to norm 1 at first and after every step (XQC);
            "all" also the scales and biases of each normalisation to the root of their number (FlashSAC); "none"
            neither. Only for networks of an ensemble of critics and their policy.
        create_target_network: keep a target network (of V, or of Q where there is no V; without it the critic's target
            uses the network itself).
    """

    head_parameters: HeadParameters
    input_embedders_parameters: Annotated[dict[str, InputEmbedderParameters], Field(min_length=1)] = Field(
        default_factory=lambda: {"observation": InputEmbedderParameters()}
    )
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
        """The Python function that makes the network; None for layers that these parameters describe."""
        key = next(iter(self.input_embedders_parameters))
        return key.removeprefix(MADE_BY) if key.startswith(MADE_BY) else None

    @property
    def loss_weight(self) -> float:
        """Factor of the head's loss."""
        return getattr(self.head_parameters, "loss_weight", 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.head_parameters, (SACPolicyHeadParameters, CategoricalPolicyHeadParameters)):
            reject_unused_fields(self, ["replace_mse_with_huber_loss"], "a policy, which does not regress")
        unused = set(OPTIMIZER_FIELDS) - set(OPTIMIZERS[self.optimizer_type])
        reject_unused_fields(self, unused, f"optimizer_type={self.optimizer_type!r}")
