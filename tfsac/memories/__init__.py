"""Replay memories: NumPy rings. No TensorFlow."""

from tfsac.memories.demonstrations import MINARI, Demonstrations, load_demonstrations, save_demonstrations
from tfsac.memories.prioritized import PrioritizedMemory
from tfsac.memories.sequences import SequenceMemory
from tfsac.memories.sqil import SQILMemory
from tfsac.memories.transitions import TransitionMemory

__all__ = [
    "MINARI",
    "Demonstrations",
    "PrioritizedMemory",
    "SQILMemory",
    "SequenceMemory",
    "TransitionMemory",
    "load_demonstrations",
    "save_demonstrations",
]
