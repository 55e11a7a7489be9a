"""Gymnasium and PettingZoo environments: making, checking, filtering and stepping several side by side. No
TensorFlow.
"""

from tfsac.environments.check import EnvironmentFailure, check
from tfsac.environments.env_fn import check_env_fn, name_of_environment
from tfsac.environments.environment_report import check_environment, check_environments
from tfsac.environments.filters import Filters
from tfsac.environments.findings import EnvironmentReport
from tfsac.environments.isolated import IsolatedEnvironment
from tfsac.environments.levels import refuse_unregistered
from tfsac.environments.make import checked, make, maker
from tfsac.environments.spaces import (
    ActionNumbering,
    ActionRescaling,
    FrameStack,
    action_map,
    as_arrays,
    check_mask,
    checked_action,
    spec_of,
)
from tfsac.environments.teams import Team
from tfsac.environments.vector_rewards import VectorRewards
from tfsac.environments.vectorize import Environments, StepResult, episode_seed

__all__ = [
    "ActionNumbering",
    "ActionRescaling",
    "IsolatedEnvironment",
    "EnvironmentFailure",
    "EnvironmentReport",
    "Environments",
    "Filters",
    "FrameStack",
    "StepResult",
    "Team",
    "VectorRewards",
    "action_map",
    "as_arrays",
    "check",
    "check_env_fn",
    "check_environment",
    "check_environments",
    "checked",
    "check_mask",
    "checked_action",
    "episode_seed",
    "make",
    "maker",
    "name_of_environment",
    "refuse_unregistered",
    "spec_of",
]
