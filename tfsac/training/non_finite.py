"""Stopping at the first number that is not finite, with what is needed to find out why."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfsac.errors import TfsacError
from tfsac.types import Batches, BatchesOnDevice, UpdateResult
from tfsac.utils.files import atomic_write, leaves

ALL_METRICS = "With updates_between_diagnostics=1 a resumed run checks all metrics of every update"


class NonFiniteError(TfsacError):
    """A loss, value, gradient, weight or action became NaN or infinite; the batch was saved, where one is to blame."""


def refuse_non_finite(
    names: list[str],
    result: UpdateResult,
    batch: Batches,
    before: int,
    env_steps: int,
    folder: pathlib.Path,
) -> None:
    """Checks the metrics of U updates, whose `names` are in the order of the update, so that the first bad one is where
    it went wrong; saves the batch of that update in the run's folder.
    """
    finite = np.isfinite(result.metrics) | ~result.reported
    if finite.all():
        return
    update, column = (int(i) for i in np.argwhere(~finite)[0])
    number, saved = before + update + 1, "was drawn on the accelerator and is not saved"
    if not isinstance(batch, BatchesOnDevice):
        path = folder / f"non_finite_update_{number}.npz"
        arrays = {name.replace(".", "/"): value for name, value in leaves(batch._asdict()) if len(value)}
        with atomic_write(path) as file:
            np.savez(file, **{name: value[update] for name, value in arrays.items()})
        saved = f"is in {path}"
    raise NonFiniteError(
        f"{names[column]} is {result.metrics[update, column]} at update {number} (environment step {env_steps}); the "
        f"batch of this update {saved}, the last checkpoint is from before"
    )


def all_finite(action: np.ndarray) -> bool:
    """Returns whether no action is NaN, infinite, or the -1 of discrete ones that came of such numbers."""
    return bool((np.isfinite(action) if action.dtype.kind == "f" else action >= 0).all())


def refuse_non_finite_action(action: np.ndarray, source: str) -> None:
    """Checks what the policy returns, before an environment is blamed for what it makes of it; see `all_finite`."""
    if not all_finite(action):
        raise NonFiniteError(
            f"the policy's action is {action.tolist()} {source}: an update made its weights so. The last checkpoint is "
            f"from before. {ALL_METRICS}"
        )


def refuse_non_finite_weights(trained: Mapping[str, list[Any]], env_steps: int) -> None:
    """Checks the weights, variables by name of the network, before they are saved."""
    for name, variables in trained.items():
        for variable in variables:
            value = variable.numpy()
            if not np.isfinite(value).all():
                raise NonFiniteError(
                    f"the weights of {name!r} are not finite at environment step {env_steps} and were not saved. The "
                    f"last checkpoint is from before. {ALL_METRICS}"
                )
