"""The commands that train many runs: sweep, tune."""

from __future__ import annotations

import json
import pathlib
import shlex
import signal
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from tfsac.cli.command import choice, command, fields, flag_values, parse, required, switch, text, texts, whole
from tfsac.cli.learning import EXPERIMENT_NAME, NUM_SEEDS, RUN_PARAMETERS, SET, VARIED, default_run_dir, requested_run
from tfsac.errors import TfsacError
from tfsac.utils.machine import SIGNALLED, usable_cores

if TYPE_CHECKING:
    from tfsac.experiments.run_processes import PlannedRun, Series

SERIES = (  # what is trained, how many runs at a time, and where
    *VARIED,
    SET,
    fields(RUN_PARAMETERS, only=("seed",)),
    NUM_SEEDS,
    EXPERIMENT_NAME,
    text("run_dir", "the folder, a new one or one to resume (default: runs/<experiment_name>/<time>)"),
    whole("jobs", None, "runs at the same time, at most and by default as many as usable cores"),
    text("ray_address", "train on a Ray cluster: HOST:PORT, auto for the one of this machine, local to start one here"),
    whole("cpus_per_run", 1, "with --ray_address, cores of each run"),
)
# Flags of a series itself; all its others are of each of its runs.
OF_SERIES = ("run_dir", "experiment_name", "jobs", "ray_address", "cpus_per_run")
OF_SWEEP = (*OF_SERIES, "seed", "num_seeds", "grid")
OF_TUNING = (*OF_SERIES, "resume", "report")
OF_SEARCH = ("trials", "space", "last_evaluations", "pruner", "prune_after", "seed", "num_seeds")


@command(
    "train every combination of a grid, with several seeds",
    *SERIES,
    texts("grid", "path=value,value,...: values of a parameter or a flag to combine; may be repeated"),
)
def sweep(f: flags.FlagValues, rest: list[str]) -> int:
    """Trains the combinations, or resumes them, and compares them."""
    return train_grid(f, f.grid, f.jobs or usable_cores(), f.ray_address, f.cpus_per_run)


def train_grid(
    f: flags.FlagValues, grid: Sequence[str], jobs: int, ray_address: str | None = None, cpus_per_run: int = 1
) -> int:
    """Trains every combination of a grid with all seeds, or resumes them, and compares them."""
    from tfsac.experiments.grid import plan
    from tfsac.experiments.sweep import Sweep

    shared, seeds = present_flags(f, OF_SWEEP), range(f.seed, f.seed + f.num_seeds)
    combinations = plan(grid, list(flag_values(VARIED)), _describing(shared, seeds))
    level = check_startable([combination.experiment for combination in combinations])
    folder = pathlib.Path(f.run_dir) if f.run_dir else default_run_dir(f, level, None)
    series = Sweep(folder, combinations, seeds, shared)
    instead = " instead of --experiment_name" if f.experiment_name else ""
    advice = f"the same command with {shlex.quote(f'--run_dir={folder}')}{instead} resumes it"
    if status := _train(series, jobs, ray_address, cpus_per_run, advice):
        return status
    return 0 if series.report() and not series.failed else 1


def _train(series: Series, jobs: int, ray_address: str | None, cpus_per_run: int, advice: str) -> int:
    """Trains a series on this machine or a Ray cluster; returns the exit status of a signal, or 0."""
    if ray_address is None:
        stopped_by = series.train(jobs)
    else:
        from tfsac.distributed.ray_cluster import connect
        from tfsac.distributed.ray_jobs import RayJob, job_capacity

        with connect(ray_address) as ray:

            def launch(run: PlannedRun, cores: int | None) -> RayJob:
                return RayJob(ray, f"train {run.path}", run.starter(cpus_per_run), cpus_per_run)

            stopped_by = series.train(job_capacity(ray, cpus_per_run), cpus_per_run, launch)
    if stopped_by is None:
        return 0
    print(f"stopped by {signal.Signals(stopped_by).name}; {advice}")
    return SIGNALLED + stopped_by


def present_flags(f: flags.FlagValues, without: Collection[str]) -> list[str]:
    """Returns the flags that were given, some left out, as one types them."""
    typed: list[str] = []
    for flag in (f[name] for name in f if f[name].present and name not in without):
        repeated = isinstance(flag, flags.MultiFlag)
        typed += [f"--{flag.name}={value}" for value in flag.value or ()] if repeated else [flag.serialize()]
    return list(filter(None, typed))


def _describing(shared: list[str], seeds: range) -> Callable[[list[str]], dict[str, Any]]:
    """Returns what tells which experiment, as JSON values, `train` makes of the shared flags and more; all of its
    seeds are checked by the last.
    """
    from tfsac.parameters import to_json

    def describe(more: list[str]) -> dict[str, Any]:
        f, _ = parse("train", [*shared, *more, f"--seed={seeds[-1]}"])
        preset, run = requested_run(f)
        other_flags = {name: f[name].value for name in ("checkpoint_restore_dir", "restore_memory", "use_cpu")}
        return {"preset": to_json(preset), "run": {**to_json(run), "seed": None}, **other_flags}

    return describe


def check_startable(experiments: Sequence[dict[str, Any]]) -> str:
    """Makes the environment of every experiment once, refuses what each run would, and returns the first level."""
    from tfsac.environments import maker, spec_of
    from tfsac.parameters import Preset, from_json
    from tfsac.types import check_actions

    checked: list[Any] = []
    for experiment in experiments:
        preset = from_json(Preset, json.dumps(experiment["preset"]))
        if experiment["run"]["strategy"] == "multi_worker":
            raise TfsacError("--strategy=multi_worker trains one run, on several workers; a sweep has many runs")
        if (pair := (preset.environment, preset.agent.kind)) in checked:
            continue
        checked.append(pair)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an old version that is used warns when the run makes it
            (env := maker(preset.environment)()).close()
        check_actions(preset.agent.kind, preset.agent.discrete_actions, spec_of(env).action)
    return str(checked[0][0].level)


@command(
    "search hyper-parameters with Optuna",
    *SERIES,
    texts(
        "space",
        "path=log(low, high), 1-log, uniform, int(low, high), choice(x, y, ...) or width(n, m, ...): what is searched; "
        "default: the agent's default space",
    ),
    whole("trials", 20, "how many, those of before included where it is resumed"),
    whole("last_evaluations", 1, "a trial's score is the mean of so many last evaluations"),
    choice("pruner", ["median", "hyperband", "none"], "what ends bad trials early"),
    whole("prune_after", 3, "evaluations of a trial before it may be pruned"),
    switch("resume", "continue the tuning in --run_dir, also to more --trials"),
    switch("report", "report what is in --run_dir instead of training"),
)
def tune(f: flags.FlagValues, rest: list[str]) -> int:
    """Trains trials, or resumes them, and reports the best ones."""
    from tfsac.experiments.search_space import search_space
    from tfsac.experiments.tuning import Tuning, import_optuna, report

    if f.report:
        print(report(pathlib.Path(required(f, "run_dir"))))
        return 0
    import_optuna()
    requested = f
    if f.resume:
        f = _with_earlier(f, pathlib.Path(required(f, "run_dir")))
    shared, seeds = present_flags(f, (*OF_TUNING, *OF_SEARCH)), range(f.seed, f.seed + f.num_seeds)
    describe = _describing(shared, seeds)
    experiment = describe([])
    space, left_out = search_space(f.space, describe, [text.partition("=")[0] for text in f.set])
    level = check_startable([experiment])
    folder = pathlib.Path(requested.run_dir) if requested.run_dir else default_run_dir(f, level, None)
    for line in left_out:
        print(line)
    settings = {name: f[name].value for name in ("last_evaluations", "pruner", "prune_after", "trials")}
    # With the whole space, for the defaults of another version may differ.
    arguments = [*present_flags(f, (*OF_TUNING, "space")), *(f"--space={dimension.text}" for dimension in space)]
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
    """Returns the flags with which a tuning was started, and those that are given now in their place."""
    from tfsac.experiments.tuning import PLAN
    from tfsac.utils.files import read_object

    present = [name for name in f if f[name].present]
    earlier, _ = parse("tune", read_object(folder / PLAN)["arguments"])
    return parse("tune", [*present_flags(earlier, present), *present_flags(f, OF_TUNING)])[0]
