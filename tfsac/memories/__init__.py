"""Replay memories in NumPy arrays: rings of steps, and complete episodes. They load no TensorFlow."""

from tfsac.memories.demonstrations import (
    MINARI,
    Demonstrations,
    action_bounds_of,
    load_demonstrations,
    save_demonstrations,
)
from tfsac.memories.episodes import EpisodicMemory
from tfsac.memories.hindsight import HindsightMemory
from tfsac.memories.prior_data import PriorDataMemory, SQILMemory
from tfsac.memories.prioritized import PrioritizedMemory
from tfsac.memories.sequences import SequenceMemory
from tfsac.memories.storage import Allocate, in_ram, on_disk
from tfsac.memories.transitions import MemoryContext, TransitionMemory

__all__ = [
    "MINARI",
    "Allocate",
    "Demonstrations",
    "EpisodicMemory",
    "HindsightMemory",
    "MemoryContext",
    "PriorDataMemory",
    "PrioritizedMemory",
    "SQILMemory",
    "SequenceMemory",
    "TransitionMemory",
    "action_bounds_of",
    "load_demonstrations",
    "in_ram",
    "on_disk",
    "save_demonstrations",
]
