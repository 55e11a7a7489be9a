"""Keras networks built from `NetworkParameters` and a `Spec`."""

from tfsac.networks.build import Network
from tfsac.networks.custom import check_models, check_weights
from tfsac.networks.forward import GraphForward, forward_of
from tfsac.networks.numpy_forward import NumpyForward
from tfsac.networks.optimizers import adam, build_optimizer, clip_gradients, take_step
from tfsac.networks.settings import check_settings

__all__ = [
    "GraphForward",
    "Network",
    "NumpyForward",
    "adam",
    "build_optimizer",
    "check_models",
    "check_settings",
    "check_weights",
    "clip_gradients",
    "forward_of",
    "take_step",
]
