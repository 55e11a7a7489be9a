"""Commands that describe an environment, the presets, a resolved preset, and this machine."""

from __future__ import annotations

import json
import os
import platform
import re

from absl import flags

from tfsac.cli.command_registry import boolean, command, integer, string, strings
from tfsac.cli.train import PRESET, assignments, requested_preset
from tfsac.errors import TfsacError

VARIABLES = re.compile("(TF|OMP)_NUM_.*|TF_CONFIG|TF_ENABLE_.*|CUDA_VISIBLE_DEVICES|XLA_FLAGS|MUJOCO_GL")


@command(
    "check an environment with random steps",
    string("level", "environment id, or MODULE:ID for a custom one"),
    string("preset", "check this preset's environment, and whether its agent fits"),
    strings("set", "path=value, such as environment.kwargs.size=3"),
    integer("num_steps", 1000, "number of random steps"),
    integer("seed", 0, "seed of the episodes and the actions", minimum=0),
)
def check(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints everything that prevents training or may be unexpected; the exit status is 1 if there is a problem."""
    from tfsac.environments import check_environment, maker, spec_of
    from tfsac.parameters import Preset, RunParameters, for_level, override
    from tfsac.preset_lookup import load_preset

    if not (f.level or f.preset):
        raise TfsacError("--level or --preset is required")
    preset = load_preset(f.preset) if f.preset else Preset()
    if f.level:
        preset = for_level(preset, f.level)
    preset = override(preset, assignments(f))
    environment = preset.environment
    print(f"tfsac check: {environment.level}, {f.num_steps} random steps, seed {f.seed}", flush=True)
    report = check_environment(environment, f.num_steps, f.seed)
    if report.usable and f.preset:
        try:
            (env := maker(environment)()).close()
            from tfsac.training.build import build_agent

            build_agent(preset, RunParameters(), spec_of(env))
        except (ValueError, TypeError) as error:
            report.problems.append(str(error))
    print(report)
    return 0 if report.usable else 1


@command("list the presets")
def presets(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints name and description of every preset."""
    from tfsac.preset_lookup import describe_preset, preset_names

    names = preset_names()
    for name in names:
        print(f"{name:<{max(map(len, names))}}  {describe_preset(name)}")
    return 0


@command(
    "print every parameter of a preset, after any changes by flags",
    *PRESET,
    boolean("json", "print JSON for --preset=FILE.json"),
)
def show(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints a preset as lines `path=value` for --set, or as JSON."""
    from tfsac import preset_lookup
    from tfsac.parameters import to_json
    from tfsac.utils.imports import IMPORT_FOLDERS

    preset, run = requested_preset(f)
    if f.json:
        content = {"preset": to_json(preset), "run": to_json(run), "import_folders": IMPORT_FOLDERS}
        print(json.dumps(content, indent=2))
        return 0
    preset_lookup.show(preset)
    return 0


@command("print versions, devices and threads, for bug reports")
def info(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints information about this machine for bug reports."""
    import tensorflow as tf

    from tfsac.training.run_directory import provenance
    from tfsac.utils.machine import cpu, usable_cores, usable_memory

    devices = [
        f"{device.name} ({details['device_name']})"
        if (details := tf.config.experimental.get_device_details(device))
        else device.name
        for device in tf.config.list_physical_devices()
    ]
    versions = provenance()
    lines = {
        "platform": platform.platform(),
        "cpu": f"{cpu()}, {os.cpu_count()} cores, {usable_cores()} usable",
        "memory": f"{usable_memory() / 2**30:.1f} GiB",
        "devices": ", ".join(devices),
        "threads": f"intra-op {tf.config.threading.get_intra_op_parallelism_threads()}, "
        f"inter-op {tf.config.threading.get_inter_op_parallelism_threads()} (0: TensorFlow chooses)",
        **{name: value for name, value in sorted(os.environ.items()) if VARIABLES.fullmatch(name)},
    }
    for name, value in {**versions["versions"], **lines}.items():
        print(f"{name:<24}{value}")
    return 0
