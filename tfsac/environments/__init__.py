"""Create, check, normalise and step Gymnasium and PettingZoo environments. Does not import TensorFlow."""

from tfsac.environments.actions import action_map, checked_action, flat_mask, nested_mask
from tfsac.environments.checked_env import EnvironmentFailure, check
from tfsac.environments.environment_check import EnvironmentReport, check_environment
from tfsac.environments.goals import GoalFunctions
from tfsac.environments.make import EnvFn, Maker, checked, make, maker
from tfsac.environments.normalization import Filters
from tfsac.environments.pettingzoo_team import Team
from tfsac.environments.spaces import FrameStack, as_arrays, name_of_environment, spec_of
from tfsac.environments.vector_env import VectorEnvironments
from tfsac.environments.vectorize import Environments

__all__ = [
    "EnvFn",
    "EnvironmentFailure",
    "EnvironmentReport",
    "Environments",
    "Filters",
    "FrameStack",
    "GoalFunctions",
    "Maker",
    "Team",
    "VectorEnvironments",
    "action_map",
    "as_arrays",
    "check",
    "check_environment",
    "checked",
    "checked_action",
    "flat_mask",
    "make",
    "maker",
    "name_of_environment",
    "nested_mask",
    "spec_of",
]
