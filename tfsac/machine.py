"""Names of `tfsac.utils.machine` for code that has not moved yet."""

from tfsac.utils.machine import *  # noqa: F403
