"""Keras networks built from `NetworkParameters` and a `Spec`.

A network reads observations through embedders (`observations.py`), continues with the layers of a body (`bodies.py`)
and optionally an LSTM, and ends with a head (`heads.py`). `inference.py` evaluates it outside updates.
"""

from tfsac.networks.heads import CategoricalHead, FeaturesHead, GaussianHead, Head, PolicyHead, QHead, VHead
from tfsac.networks.inference import GraphForward, NumpyForward, forward_of
from tfsac.networks.initializers import Initializers
from tfsac.networks.make_networks import ModelMaker, make_networks
from tfsac.networks.network import Network

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
    "forward_of",
    "make_networks",
]
