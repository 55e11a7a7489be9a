"""Keras networks built from `NetworkParameters` and a `Spec`."""

from tfsac.networks.critic_ensembles import EnsembleQHead
from tfsac.networks.custom_models import check_models, check_weights
from tfsac.networks.forward import GraphForward, forward_of
from tfsac.networks.heads import (
    CategoricalHead,
    DiscreteQHead,
    FeaturesHead,
    GaussianHead,
    Head,
    PolicyHead,
    QHead,
    TrajectoryQHead,
    VHead,
)
from tfsac.networks.initializers import Initializers
from tfsac.networks.make_networks import ModelMaker, make_networks
from tfsac.networks.modes import compute
from tfsac.networks.network import Network
from tfsac.networks.numpy_forward import NumpyForward
from tfsac.networks.optimizer_steps import clip_gradients
from tfsac.networks.optimizers import adam, build_optimizer, learning_rate_of
from tfsac.networks.replicas import apply_on_replicas, polyak_average_on_replicas
from tfsac.networks.unit_weights import project, weight_norm

__all__ = [
    "CategoricalHead",
    "DiscreteQHead",
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
    "TrajectoryQHead",
    "VHead",
    "adam",
    "apply_on_replicas",
    "build_optimizer",
    "check_models",
    "check_weights",
    "clip_gradients",
    "compute",
    "forward_of",
    "learning_rate_of",
    "make_networks",
    "polyak_average_on_replicas",
    "project",
    "weight_norm",
]
