"""Keras networks built from `NetworkParameters` and a `Spec`."""

from tfsac.networks.custom_models import check_models
from tfsac.networks.heads import CategoricalHead, FeaturesHead, GaussianHead, Head, PolicyHead, QHead, VHead
from tfsac.networks.inference import GraphForward, NumpyForward, forward_of
from tfsac.networks.initializers import Initializers
from tfsac.networks.make_networks import ModelMaker, make_networks
from tfsac.networks.network import Network
from tfsac.networks.optimizers import (
    adam,
    apply_on_replicas,
    assign,
    build_optimizer,
    clip_gradients,
    learning_rate_of,
)
from tfsac.networks.unit_weights import project, weight_norm

EnsembleQHead = QHead  # its earlier name

__all__ = [
    "CategoricalHead",
    "EnsembleQHead",
    "FeaturesHead",
    "GaussianHead",
    "GraphForward",
    "Head",
    "Initializers",
    "ModelMaker",
    "Network",
    "NumpyForward",
    "PolicyHead",
    "QHead",
    "VHead",
    "adam",
    "apply_on_replicas",
    "assign",
    "build_optimizer",
    "check_models",
    "clip_gradients",
    "forward_of",
    "learning_rate_of",
    "make_networks",
    "project",
    "weight_norm",
]
