"""Replay memories: NumPy rings. No TensorFlow."""

from tfsac.memories.transitions import TransitionMemory

__all__ = ["TransitionMemory"]
