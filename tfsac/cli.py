"""The command line: tfsac train | evaluate | export | plot | record | presets."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

from absl import flags

COMMANDS: dict[str, tuple[str, Callable[[flags.FlagValues], None], Callable[[flags.FlagValues, list[str]], int]]] = {}
INTERRUPTED = 128  # plus the signal's number: the exit status of a run that was stopped and can be resumed


class UsageError(ValueError):
    """A command line that cannot be carried out."""


def command(
    help: str, define: Callable[[flags.FlagValues], None]
) -> Callable[[Callable[[flags.FlagValues, list[str]], int]], Callable[[flags.FlagValues, list[str]], int]]:
    """Registers a function as the command of its name, with its flags."""

    def register(function: Callable[[flags.FlagValues, list[str]], int]) -> Callable[[flags.FlagValues, list[str]], int]:
        COMMANDS[function.__name__] = (help, define, function)
        return function

    return register


# -- train -------------------------------------------------------------------------------------------------------------


def _train_flags(f: flags.FlagValues) -> None:
    flags.DEFINE_string("preset", "pendulum_sac", "name of a preset, a .py file that defines one, or a run's config.json", flag_values=f)
    flags.DEFINE_string("level", None, "environment id, instead of the preset's", flag_values=f)
    flags.DEFINE_multi_string("set", [], "path=value: changes one parameter, e.g. agent.algorithm.discount=0.98; may be repeated", flag_values=f)
    flags.DEFINE_string("run_dir", None, "the run's folder (default: runs/<experiment_name>/<time>-seed<seed>)", flag_values=f)
    flags.DEFINE_string("experiment_name", None, "folder under runs/ (default: preset and level)", flag_values=f)
    flags.DEFINE_integer("seed", 0, "of weights, noise, sampling and environments", lower_bound=0, flag_values=f)
    flags.DEFINE_integer("num_seeds", 1, "train this many seeds one after the other, from --seed on", lower_bound=1, flag_values=f)
    flags.DEFINE_integer("num_envs", None, "environments side by side", lower_bound=1, flag_values=f)
    flags.DEFINE_bool("resume", False, "continue the run in --run_dir", flag_values=f)
    flags.DEFINE_string("checkpoint_restore_dir", None, "begin with the best weights of the run in this folder", flag_values=f)
    flags.DEFINE_integer("checkpoint_save_steps", 10_000, "environment steps between checkpoints", lower_bound=1, flag_values=f)
    flags.DEFINE_bool("stop_at_threshold", False, "end when an evaluation reaches the preset's threshold", flag_values=f)
    flags.DEFINE_bool("stochastic_evaluation", False, "evaluate with sampled actions too", flag_values=f)
    flags.DEFINE_bool("tensorboard", False, "write TensorBoard events", flag_values=f)
    flags.DEFINE_bool("histograms", False, "with --tensorboard, also the weights", flag_values=f)
    flags.DEFINE_bool("print_networks_summary", False, "print the layers of every network", flag_values=f)
    flags.DEFINE_enum("strategy", "none", ["none", "mirrored"], "mirrored: all GPUs of this machine", flag_values=f)
    flags.DEFINE_bool("use_cpu", False, "hide the GPUs", flag_values=f)
    flags.DEFINE_bool("deterministic", False, "TensorFlow's deterministic kernels", flag_values=f)
    flags.DEFINE_bool("eager", False, "run updates without compiling them, to debug", flag_values=f)
    flags.DEFINE_bool("list", False, "list the presets and do nothing else", flag_values=f)
    flags.DEFINE_integer("evaluate", None, "afterwards evaluate the best policy over this many episodes", lower_bound=1, flag_values=f)


@command("train a preset", _train_flags)
def train(f: flags.FlagValues, rest: list[str]) -> int:
    """Trains one or several seeds."""
    _no_more(rest)
    if f.list:
        return presets(f, [])
    if f.num_seeds > 1:
        return _train_seeds(f)
    from tfsac.catalog import load_preset, read_config
    from tfsac.parameters import RunParameters, for_level, override, parse_assignment

    if f.resume:
        if f.run_dir is None:
            raise UsageError("--resume needs --run_dir. Received: no --run_dir")
        preset, run = read_config(pathlib.Path(f.run_dir) / "config.json")
        fixed = {"level", "num_envs", "seed", "preset", "checkpoint_restore_dir"} & {name for name in f if f[name].present}
        if fixed:
            raise UsageError(f"A resumed run keeps its preset, level, seed and environments. Received: --{sorted(fixed)[0]}")
    else:
        repeats = f.preset.endswith(".json")
        preset, run = read_config(pathlib.Path(f.preset)) if repeats else (load_preset(f.preset), RunParameters())
        if f.level:
            preset = for_level(preset, f.level)
        if f.num_envs:
            preset = override(preset, {"environment.num_envs": f.num_envs})
    preset = override(preset, dict(parse_assignment(text) for text in f.set))
    given = {name: f[name].value for name in RunParameters.__dataclass_fields__ if name in f and f[name].present}
    run = RunParameters(**{**{name: getattr(run, name) for name in RunParameters.__dataclass_fields__}, **given})

    with _quiet_start():
        from tfsac.training.devices import configure

        configure(f.use_cpu, run.deterministic)
    from tfsac import api
    from tfsac.training import Trainer

    run_dir = pathlib.Path(f.run_dir) if f.run_dir else _default_run_dir(f, preset.environment.level, run.seed)
    trainer = Trainer(preset, run_dir, run, f.resume, initial_weights=f.checkpoint_restore_dir)
    if f.print_networks_summary:
        for network in trainer.agent.networks.values():
            network.model.summary(line_length=100)
    result = api.finish(trainer)
    if result.signal is not None:
        return INTERRUPTED + result.signal
    best = "" if result.best_return is None else f", best evaluation {result.best_return:.1f}"
    print(f"{result.reason} at step {result.counters.env_steps}{best}")
    print(f"  curve   {run_dir / 'learning_curve.png'}\n  policy  {run_dir / 'policy'}")
    if result.accepted is not None:
        within = preset.validation.max_episodes_to_achieve_reward
        limit = f" within {within} episodes" if within else ""
        verdict = "reached" if result.accepted else "not reached"
        print(f"  the preset's threshold of {preset.validation.min_reward_threshold:g} was {verdict}{limit}")
    if f.evaluate:
        _print_evaluation(api.evaluate(run_dir, f.evaluate), f.evaluate)
    return 0


def _default_run_dir(f: flags.FlagValues, level: str, seed: int | None) -> pathlib.Path:
    name = f.experiment_name or f"{pathlib.Path(f.preset).stem}-{level.replace('/', '-')}"
    time = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return pathlib.Path("runs") / name / (time if seed is None else f"{time}-seed{seed}")


def _train_seeds(f: flags.FlagValues) -> int:
    """Trains each seed in a process of its own and draws them together."""
    from tfsac.catalog import load_preset

    if f.resume:
        raise UsageError("Seeds are resumed one by one. Received: --num_seeds with --resume")
    level = f.level or load_preset(f.preset).environment.level
    folder = pathlib.Path(f.run_dir) if f.run_dir else _default_run_dir(f, level, None)
    own = ("num_seeds", "seed", "run_dir", "experiment_name")
    shared = [argument for name in f if f[name].present and name not in own for argument in f[name].serialize().split("\n") if argument]
    runs = []
    for seed in range(f.seed, f.seed + f.num_seeds):
        runs.append(folder / f"seed{seed}")
        arguments = ["train", *shared, f"--seed={seed}", f"--run_dir={runs[-1]}"]
        status = _run_process([sys.executable, "-m", "tfsac", *arguments])
        if status:
            return status
    from tfsac.analysis import plot_curves

    print(f"curves of {len(runs)} seeds: {plot_curves({level: list(runs)}, folder / 'learning_curve.png', level)}")
    return 0


def _run_process(arguments: list[str]) -> int:
    """Runs a program to its end and passes signals on to it, so that it can save."""
    process = subprocess.Popen(arguments, start_new_session=True)
    previous = {
        number: signal.signal(number, lambda number, frame: process.send_signal(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        return process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


# -- evaluate, export, record, plot, presets ---------------------------------------------------------------------------


def _run_flags(f: flags.FlagValues) -> None:
    flags.DEFINE_string("run_dir", None, "the run's folder", flag_values=f)


def _episode_flags(f: flags.FlagValues, episodes: int = 10) -> None:
    _run_flags(f)
    flags.DEFINE_integer("episodes", episodes, "number of episodes", lower_bound=1, flag_values=f)
    flags.DEFINE_bool("stochastic", False, "sample actions instead of taking the policy's mode", flag_values=f)
    flags.DEFINE_integer("seed", 0, "of the episodes", lower_bound=0, flag_values=f)


def _evaluate_flags(f: flags.FlagValues) -> None:
    _episode_flags(f)
    flags.DEFINE_bool("render", False, "open a window", flag_values=f)
    flags.DEFINE_string("dump_mp4", None, "write a film (.mp4 or .gif) to this file", flag_values=f)


@command("evaluate the best policy of a run", _evaluate_flags)
def evaluate(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints mean, std, min and max of the episodes' returns."""
    _no_more(rest)
    run_dir, film = _required(f, "run_dir"), f.dump_mp4
    with _quiet_start():
        from tfsac import api

    done = api.evaluate(run_dir, f.episodes, not f.stochastic, f.seed, "human" if f.render else "", film)
    _print_evaluation(done, f.episodes)
    if film:
        print(f"film    {film}")
    return 0


def _print_evaluation(done: object, episodes: int) -> None:
    returns, lengths = done.returns, done.lengths  # type: ignore[attr-defined]
    print(
        f"return  mean {returns.mean():.2f}  std {returns.std():.2f}  min {returns.min():.2f}  max {returns.max():.2f}  "
        f"over {episodes} episodes of {lengths.mean():.0f} steps on average"
    )


def _export_flags(f: flags.FlagValues) -> None:
    _run_flags(f)
    flags.DEFINE_string("out", None, "a new folder", flag_values=f)
    flags.DEFINE_enum("format", "saved_model", ["saved_model", "tflite"], "tflite: for LiteRT", flag_values=f)
    flags.DEFINE_bool("values", False, "also export the values of observations and actions", flag_values=f)
    flags.DEFINE_bool("verify", False, "compare exported and live actions over an episode", flag_values=f)


@command("export the best policy of a run", _export_flags)
def export(f: flags.FlagValues, rest: list[str]) -> int:
    """Writes a SavedModel or a LiteRT file."""
    _no_more(rest)
    run_dir, out = _required(f, "run_dir"), _required(f, "out")
    with _quiet_start():
        from tfsac import api, exporting

    policy = api.load_policy(run_dir)
    path = exporting.export(policy, out, f.format, f.values)
    print(f"exported to {path}")
    if not f.verify:
        return 0
    observations = api.observations_of(run_dir, policy)
    difference = exporting.verify(policy, path, observations)
    good = difference <= exporting.TOLERANCE
    print(
        f"largest difference of an action over {len(observations)} observations: {difference:.2e} "
        f"({'within' if good else 'MORE THAN'} {exporting.TOLERANCE:g})"
    )
    return 0 if good else 1


def _record_flags(f: flags.FlagValues) -> None:
    _episode_flags(f)
    flags.DEFINE_string("out", None, "a new .npz file", flag_values=f)


@command("record episodes of the best policy as demonstrations", _record_flags)
def record(f: flags.FlagValues, rest: list[str]) -> int:
    """Writes a demonstration file."""
    _no_more(rest)
    run_dir, out = _required(f, "run_dir"), _required(f, "out")
    with _quiet_start():
        from tfsac import api

    made = api.record(run_dir, out, f.episodes, not f.stochastic, f.seed)
    print(f"{len(made.records)} transitions of {len(made.returns)} episodes, mean return {made.returns.mean():.2f}, in {out}")
    return 0


def _plot_flags(f: flags.FlagValues) -> None:
    flags.DEFINE_multi_string("run_dir", [], "a run's folder; several are drawn together", flag_values=f)
    flags.DEFINE_string("out", None, "the picture (default: learning_curve.png in the run's folder)", flag_values=f)
    flags.DEFINE_string("title", "", "above the curves of several runs", flag_values=f)


@command("draw learning curves", _plot_flags)
def plot(f: flags.FlagValues, rest: list[str]) -> int:
    """Draws one run, or several together, grouped by preset level."""
    from tfsac.analysis import plot_curves, plot_run

    runs = [pathlib.Path(run) for run in [*f.run_dir, *rest]]
    if not runs:
        raise UsageError("Plotting needs a run. Received: no --run_dir")
    if len(runs) == 1:
        print(plot_run(runs[0], f.out))
        return 0
    from tfsac.catalog import read_config

    groups: dict[str, list[pathlib.Path]] = {}
    for run in runs:
        groups.setdefault(read_config(run / "config.json")[0].environment.level, []).append(run)
    print(plot_curves(groups, _required(f, "out"), f.title))
    return 0


@command("list the presets", lambda f: None)
def presets(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints name and description of every preset."""
    _no_more(rest)
    from tfsac.catalog import describe_preset, preset_names

    names = preset_names()
    for name in names:
        print(f"{name:<{max(map(len, names))}}  {describe_preset(name)}")
    return 0


# -- the program -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _quiet_start() -> Iterator[None]:
    """Hides what TensorFlow's libraries print while they load; TF_CPP_MIN_LOG_LEVEL=0 shows it."""
    import tfsac  # noqa: F401  (sets the default of the variable)

    if os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0":
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        import tensorflow as tf

        tf.config.list_physical_devices()
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _required(f: flags.FlagValues, name: str) -> str:
    if not f[name].value:
        raise UsageError(f"--{name} is required. Received: no --{name}")
    return str(f[name].value)


def _no_more(rest: list[str]) -> None:
    if rest:
        raise UsageError(f"Flags are written --name=value. Received: {rest[0]!r}")


def usage() -> str:
    """Returns the overview of all commands."""
    lines = ["tfsac: the soft actor-critic family in TensorFlow 2 and Keras 3", "", "Commands (tfsac COMMAND --help lists its flags):"]
    lines += [f"  {name:<9} {help}" for name, (help, _, _) in COMMANDS.items()]
    lines += ["", "Example:", "  tfsac train --preset=mujoco_sac --level=HalfCheetah-v5 --seed=1"]
    return "\n".join(lines)


def command_usage(name: str, f: flags.FlagValues) -> str:
    """Returns the flags of one command."""
    lines = [f"tfsac {name}: {COMMANDS[name][0]}", ""]
    for flag in f:
        default = f[flag].default_as_str
        shown = f"  (default: {default})" if default not in (None, "", "''", "'false'", "false") else ""
        lines.append(f"  --{flag:<24} {f[flag].help}{shown}")
    return "\n".join(lines)


def run(arguments: list[str]) -> int:
    """Carries out a command line (without the program's name) and returns the exit status."""
    if not arguments or arguments[0] in ("--help", "-h", "help", "--helpfull"):
        print(usage())
        return 0
    name, values = arguments[0], flags.FlagValues()
    if name not in COMMANDS:
        from tfsac.parameters.base import nearest

        raise UsageError(f"There is no such command.{nearest(name, COMMANDS)} Commands: {', '.join(COMMANDS)}. Received: {name!r}")
    _, define, function = COMMANDS[name]
    define(values)
    if any(argument in ("--help", "-h") for argument in arguments[1:]):
        values.mark_as_parsed()
        print(command_usage(name, values))
        return 0
    rest = values(arguments)[1:]
    return function(values, rest)


def main(arguments: list[str] | None = None) -> None:
    """The program; errors that a user can mend are printed without a traceback and end it with status 2."""
    try:
        status = run(sys.argv[1:] if arguments is None else arguments)
    except (flags.Error, ValueError, OSError, ImportError, RuntimeError) as error:
        # TensorFlow's own errors and bugs keep their traceback.
        if os.environ.get("TFSAC_TRACEBACK") or not _expected(error):
            raise
        print(f"tfsac: {error}", file=sys.stderr)
        status = 2
    sys.exit(status)


def _expected(error: Exception) -> bool:
    return isinstance(error, flags.Error) or "Received: " in str(error)


def run_preset(path: str) -> None:
    """What `python presets/NAME.py` does: trains that file, with the flags of `tfsac train`."""
    main(["train", f"--preset={path}", *sys.argv[1:]])
