"""Keras's activations and initializers by name, and its optimizers with the fields that each of them takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator

ACTIVATIONS = (
    "celu", "elu", "exponential", "gelu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_tanh", "leaky_relu",
    "linear", "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink",
    "softmax", "softplus", "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus", "swish", "tanh",
    "tanh_shrink",
)  # fmt: skip

EPSILON = {"optimizer_epsilon": "epsilon"}
MOMENTS = {**EPSILON, "adam_optimizer_beta1": "beta_1", "adam_optimizer_beta2": "beta_2"}
# By name, arguments of Keras's class by the field of `NetworkParameters` that gives them. Keras also has Ftrl, whose
# first step forgets the weights it begins with, and ScheduleFreeAdamW, which keeps its own copy of the first weights:
# neither can begin with those of another run.
OPTIMIZERS: Mapping[str, Mapping[str, str]] = {
    "Adam": MOMENTS,
    "AdamW": MOMENTS,
    "RMSProp": {**EPSILON, "rms_prop_optimizer_decay": "rho"},
    "SGD": {},
    "Adadelta": EPSILON,
    "Adafactor": {},
    "Adagrad": EPSILON,
    "Adamax": MOMENTS,
    "Lamb": MOMENTS,
    "Lion": {},
    "Muon": EPSILON,
    "Nadam": MOMENTS,
}


def _one_of(names: Collection[str]) -> AfterValidator:
    def check(name: str) -> str:
        name = "RMSProp" if name == "RMSprop" else name  # Coach writes it in one way and Keras in another
        if name not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return name

    return AfterValidator(check)


Activation = Annotated[str, _one_of(ACTIVATIONS)]
OptimizerName = Annotated[str, _one_of(OPTIMIZERS)]
Initializer = Literal["xavier", "he", "orthogonal", "normalized_columns", "lecun_normal", "fan_in_uniform"]
