"""The commands that train: one run, or a sweep of runs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import pathlib
import shlex
import signal
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from tfsac.cli.command import command, parse, required, switch, text, texts, whole
from tfsac.errors import TfsacError
from tfsac.utils.machine import SIGNALLED

if TYPE_CHECKING:
    from tfsac.experiments.run_processes import PlannedRun
    from tfsac.parameters import Preset, RunParameters

# Flags of a sweep itself; all its others are of each of its runs.
SWEEP_FLAGS = ("run_dir", "experiment_name", "seed", "num_seeds", "grid", "jobs", "ray_address", "cpus_per_run")
# Run parameters that a grid does not vary.
SINGLE_RUN_FLAGS = ("seed", "ray_address", "num_actors", "actor_steps", "skip_damaged_rows")


def preset_flags(f: flags.FlagValues) -> None:
    """Defines what chooses a preset and changes it."""
    _level_flags(f)
    set_flag(f)


def _level_flags(f: flags.FlagValues) -> None:
    text(
        f,
        "preset",
        "name of a preset, a .py file that defines one, or a run's config.json "
        "(default: pendulum_sac, or with --level one for the level's actions)",
    )
    text(f, "level", "environment id, instead of the preset's")
    whole(f, "num_envs", None, "environments side by side")


def set_flag(
    f: flags.FlagValues, help: str = "path=value: changes one parameter, e.g. agent.algorithm.discount=0.98"
) -> None:
    """Defines --set."""
    texts(f, "set", help)


def run_flags(f: flags.FlagValues) -> None:
    """Defines what a grid may vary beside parameters."""
    _level_flags(f)
    text(f, "checkpoint_restore_dir", "initial weights: the best of this run's folder")
    switch(f, "restore_memory", "begin with that run's replay memory, too")
    switch(f, "use_cpu", "hide the GPUs")
    run_fields(f, without=SINGLE_RUN_FLAGS)


def run_fields(f: flags.FlagValues, without: Collection[str] = (), only: Collection[str] = ()) -> None:
    """Defines the flags of `RunParameters`, or of some of its fields."""
    # Not on top, for `tfsac --help` answers without Pydantic.
    from tfsac.cli.field_flags import define_fields
    from tfsac.parameters import RunParameters

    define_fields(f, RunParameters, without, only)


def _train_flags(f: flags.FlagValues) -> None:
    run_flags(f)
    set_flag(f)
    run_fields(f, only=SINGLE_RUN_FLAGS)
    text(f, "run_dir", "the run's folder (default: runs/<experiment_name>/<time>-seed<seed>)")
    text(f, "experiment_name", "folder under runs/ (default: preset and level)")
    whole(f, "num_seeds", 1, "train this many seeds, from --seed on, as a sweep without a grid")
    switch(f, "resume", "continue the run in --run_dir")
    texts(f, "logger", "send metrics also to wandb, mlflow or module:Class")
    switch(f, "print_networks_summary", "print the layers of every network")
    switch(f, "list", "list the presets instead of training")
    whole(f, "evaluate", None, "afterwards evaluate the best policy over this many episodes")


@command("train a preset", _train_flags)
def train(f: flags.FlagValues, rest: list[str]) -> int:
    """Trains one or several seeds."""
    from tfsac.cli.describing import print_presets
    from tfsac.cli.results import print_evaluation
    from tfsac.distributed.tf_config import worker_task

    if f.list:
        print_presets()
        return 0
    if f.num_seeds > 1:
        if f.resume or f.ray_address:
            instead = "the same command resumes it, and `tfsac sweep` trains on a cluster"
            raise TfsacError(f"--num_seeds above 1 takes neither --resume nor --ray_address: {instead}")
        return _train_all(f, [], 1)
    preset, run = requested_run(f)
    task = worker_task(run)
    if task.num_workers > 1 and not f.run_dir:
        raise TfsacError("--run_dir is required for several workers: a folder that all of them share")
    run_dir = pathlib.Path(f.run_dir) if f.run_dir else default_run_dir(f, preset.environment.level, run.seed)
    if task.is_chief:
        what = "resuming" if f.resume else f"{preset_name(f)},"
        print(f"tfsac train: {what} {preset.environment.level}, seed {run.seed}", flush=True)
        for remark in () if f.resume else remarks(f):
            print(remark, flush=True)
    check_level(preset)
    from tfsac.training.devices import configure

    configure(f.use_cpu)
    from tfsac import api
    from tfsac.training import Trainer

    begun = {"initial_weights": f.checkpoint_restore_dir, "restore_memory": f.restore_memory}
    trainer = Trainer(preset, run_dir, run, f.resume, loggers=f.logger, **begun)
    if f.print_networks_summary:
        for network in trainer.agent.networks.values():
            network.model.summary(line_length=100)
    result = api.finish(trainer)
    if result.signal is not None:
        return SIGNALLED + result.signal
    if not task.is_chief:
        return 0
    best = "" if result.best_return is None else f", best evaluation {result.best_return:.1f}"
    best += "" if result.best_step is None else f" at step {result.best_step}"
    print(f"{result.reason} at step {result.counters.env_steps}{best}")
    print(f"  curve   {run_dir / 'learning_curve.png'}\n  policy  {run_dir / 'policy'}")
    if result.accepted is not None:
        within = preset.validation.max_episodes_to_achieve_reward
        limit = f" within {within} episodes" if within else ""
        verdict = "reached" if result.accepted else "not reached"
        print(f"  the preset's threshold of {preset.validation.min_reward_threshold:g} was {verdict}{limit}")
    if f.evaluate:
        print_evaluation(api.evaluate(result.run_dir, f.evaluate), f.evaluate)
    return 0


def remarks(f: flags.FlagValues) -> Iterator[str]:
    """Yields what differs from the run of a config.json: its first weights, and its level's own numbers."""
    from tfsac.utils.files import read_object

    path = pathlib.Path(preset_name(f))
    content = read_object(path) if path.suffix == ".json" else {}
    if (source := content.get("initial_weights")) and not f.checkpoint_restore_dir:
        flag = shlex.quote(f"--checkpoint_restore_dir={source}")
        yield f"The run of {path} began with the weights of another one; {flag} begins with them, too."
    if content and f.level:
        levels, own = content["preset"].get("levels", {}), content["preset"]["environment"]["level"]
        dropped = levels.get(own, {}).keys() - levels.get(f.level, {}).keys() - assignments(f).keys()
        if kept_names := sorted(name for name in dropped if not name.startswith("validation.")):
            yield f"Kept from {own} in {path}: {', '.join(kept_names)}. --set gives other values."


def requested_run(f: flags.FlagValues) -> tuple[Preset, RunParameters]:
    """Returns the preset and the run parameters that the flags of `train` ask for."""
    from tfsac.catalog import read_config
    from tfsac.cli.field_flags import present_fields
    from tfsac.parameters import RunParameters

    if f.resume:
        from tfsac.experiments.run_processes import FIXED_FLAGS

        if fixed := sorted(name for name in FIXED_FLAGS if f[name].present):
            raise TfsacError(f"A resumed run keeps its preset, level, seed and environments, got --{fixed[0]}")
        preset, run = read_config(pathlib.Path(required(f, "run_dir")) / "config.json")
        preset = _changed(preset, f)
    else:
        preset, run = preset_of(f)
    flags_given = present_fields(f, RunParameters)
    if flags_given.get("strategy", "mirrored") != "mirrored":  # the number of devices was of the strategy before
        flags_given = {"num_devices": None, **flags_given}
    if flags_given.get("ray_address") == "none":  # the actors were of the cluster before
        actors = {"num_actors": RunParameters.num_actors, "actor_steps": RunParameters.actor_steps}
        flags_given = {**actors, **flags_given, "ray_address": None}
    return preset, dataclasses.replace(run, **flags_given)


def preset_of(f: flags.FlagValues) -> tuple[Preset, RunParameters]:
    """Returns the preset that `preset_flags` ask for, and the run parameters of a config.json or the defaults."""
    from tfsac.catalog import load_preset, read_config
    from tfsac.parameters import RunParameters

    path = pathlib.Path(preset_name(f))
    run = read_config(path)[1] if path.suffix == ".json" else RunParameters()
    return _changed(load_preset(preset_name(f), f.level), f), run


def preset_name(f: flags.FlagValues) -> str:
    """Returns --preset; without it "pendulum_sac", or what suits the actions of --level."""
    if f.preset or not f.level:
        return f.preset or "pendulum_sac"
    return _preset_for(f.level, tuple(text for text in f.set if text.startswith("environment.")))


@functools.cache
def _preset_for(level: str, texts: tuple[str, ...]) -> str:
    """Makes a level's environment once, says which preset suits its actions, and returns its name."""
    from tfsac.catalog import load_preset
    from tfsac.environments import maker, spec_of
    from tfsac.parameters import Preset, for_level, override, parse_assignment
    from tfsac.types import DiscreteSpec

    environment = override(for_level(Preset(), level), dict(map(parse_assignment, texts))).environment
    (env := maker(environment)()).close()
    if isinstance(spec_of(env).action, DiscreteSpec):
        actions, name = "discrete", "cart_pole_discrete_sac"
    else:
        has_level = level in load_preset("mujoco_twin_sac").levels
        actions, name = "continuous", "mujoco_twin_sac" if has_level else "pendulum_twin_sac"
    print(f"tfsac: {level} has {actions} actions, so --preset={name}", file=sys.stderr, flush=True)
    return name


def assignments(f: flags.FlagValues) -> dict[str, Any]:
    """Returns what --set changes, by path; no parameter twice, for a grid would replace the user's own value."""
    from tfsac.parameters import parse_assignment
    from tfsac.parameters.overrides import covers

    changes: dict[str, Any] = {}
    for path, value in map(parse_assignment, f.set):
        if again := [earlier for earlier in changes if covers(path, earlier)]:
            raise TfsacError(f"{again[0]} is set twice, by --set={again[0]} and then by --set={path}")
        changes[path] = value
    return changes


def _changed(preset: Preset, f: flags.FlagValues) -> Preset:
    """Returns a preset with what --num_envs and --set change, together, for what fits only together."""
    from tfsac.parameters import override

    return override(preset, {**({"environment.num_envs": f.num_envs} if f.num_envs else {}), **assignments(f)})


def default_run_dir(f: flags.FlagValues, level: str, seed: int | None) -> pathlib.Path:
    """Returns the folder of a run, or of several seeds, for which no --run_dir was given."""
    from tfsac.utils.files import new_run_dir

    stem = pathlib.Path(preset_name(f)).stem
    return new_run_dir(f.experiment_name or f"{stem}-{level.replace('/', '-').replace(':', '-')}", seed)


def check_level(preset: Preset) -> None:
    """Makes a preset's environment once, before TensorFlow loads, and checks that the agent can choose its actions."""
    from tfsac import environments
    from tfsac.types import check_actions

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old version that is used warns when the run makes it
        env = environments.maker(preset.environment)()
    env.close()
    check_actions(preset.agent.kind, preset.agent.discrete_actions, environments.spec_of(env).action)


# -- sweep -------------------------------------------------------------------------------------------------------------


def _sweep_flags(f: flags.FlagValues) -> None:
    run_flags(f)
    set_flag(f)
    run_fields(f, only=("seed",))
    texts(f, "grid", "path=value,value,...: values of a parameter or a flag to combine; may be repeated")
    whole(f, "num_seeds", 1, "seeds of every combination, from --seed on")
    text(
        f,
        "run_dir",
        "the sweep's folder, a new one or that of a sweep to resume (default: runs/<experiment_name>/<time>)",
    )
    text(f, "experiment_name", "folder under runs/ (default: preset and level)")
    job_flags(f)


def job_flags(f: flags.FlagValues) -> None:
    """Defines how many runs are trained at a time, and where."""
    whole(f, "jobs", None, "runs at the same time, at most and by default as many as usable cores")
    text(
        f,
        "ray_address",
        "train on a Ray cluster: its HOST:PORT, auto for the one of this machine, local to start one here",
    )
    whole(f, "cpus_per_run", 1, "with --ray_address, cores of each run")


def jobs_of(f: flags.FlagValues) -> int:
    """Returns how many runs `job_flags` allow at a time on this machine."""
    from tfsac.utils.machine import usable_cores

    return f.jobs or usable_cores()


@contextlib.contextmanager
def on_cluster(ray_address: str, cores: int) -> Iterator[dict[str, Any]]:
    """Gives what `train_side_by_side` needs to train on a Ray cluster, with so many cores for each run."""
    from tfsac.distributed.ray_cluster import connect
    from tfsac.distributed.ray_jobs import RayJob, job_capacity

    with connect(ray_address) as ray:

        def launch(run: PlannedRun, cores: int) -> RayJob:
            return RayJob(ray, f"train {run.path}", run.starter(cores), cores)

        yield {"jobs": job_capacity(ray, cores), "cores": cores, "launch": launch}


@command("train every combination of a grid, with several seeds", _sweep_flags)
def sweep(f: flags.FlagValues, rest: list[str]) -> int:
    """Trains the combinations, or resumes them, and compares them."""
    return _train_all(f, f.grid, jobs_of(f), f.ray_address)


def _train_all(f: flags.FlagValues, grid: Sequence[str], jobs: int, ray_address: str | None = None) -> int:
    from tfsac.experiments.grid import plan
    from tfsac.experiments.sweep import Sweep

    run_flags(varied := flags.FlagValues())
    shared = present_flags(f, SWEEP_FLAGS)
    seeds = range(f.seed, f.seed + f.num_seeds)
    combinations = plan(grid, list(varied), lambda more: experiment_of([*shared, *more, f"--seed={seeds[-1]}"]))
    level = check_startable([combination.experiment for combination in combinations])
    folder = pathlib.Path(f.run_dir) if f.run_dir else default_run_dir(f, level, None)
    with contextlib.ExitStack() as connected:
        how: dict[str, Any] = {"jobs": jobs}
        if ray_address is not None:
            how = connected.enter_context(on_cluster(ray_address, f.cpus_per_run))
        series = Sweep(folder, combinations, seeds, shared)
        stopped_by = series.train(**how)
    if stopped_by is not None:
        folder_flag = shlex.quote(f"--run_dir={folder}")
        instead = " instead of --experiment_name" if f.experiment_name else ""
        print(f"stopped by {signal.Signals(stopped_by).name}; the same command with {folder_flag}{instead} resumes it")
        return SIGNALLED + stopped_by
    return 0 if series.report() and not series.failed else 1


def present_flags(f: flags.FlagValues, without: Collection[str]) -> list[str]:
    """Returns the flags that were given, some left out, as one types them."""
    typed: list[str] = []
    for flag in (f[name] for name in f if f[name].present and name not in without):
        repeated = isinstance(flag, flags.MultiFlag)
        typed += [f"--{flag.name}={value}" for value in flag.value or ()] if repeated else [flag.serialize()]
    return list(filter(None, typed))


def check_startable(experiments: Sequence[dict[str, Any]]) -> str:
    """Checks what every run of a series of `experiment_of` would refuse, and returns the first level."""
    from tfsac.parameters import Preset, from_json

    checked: list[Any] = []
    for experiment in experiments:
        preset = from_json(Preset, json.dumps(experiment["preset"]))
        if experiment["run"]["strategy"] == "multi_worker":
            raise TfsacError("--strategy=multi_worker trains one run, on several workers; a sweep has many runs")
        if (pair := (preset.environment, preset.agent.kind)) not in checked:
            checked.append(pair)
            check_level(preset)
    return str(checked[0][0].level)


def experiment_of(arguments: list[str]) -> dict[str, Any]:
    """Returns what `train` does with these arguments, as JSON values; the seed is left out."""
    from tfsac.parameters import to_json

    f, _ = parse("train", arguments)
    preset, run = requested_run(f)
    other_flags = {name: f[name].value for name in ("checkpoint_restore_dir", "restore_memory", "use_cpu")}
    return {"preset": to_json(preset), "run": {**to_json(run), "seed": None}, **other_flags}
