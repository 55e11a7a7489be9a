"""Commands that train many runs: sweep, tune."""

from __future__ import annotations

import functools
import pathlib
import shlex
import signal
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from tfsac.cli.command_registry import (
    boolean,
    command,
    enum,
    fields,
    flag_values,
    integer,
    parse,
    required,
    string,
    strings,
)
from tfsac.cli.train import EXPERIMENT_NAME, NUM_SEEDS, RUN_PARAMETERS, SET, VARIED, requested_run, run_dir_of
from tfsac.errors import TfsacError
from tfsac.utils.machine import SIGNALLED, usable_cores

if TYPE_CHECKING:
    from tfsac.experiments.run_processes import PlannedRun, Series

SERIES = (  # flags of a series: the experiment, the number of parallel runs, and the folder
    *VARIED,
    SET,
    fields(RUN_PARAMETERS, only=("seed",)),
    NUM_SEEDS,
    EXPERIMENT_NAME,
    string("run_dir", "a new folder, or one to resume (default: runs/<experiment_name>/<time>)"),
    integer("jobs", None, "runs at the same time, at most and by default the number of usable cores"),
    string("ray_address", "train on a Ray cluster: HOST:PORT, auto for this machine's, local to start one here"),
    integer("cpus_per_run", 1, "with --ray_address, cores of each run"),
)
# Flags of the series itself; the others apply to each run.
SERIES_FLAGS = ("run_dir", "experiment_name", "jobs", "ray_address", "cpus_per_run")
SWEEP_FLAGS = (*SERIES_FLAGS, "seed", "num_seeds", "grid")
TUNING_FLAGS = (*SERIES_FLAGS, "resume", "report")
SEARCH_FLAGS = ("trials", "space", "last_evaluations", "pruner", "prune_after", "seed", "num_seeds")


@command(
    "train every combination of a grid, with several seeds",
    *SERIES,
    strings("grid", "path=value,value,...: values of a parameter or a flag to combine; may be repeated"),
)
def sweep(f: flags.FlagValues, rest: list[str]) -> int:
    """Trains the combinations, or resumes them, and compares them."""
    return train_grid(f, f.grid, f.jobs or usable_cores(), f.ray_address, f.cpus_per_run)


def train_grid(
    f: flags.FlagValues, grid: Sequence[str], jobs: int, ray_address: str | None = None, cpus_per_run: int = 1
) -> int:
    """Trains every combination of a grid with all seeds, or resumes them, and compares them."""
    from tfsac.experiments.sweep import Sweep, plan

    shared, seeds = present_flags(f, SWEEP_FLAGS), range(f.seed, f.seed + f.num_seeds)
    combinations = plan(grid, list(flag_values(VARIED)), functools.partial(experiment_of, shared, seeds[-1]))
    folder = run_dir_of(f, combinations[0].experiment["preset"]["environment"]["level"], None)
    series = Sweep(folder, combinations, seeds, shared)
    instead = " instead of --experiment_name" if f.experiment_name else ""
    advice = f"the same command with {shlex.quote(f'--run_dir={folder}')}{instead} resumes it"
    if status := _train(series, jobs, ray_address, cpus_per_run, advice):
        return status
    return 0 if series.report() and not series.failed else 1


def _train(series: Series, jobs: int, ray_address: str | None, cpus_per_run: int, advice: str) -> int:
    """Trains a series on this machine or a Ray cluster; returns 0, or the exit status for a signal."""
    if ray_address is None:
        stopped_by = series.train(jobs)
    else:
        from tfsac.distributed.ray_cluster import RayJob, connect, job_capacity
        from tfsac.experiments.run_processes import TRAIN

        with connect(ray_address) as ray:

            def launch(run: PlannedRun, cores: int | None) -> RayJob:
                start = functools.partial(run.start, cpus_per_run, train=TRAIN)
                return RayJob(ray, f"train {run.path}", start, cpus_per_run)

            stopped_by = series.train(job_capacity(ray, cpus_per_run), cpus_per_run, launch)
    if stopped_by is None:
        return 0
    print(f"stopped by {signal.Signals(stopped_by).name}; {advice}")
    return SIGNALLED + stopped_by


def present_flags(f: flags.FlagValues, without: Collection[str]) -> list[str]:
    """Returns the flags present on the command line, as typed, except those in `without`."""
    typed: list[str] = []
    for flag in (f[name] for name in f if f[name].present and name not in without):
        repeated = isinstance(flag, flags.MultiFlag)
        typed += [f"--{flag.name}={value}" for value in flag.value or ()] if repeated else [flag.serialize()]
    return list(filter(None, typed))


def experiment_of(shared: list[str], seed: int, more: list[str]) -> dict[str, Any]:
    """Returns the experiment of `train` with these flags, as JSON values; checks and omits the seed."""
    from tfsac.parameters import to_json

    f, _ = parse("train", [*shared, *more, f"--seed={seed}"])
    preset, run = requested_run(f)
    other_flags = {name: f[name].value for name in ("checkpoint_restore_dir", "restore_memory", "use_cpu")}
    return {"preset": to_json(preset), "run": {**to_json(run), "seed": None}, **other_flags}


@command(
    "search hyper-parameters with Optuna",
    *SERIES,
    strings(
        "space",
        "path=log(low, high), 1-log, uniform, int(low, high) or choice(x, y, ...): a parameter to search; "
        "default: the agent's default space",
    ),
    integer("trials", 20, "number of trials, including earlier ones of a resumed tuning"),
    integer("last_evaluations", 1, "a trial's score is the mean of this many last evaluations"),
    enum("pruner", ["median", "hyperband", "none"], "ends bad trials early"),
    integer("prune_after", 3, "evaluations of a trial before it may be pruned"),
    boolean("resume", "continue the tuning in --run_dir, optionally with more --trials"),
    boolean("report", "report the trials in --run_dir instead of training"),
)
def tune(f: flags.FlagValues, rest: list[str]) -> int:
    """Trains trials, or resumes them, and reports the best ones."""
    try:
        from tfsac.experiments.tuning import Tuning, report, search_space
    except ModuleNotFoundError as error:
        raise TfsacError("tuning needs Optuna: pip install 'tfsac[tune]'") from error

    if f.report:
        print(report(pathlib.Path(required(f, "run_dir"))))
        return 0
    requested = f
    if f.resume:
        f = _with_earlier(f, pathlib.Path(required(f, "run_dir")))
    shared, seeds = present_flags(f, (*TUNING_FLAGS, *SEARCH_FLAGS)), range(f.seed, f.seed + f.num_seeds)
    describe = functools.partial(experiment_of, shared, seeds[-1])
    experiment = describe([])
    space, left_out = search_space(f.space, describe, [text.partition("=")[0] for text in f.set])
    folder = run_dir_of(requested, experiment["preset"]["environment"]["level"], None)
    for line in left_out:
        print(line)
    settings = {name: f[name].value for name in ("last_evaluations", "pruner", "prune_after", "trials")}
    # Save the whole space, because another version may have other defaults.
    arguments = [*present_flags(f, (*TUNING_FLAGS, "space")), *(f"--space={dimension.text}" for dimension in space)]
    settings |= {"experiment": experiment, "seeds": list(seeds), "arguments": arguments}
    tuning = Tuning(folder, space, shared, describe, **settings)
    advice = f"tfsac tune {shlex.quote(f'--run_dir={folder}')} --resume continues it"
    jobs = requested.jobs or usable_cores()
    if status := _train(tuning, jobs, requested.ray_address, requested.cpus_per_run, advice):
        return status
    try:
        print(report(folder))
    except ValueError as error:
        print(f"not reported: {error}")
        return 1
    return 0


def _with_earlier(f: flags.FlagValues, folder: pathlib.Path) -> flags.FlagValues:
    """Returns the flags that a tuning was started with, overridden by the current ones."""
    from tfsac.experiments.tuning import PLAN
    from tfsac.utils.files import read_object

    present = [name for name in f if f[name].present]
    earlier, _ = parse("tune", read_object(folder / PLAN)["arguments"])
    return parse("tune", [*present_flags(earlier, present), *present_flags(f, TUNING_FLAGS)])[0]
