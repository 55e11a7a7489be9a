"""Checkpoints: agent, memory and the state of a run, written whole and checked before they are used."""

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
