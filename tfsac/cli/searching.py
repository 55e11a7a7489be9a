"""The command that searches hyper-parameters."""

from __future__ import annotations

import contextlib
import math
import pathlib
import shlex
import signal
from typing import Any

from absl import flags

from tfsac.cli.command import choice, command, parse, required, switch, text, texts, whole
from tfsac.cli.learning import (
    check_startable,
    default_run_dir,
    experiment_of,
    job_flags,
    jobs_of,
    on_cluster,
    present_flags,
    run_fields,
    run_flags,
    set_flag,
)
from tfsac.errors import TfsacError
from tfsac.utils.machine import SIGNALLED

# Flags of a tuning itself; all its others are of each of its runs.
FOLDER_FLAGS = ("run_dir", "experiment_name", "resume", "report", "jobs", "ray_address", "cpus_per_run")
SEARCH_FLAGS = ("trials", "space", "last_evaluations", "pruner", "prune_after", "seed", "num_seeds")


def _tune_flags(f: flags.FlagValues) -> None:
    run_flags(f)
    set_flag(f)
    run_fields(f, only=("seed",))
    texts(
        f,
        "space",
        "path=log(low, high), 1-log, uniform, int(low, high), choice(x, y, ...) or width(n, m, ...): what is searched; "
        "default: the agent's default space",
    )
    whole(f, "trials", 20, "how many, those of before included where it is resumed")
    whole(f, "num_seeds", 1, "seeds of every trial, from --seed on")
    whole(f, "last_evaluations", 1, "a trial's score is the mean of so many last evaluations")
    choice(f, "pruner", ["median", "hyperband", "none"], "what ends bad trials early")
    whole(f, "prune_after", 3, "evaluations of a trial before it may be pruned")
    text(f, "run_dir", "the tuning's folder, a new one (default: runs/<experiment_name>/<time>)")
    text(f, "experiment_name", "folder under runs/ (default: preset and level)")
    switch(f, "resume", "continue the tuning in --run_dir, also to more --trials")
    switch(f, "report", "report what is in --run_dir instead of training")
    job_flags(f)


@command("search hyper-parameters with Optuna", _tune_flags)
def tune(f: flags.FlagValues, rest: list[str]) -> int:
    """Trains trials, or resumes them, and reports the best ones."""
    from tfsac.experiments.search_space import search_space
    from tfsac.experiments.tuning import Tuning, import_optuna, report

    if f.report:
        print(report(pathlib.Path(required(f, "run_dir"))))
        return 0
    jobs, requested = jobs_of(f), f
    if f.resume:
        f = _with_earlier(f, pathlib.Path(required(f, "run_dir")))
    import_optuna()
    shared, seeds = present_flags(f, (*FOLDER_FLAGS, *SEARCH_FLAGS)), range(f.seed, f.seed + f.num_seeds)

    def describe(more: list[str]) -> dict[str, Any]:
        return experiment_of([*shared, *more, f"--seed={seeds[-1]}"])

    experiment = describe([])
    _check_last_evaluations(experiment["preset"]["schedule"], f.last_evaluations)
    space, left_out = search_space(f.space, describe, [text.partition("=")[0] for text in f.set])
    level = check_startable([experiment])
    folder = pathlib.Path(requested.run_dir) if requested.run_dir else default_run_dir(f, level, None)
    for line in left_out:
        print(line)
    settings = {name: f[name].value for name in ("last_evaluations", "pruner", "prune_after", "trials")}
    with contextlib.ExitStack() as connected:
        how: dict[str, Any] = {"jobs": jobs}
        if requested.ray_address is not None:
            how = connected.enter_context(on_cluster(requested.ray_address, requested.cpus_per_run))
        # With the whole space, for the defaults of another version may differ.
        arguments = [*present_flags(f, (*FOLDER_FLAGS, "space")), *(f"--space={dimension.text}" for dimension in space)]
        settings |= {"experiment": experiment, "seeds": list(seeds), "arguments": arguments}
        tuning = Tuning(folder, space, shared, describe, **settings)
        stopped_by = tuning.train(**how)
    if stopped_by is not None:
        folder_flag = shlex.quote(f"--run_dir={folder}")
        print(f"stopped by {signal.Signals(stopped_by).name}; tfsac tune {folder_flag} --resume continues it")
        return SIGNALLED + stopped_by
    try:
        print(report(folder))
    except ValueError as error:
        print(f"not reported: {error}")
        return 1
    return 0


def _check_last_evaluations(schedule: dict[str, str], last_evaluations: int) -> None:
    """Refuses, before hours of training, a score of more evaluations than a run's schedule of steps has."""
    from tfsac.parameters.steps import STEPS

    names = ("heatup_steps", "improve_steps", "steps_between_evaluation_periods")
    steps = [STEPS.fullmatch(schedule[name]) for name in names if schedule[name].startswith("EnvironmentSteps")]
    if len(steps) == len(names):
        heatup, improve, between = (int(matches[2]) for matches in steps if matches)
        if between and last_evaluations > (most := math.ceil((heatup + improve) / between)):
            raise TfsacError(f"last_evaluations must be <= {most}, the evaluations of a run, got {last_evaluations}")


def _with_earlier(f: flags.FlagValues, folder: pathlib.Path) -> flags.FlagValues:
    """Returns the flags with which a tuning was started, and those that are given now in their place."""
    from tfsac.experiments.tuning import PLAN
    from tfsac.utils.files import read_object

    present = [name for name in f if f[name].present]
    earlier, _ = parse("tune", read_object(folder / PLAN)["arguments"])
    return parse("tune", [*present_flags(earlier, present), *present_flags(f, FOLDER_FLAGS)])[0]
