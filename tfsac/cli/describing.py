"""The commands that describe: the presets, one of them resolved, and this machine."""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
from typing import TYPE_CHECKING

from absl import flags

from tfsac.cli.command import command, switch

if TYPE_CHECKING:
    from tfsac.parameters import Preset

CPU_FLAGS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")
VARIABLES = (
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "TF_CONFIG",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_ENABLE_ONEDNN_OPTS",
    "XLA_FLAGS",
    "MUJOCO_GL",
)


@command("list the presets", lambda f: None)
def presets(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints name and description of every preset."""
    print_presets()
    return 0


def print_presets() -> None:
    """Prints a line for every preset."""
    from tfsac.catalog import describe_preset, preset_names

    names = preset_names()
    for name in names:
        print(f"{name:<{max(map(len, names))}}  {describe_preset(name)}")


def _show_flags(f: flags.FlagValues) -> None:
    from tfsac.cli.learning import preset_flags

    preset_flags(f)
    switch(f, "json", "as JSON, which --preset=FILE.json takes")


@command("print every parameter of a preset, as flags change it", _show_flags)
def show(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints a preset as lines `path=value`, as --set takes them, or as JSON; for a --level also its networks."""
    from tfsac import catalog
    from tfsac.cli.learning import preset_of
    from tfsac.parameters import to_json
    from tfsac.utils.imports import IMPORT_FOLDERS

    preset, run = preset_of(f)
    if f.json:
        shown = {"preset": to_json(preset), "run": to_json(run), "import_folders": IMPORT_FOLDERS}
        print(json.dumps(shown, indent=2))
        return 0
    catalog.show(preset)
    if f.level is not None:
        _show_networks(preset)
    return 0


def _show_networks(preset: Preset) -> None:
    """Prints the networks that are built for the preset's level, with what --set takes to change their widths."""
    from tfsac.environments import maker, spec_of
    from tfsac.experiments.search_space import WIDTHS
    from tfsac.parameters import RunParameters, to_json
    from tfsac.parameters.overrides import text_of
    from tfsac.utils.files import leaves

    (env := maker(preset.environment)()).close()
    spec = spec_of(env)
    from tfsac.training.build import build_agent

    networks = build_agent(preset, RunParameters(), spec).networks
    for name in preset.agent.networks:
        shapes = [tuple(variable.shape) for variable in networks[name].trainable_variables]
        kernels = " ".join("x".join(map(str, shape)) for shape in shapes if len(shape) > 1)
        print(f"# network {name}: {sum(map(math.prod, shapes)):,} weights, kernels {kernels}")
        tree = to_json(networks[name].parameters)
        for path, value in leaves(tree, f"agent.networks.{name}"):
            if path.rpartition(".")[2] in WIDTHS:
                print(f"#   --set={shlex.quote(f'{path}={text_of(value)}')}")


@command("print versions, devices and threads, for reports of errors", lambda f: None)
def info(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints what a report of an error needs to know about this machine."""
    import tensorflow as tf

    from tfsac.training.run_directory import provenance
    from tfsac.utils.machine import cpu, usable_cores, usable_memory

    devices = [
        f"{device.name} ({details['device_name']})"
        if (details := tf.config.experimental.get_device_details(device))
        else device.name
        for device in tf.config.list_physical_devices()
    ]
    described = provenance()
    model, present = cpu()
    lines = {
        "platform": platform.platform(),
        "cpu": f"{model}, {os.cpu_count()} cores, {usable_cores()} usable",
        "cpu flags": " ".join(name for name in CPU_FLAGS if name in present) or f"none of {' '.join(CPU_FLAGS)}",
        "memory": f"{usable_memory() / 2**30:.1f} GiB",
        "devices": ", ".join(devices),
        "threads": f"intra-op {tf.config.threading.get_intra_op_parallelism_threads()}, "
        f"inter-op {tf.config.threading.get_inter_op_parallelism_threads()} (0: TensorFlow chooses)",
        **{name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    for name, text in {**described["versions"], **lines}.items():
        print(f"{name:<24}{text}")
    return 0
