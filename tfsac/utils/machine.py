"""What the machine has, and how it asks a process to end. No TensorFlow."""

from __future__ import annotations

import os
import pathlib
import platform
import re
import signal

from tfsac.errors import TfsacError

CGROUP = pathlib.Path("/sys/fs/cgroup")  # of this process in a container, version 2
SIGNALLED = 128  # plus the number of the signal that ended a process: its exit status, as shells have it
TENSORFLOW_IN: list[int] = []  # ids of the processes that compute with TensorFlow; a forked child has its parent's
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def usable_cores() -> int:
    """Returns how many cores this process may use, which an affinity (taskset) or a container's quota may limit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _limit("cpu.max").partition(" ")  # microseconds in each period of so many
    return max(1, min(cores, -(-int(quota) // int(period)))) if quota.isdecimal() and period.isdecimal() else cores


def cpu() -> str:
    """Returns the name of the processor."""
    path = pathlib.Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*: (.*)$", path.read_text() if path.is_file() else "", re.MULTILINE)
    return models[0] if models else platform.machine()


def usable_memory() -> int:
    """Returns the bytes of RAM that this process may use, which a container may limit."""
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _limit("memory.max")
    return min(ram, int(limit)) if limit.isdecimal() else ram


def use_tensorflow() -> None:
    """Notes that this process computes with TensorFlow; raises TfsacError where it was forked from one that did, whose
    threads TensorFlow would wait for forever.
    """
    if os.getpid() not in TENSORFLOW_IN:
        if TENSORFLOW_IN:
            raise TfsacError("TensorFlow cannot be used in a forked process: use multiprocessing.get_context('spawn')")
        TENSORFLOW_IN.append(os.getpid())


def ending_signals() -> list[signal.Signals]:
    """Returns the signals that end this process; nohup, for one, has it ignore SIGHUP."""
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]


def _limit(name: str) -> str:
    try:
        return (CGROUP / name).read_text().strip()
    except OSError:
        return ""
