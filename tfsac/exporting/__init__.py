"""Loads the policies of runs, and exports them as SavedModels or LiteRT files."""

from tfsac.exporting.exported import Exported, load_exported
from tfsac.exporting.loading import load_policy
from tfsac.exporting.policy_graph import PolicyGraph
from tfsac.exporting.saving import TOLERANCE, export, verify

__all__ = ["TOLERANCE", "Exported", "PolicyGraph", "export", "load_exported", "load_policy", "verify"]
