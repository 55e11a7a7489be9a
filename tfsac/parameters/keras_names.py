"""Keras's optimizers by name, what each of them takes, activations and initializers: known without importing Keras."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from tfsac.parameters.base import Integer, ParameterError, nearest

ACTIVATIONS = (
    "celu",
    "elu",
    "exponential",
    "gelu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_silu",
    "hard_tanh",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_shrink",
    "softmax",
    "softplus",
    "softsign",
    "sparse_plus",
    "sparse_sigmoid",
    "sparsemax",
    "squareplus",
    "swish",
    "tanh",
    "tanh_shrink",
)

Decay = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
NotPositive = Annotated[float, Field(le=0)]
Count = Annotated[Integer, Field(ge=1)]


class Takes(NamedTuple):
    """What an optimizer takes beside a learning rate and a weight decay.

    Attributes:
        fields: arguments of Keras's class by the field of `NetworkParameters` that gives them.
        kwargs: types of the other arguments, which `optimizer_kwargs` gives.
    """

    fields: Mapping[str, str]
    kwargs: Mapping[str, Any]


EPSILON = {"optimizer_epsilon": "epsilon"}
MOMENTS = {**EPSILON, "adam_optimizer_beta1": "beta_1", "adam_optimizer_beta2": "beta_2"}
# Keras also has Ftrl, whose first step forgets the weights it begins with, and ScheduleFreeAdamW, which keeps its own
# copy of the first weights: neither can begin with those of another run.
OPTIMIZERS: Mapping[str, Takes] = {
    "Adam": Takes(MOMENTS, {"amsgrad": bool}),
    "AdamW": Takes(MOMENTS, {"amsgrad": bool}),
    "RMSProp": Takes({**EPSILON, "rms_prop_optimizer_decay": "rho"}, {"momentum": Decay, "centered": bool}),
    "SGD": Takes({}, {"momentum": Decay, "nesterov": bool}),
    "Adadelta": Takes(EPSILON, {"rho": Decay}),
    "Adafactor": Takes(
        {},
        {
            "beta_2_decay": NotPositive, "epsilon_1": Positive, "epsilon_2": Positive, "clip_threshold": Positive,
            "relative_step": bool,
        },
    ),
    "Adagrad": Takes(EPSILON, {"initial_accumulator_value": NotNegative}),
    "Adamax": Takes(MOMENTS, {}),
    "Lamb": Takes(MOMENTS, {}),
    "Lion": Takes({}, {"beta_1": Decay, "beta_2": Decay}),
    "Muon": Takes(
        EPSILON,
        {
            "adam_beta_1": Decay, "adam_beta_2": Decay, "adam_lr_ratio": Positive, "momentum": Decay,
            "nesterov": bool, "ns_steps": Count, "rms_rate": Positive,
            "muon_a": float, "muon_b": float, "muon_c": float,
        },
    ),
    "Nadam": Takes(MOMENTS, {}),
}  # fmt: skip


def _one_of(names: Collection[str]) -> AfterValidator:
    def check(name: str) -> str:
        name = "RMSProp" if name == "RMSprop" else name  # Coach writes it in one way and Keras in another
        if name not in names:
            raise ValueError(f"there is none of this name.{nearest(name, names)} Known are {', '.join(names)}")
        return name

    return AfterValidator(check)


Activation = Annotated[str, _one_of(ACTIVATIONS)]
OptimizerName = Annotated[str, _one_of(OPTIMIZERS)]
Initializer = Literal["xavier", "he", "orthogonal", "normalized_columns", "lecun_normal", "fan_in_uniform"]


def check_arguments(name: str, kwargs: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
    """Checks what an optimizer is given.

    Args:
        name: a key of `OPTIMIZERS`.
        kwargs: other arguments of Keras's class.
        changed: fields of optimizers that do not have their defaults, with their values.

    Raises:
        ParameterError: an argument or a field that this optimizer does not take, or a value of another type or range.
    """
    takes = OPTIMIZERS[name]
    by_argument = {argument: field for field, argument in takes.fields.items()} | {"learning_rate": "learning_rate"}
    for argument, value in kwargs.items():
        if argument in (*by_argument, "weight_decay"):
            raise ParameterError(
                f"The field {by_argument.get(argument, argument)} gives the optimizer's {argument}. "
                f"Received: optimizer_kwargs={{{argument!r}: {value!r}}}"
            )
        if argument not in takes.kwargs:
            has = f"has {', '.join(takes.kwargs)}" if takes.kwargs else "is empty"
            raise ParameterError(
                f"optimizer_kwargs of {name} {has}.{nearest(argument, takes.kwargs)} Received: {argument!r}"
            )
        try:
            TypeAdapter(takes.kwargs[argument], config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(
                value
            )
        except pydantic.ValidationError as error:
            wanted = re.sub(r"^Input should be ", "should be ", error.errors()[0]["msg"])
            raise ParameterError(
                f"{argument} of {name} {wanted}. Received: optimizer_kwargs={{{argument!r}: {value!r}}}"
            ) from None
    for field, value in changed.items():
        if field not in takes.fields:
            those = [other for other, its in OPTIMIZERS.items() if field in its.fields]
            raise ParameterError(
                f"{name} takes no {field}: leave out the field, or choose {' or '.join(those)}. "
                f"Received: {field}={value!r}"
            )
