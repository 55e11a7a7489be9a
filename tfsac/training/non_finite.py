"""Stop at the first number that is not finite, and save the data needed to find the cause."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfsac.errors import TfsacError
from tfsac.types import Batches, BatchesOnDevice, UpdateResult, arrays_of
from tfsac.utils.files import atomic_write, leaves

ADVICE = "The last checkpoint is from before. With updates_between_diagnostics=1 a resumed run checks all metrics"


class NonFiniteError(TfsacError):
    """A loss, value, gradient, weight or action became NaN or infinite; the batch is saved if it is the cause."""


def refuse_non_finite(
    names: list[str], result: UpdateResult, batch: Batches, before: int, env_steps: int, folder: pathlib.Path
) -> None:
    """Checks the metrics of U updates and saves the batch of the first bad update in the run's folder. The `names` are
    in the order of computation, so the first bad metric is the origin.
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
    metric = f"{names[column]} is {result.metrics[update, column]}"
    raise NonFiniteError(
        f"{metric} at update {number} (environment step {env_steps}); the batch of this update {saved}, the last "
        "checkpoint is from before"
    )


def refuse_non_finite_action(action: Any) -> None:
    """Checks a policy's action for NaN and infinity, and for -1, which they become in discrete actions."""
    for array in arrays_of(action):
        if (np.isfinite(array) if array.dtype.kind == "f" else array >= 0).all():
            continue
        raise NonFiniteError(
            f"the policy's action is {array.tolist()}: its weights, or the observation, are too large. {ADVICE}"
        )


def refuse_non_finite_weights(trained: Mapping[str, list[Any]]) -> None:
    """Checks the weights, variables by network name, before they are saved."""
    for name, variables in trained.items():
        if not all(np.isfinite(variable.numpy()).all() for variable in variables):
            raise NonFiniteError(f"the weights of {name!r} are not finite and were not saved. {ADVICE}")
