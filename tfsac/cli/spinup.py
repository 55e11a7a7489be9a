"""The command with Spinning Up's flags."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import Any

from absl import flags

from tfsac.cli.command import command, required, switch, text, whole
from tfsac.cli.learning import check_level
from tfsac.utils.machine import SIGNALLED


def _spinup_flags(f: flags.FlagValues) -> None:
    from tfsac.cli.field_flags import define_fields
    from tfsac.spinning_up.sac_arguments import SpinningUpArguments

    text(f, "env", "environment id", "HalfCheetah-v5")
    whole(f, "hid", 256, "width of the hidden layers")
    whole(f, "l", 2, "number of hidden layers", least=0)
    define_fields(f, SpinningUpArguments)
    text(f, "exp_name", "name of the experiment, for plots", "sac")
    text(f, "run_dir", "the run's folder (default: runs/<exp_name>/<time>-seed<seed>)")
    switch(f, "resume", "continue the run in --run_dir; give the same flags again")


@command("train with Spinning Up's flags, table and files", _spinup_flags)
def spinup(f: flags.FlagValues, rest: list[str]) -> int:
    """Trains soft actor-critic as Spinning Up does."""
    from tfsac.parameters import EnvironmentParameters, Preset, TwinSoftActorCriticAgentParameters
    from tfsac.spinning_up.sac_arguments import SpinningUpArguments
    from tfsac.utils.files import new_run_dir

    arguments: dict[str, Any] = {field.name: f[field.name].value for field in dataclasses.fields(SpinningUpArguments)}
    SpinningUpArguments(**arguments)  # wrong values are refused before TensorFlow loads
    if f.resume:
        run_dir = pathlib.Path(required(f, "run_dir"))
    else:
        run_dir = pathlib.Path(f.run_dir) if f.run_dir else new_run_dir(f.exp_name, f.seed)
    print(f"tfsac spinup: {'resuming' if f.resume else f.env}, seed {f.seed}, in {run_dir}", flush=True)
    check_level(Preset(TwinSoftActorCriticAgentParameters(), EnvironmentParameters(level=f.env)))
    from tfsac.training.devices import configure

    configure()
    from tfsac.environments import make
    from tfsac.spinning_up.sac_function import sac

    result = sac(
        functools.partial(make, f.env),
        ac_kwargs={"hidden_sizes": (f.hid,) * f.l},
        logger_kwargs={"output_dir": run_dir, "exp_name": f.exp_name, "resume": f.resume},
        **arguments,
    )
    if result.signal is not None:
        return SIGNALLED + result.signal
    print(f"{result.reason} at step {result.counters.env_steps}, best test {result.best_return:.1f}: {result.run_dir}")
    return 0
