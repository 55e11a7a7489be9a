"""Cores, memory and termination signals of the machine. Loads no TensorFlow."""

from __future__ import annotations

import os
import pathlib
import platform
import re
import signal

from tfsac.errors import TfsacError

CGROUP = pathlib.Path("/sys/fs/cgroup")  # cgroup v2 of this process in a container
SIGNALLED = 128  # plus a signal's number: exit status of a process that the signal ended, as in shells
TENSORFLOW_IN: list[int] = []  # ids of processes that use TensorFlow; a forked child inherits its parent's
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def usable_cores() -> int:
    """Returns the number of cores that this process may use, given its affinity (taskset) and a container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _limit("cpu.max").partition(" ")  # both in microseconds
    return max(1, min(cores, -(-int(quota) // int(period)))) if quota.isdecimal() and period.isdecimal() else cores


def cpu() -> str:
    """Returns the name of the processor."""
    path = pathlib.Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*: (.*)$", path.read_text() if path.is_file() else "", re.MULTILINE)
    return models[0] if models else platform.machine()


def usable_memory() -> int:
    """Returns the bytes of RAM that this process may use, given a container's limit."""
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _limit("memory.max")
    return min(ram, int(limit)) if limit.isdecimal() else ram


def use_tensorflow() -> None:
    """Records that this process uses TensorFlow. Raises TfsacError if it was forked from a process that did: TensorFlow
    would wait forever for that process's threads.
    """
    if os.getpid() not in TENSORFLOW_IN:
        if TENSORFLOW_IN:
            raise TfsacError("TensorFlow cannot be used in a forked process: use multiprocessing.get_context('spawn')")
        TENSORFLOW_IN.append(os.getpid())


def ending_signals() -> list[signal.Signals]:
    """Returns the signals that end this process; under nohup, for example, it ignores SIGHUP."""
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]


def _limit(name: str) -> str:
    try:
        return (CGROUP / name).read_text().strip()
    except OSError:
        return ""
