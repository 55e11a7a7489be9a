"""The command with Spinning Up's flags."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import Any

from absl import flags

from tfsac.cli.checks import check_level, check_resumable, under_runs
from tfsac.cli.command import command, required
from tfsac.cli.failure import STOPPED
from tfsac.quiet import quiet_start

HELP = {
    "seed": "of weights, noise, sampling and environments",
    "steps_per_epoch": "environment steps of an epoch",
    "epochs": "how many",
    "replay_size": "transitions that the memory holds",
    "gamma": "discount",
    "polyak": "share of the old target at each update",
    "lr": "learning rate of policy and critics",
    "alpha": "weight of the entropy",
    "batch_size": "rows of an update",
    "start_steps": "environment steps with random actions",
    "update_after": "environment steps before those that lead to updates",
    "update_every": "environment steps between updates, and how many updates are then made",
    "num_test_episodes": "of the test of an epoch",
    "max_ep_len": "time limit of episodes in steps",
    "save_freq": "epochs between checkpoints",
}


def _defaults() -> dict[str, Any]:
    from tfsac.spinning_up.arguments import SpinningUpArguments

    return {field.name: getattr(SpinningUpArguments(), field.name) for field in dataclasses.fields(SpinningUpArguments)}


def _spinup_flags(f: flags.FlagValues) -> None:
    flags.DEFINE_string("env", "HalfCheetah-v5", "environment id", flag_values=f)
    flags.DEFINE_integer("hid", 256, "width of the hidden layers", lower_bound=1, flag_values=f)
    flags.DEFINE_integer("l", 2, "number of hidden layers", lower_bound=0, flag_values=f)
    for name, default in _defaults().items():
        define = flags.DEFINE_float if isinstance(default, float) else flags.DEFINE_integer
        define(name, default, HELP[name], flag_values=f)
    flags.DEFINE_string("exp_name", "sac", "name of the experiment, for plots", flag_values=f)
    flags.DEFINE_string("run_dir", None, "the run's folder (default: runs/<exp_name>/<time>-seed<seed>)", flag_values=f)
    flags.DEFINE_bool("resume", False, "continue the run in --run_dir; give the same flags again", flag_values=f)


@command("train with Spinning Up's flags, table and files", _spinup_flags)
def spinup(f: flags.FlagValues, rest: list[str]) -> int:
    """Trains soft actor-critic as Spinning Up does."""
    from tfsac.catalog import read_config
    from tfsac.files import check_run_dir, new_run_dir
    from tfsac.parameters import EnvironmentParameters, Preset, TwinSoftActorCriticAgentParameters
    from tfsac.spinning_up.arguments import SpinningUpArguments

    arguments: dict[str, Any] = {name: f[name].value for name in _defaults()}
    SpinningUpArguments(**arguments)  # wrong values are refused before TensorFlow loads
    under_runs(f, "exp_name")
    if f.resume:
        run_dir = pathlib.Path(required(f, "run_dir", "--resume needs --run_dir"))
        read_config(run_dir / "config.json")
        check_resumable(run_dir)
    else:
        run_dir = pathlib.Path(f.run_dir) if f.run_dir else new_run_dir(f.exp_name, f.seed)
        check_run_dir(run_dir)
    print(f"tfsac spinup: {'resuming' if f.resume else f.env}, seed {f.seed}, in {run_dir}", flush=True)
    check_level(Preset(TwinSoftActorCriticAgentParameters(), EnvironmentParameters(level=f.env)))
    with quiet_start():
        from tfsac.training.devices import configure

        configure()
        from tfsac.environments import make
        from tfsac.spinning_up.function import sac

    result = sac(
        functools.partial(make, f.env),
        ac_kwargs={"hidden_sizes": (f.hid,) * f.l},
        logger_kwargs={"output_dir": run_dir, "exp_name": f.exp_name, "resume": f.resume},
        **arguments,
    )
    if result.signal is not None:
        return STOPPED + result.signal
    print(f"{result.reason} at step {result.counters.env_steps}, best test {result.best_return:.1f}: {result.run_dir}")
    return 0
