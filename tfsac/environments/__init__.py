"""Gymnasium and PettingZoo environments: making, checking, filtering and stepping several side by side. No
TensorFlow.
"""

from tfsac.environments.apart import Apart
from tfsac.environments.check import EnvironmentFailure, check
from tfsac.environments.filters import Filters
from tfsac.environments.make import checked, make, make_unchecked, maker
from tfsac.environments.own import check_env_fn, name_of_environment
from tfsac.environments.report import EnvironmentReport, check_environment
from tfsac.environments.spaces import ActionNumbering, ActionRescaling, action_map, as_arrays, spec_of
from tfsac.environments.teams import Team
from tfsac.environments.vector_rewards import VectorRewards
from tfsac.environments.vectorize import Environments, StepResult, episode_seed

__all__ = [
    "ActionNumbering",
    "ActionRescaling",
    "Apart",
    "EnvironmentFailure",
    "EnvironmentReport",
    "Environments",
    "Filters",
    "StepResult",
    "Team",
    "VectorRewards",
    "action_map",
    "as_arrays",
    "check",
    "check_env_fn",
    "check_environment",
    "checked",
    "episode_seed",
    "make",
    "make_unchecked",
    "maker",
    "name_of_environment",
    "spec_of",
]
