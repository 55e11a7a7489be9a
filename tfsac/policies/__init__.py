"""Policies choose actions: they know networks, distributions and their own state, but no losses or optimizers."""

from tfsac.policies.base_policy import BasePolicy, Mode
from tfsac.policies.exploration import AdditiveNoise, EpsilonGreedy, Exploration, NoiseRepetition
from tfsac.policies.hybrid import HybridPolicy
from tfsac.policies.recurrent import (
    RecurrentCategoricalPolicy,
    RecurrentGaussianPolicy,
    RecurrentPolicy,
    RecurrentSACCategoricalPolicy,
    RecurrentSACGaussianPolicy,
)
from tfsac.policies.stateless import CategoricalPolicy, SquashedGaussianPolicy, StatelessPolicy
from tfsac.policies.temporally_abstract import TemporallyAbstractPolicy

__all__ = [
    "AdditiveNoise",
    "BasePolicy",
    "CategoricalPolicy",
    "EpsilonGreedy",
    "Exploration",
    "HybridPolicy",
    "Mode",
    "NoiseRepetition",
    "RecurrentCategoricalPolicy",
    "RecurrentGaussianPolicy",
    "RecurrentPolicy",
    "RecurrentSACCategoricalPolicy",
    "RecurrentSACGaussianPolicy",
    "SquashedGaussianPolicy",
    "StatelessPolicy",
    "TemporallyAbstractPolicy",
]
