"""What the machine has. No TensorFlow."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Returns how many cores this process may use, which an affinity (taskset, a container) may limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
