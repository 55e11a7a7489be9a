"""What a trainer was asked to run: its arguments, checked before anything is built."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym

from tfsac import argument_checks
from tfsac.catalog import load_preset
from tfsac.distributed.partition import preset_of_worker, refuse_timeout_in_this_process
from tfsac.distributed.tf_config import WorkerTask, worker_task
from tfsac.files import read_object
from tfsac.machine import option
from tfsac.networks import ModelMaker
from tfsac.parameters import EnvironmentEpisodes, ParameterError, Preset, RunParameters, override, to_json
from tfsac.training.build import with_absolute_paths
from tfsac.training.callbacks import Callback
from tfsac.training.recorded_functions import refuse_others
from tfsac.training.run_directory import RunDirectory

A_FUNCTION_OF_MODELS = (
    "a function without arguments that returns a dict of new Keras models by network, such as {'policy': ..., 'q': ...}"
)


def preset_of(preset: Any) -> Preset:
    """Returns a preset that was given as one, by its name or by its path.

    Raises:
        ParameterError: something else, or no such preset.
    """
    if isinstance(preset, str | pathlib.Path):
        return load_preset(preset)
    if not isinstance(preset, Preset):
        raise ParameterError(
            "preset is a Preset (see tfsac.load_preset), the name of one such as 'pendulum_sac', or the path of a .py "
            f"file or of a run's config.json. Received: {argument_checks.shown(preset)}"
        )
    return preset


def check_functions(env_fn: Any, models: Any) -> None:
    """Refuses functions that cannot be called.

    Raises:
        TypeError: no function.
    """
    if models is not None:
        argument_checks.function("models", models, A_FUNCTION_OF_MODELS)


class RunRequest(NamedTuple):
    """What a trainer was asked for; see `Trainer` for each field.

    Attributes:
        directory: of the run.
        run: as given, or that of the run which is resumed.
        task: of this process among the workers.
    """

    preset: Preset
    directory: RunDirectory
    run: RunParameters
    resume: bool
    callbacks: list[Callback]
    quiet: bool
    initial_weights: RunDirectory | None
    env_fn: Callable[[], gym.Env] | None
    models: ModelMaker | None
    task: WorkerTask
    restore_memory: bool = False

    def shared_config(self) -> dict[str, Any]:
        """Returns what is the same for all workers of a run, as JSON values."""
        given = {name: getattr(self, name) is not None for name in ("env_fn", "models", "initial_weights")}
        flags = {"resume": self.resume, "restore_memory": self.restore_memory}
        return {"preset": to_json(self.preset), "run": to_json(self.run), **flags, **given}


def requested(
    preset: Any,
    run_dir: Any,
    run: Any,
    resume: Any,
    callbacks: Any,
    quiet: Any,
    initial_weights: Any,
    env_fn: Callable[..., Any] | None,
    models: ModelMaker | None,
    restore_memory: Any = False,
) -> RunRequest:
    """Refuses what a trainer cannot use, before anything is built; see `Trainer` for each argument.

    Returns:
        the same, completed.

    Raises:
        TypeError: something of another type.
        ValueError: things that do not go together, or not with the run that is resumed.
        FileExistsError: there is something in the folder of a new run.
    """
    preset = with_absolute_paths(preset_of(preset))
    directory = RunDirectory.fixed(argument_checks.path("run_dir", run_dir))
    if run is not None:
        argument_checks.instance("run", run, RunParameters, "RunParameters, such as tfsac.RunParameters(seed=1)")
    argument_checks.flag("resume", resume)
    argument_checks.flag("quiet", quiet)
    if initial_weights is not None:
        argument_checks.path("initial_weights", initial_weights, "the run directory whose best weights to begin with")
        if resume:
            raise ParameterError(
                "A resumed run has its weights from its checkpoint: leave "
                f"{option('--checkpoint_restore_dir', 'initial_weights')} out. "
                f"Received: {str(initial_weights)!r} with resume"
            )
    argument_checks.flag("restore_memory", restore_memory)
    if restore_memory and initial_weights is None:
        message = "restore_memory needs initial_weights (--checkpoint_restore_dir), the run whose memory it is"
        raise ParameterError(f"{message}. Received: restore_memory without")
    known = resume and directory.config.is_file()
    if restore_memory or (known and read_object(directory.config).get("restore_memory")):
        no_warm_up = EnvironmentEpisodes(0)  # the memory is there
        preset = override(preset, {"schedule.heatup_steps": no_warm_up, "schedule.random_action_steps": None})
    check_functions(env_fn, models)
    callbacks = argument_checks.instances(
        "callbacks", callbacks, Callback, "a list of Callback objects", lambda cls: f"{cls.__name__}(...)"
    )
    settings = run or (directory.read()[1] if known else RunParameters())
    task = worker_task(settings)
    preset_of_worker(preset, task)
    refuse_timeout_in_this_process(preset, settings)
    if settings.stop_at_threshold and preset.validation.min_reward_threshold is None:
        raise ParameterError(
            f"stop_at_threshold needs validation.min_reward_threshold. Received: None for {preset.environment.level}"
        )
    if settings.skip_damaged_rows and not resume:
        raise ParameterError(
            "skip_damaged_rows is for runs that are resumed. Received: skip_damaged_rows=True without resume"
        )
    if not resume:
        directory.refuse_existing()
    if known:
        refuse_others(directory, env_fn, models)
    source = None if initial_weights is None else RunDirectory.fixed(pathlib.Path(initial_weights))
    given = callbacks, quiet, source, env_fn, models, task, restore_memory
    return RunRequest(preset, directory, settings, resume, *given)
