"""Devices, threads and distribution strategies."""

from __future__ import annotations

import functools
import os
import sys

import tensorflow as tf

from tfsac.distributed.partition import WorkerTask
from tfsac.errors import TfsacError
from tfsac.networks.bfloat16 import use_bfloat16, warning_about_bfloat16
from tfsac.parameters import RunParameters
from tfsac.utils.machine import cpu, usable_cores, use_tensorflow

THREADS = ("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS")
CONFIGURED: list[int] = []  # process id; a forked child inherits its parent's


def configure(use_cpu: bool = False) -> str | None:
    """Sets TensorFlow up for this process; call it before anything else touches TensorFlow.

    GPUs are used if available, unless `use_cpu`, with memory growth so that other processes can share them. On the CPU,
    the operations of a small update run in parallel on the cores, unless TF_NUM_INTEROP_THREADS or
    TF_NUM_INTRAOP_THREADS is set. Returns a warning if TensorFlow was already in use, so that nothing could be set.
    """
    CONFIGURED.append(os.getpid())
    gpus = tf.config.list_physical_devices("GPU")
    try:
        if use_cpu:
            tf.config.set_visible_devices([], "GPU")
        else:
            for gpu in gpus:
                tf.config.experimental.set_memory_growth(gpu, True)
        if (use_cpu or not gpus) and not any(name in os.environ for name in THREADS):
            # On two cores with 2 x 256 units and batch 256, this is a quarter faster than TensorFlow's defaults.
            tf.config.threading.set_inter_op_parallelism_threads(usable_cores())
            tf.config.threading.set_intra_op_parallelism_threads(1)
    except (RuntimeError, ValueError):
        return (
            "TensorFlow was used before tfsac could set its threads and devices, so training may be slower: "
            "call tfsac before other TensorFlow code, or set TF_NUM_INTEROP_THREADS and TF_NUM_INTRAOP_THREADS=1."
        )
    return None


def configure_once() -> str | None:
    """Sets TensorFlow up as the command line does, unless this process has already done so; see `configure`."""
    use_tensorflow()
    return None if CONFIGURED else configure()


def set_numerics(run: RunParameters) -> str | None:
    """Sets determinism, XLA and precision for this process. Returns a warning if bfloat16 is slow here; else None.

    Raises:
        TfsacError: `jit_compile` is set and XLA cannot compile, for example because CUDA libraries are missing.
    """
    if run.deterministic:
        tf.config.experimental.enable_op_determinism()
    if run.jit_compile:
        try:
            tf.function(tf.exp, jit_compile=True)(tf.zeros([2]))
        except tf.errors.OpError as error:
            raise TfsacError(f"jit_compile needs XLA, which cannot compile for {device()}: {error.message}") from error
    narrow = run.mixed_precision == "bfloat16"
    use_bfloat16(narrow)
    return warning_about_bfloat16() if narrow else None


def make_strategy(run: RunParameters, task: WorkerTask) -> tf.distribute.Strategy:
    """Returns the distribution strategy of a run: for "none" the one in scope, else one shared by all runs of this
    process. Workers connect on the first call.
    """
    named = run.strategy != "none"
    return _strategy(run.strategy, run.num_devices, task) if named else tf.distribute.get_strategy()


# A second strategy on the same devices would reuse the ids of the first one's collective operations.
@functools.cache
def _strategy(name: str, num_devices: int | None, task: WorkerTask) -> tf.distribute.Strategy:
    if name == "multi_worker":
        print(f"tfsac: waiting for all workers of {', '.join(task.addresses)}", file=sys.stderr, flush=True)
        return tf.distribute.MultiWorkerMirroredStrategy()
    if name == "mirrored":
        # Logical CPU devices share memory: summing on the first is faster than a ring (benchmarks/devices.py).
        one_memory = not tf.config.get_visible_devices("GPU")
        sum_on = tf.distribute.ReductionToOneDevice() if one_memory else None
        return tf.distribute.MirroredStrategy(_devices(num_devices), sum_on)
    return tf.distribute.OneDeviceStrategy("/gpu:0" if tf.config.get_visible_devices("GPU") else "/cpu:0")


def _devices(count: int | None) -> list[str]:
    """Returns the names of the GPUs, or of logical CPU devices if there is no GPU."""
    kind = "GPU" if tf.config.get_visible_devices("GPU") else "CPU"
    cpu = tf.config.list_physical_devices("CPU")[0]
    if kind == "CPU" and tf.config.get_logical_device_configuration(cpu) is None:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * (count or 2))
    names = [device.name for device in tf.config.list_logical_devices(kind)]
    if count and count > len(names):
        raise TfsacError(f"num_devices must be <= {len(names)}, the number of available devices, got {count}")
    return names[:count]


def device() -> str:
    """Returns the names of the GPUs that TensorFlow sees, or of the CPU."""
    gpus = tf.config.get_visible_devices("GPU")
    names = [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus]
    return ", ".join(names) or cpu()
