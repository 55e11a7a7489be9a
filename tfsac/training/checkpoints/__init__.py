"""Checkpoints: agent, memory and the state of a run, written atomically and verified before use."""

from tfsac.training.checkpoints.checkpoint import CheckpointManager, Restored, identity_of, read_agent
from tfsac.training.checkpoints.format import FORMAT, CheckpointError

__all__ = [
    "FORMAT",
    "CheckpointError",
    "CheckpointManager",
    "Restored",
    "identity_of",
    "read_agent",
]
