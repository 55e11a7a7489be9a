"""Gymnasium environments: making, checking, filtering and stepping several side by side. No TensorFlow."""

from tfsac.environments.check import EnvironmentFailure, check
from tfsac.environments.filters import Filters
from tfsac.environments.make import make, maker
from tfsac.environments.spaces import ActionRescaling, as_arrays, spec_of
from tfsac.environments.vectorize import Environments, StepResult, episode_seed

__all__ = [
    "ActionRescaling",
    "EnvironmentFailure",
    "Environments",
    "Filters",
    "StepResult",
    "as_arrays",
    "check",
    "episode_seed",
    "make",
    "maker",
    "spec_of",
]
