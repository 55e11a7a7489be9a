"""Commands that train one run: train, spinup."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import sys
from typing import TYPE_CHECKING, Any

from absl import flags

from tfsac.cli.command_registry import boolean, command, fields, integer, required, string, strings
from tfsac.errors import TfsacError
from tfsac.utils.machine import SIGNALLED
from tfsac.utils.text import short

if TYPE_CHECKING:
    from tfsac.parameters import Preset, RunParameters

RUN_PARAMETERS = "tfsac.parameters:RunParameters"
SPINNING_UP = "tfsac.spinning_up.sac_arguments:SpinningUpArguments"
# Run parameters that a grid does not vary.
SINGLE_RUN = ("seed", "ray_address", "num_actors", "actor_steps")

LEVEL = (
    string("preset", "name, .py file, or config.json of a run (default: pendulum_sac, or one for --level's actions)"),
    string("level", "environment id, instead of the preset's"),
    integer("num_envs", None, "number of parallel environments"),
)
SET = strings("set", "path=value: changes one parameter, e.g. agent.algorithm.discount=0.98")
PRESET = (*LEVEL, SET)  # flags that select and change a preset
VARIED = (  # flags that a grid may vary in addition to parameters
    *LEVEL,
    string("checkpoint_restore_dir", "start with the best weights of the run in this folder"),
    boolean("restore_memory", "also start with that run's replay memory"),
    boolean("use_cpu", "hide the GPUs"),
    fields(RUN_PARAMETERS, without=(*SINGLE_RUN, "skip_damaged_rows")),
)
EXPERIMENT_NAME = string("experiment_name", "folder under runs/ (default: preset and level)")
NUM_SEEDS = integer("num_seeds", 1, "train this many seeds, starting at --seed; `train` runs them one after the other")


@command(
    "train a preset",
    *VARIED,
    SET,
    fields(RUN_PARAMETERS, only=SINGLE_RUN),
    string("run_dir", "the run's folder (default: runs/<experiment_name>/<time>-seed<seed>)"),
    EXPERIMENT_NAME,
    NUM_SEEDS,
    boolean("resume", "continue the run in --run_dir"),
    strings("logger", "also send metrics to wandb, mlflow or module:Class"),
    boolean("print_networks_summary", "print the layers of every network"),
    boolean("list", "list the presets instead of training"),
    integer("evaluate", None, "afterwards evaluate the best policy over this many episodes"),
)
def train(f: flags.FlagValues, rest: list[str]) -> int:
    """Trains one or several seeds."""
    from tfsac.cli.evaluate_and_export import print_evaluation
    from tfsac.cli.show import presets
    from tfsac.cli.sweep_and_tune import train_grid
    from tfsac.distributed.partition import worker_task

    if f.list:
        return presets(f, rest)
    if f.num_seeds > 1:
        if f.resume or f.ray_address:
            advice = "the same command resumes it, and `tfsac sweep` trains on a cluster"
            raise TfsacError(f"--num_seeds above 1 supports neither --resume nor --ray_address: {advice}")
        return train_grid(f, [], 1)
    preset, run = requested_run(f)
    task = worker_task(run)
    if task.num_workers > 1 and not f.run_dir:
        raise TfsacError("--run_dir is required with several workers: a folder that all of them share")
    run_dir = run_dir_of(f, preset.environment.level, run.seed)
    if task.is_chief:
        description = "resuming" if f.resume else f"{preset_name(f)},"
        print(f"tfsac train: {description} {preset.environment.level}, seed {run.seed}", flush=True)
    from tfsac.training.devices import configure

    configure(f.use_cpu)
    from tfsac import api
    from tfsac.training import Trainer

    source = {"initial_weights": f.checkpoint_restore_dir, "restore_memory": f.restore_memory}
    trainer = Trainer(preset, run_dir, run, f.resume, loggers=f.logger, **source)
    if f.print_networks_summary:
        for network in trainer.agent.networks.values():
            network.model.summary(line_length=100)
    result = api.finish(trainer)
    if result.signal is not None:
        return SIGNALLED + result.signal
    if not task.is_chief:
        return 0
    best = "" if result.best_return is None else f", best evaluation {short(result.best_return)}"
    best += f" at step {result.best_step}" if best and result.best_step is not None else ""
    print(f"{result.reason} at step {result.counters.env_steps}{best}")
    for name, path in (("curve ", run_dir / "learning_curve.png"), ("policy", run_dir / "policy")):
        if path.exists():
            print(f"  {name}  {path}")
    if result.accepted is not None:
        within = preset.validation.max_episodes_to_achieve_reward
        limit = f" within {within} episodes" if within else ""
        verdict = "reached" if result.accepted else "not reached"
        print(f"  the preset's threshold of {preset.validation.min_reward_threshold:g} was {verdict}{limit}")
    if f.evaluate:
        print_evaluation(api.evaluate(result.run_dir, f.evaluate))
    return 0


def requested_run(f: flags.FlagValues) -> tuple[Preset, RunParameters]:
    """Returns the preset and the run parameters for the flags of `train`."""
    from tfsac.parameters import RunParameters
    from tfsac.preset_lookup import read_config

    if f.resume:
        from tfsac.experiments.run_processes import FIXED_FLAGS

        if rejected := sorted(name for name in FIXED_FLAGS if f[name].present):
            raise TfsacError(f"A resumed run keeps its preset, level, seed and environments, got --{rejected[0]}")
        preset, run = read_config(pathlib.Path(required(f, "run_dir")) / "config.json")
        preset = _changed(preset, f)
    else:
        preset, run = requested_preset(f)
        _say_weights_left_out(f)
    names = [field.name for field in dataclasses.fields(RunParameters) if field.name in f]
    changes: dict[str, Any] = {name: f[name].value for name in names if f[name].present}
    if changes.get("strategy", "mirrored") != "mirrored":  # drop the previous strategy's number of devices
        changes = {"num_devices": None, **changes}
    if changes.get("ray_address") == "none":  # drop the previous cluster's actors
        actors = {"num_actors": RunParameters.num_actors, "actor_steps": RunParameters.actor_steps}
        changes = {**actors, **changes, "ray_address": None}
    return preset, dataclasses.replace(run, **changes)


def _say_weights_left_out(f: flags.FlagValues) -> None:
    """Prints which initial weights and memory of a run --preset=RUN/config.json does not reuse."""
    from tfsac.utils.files import read_object

    path = pathlib.Path(preset_name(f))
    config = read_object(path) if path.suffix == ".json" else {}
    if (source := config.get("initial_weights")) and not f.checkpoint_restore_dir:
        words = "weights and memory (--restore_memory)" if config.get("restore_memory") else "weights"
        print(f"tfsac: {path} began with the {words} of --checkpoint_restore_dir={source}", file=sys.stderr, flush=True)


def requested_preset(f: flags.FlagValues) -> tuple[Preset, RunParameters]:
    """Returns the preset of the flags in `PRESET`, and the run parameters of a config.json or the defaults."""
    from tfsac.parameters import RunParameters
    from tfsac.preset_lookup import load_preset, read_config

    path = pathlib.Path(preset_name(f))
    run = read_config(path)[1] if path.suffix == ".json" else RunParameters()
    return _changed(load_preset(preset_name(f), f.level), f), run


def preset_name(f: flags.FlagValues) -> str:
    """Returns --preset, or by default the preset that suits the actions of --level, or "pendulum_sac"."""
    if f.preset or not f.level:
        return f.preset or "pendulum_sac"
    return _preset_for(f.level, tuple(text for text in f.set if text.startswith("environment.")))


@functools.cache
def _preset_for(level: str, texts: tuple[str, ...]) -> str:
    """Creates a level's environment once, and prints and returns the name of the preset that suits its actions."""
    from tfsac.environments import maker, spec_of
    from tfsac.parameters import Preset, for_level, override, parse_assignment
    from tfsac.types import DiscreteSpec, HybridSpec

    environment = override(for_level(Preset(), level), dict(map(parse_assignment, texts))).environment
    (env := maker(environment)()).close()
    spec = spec_of(env)
    if isinstance(spec.action, HybridSpec):
        actions, name = "several", "hybrid_sac"
    elif isinstance(spec.action, DiscreteSpec):
        sees_images = any(len(array.shape) == 3 for array in spec.observation.values())
        actions, name = "discrete", "images" if sees_images else "discrete"
    else:
        actions, name = "continuous", "continuous"
    print(f"tfsac: {level} has {actions} actions, so --preset={name}", file=sys.stderr, flush=True)
    return name


def assignments(f: flags.FlagValues) -> dict[str, Any]:
    """Returns the changes of --set by path. Rejects duplicates, so that a grid cannot replace the user's own value."""
    from tfsac.parameters import parse_assignment
    from tfsac.parameters.overrides import covers

    changes: dict[str, Any] = {}
    for path, value in map(parse_assignment, f.set):
        if again := [earlier for earlier in changes if covers(path, earlier)]:
            raise TfsacError(f"{again[0]} is set twice, by --set={again[0]} and then by --set={path}")
        changes[path] = value
    return changes


def _changed(preset: Preset, f: flags.FlagValues) -> Preset:
    """Returns a preset with the changes of --num_envs and --set, applied together because they may be dependent."""
    from tfsac.parameters import override

    return override(preset, {**({"environment.num_envs": f.num_envs} if f.num_envs else {}), **assignments(f)})


def run_dir_of(f: flags.FlagValues, level: str, seed: int | None) -> pathlib.Path:
    """Returns --run_dir, or by default a new folder for a run or for several seeds."""
    from tfsac.utils.files import new_run_dir

    name = f.experiment_name or f"{pathlib.Path(preset_name(f)).stem}-{level.replace('/', '-').replace(':', '-')}"
    return pathlib.Path(f.run_dir) if f.run_dir else new_run_dir(name, seed)


@command(
    "train with Spinning Up's flags, table and files",
    string("env", "environment id", "HalfCheetah-v5"),
    integer("hid", 256, "width of the hidden layers"),
    integer("l", 2, "number of hidden layers", minimum=0),
    fields(SPINNING_UP),
    string("exp_name", "name of the experiment, for plots", "sac"),
    string("run_dir", "the run's folder (default: runs/<exp_name>/<time>-seed<seed>)"),
    boolean("resume", "continue the run in --run_dir; give the same flags again"),
)
def spinup(f: flags.FlagValues, rest: list[str]) -> int:
    """Trains soft actor-critic like Spinning Up."""
    from tfsac.spinning_up.sac_arguments import SpinningUpArguments
    from tfsac.utils.files import new_run_dir

    arguments: dict[str, Any] = {field.name: f[field.name].value for field in dataclasses.fields(SpinningUpArguments)}
    SpinningUpArguments(**arguments)  # reject invalid values before TensorFlow loads
    folder = required(f, "run_dir") if f.resume else f.run_dir
    run_dir = pathlib.Path(folder) if folder else new_run_dir(f.exp_name, f.seed)
    print(f"tfsac spinup: {'resuming' if f.resume else f.env}, seed {f.seed}, in {run_dir}", flush=True)
    from tfsac.training.devices import configure

    configure()
    from tfsac.environments import make
    from tfsac.spinning_up.functions import sac

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
