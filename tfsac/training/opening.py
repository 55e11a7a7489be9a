"""What a run says before its first step."""

from __future__ import annotations

import pathlib
import platform

import numpy as np
import tensorflow as tf

from tfsac.agents import Agent
from tfsac.training.run_directory import RunDirectory


def opening(directory: RunDirectory, agent: Agent, tensorboard: bool) -> str:
    """Returns the folder of a run, its device, the number of its parameters and where TensorBoard finds it.

    Args:
        directory: of the run.
        agent: with its networks.
        tensorboard: whether the run writes events.
    """
    sizes = {
        name: sum(int(np.prod(variable.shape)) for variable in network.trainable_variables)
        for name, network in agent.networks.items()
    }
    networks = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
    lines = [
        f"run         {directory.shown()}",
        f"device      {device()}",
        f"parameters  {sum(sizes.values()):,} ({networks})",
    ]
    if tensorboard:
        lines.append(f"curves      tensorboard --logdir={directory.shown()}")
    return "\n".join(lines)


def device() -> str:
    """Returns the GPUs that TensorFlow sees, or the CPU and its number of threads."""
    gpus = tf.config.get_visible_devices("GPU")
    if gpus:
        names = [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus]
        return ", ".join(names)
    inter, intra = tf.config.threading.get_inter_op_parallelism_threads(), tf.config.threading.get_intra_op_parallelism_threads()
    threads = f"{inter or 'all'} x {intra or 'all'} threads"
    return f"{_cpu()}, {threads}"


def _cpu() -> str:
    """Returns the model of the processor."""
    listed = pathlib.Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.is_file() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
