"""What callers may give a trainer, checked before anything is built."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

from tfsac import arguments
from tfsac.agents import ModelMaker
from tfsac.catalog import load_preset
from tfsac.environments import check_env_fn
from tfsac.parameters import ParameterError, Preset, RunParameters
from tfsac.training.callbacks import Callback

MODELS = "a function without arguments that returns a dict of new Keras models by network, such as {'policy': ..., 'q': ...}"


def preset_of(preset: Any) -> Preset:
    """Returns a preset that was given as one, by its name or by its path.

    Raises:
        ParameterError: something else, or no such preset.
    """
    if isinstance(preset, str | pathlib.Path):
        return load_preset(preset)
    if not isinstance(preset, Preset):
        raise ParameterError(
            "preset is a Preset (see tfsac.load_preset), the name of one such as 'pendulum_sac', or the path of a .py file or of a run's "
            f"config.json. Received: {preset!r}"
        )
    return preset


def check_functions(env_fn: Any, models: Any) -> None:
    """Refuses functions that cannot be called.

    Raises:
        TypeError: no function.
    """
    if env_fn is not None:
        check_env_fn(env_fn)
    if models is not None:
        arguments.function("models", models, MODELS)


def check_trainer(
    run_dir: Any,
    run: Any,
    resume: Any,
    callbacks: Any,
    quiet: Any,
    initial_weights: Any,
    env_fn: Callable[..., Any] | None,
    models: ModelMaker | None,
) -> list[Callback]:
    """Refuses what a trainer cannot use; see `Trainer` for each argument.

    Returns:
        the callbacks.

    Raises:
        TypeError: something of another type; ParameterError: initial weights of a run that is resumed.
    """
    arguments.path("run_dir", run_dir)
    if run is not None:
        arguments.instance("run", run, RunParameters, "RunParameters, such as tfsac.RunParameters(seed=1)")
    arguments.flag("resume", resume)
    arguments.flag("quiet", quiet)
    if initial_weights is not None:
        arguments.path("initial_weights", initial_weights, "the run directory whose best weights to begin with")
        if resume:
            raise ParameterError(
                "A resumed run has its weights from its checkpoint: leave initial_weights (--checkpoint_restore_dir) out. "
                f"Received: {str(initial_weights)!r} with resume"
            )
    check_functions(env_fn, models)
    return arguments.instances("callbacks", callbacks, Callback, "a list of Callback objects", lambda cls: f"{cls.__name__}(...)")
