"""What is checked before TensorFlow loads, so that a mistake is told at once and nothing has been written."""

from __future__ import annotations

import contextlib
import os
import pathlib
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from absl import flags

from tfsac.cli.command import UsageError

if TYPE_CHECKING:
    from tfsac.parameters import Preset


def alone(f: flags.FlagValues, name: str, why: str) -> None:
    """Refuses other flags beside one that makes them useless."""
    for other in f:
        if other != name and f[other].present:
            raise UsageError(f"--{name} stands alone: {why}. Received: --{name} with --{other}")


def under_runs(f: flags.FlagValues, name: str) -> None:
    """Refuses the name of a folder under runs/ that leads out of it."""
    parts = pathlib.PurePath(f[name].value or "").parts
    if parts and (parts[0] == "/" or ".." in parts):
        raise UsageError(f"--{name} is a folder under runs/; --run_dir names any other. Received: {f[name].value!r}")


def one_name(f: flags.FlagValues) -> None:
    """Refuses an experiment's name that leads out of runs/, or stands beside the run's whole folder and has no
    effect.
    """
    under_runs(f, "experiment_name")
    if f.run_dir and f.experiment_name:
        raise UsageError(
            "--experiment_name is a folder under runs/, and --run_dir the whole folder; give one. Received: both"
        )


def assignments(f: flags.FlagValues, others: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns what --set changes, by path.

    Args:
        f: flags with --set.
        others: changes by flags of their own, to which --set gives no other value.

    Raises:
        UsageError, ParameterError: a parameter that is set twice, also as a part of what a later path sets, or one that
            is a flag; no path=value.
    """
    from tfsac.parameters import parse_assignment
    from tfsac.parameters.overrides import covers

    changes = dict(others or {})
    for path, value in (parse_assignment(text) for text in f.set):
        if path in f:
            raise UsageError(f"{path} is a flag and no parameter: --{path}={value}. Received: --set={path}={value}")
        for earlier in changes:
            if covers(path, earlier) and not (earlier in (others or {}) and changes[earlier] == value):
                before = changes[earlier] if path == earlier else f"{earlier}={changes[earlier]}, which it sets too"
                raise UsageError(f"A parameter is set once. Received: --set={path}={value} after {before}")
        changes[path] = value
    return changes


def check_level(preset: Preset) -> None:
    """Makes a preset's environment once, checks it and closes it.

    Raises:
        ValueError, ImportError: as `tfsac.environments.make`; actions that the agent cannot choose.
    """
    from tfsac import environments
    from tfsac.types import check_actions

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old version that is used warns when the run makes it
        env = environments.maker(preset.environment)()
    env.close()
    check_actions(preset.agent.kind, preset.agent.discrete_actions, environments.spec_of(env).action)


def check_run(run_dir: pathlib.Path, last: bool = False) -> None:
    """Refuses a folder that is no run with weights to load: those of the best evaluation, or the last ones.

    Raises:
        FileNotFoundError, ParameterError: as `tfsac.catalog.read_config`; there are no weights.
    """
    from tfsac.catalog import read_config

    read_config(run_dir / "config.json")
    if not last:  # else a checkpoint has them, before the first evaluation too
        check_weights(run_dir)


def check_weights(run_dir: pathlib.Path) -> None:
    """Refuses a folder without saved weights."""
    from tfsac.files import no_weights

    if not (run_dir / "best.npz").is_file():
        raise no_weights(run_dir / "best.npz")


def check_resumable(run_dir: pathlib.Path) -> None:
    """Refuses a folder without a checkpoint, one that cannot be written, or one that another process trains in."""
    from tfsac.files import NO_CHECKPOINT

    checkpoints = run_dir / "checkpoints"
    if not any(place.name.isdigit() for place in checkpoints.glob("*")):
        raise FileNotFoundError(f"{NO_CHECKPOINT} Received: {checkpoints}")
    if not os.access(run_dir, os.W_OK | os.X_OK):
        raise PermissionError(f"The run directory cannot be written. Received: {run_dir}")
    _refuse_being_trained(run_dir)


def _refuse_being_trained(run_dir: pathlib.Path) -> None:
    """Refuses a run that another process trains at this moment."""
    from tfsac.files import LOCK, being_trained, lock_file

    with contextlib.suppress(FileNotFoundError), (run_dir / LOCK).open("rb") as lock:
        try:
            lock_file(lock)
        except BlockingIOError:
            raise being_trained(run_dir, lock.read(200).decode(errors="replace").strip()) from None
        except OSError:  # there are no locks, as the run says when it begins
            return
