"""Gymnasium and PettingZoo environments: making, checking, normalising and stepping several side by side. No
TensorFlow.
"""

from tfsac.environments.check import EnvironmentFailure, check
from tfsac.environments.make import checked, make, maker
from tfsac.environments.normalization import Filters
from tfsac.environments.pettingzoo_team import Team
from tfsac.environments.report import EnvironmentReport, check_environment, check_environments
from tfsac.environments.spaces import (
    ActionNumbering,
    ActionRescaling,
    FrameStack,
    action_map,
    as_arrays,
    checked_action,
    name_of_environment,
    spec_of,
)
from tfsac.environments.subprocesses import IsolatedEnvironment
from tfsac.environments.vectorize import Environments, episode_seed

__all__ = [
    "ActionNumbering",
    "ActionRescaling",
    "EnvironmentFailure",
    "EnvironmentReport",
    "Environments",
    "Filters",
    "FrameStack",
    "IsolatedEnvironment",
    "Team",
    "action_map",
    "as_arrays",
    "check",
    "check_environment",
    "check_environments",
    "checked",
    "checked_action",
    "episode_seed",
    "make",
    "maker",
    "name_of_environment",
    "spec_of",
]
